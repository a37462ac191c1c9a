"""The campaign's store loses nothing and says what is wrong with it."""

import sqlite3
import subprocess
import sys

import pytest

from slomo.errors import ConfigurationError, StoreError
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.campaign.store import CampaignStore, store_error, stored_records
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.testing.builders import ToyTestbed, toy_plan


@pytest.fixture
def filled(tmp_path):
    """A store with the four runs of the toy plan."""
    path = tmp_path / "a.sqlite"
    run_campaign(toy_plan(), ToyTestbed(), path)
    return path


def edit(path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_a_run_is_durable_when_add_returns(tmp_path):
    """Another reader sees the run at once, while the campaign still holds the store, in write-ahead mode."""
    plan, path = toy_plan(), tmp_path / "a.sqlite"
    with CampaignStore(path) as store:
        store.bind(plan, {"testbed": "toy"})
        store.add(plan.runs()[0], ToyTestbed().run(plan.colocations[0]), 0.1)
        connection = sqlite3.connect(path)
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)
        connection.close()


def test_records_come_back_exactly(filled):
    """What a testbed reported is what the store returns."""
    plan = toy_plan()
    expected = {run.colocation.key: ToyTestbed().run(run.colocation, seed=run.seed) for run in plan.runs()}

    assert {record.colocation.key: record for record in stored_records(filled)} == expected


def test_plan_is_readable_from_the_store(filled):
    """A store says which plan it belongs to."""
    with CampaignStore(filled) as store:
        assert ExperimentPlan.from_dict(store.settings()["plan"]) == toy_plan()


def test_corrupt_file_is_named_and_left_alone(tmp_path):
    """A file of noise is no store; it is not touched."""
    path = tmp_path / "a.sqlite"
    path.write_bytes(b"not a database at all" * 400)
    with pytest.raises(StoreError, match=r"a.sqlite' is corrupt[\s\S]*hint: nothing was changed"):
        run_campaign(toy_plan(), ToyTestbed(), path)
    assert path.read_bytes() == b"not a database at all" * 400


def test_damaged_pages_are_found(filled):
    """A store overwritten in the middle is refused before anything is added."""
    content = bytearray(filled.read_bytes())
    content[4096 : 4096 * 6] = b"\xa5" * (4096 * 5)
    filled.write_bytes(bytes(content))
    with pytest.raises(StoreError, match="corrupt"):
        run_campaign(toy_plan(), ToyTestbed(), filled)


def test_truncated_store_is_found(filled):
    """A store cut in the middle of a page is corrupt, not empty."""
    filled.write_bytes(filled.read_bytes()[:10_000])
    with pytest.raises(StoreError, match="corrupt"):
        run_campaign(toy_plan(), ToyTestbed(), filled)


@pytest.mark.parametrize("text", ["{", "null", '{"colocation": 1}', "[]"])
def test_damaged_record_is_named(filled, text):
    """A row without digest, of an older store, that is no record is named by its key."""
    first = "colocation = (SELECT min(colocation) FROM runs)"
    edit(filled, f"UPDATE runs SET digest = NULL, record = '{text}' WHERE {first}")
    with pytest.raises(StoreError, match=r"corrupt: run [0-9a-f]{16}/0 is no"):
        run_campaign(toy_plan(), ToyTestbed(), filled)


def test_a_changed_run_is_told_and_done_again(filled):
    """A run that is not what was written is named and done again; the dataset is the one of an unharmed store."""
    edit(filled, "UPDATE runs SET seed = seed + 1 WHERE colocation = (SELECT min(colocation) FROM runs)")
    with pytest.warns(UserWarning, match=r"1 of 4 runs are not what was written, left out: [0-9a-f]{16}/0"):
        mended = run_campaign(toy_plan(), ToyTestbed(), filled)
    assert mended == run_campaign(toy_plan(), ToyTestbed())


def test_other_schema_version_is_refused(filled):
    """A store of a later slomo is not written to."""
    edit(filled, "PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="schema version 99, needed 2"):
        run_campaign(toy_plan(), ToyTestbed(), filled)


def test_database_of_another_program_is_refused(tmp_path):
    """A SQLite file that is no store is not filled with tables."""
    path = tmp_path / "other.sqlite"
    edit(path, "CREATE TABLE songs (title TEXT)")
    with pytest.raises(StoreError, match="another program"):
        run_campaign(toy_plan(), ToyTestbed(), path)


def test_place_that_cannot_be_written_is_named(tmp_path):
    """A directory that cannot be made, or a directory in place of a file, is a store error with a hint."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="directory cannot be made"):
        run_campaign(toy_plan(), ToyTestbed(), tmp_path / "file" / "a.sqlite")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="cannot be written"):
        run_campaign(toy_plan(), ToyTestbed(), tmp_path / "folder")


def test_system_directory_that_refuses_files_is_named():
    """A place where nobody may create files is a store error, not a traceback."""
    with pytest.raises(StoreError, match="cannot be locked"):
        run_campaign(toy_plan(), ToyTestbed(), "/proc/slomo.sqlite")


def test_full_disk_loses_nothing(tmp_path):
    """When the disk is full the error says so; runs written before are there, and the campaign can go on later."""
    plan, path = toy_plan(competitors=30), tmp_path / "a.sqlite"
    with CampaignStore(path) as store:
        store.bind(plan, {"testbed": "toy"})
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages + 6}")
        written: list[str] = []

        def write_everything() -> None:
            for run in plan.runs():
                store.add(run, ToyTestbed().run(run.colocation), 0.1)
                written.append(run.label)

        with pytest.raises(StoreError, match="the disk is full"):
            write_everything()
    assert len(stored_records(path)) == len(written) > 0


def test_sqlite_errors_have_a_meaning():
    """Read-only files and foreign locks are told apart from corruption."""
    for name, words in (
        ("SQLITE_READONLY", "cannot be written"),
        ("SQLITE_IOERR_WRITE", "cannot be written"),
        ("SQLITE_BUSY", "in use"),
    ):
        error = sqlite3.OperationalError("x")
        error.sqlite_errorname = name
        assert words in str(store_error("a", error))


def test_lock_of_a_dead_process_is_recovered(tmp_path):
    """A lock file left behind by a killed process does not block the next campaign."""
    path = tmp_path / "a.sqlite"
    program = (
        "import os, sys\nfrom slomo.profiling.campaign.store import CampaignStore\n"
        "store = CampaignStore(sys.argv[1])\nos.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == -9
    assert path.with_name("a.sqlite.lock").exists()

    assert len(run_campaign(toy_plan(), ToyTestbed(), path)) == 4
    assert not path.with_name("a.sqlite.lock").exists()


def test_missing_store_is_not_made_by_reading(tmp_path):
    """Asking for the records of a store that is not there makes no file."""
    with pytest.raises(ConfigurationError, match="there is no campaign store"):
        stored_records(tmp_path / "a.sqlite")
    assert not list(tmp_path.iterdir())
