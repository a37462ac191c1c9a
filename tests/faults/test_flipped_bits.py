"""One flipped bit in what is stored: what is read is what was written, or somebody is told; never another number.

`make fuzz` flips 1,000 bits of each kind of file (``SLOMO_FLIPS``).
"""

import os
import random
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from slomo.errors import SlomoError
from slomo.host.journal import Journal, Layer
from slomo.models.library import load_library
from slomo.models.storage import _contents
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.campaign.store import stored_records
from slomo.records.dataset import ProfileDataset
from slomo.records.storage import load_dataset, save_dataset
from slomo.testing.builders import ToyTestbed, toy_plan
from slomo.training.training import train
from tests.conftest import profile_rows
from tests.faults.counts import note

FLIPS = int(os.environ.get("SLOMO_FLIPS", "0")) or 25


@dataclass(frozen=True)
class Stored:
    """A folder with what is stored, and what reads all of it from a copy."""

    folder: Path
    read: Callable[[Path], object]


def _journal(folder: Path) -> Stored:
    written = Journal(folder)
    for number in range(3):
        receipt = written.begin("cgroup", "/sys/fs/cgroup", {"tenants": ["lpm", "nat"], "number": number})
        with written.transaction():
            written.add(Layer(0, "/sys/fs/cgroup", f"cpu.weight:{number}", "weight", None, "100", None))
            written.add(Layer(0, "/sys/fs/cgroup", f"cpu.weight:{number}", "weight", receipt.number, "250", "100"))
        written.mark(receipt, "applied")
    connection = written._open()
    connection.execute("PRAGMA journal_mode = DELETE")  # all of it in one file
    connection.close()

    def read(copy: Path) -> object:
        journal = Journal(copy)
        try:
            found = journal.receipts()
            stacks = [journal.stack("/sys/fs/cgroup", f"cpu.weight:{number}") for number in range(3)]
            return [(receipt.identifier, receipt.head, receipt.layers()) for receipt in found], stacks
        finally:
            if journal._connection is not None:
                journal._connection.close()

    return Stored(folder, read)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stored]:
    """Return every kind of file in a folder of its own."""
    folder = tmp_path_factory.mktemp("stored")
    for name in ("csv", "parquet", "store"):
        (folder / name).mkdir()
    dataset = run_campaign(toy_plan(), ToyTestbed(), folder / "store" / "s.sqlite")
    for name in ("csv", "parquet"):
        save_dataset(dataset, folder / name / f"d.{name}")
    library = train(ProfileDataset(pd.DataFrame(profile_rows()), {"testbed": "toy"}), models=["dobrescu"])
    library.save(folder / "library")

    def models(copy: Path) -> object:
        loaded = load_library(copy)
        return [(key, _contents(loaded[key])) for key in loaded]

    return {
        "csv": Stored(folder / "csv", lambda copy: load_dataset(copy / "d.csv")),
        "parquet": Stored(folder / "parquet", lambda copy: load_dataset(copy / "d.parquet")),
        "store": Stored(
            folder / "store", lambda copy: [record.to_dict() for record in stored_records(copy / "s.sqlite")]
        ),
        "library": Stored(folder / "library", models),
        "journal": _journal(folder / "journal"),
    }


@pytest.mark.parametrize("kind", ["csv", "parquet", "store", "library", "journal"])
def test_no_flipped_bit_is_silent(kind: str, stored: dict[str, Stored], tmp_path: Path) -> None:
    """Whatever bit is flipped, the value is the one written, or a warning or an error tells of it."""
    source, dice, silent = stored[kind], random.Random(26), []
    right = source.read(Path(shutil.copytree(source.folder, tmp_path / "right")))
    names = [path.relative_to(source.folder) for path in sorted(source.folder.rglob("*")) if path.is_file()]
    for number in range(FLIPS):
        copy = Path(shutil.copytree(source.folder, tmp_path / "copy"))
        path = copy / dice.choice(names)
        content = bytearray(path.read_bytes())
        bit = dice.randrange(8 * len(content))
        content[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(content)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                if source.read(copy) != right and not told:
                    silent.append((number, path.name, bit))
            except SlomoError:
                pass
        shutil.rmtree(copy)
    note("flipped bits", kind, FLIPS, len(silent))
    assert not silent, f"{len(silent)} of {FLIPS}: {silent[:5]}"
