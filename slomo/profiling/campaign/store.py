"""The file of a campaign's finished runs; each is on disk before the next one is reported.

It is one SQLite file in write-ahead mode with full synchronisation, keyed by co-location and replicate; after a kill it
contains every finished run.
"""

import hashlib
import json
import sqlite3
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from slomo.errors import ConfigurationError, IncompatibleMeasurementsError, SlomoError, StoreError
from slomo.files.lock import held_alone
from slomo.profiling.plans.plan import ExperimentPlan, PlannedRun
from slomo.records.provenance import difference
from slomo.records.run import RunRecord
from slomo.vocabulary.workload import canonical_json

#: 2: each run with its digest; stores of version 1 are read and extended by the column.
SCHEMA_VERSION = 2
APPLICATION_ID = 0x736C6F6D  # "slom"; SQLite's way to say whose file this is
_SCHEMA = (
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE runs (colocation TEXT, replicate INTEGER, seed INTEGER NOT NULL, wall_s REAL NOT NULL,"
    " record TEXT NOT NULL, digest TEXT, PRIMARY KEY (colocation, replicate)) WITHOUT ROWID",
    "CREATE TABLE failures (id INTEGER PRIMARY KEY, colocation TEXT, replicate INTEGER,"
    " label TEXT, error TEXT, message TEXT)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
Key = tuple[str, int]


class StaleTokenError(StoreError):
    """Another process with a newer token has taken over the campaign."""


class CampaignStore:
    """Finished runs and failures of one campaign.

    `path`: the file, created if missing; None keeps everything in memory. `alone`: let no other program read it
    meanwhile, which needs a file beside it: a full disk has no room for that.
    """

    def __init__(self, path: str | Path | None, *, alone: bool = False) -> None:
        self.path, self._alone = None if path is None else Path(path), alone
        self._resources = ExitStack()
        try:
            self._connection = self._open()
        except BaseException:
            self._resources.close()
            raise

    def __enter__(self) -> "CampaignStore":
        return self

    def __exit__(self, *exception: object) -> None:
        self._resources.close()

    def __len__(self) -> int:
        with self._mapped():
            return int(self._connection.execute("SELECT count(*) FROM runs").fetchone()[0])

    @property
    def name(self) -> str:
        """The store's file name, for messages."""
        return "memory" if self.path is None else str(self.path)

    def bind(self, plan: ExperimentPlan, environment: Mapping[str, Any]) -> None:
        """Store the plan and the environment, or check that they equal the stored ones."""
        stored = self.settings()
        if "plan" not in stored:
            rows = [("plan", canonical_json(plan.to_dict())), ("environment", canonical_json(environment))]
            with self._mapped(), self._connection:
                self._connection.executemany("INSERT INTO settings VALUES (?, ?)", rows)
            return
        lines = [*plan_difference(stored["plan"], plan.to_dict()), *difference(stored["environment"], environment)]
        if lines:
            raise IncompatibleMeasurementsError(
                f"campaign store '{self.name}' belongs to another campaign (there | asked for):"
                + "".join(f"\n  {line}" for line in lines),
                hint=f"give this campaign another store (--store FILE), delete '{self.name}' to measure all again, or "
                "repeat the command the store was made with",
            )

    def settings(self) -> dict[str, Any]:
        """Return plan and environment as stored; empty for a new store."""
        with self._mapped():
            rows = self._connection.execute("SELECT name, value FROM settings").fetchall()
        return {name: self._decoded(value, f"setting '{name}'") for name, value in rows}

    def note(self, name: str, value: Any) -> None:
        """Store a note of the process that runs the campaign."""
        row = (name, json.dumps(value, sort_keys=True))
        with self._mapped(), self._connection:
            self._connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", row)

    def fence(self, token: int) -> None:
        """Refuse runs with an older token from now on."""
        with self._mapped(), self._connection:
            self._require_current(token)
            self._connection.execute("INSERT OR REPLACE INTO settings VALUES ('token', ?)", (str(token),))

    def _require_current(self, token: int) -> None:
        """Raise an error if a newer token was seen; inside a transaction, so that check and write are atomic."""
        self._connection.execute("BEGIN IMMEDIATE")
        row = self._connection.execute("SELECT value FROM settings WHERE name = 'token'").fetchone()
        if row is not None and int(row[0]) > token:
            raise StaleTokenError(
                f"campaign store '{self.name}' serves token {row[0]}, runs of token {token} are not taken",
                hint="another coordinator has taken over; end this one",
            )

    def add(self, run: PlannedRun, record: RunRecord, wall_s: float, token: int | None = None) -> None:
        """Write one finished run to disk, safe against a loss of power."""
        # a replayed competitor's throughput may be NaN, which Python's JSON reads back
        text = json.dumps(record.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=True)
        row = (run.colocation.key, run.replicate, run.seed, wall_s, text)
        with self._mapped(), self._connection:
            if token is not None:
                self._require_current(token)
            self._connection.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?)", (*row, _digest(*row)))

    def add_failure(self, run: PlannedRun, error: BaseException) -> None:
        """Store a failed attempt, with its error."""
        row = (run.colocation.key, run.replicate, run.label, type(error).__name__, str(error))
        statement = "INSERT INTO failures (colocation, replicate, label, error, message) VALUES (?, ?, ?, ?, ?)"
        with self._mapped(), self._connection:
            self._connection.execute(statement, row)

    def failures(self) -> list[tuple[str, str, str]]:
        """Return run, kind of error and message of every failed attempt, oldest first."""
        with self._mapped():
            return self._connection.execute("SELECT label, error, message FROM failures ORDER BY id").fetchall()

    def records(self) -> Iterator[tuple[Key, RunRecord]]:
        """Yield every finished run with its key, in order of keys and replicates; damaged ones are reported."""
        for colocation, replicate, text in self._sound_runs():
            name = f"run {colocation}/{replicate}"
            data = self._decoded(text, name)
            try:
                record = RunRecord.from_dict(data)
            except (KeyError, TypeError, ValueError, AttributeError, SlomoError) as error:
                raise self._damaged(f"{name} is no run record ({type(error).__name__}: {error})") from error
            yield (colocation, replicate), record

    def find(self, key: Key) -> tuple[RunRecord, float] | None:
        """Return a finished run and its duration [s]; None if it is missing or damaged."""
        statement = "SELECT * FROM runs WHERE colocation = ? AND replicate = ?"
        with self._mapped():
            row = self._connection.execute(statement, key).fetchone()
        if row is None or not _is_sound(row):
            return None
        return RunRecord.from_dict(self._decoded(row[4], f"run {key[0]}/{key[1]}")), float(row[3])

    def finished(self) -> set[Key]:
        """Return the keys of all finished runs; damaged ones must be repeated."""
        return {(colocation, replicate) for colocation, replicate, _ in self._sound_runs()}

    def _sound_runs(self) -> Iterator[tuple[str, int, str]]:
        """Yield key and record of every undamaged run, and report the others."""
        damaged: list[str] = []
        with self._mapped():
            for row in self._connection.execute("SELECT * FROM runs ORDER BY colocation, replicate"):
                if _is_sound(row):
                    yield row[0], row[1], row[4]
                else:
                    damaged.append(f"{row[0]}/{row[1]}")
        if damaged:
            warnings.warn(
                f"campaign store '{self.name}': {len(damaged)} of {len(self)} runs are not what was written, left out: "
                + ", ".join(damaged[:20]),
                stacklevel=3,
            )

    def _open(self) -> sqlite3.Connection:
        if self.path is None:
            connection = self._connected(":memory:")
        else:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                message = f"campaign store '{self.name}': its directory cannot be made: {error.strerror}"
                raise StoreError(message, hint=_PLACE_HINT) from error
            lock = self.path.with_name(self.path.name + ".lock")
            self._resources.enter_context(held_alone(lock, f"campaign store '{self.path}'"))
            connection = self._connected(str(self.path))
        with self._mapped():
            if self._alone:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            self._check_or_create(connection)
        return connection

    def _connected(self, target: str) -> sqlite3.Connection:
        with self._mapped():
            connection = sqlite3.connect(target, timeout=5.0)
        self._resources.callback(connection.close)
        return connection

    def _check_or_create(self, connection: sqlite3.Connection) -> None:
        owner, version = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not tables and not owner:
            connection.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.commit()
        elif owner != APPLICATION_ID:
            message = f"'{self.name}' is a SQLite file of another program, not a campaign store"
            raise StoreError(message, hint="choose another file name")
        elif version == 1:
            with connection:
                connection.execute("ALTER TABLE runs ADD COLUMN digest TEXT")
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        elif version != SCHEMA_VERSION:
            raise StoreError(
                f"campaign store '{self.name}' has schema version {version}, needed {SCHEMA_VERSION}",
                hint="go on with the slomo that made it, or start a new store; nothing in this one was changed",
            )
        elif (verdict := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise self._damaged(str(verdict))

    def _decoded(self, text: str, what: str) -> Any:
        try:
            return json.loads(text)
        except (TypeError, ValueError) as error:
            raise self._damaged(f"{what} is no JSON") from error

    def _damaged(self, detail: str) -> StoreError:
        return StoreError(f"campaign store '{self.name}' is corrupt: {detail}", hint=_CORRUPT_HINT)

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise store_error(self.name, error) from error


def _digest(*row: object) -> str:
    """Return the digest of a stored run: key, seed, time and record."""
    return hashlib.sha256("\\0".join(map(str, row)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _is_sound(row: Sequence[Any]) -> bool:
    """Return whether a stored run matches its digest; those of version 1 have none."""
    return row[5] is None or _digest(*row[:5]) == row[5]


_PLACE_HINT = "give the store a directory that exists and that you may write to"
_CORRUPT_HINT = (
    "nothing was changed: keep the file, save what it holds with `sqlite3 FILE .recover`, "
    "and start a new store under another name"
)


def store_error(name: str, error: sqlite3.Error) -> StoreError:
    """Return the slomo error that reports an SQLite error in the store called `name`."""
    code = str(getattr(error, "sqlite_errorname", "") or "")
    if code.startswith("SQLITE_FULL"):
        hint = "free some space and run the same command again; finished runs are kept"
        return StoreError(f"campaign store '{name}' cannot grow: the disk is full", hint=hint)
    if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_IOERR")):
        return StoreError(f"campaign store '{name}' cannot be written: {error}", hint=_PLACE_HINT)
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        hint = "close it there and run the same command again"
        return StoreError(f"campaign store '{name}' is in use by another program", hint=hint)
    return StoreError(f"campaign store '{name}' is corrupt: {error}", hint=_CORRUPT_HINT)


def plan_difference(there: Mapping[str, Any], requested: Mapping[str, Any]) -> list[str]:
    """Return the differences between two plans, as lines ``key: stored | requested``; empty if the plans are equal.

    >>> plan_difference({"seed": 1, "colocations": []}, {"seed": 2, "colocations": []})
    ['plan.seed: 1 | 2']
    """
    names = sorted({*there, *requested} - {"colocations"})
    differing = [name for name in names if there.get(name) != requested.get(name)]
    lines = [f"plan.{name}: {there.get(name)} | {requested.get(name)}" for name in differing]
    sides = [[canonical_json(item) for item in side.get("colocations", [])] for side in (there, requested)]
    if sides[0] != sides[1]:
        there_only, asked_only = (len(set(sides[i]) - set(sides[1 - i])) for i in (0, 1))
        detail = f"only there {there_only}, only asked for {asked_only}"
        detail = detail if there_only or asked_only else "the same ones in another order"
        lines.append(f"plan.colocations: {len(sides[0])} | {len(sides[1])} ({detail})")
    return lines


def stored_records(path: str | Path) -> list[RunRecord]:
    """Return all runs of a store, for replay or inspection."""
    if not Path(path).is_file():
        hint = "name the file that was given as the campaign's store"
        raise ConfigurationError(f"there is no campaign store '{path}'", hint=hint)
    with CampaignStore(path) as store:
        return [record for _, record in store.records()]
