"""Every writer of slomo as steps: what each acknowledges, and a reader that says how many steps a folder holds."""

import dataclasses
import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from slomo.files.durable import write_durably
from slomo.host.journal import Journal, Layer
from slomo.models.library import ModelLibrary, load_library
from slomo.models.storage import read_index
from slomo.profiling.campaign.store import CampaignStore
from slomo.records.dataset import ProfileDataset
from slomo.records.storage import load_dataset, save_dataset
from slomo.service.state import journal
from slomo.service.state.store import Store, copy_state
from slomo.testing.builders import ToyTestbed, toy_plan
from tests.conftest import profile_rows

STATE = "service's state"
NOTES = ("old", "new", "again")


@dataclass(frozen=True)
class Writer:
    """One writer.

    Attributes
    ----------
    name : str
        What it writes.
    prepare : callable
        Puts into a folder what is there before.
    write : callable
        Writes into the folder; yields after each step that it acknowledges. Called once more, it does its work again.
    read : callable
        Returns how many steps of the first call the folder holds; raises where it cannot be read.
    steps : int
        How many there are.
    """

    name: str
    prepare: Callable[[Path], object]
    write: Callable[[Path, str], Iterator[None]]
    read: Callable[[Path], int]
    steps: int = 1


def _only(found: set[str]) -> int:
    """Return the place of the one content that was found."""
    (one,) = found
    return NOTES.index(one)


def _document() -> Writer:
    def write(folder: Path, note: str) -> Iterator[None]:
        write_durably(folder / "placed.json", json.dumps({"note": note, "text": "x" * 9000}))
        yield

    def read(folder: Path) -> int:
        return _only({json.loads((folder / "placed.json").read_text())["note"]})

    return Writer("document", lambda folder: list(write(folder, "old")), write, read)


def _dataset(suffix: str, frame: pd.DataFrame) -> Writer:
    def write(folder: Path, note: str) -> Iterator[None]:
        save_dataset(ProfileDataset(frame, {"testbed": "toy", "note": note}), folder / f"data.{suffix}")
        yield

    def read(folder: Path) -> int:
        found = load_dataset(folder / f"data.{suffix}")
        assert len(found) == len(frame)
        return _only({found.environment["note"]})

    return Writer(f"dataset ({suffix})", lambda folder: list(write(folder, "old")), write, read)


def _noted(library: ModelLibrary, note: str) -> ModelLibrary:
    models = [dataclasses.replace(item, manifest={**item.manifest, "note": note}) for item in library.values()]
    return ModelLibrary(models)


def _library(library: ModelLibrary) -> Writer:
    def write(folder: Path, note: str) -> Iterator[None]:
        _noted(library, note).save(folder)
        yield

    def read(folder: Path) -> int:
        found = load_library(folder)
        assert set(found) == set(library)
        return _only({found[key].manifest["note"] for key in found})

    return Writer("model library", lambda folder: list(write(folder, "old")), write, read)


def _store() -> Writer:
    plan, testbed = toy_plan(), ToyTestbed()
    runs = [(run, testbed.run(run.colocation, seed=run.seed)) for run in plan.runs()]

    def write(folder: Path, note: str) -> Iterator[None]:
        with CampaignStore(folder / "store.sqlite") as store:
            store.bind(plan, testbed.environment())
            for run, record in runs:
                store.add(run, record, 0.5)
                yield

    def read(folder: Path) -> int:
        if not (folder / "store.sqlite").exists():
            return 0
        with CampaignStore(folder / "store.sqlite") as store:
            there = {key[0]: record for key, record in store.records()}
        assert all(there[run.colocation.key] == record for run, record in runs[: len(there)])
        return len(there)

    return Writer("campaign store", lambda _: None, write, read, len(runs))


def _journal() -> Writer:
    place, knob = "/sys/fs/cgroup", "cpu.weight"

    def write(folder: Path, note: str) -> Iterator[None]:
        written = Journal(folder / "receipts")
        receipt = written.begin("cgroup", place, {"note": note})
        yield
        with written.transaction():
            written.add(Layer(0, place, knob, "weight", None, "100", None))
            written.add(Layer(0, place, knob, "weight", receipt.number, "250", "100"))
        yield
        written.mark(receipt, "applied")
        yield

    def read(folder: Path) -> int:
        found = [item for item in Journal(folder / "receipts").receipts() if item.head["document"]["note"] == "new"]
        if not found:
            return 0
        layers = Journal(folder / "receipts").stack(place, knob)
        assert len(layers) in (0, 2)
        return 3 if found[0].head["state"] == "applied" and layers else 1 + bool(layers)

    return Writer("machine's journal", lambda _: None, write, read, 3)


def _state() -> Writer:
    def write(folder: Path, note: str) -> Iterator[None]:
        store = Store(folder / "state.sqlite")
        try:
            for _ in range(3):
                store.write(journal.advance).result()
                yield
        finally:
            store.close()

    def read(folder: Path) -> int:
        with sqlite3.connect(folder / "state.sqlite") as connection:
            return journal.revision(connection)

    def prepare(folder: Path) -> None:
        Store(folder / "state.sqlite").close()

    return Writer(STATE, prepare, write, read, 3)


def _backup(source: Path) -> Writer:
    def write(folder: Path, note: str) -> Iterator[None]:
        copy_state(source, folder / "copy.sqlite")
        yield

    def read(folder: Path) -> int:
        if not (folder / "copy.sqlite").exists():
            return 0
        with sqlite3.connect(folder / "copy.sqlite") as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
            return journal.revision(connection)

    return Writer("backup of the state", lambda _: None, write, read)


def _careless() -> Writer:
    """Return what a writer must not be: it overwrites, and does not sync."""

    def write(folder: Path, note: str) -> Iterator[None]:
        (folder / "placed.json").write_text(json.dumps({"note": note, "text": "x" * 9000}))
        yield

    def read(folder: Path) -> int:
        return _only({json.loads((folder / "placed.json").read_text())["note"]})

    return Writer("careless", lambda folder: list(write(folder, "old")), write, read)


def _shared(source: Path) -> Writer:
    """Return what publishes models in a folder that many read."""
    from slomo.fleet.shared_library import SharedLibrary

    named = {note: {entry.folder.name for entry in read_index(source / f"models-{note}")} for note in NOTES}

    def write(folder: Path, note: str) -> Iterator[None]:
        SharedLibrary(str(folder / "shared")).push(source / f"models-{note}")
        yield

    def read(folder: Path) -> int:
        shared = SharedLibrary(str(folder / "shared"))
        assert shared.verify()
        found = {model.folder for model in shared.models}
        return _only({note for note in NOTES if named[note] == found})

    return Writer("shared library", lambda folder: list(write(folder, "old")), write, read)


def _fleet_host() -> Writer:
    """Return what happens on a host of a fleet: it is claimed, then keeps every run before it tells it.

    The last run is kept in the room that was set aside, as if the store could not grow.
    """
    from slomo.fleet import measuring
    from slomo.fleet.hosts import FleetHost
    from slomo.fleet.measuring import FleetWork, claim_host, measure_on
    from slomo.fleet.room import FinishedRun, Room

    plan, testbed = toy_plan(competitors=1), ToyTestbed()
    work, runs = FleetWork(plan.fingerprint, "toy", "toy", token=1, coordinator="one"), plan.runs()
    last = FinishedRun("last", 0, {}, 0.5)

    def write(folder: Path, note: str) -> Iterator[None]:
        measuring._opened_testbed = lambda *_: testbed  # type: ignore[assignment]  # in a process of its own
        host = FleetHost("h", state=str(folder))
        claim_host(host, work)
        yield
        for run in runs:
            if errors := measure_on(host, work, run).errors:
                raise errors[-1]
            yield
        Room(folder / "h" / "room").keep(work.plan, last)
        yield

    def read(folder: Path) -> int:
        if not (folder / "h" / "claim.json").exists():
            return 0
        assert json.loads((folder / "h" / "claim.json").read_text()) == {"coordinator": "one", "token": 1}
        kept = {(run.colocation, run.replicate) for run in Room(folder / "h" / "room").runs(plan.fingerprint)}
        place = folder / "h" / f"{plan.fingerprint}.sqlite"
        if place.exists():
            with CampaignStore(place) as store:
                kept |= store.finished()
        return 1 + len(kept)

    return Writer("fleet's host", lambda _: None, write, read, 2 + len(runs))


def _functions() -> Writer:
    """Return what puts native network functions on a host of a fleet."""
    from slomo.fleet.functions import FunctionFolder, checked_functions, publish_functions

    # no program: the disk that is played knows no modes
    folder = FunctionFolder({"nf.lua": (b"return 1\n", False), "data/rules": (b"x" * 9000, False)})

    def write(place: Path, note: str) -> Iterator[None]:
        publish_functions(folder, place / "functions")
        yield

    def read(place: Path) -> int:
        if not (place / "functions" / folder.digest).exists():
            return 0
        assert checked_functions(place / "functions", folder.digest)
        return 1

    return Writer("native functions", lambda _: None, write, read)


def _bulk(source: Path) -> Writer:
    """Return what predicts mixes from file to file; which content is there says the coverage asked for."""
    from slomo.fleet.bulk import BulkQuestion, predict_file
    from slomo.prediction.options import PredictionOptions

    coverage = dict(zip(NOTES, (0.8, 0.85, 0.9), strict=True))

    def write(folder: Path, note: str) -> Iterator[None]:
        how = PredictionOptions(coverage=coverage[note], explain=False)
        predict_file(
            source / "mixes.parquet", folder / "out.parquet", BulkQuestion(str(source / "models"), None, how), jobs=1
        )
        yield

    def read(folder: Path) -> int:
        made = pq.read_table(folder / "out.parquet")
        assert len(made) == MIXES
        job = json.loads(made.schema.metadata[b"slomo"])
        return _only({note for note in NOTES if coverage[note] == job["coverage"]})

    return Writer("mixes in bulk", lambda folder: list(write(folder, "old")), write, read)


MIXES = 6
CARELESS = _careless()


def put_shared(folder: Path) -> None:
    """Put into a folder what writers share: models, and a state to copy."""
    from slomo.training.training import train  # a learner: not for the process that is copied for every case

    library = train(ProfileDataset(pd.DataFrame(profile_rows()), {"testbed": "toy"}), models=["dobrescu"])
    library.save(folder / "models")
    for note in NOTES:
        _noted(library, note).save(folder / f"models-{note}")
    mixes = pa.table({"target": ["lpm"] * MIXES, "competitors": [["nat"] * (n % 3) for n in range(MIXES)]})
    pq.write_table(mixes, folder / "mixes.parquet", row_group_size=MIXES // 2)
    kept = Store(folder / "source.sqlite")
    kept.write(journal.advance).result()
    kept.close()


def writers(folder: Path) -> tuple[Writer, ...]:
    """Return every writer; the folder holds what they share."""
    small, library = pd.DataFrame(profile_rows()[:40]), load_library(folder / "models")
    library = ModelLibrary(library.values())
    shared = (_shared(folder),) if find_spec("fsspec") else ()  # of the extra fleet
    return (
        _document(), _dataset("csv", small), _dataset("parquet", small), _library(library), _store(), _journal(),
        _state(), _backup(folder / "source.sqlite"), _fleet_host(), _functions(), _bulk(folder),
        *shared,
    )  # fmt: skip
