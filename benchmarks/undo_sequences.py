"""Random sequences of apply, undo, kill and foreign edit over every enforcement backend and pair.

Targets: 0 things left changed, 0 receipts left open, 0 silent losses. Run as root, with control groups:
python benchmarks/undo_sequences.py [sequences] [first seed]

Kills are exceptions before a write, not power failures: the journal lies in memory where the machine has /dev/shm.
"""

import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from slomo.enforce.backends.cgroup import CgroupBackend
from tests.enforce.sequences import KINDS, play

MEMORY = Path("/dev/shm")  # noqa: S108


def main(count: int, first: int) -> None:
    """Play so many sequences, in turn over all kinds, and print what they did and broke."""
    able = CgroupBackend().available()[0]
    kinds = [kind for kind in KINDS if able or "cgroup" not in kind]
    done: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    broken: dict[str, list[str]] = {kind: [] for kind in kinds}
    begun = time.monotonic()
    for number in range(count):
        kind = kinds[number % len(kinds)]
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
            os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
            outcome = play(kind, first + number, Path(folder))
        done[kind] += outcome.done + Counter(sequences=1)
        broken[kind] += [f"seed {first + number}: {what}" for what in outcome.broken]
        if outcome.broken:
            print(f"{kind}: {broken[kind][-1]}", file=sys.stderr, flush=True)
        if number % 100 == 99:
            print(f"{number + 1} sequences, {sum(map(len, broken.values()))} broken", file=sys.stderr, flush=True)
    words = ("sequences", "apply", "go on", "undo", "kill", "foreign edit", "refused")
    print(f"{'backend':20s}" + "".join(f"{word:>14s}" for word in (*words, "broken")))
    for kind in kinds:
        counts = [*(done[kind][word] for word in words), len(broken[kind])]
        print(f"{kind:20s}" + "".join(f"{number:14d}" for number in counts) + (" OFF" if broken[kind] else ""))
        print("".join(f"  {what}\n" for what in broken[kind][:5]), end="")
    print(f"{count} sequences in {time.monotonic() - begun:.0f} s; kinds left out: {sorted({*KINDS} - {*kinds})}")


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    main(*numbers, *(10_000, 0)[len(numbers) :])
