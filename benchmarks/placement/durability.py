"""Kills at every write, and races of two trainers into one folder: nothing may be lost.

Each kill ends a child process at a random step (write, flush, rename) of writing models, a snapshot and profiles; after
it, what is read must be the old content or the new. Each race lets two processes save different models into one folder.

    python benchmarks/placement/durability.py DIR --kills 200 --races 40 --json durability.json
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from slomo.files.durable import write_durably
from slomo.models.library import ModelLibrary

_KILLED = """
import os, sys
from slomo.models.library import ModelLibrary
from slomo.files.durable import write_durably
models, folder, content, step = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
done = 0
def counted(real):
    def call(*args, **kwargs):
        global done
        done += 1
        if done > step:
            os._exit(9)
        return real(*args, **kwargs)
    return call
library = ModelLibrary.load(models)
loaded = [library[key] for key in library]
for name in ("fsync", "replace", "chmod"):
    setattr(os, name, counted(getattr(os, name)))
ModelLibrary(loaded).save(folder + "/models")
write_durably(folder + "/snapshot.json", content)
"""
_RACE = """
import sys
from slomo.models.library import ModelLibrary
library = ModelLibrary.load(sys.argv[1])
keys = list(library)[int(sys.argv[3])::2]
ModelLibrary([library[key] for key in keys]).save(sys.argv[2])
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="what prepare.py wrote")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--races", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    models = str(given.directory / "models")
    keys = set(ModelLibrary.load(models))
    lost = kills(models, keys, given.kills, given.seed)
    raced = races(models, keys, given.races)
    print(f"{given.kills} kills: {lost} left neither old nor new; {given.races} races: {raced} lost a model")
    if given.json:
        given.json.write_text(json.dumps({"kills": given.kills, "lost": lost, "races": given.races, "raced": raced}))
    return 0 if lost == raced == 0 else 1


def kills(models: str, keys: set, count: int, seed: int) -> int:
    chance, lost = np.random.default_rng(seed), 0
    for _ in range(count):
        with tempfile.TemporaryDirectory() as folder:
            write_durably(Path(folder, "snapshot.json"), '{"old": true}')
            library = ModelLibrary.load(models)
            before = sorted(keys)[: len(keys) // 2]
            ModelLibrary([library[key] for key in before]).save(Path(folder, "models"))
            step = str(int(chance.integers(0, 12 * len(keys))))
            command = [sys.executable, "-c", _KILLED, models, folder, '{"new": true}', step]
            subprocess.run(command, check=False)
            document = json.loads(Path(folder, "snapshot.json").read_text())
            after = ModelLibrary.load(Path(folder, "models"))
            whole = set(after) in (set(before), keys) and all(after[key].solo_mpps > 0 for key in after)
            lost += not (whole and document in ({"old": True}, {"new": True}))
    return lost


def races(models: str, keys: set, count: int) -> int:
    lost = 0
    for _ in range(count):
        with tempfile.TemporaryDirectory() as folder:
            pair = [subprocess.Popen([sys.executable, "-c", _RACE, models, folder, half]) for half in ("0", "1")]
            for process in pair:
                process.wait()
            after = ModelLibrary.load(folder)
            lost += set(after) != keys or not all(after[key].solo_mpps > 0 for key in after)
    return lost


if __name__ == "__main__":
    sys.exit(main())
