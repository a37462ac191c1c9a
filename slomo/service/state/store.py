"""The SQLite file of the service's state: one writer, and every acknowledged write is on disk.

The file uses a write-ahead log and ``synchronous=FULL``. Waiting writes share one transaction and one fsync. Each write
has its own savepoint, so that a failing write does not affect the others. Readers have connections of their own and
never wait for the writer.
"""

import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from slomo.errors import ConfigurationError, SlomoError, StoreError
from slomo.files.durable import make_private, write_durably
from slomo.models.functions.compilation import never_compiling

Result = TypeVar("Result")
#: Largest number of writes per transaction.
MOST_TOGETHER = 64


@dataclass
class _Write(Generic[Result]):
    """One write that waits to be executed."""

    run: Callable[[sqlite3.Connection], Result]
    future: "Future[Result]" = field(default_factory=Future)


class Store:
    """The SQLite file with the service's state.

    Raises ConfigurationError for a file that is no state or has a newer version; StoreError if another service has it
    open for writing.

    `path`: the file; None keeps everything in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        #: Function that the writer calls after a transaction was lost, before waiting callers are answered, so that
        #: memory is rebuilt from disk.
        self.on_lost: Callable[[], None] = lambda: None
        self._waiting: queue.SimpleQueue[_Write[Any] | None] = queue.SimpleQueue()
        self._readers = threading.local()
        self._guard: sqlite3.Connection | None = None
        self._connection = self._opened()
        self._read_lock = threading.RLock()
        self._thread = threading.Thread(target=never_compiling()(self._work), name="slomo-state", daemon=True)
        self._thread.start()

    def _opened(self) -> sqlite3.Connection:
        try:
            if self.path is not None:
                make_private(self.path)
                self._guard = _guard(self.path)
            name = ":memory:" if self.path is None else str(self.path)
            connection = sqlite3.connect(name, isolation_level=None, check_same_thread=False, timeout=5.0)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            make_tables(connection)
        except OSError as error:
            raise StoreError(
                f"'{self.path}' cannot be opened: {error.strerror}", hint="name a file you may write to: --state"
            ) from None
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and getattr(error, "sqlite_errorname", "") != "SQLITE_ERROR":
                raise StoreError(
                    f"'{self.path}' cannot be opened: {error}", hint="free some space, or name another file: --state"
                ) from None
            raise ConfigurationError(f"'{self.path}' is no state of slomo: {error}", hint="name another file") from None
        return connection

    def write(self, run: Callable[[sqlite3.Connection], Result]) -> "Future[Result]":
        """Queue a write; the returned future ends when the write is on disk, or with an error if it had no effect."""
        item = _Write(run)
        self._waiting.put(item)
        return item.future

    def read(self, run: Callable[[sqlite3.Connection], Result]) -> Result:
        """Read from disk. Raises StoreError if the file is damaged."""
        try:
            return self._read(run)
        except (sqlite3.DatabaseError, ValueError, TypeError, LookupError) as error:
            if isinstance(error, (sqlite3.OperationalError, SlomoError)):
                raise
            raise StoreError(
                f"state '{self.path}' is damaged: {error}", hint="stop the service, and put a backup in its place"
            ) from None

    def _read(self, run: Callable[[sqlite3.Connection], Result]) -> Result:
        if self.path is None:
            with self._read_lock:
                return run(self._connection)
        connection = getattr(self._readers, "connection", None)
        if connection is None:
            connection = sqlite3.connect(str(self.path), isolation_level=None, timeout=5.0)
            connection.execute("PRAGMA query_only = 1")
            self._readers.connection = connection
        return run(connection)

    def close(self) -> None:
        """Execute the waiting writes, then close the file, which is whole without its write-ahead log."""
        self._waiting.put(None)
        self._thread.join()
        with suppress(sqlite3.Error):  # threads still have connections for reading, so closing does not do this
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()
        if self._guard is not None:
            self._guard.close()

    def _work(self) -> None:
        while True:
            item = self._waiting.get()
            batch = [] if item is None else [item]
            is_last = item is None
            while not is_last and len(batch) < MOST_TOGETHER:
                try:
                    more = self._waiting.get_nowait()
                except queue.Empty:
                    break
                is_last = more is None
                batch += [] if more is None else [more]
            if batch:
                with self._read_lock:
                    self._together(batch)
            if is_last:
                return

    def _together(self, batch: list[_Write[Any]]) -> None:
        done: list[tuple[_Write[Any], Any]] = []
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for item in batch:
                self._one(item, done)
            self._connection.execute("COMMIT")
        except BaseException as error:
            self._lost(error, batch)
            return
        for item, result in done:
            item.future.set_result(result)

    def _one(self, item: _Write[Any], done: list[tuple[_Write[Any], Any]]) -> None:
        """Run one write within a savepoint; if the write fails, only its own effects are undone."""
        self._connection.execute("SAVEPOINT one")
        try:
            result = item.run(self._connection)
        except sqlite3.Error:
            raise  # a fault of the file: the whole transaction is lost
        except BaseException as error:
            self._connection.execute("ROLLBACK TO one")
            self._connection.execute("RELEASE one")
            item.future.set_exception(error)
            return
        self._connection.execute("RELEASE one")
        done.append((item, result))

    def _lost(self, error: BaseException, batch: list[_Write[Any]]) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            pass
        try:
            self.on_lost()
        finally:
            for item in batch:
                if not item.future.done():
                    item.future.set_exception(error)


def copy_state(path: Path, target: Path) -> None:
    """Copy a state file consistently, even while a service writes to it."""
    if not path.is_file():
        raise StoreError(f"there is no state at '{path}'", hint="check --state")
    try:
        with closing(sqlite3.connect(str(path))) as source:
            write_durably(target, source.serialize(), mode=0o600)
    except sqlite3.Error as error:
        raise StoreError(f"cannot back up '{path}': {error}", hint="is it a state of slomo serve?") from None


def _guard(path: Path) -> sqlite3.Connection:
    """Lock the state file while the service runs, so that there is only one writer."""
    make_private(f"{path}.writer")
    guard = sqlite3.connect(f"{path}.writer", isolation_level=None, timeout=0.2, check_same_thread=False)
    try:
        guard.execute("PRAGMA locking_mode = EXCLUSIVE")
        guard.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        guard.close()
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreError(
                f"'{path}' cannot be written: {error}", hint="free some space, or name another --state"
            ) from None
        raise StoreError(f"another service writes to '{path}'", hint="stop it, or name another --state") from None
    return guard


#: Present schema version (`PRAGMA user_version`).
VERSION = 7
#: Tables that version 7 added to version 6.
_ADDED = """
    CREATE TABLE plans (node TEXT PRIMARY KEY, at TEXT NOT NULL, document TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE history (
        number INTEGER PRIMARY KEY AUTOINCREMENT, at_s REAL NOT NULL, document TEXT NOT NULL);
"""
_TABLES = """
    CREATE TABLE cluster (
        position INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, document TEXT NOT NULL);
    CREATE TABLE closed (server TEXT PRIMARY KEY, why TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE placed (
        position INTEGER PRIMARY KEY AUTOINCREMENT, request TEXT NOT NULL UNIQUE, entry TEXT NOT NULL);
    CREATE TABLE revision (only INTEGER PRIMARY KEY CHECK (only = 1), number INTEGER NOT NULL);
    INSERT INTO revision VALUES (1, 0);
    CREATE TABLE decisions (
        number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, request TEXT NOT NULL, verb TEXT NOT NULL,
        fingerprint TEXT NOT NULL, document TEXT NOT NULL);
    CREATE INDEX decisions_by_request ON decisions (request, number);
    CREATE TABLE receipts (
        number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, verb TEXT NOT NULL, caller TEXT NOT NULL,
        before TEXT NOT NULL, after TEXT NOT NULL, undone_by INTEGER);
    CREATE TABLE jobs (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, at TEXT NOT NULL, kind TEXT NOT NULL,
        state TEXT NOT NULL, done REAL NOT NULL, message TEXT NOT NULL, result TEXT, asked TEXT);
    CREATE TABLE observations (
        number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, machine TEXT NOT NULL, target TEXT NOT NULL,
        document TEXT NOT NULL, predicted_mpps REAL, throughput_mpps REAL NOT NULL,
        fingerprint TEXT NOT NULL DEFAULT '');
    CREATE TABLE idempotency (
        position INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, digest TEXT NOT NULL,
        status INTEGER NOT NULL, headers TEXT NOT NULL, body BLOB NOT NULL);
    CREATE TABLE audit (
        number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, caller TEXT NOT NULL, verb TEXT NOT NULL,
        request_id TEXT NOT NULL, status INTEGER NOT NULL);
"""


def make_tables(connection: sqlite3.Connection) -> None:
    """Create all tables in an empty file, or the tables that a file of version 6 lacks; all of them or none.

    Raises ConfigurationError for a file of any other version.
    """
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version not in (0, 6, VERSION):
        raise ConfigurationError(
            f"the state is of version {version}, this slomo reads version {VERSION}",
            hint="start the slomo that wrote it, or another --state",
        )
    if version != VERSION:
        tables = _ADDED if version else _TABLES + _ADDED
        connection.executescript(f"BEGIN IMMEDIATE;{tables}PRAGMA user_version = {VERSION};COMMIT;")
