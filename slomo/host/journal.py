"""The journal of a machine: which program set which setting ("knob") to which value, so that changes can be undone.

One SQLite file per machine. A receipt records the changes of one owner; a layer is one owner's value of one knob. The
layers of a knob form a stack above its original value, and the top layer is in force. A layer is written to disk, with
the knob's previous value, before the machine is changed, so that undoing works even after a kill in between. A value
that another program set becomes a layer without an owner. The time to read and write does not grow with the number of
recorded changes.
"""

import contextlib
import hashlib
import json
import os
import sqlite3
import threading
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slomo.errors import StoreError
from slomo.host.knobs import Change
from slomo.host.marker import RunMark, new_mark
from slomo.host.places import MACHINE_FOLDER, cache_directory

FILE = "journal.sqlite3"
#: Number of undone receipts that are kept.
_REMEMBERED = 500
_PATIENCE_S = 10.0
_TABLES = """
CREATE TABLE IF NOT EXISTS receipt (number INTEGER PRIMARY KEY AUTOINCREMENT, identifier TEXT UNIQUE NOT NULL,
    backend TEXT NOT NULL, place TEXT NOT NULL, owner TEXT NOT NULL, at REAL NOT NULL, state TEXT NOT NULL,
    document TEXT NOT NULL, digest TEXT);
CREATE TABLE IF NOT EXISTS layer (number INTEGER PRIMARY KEY, place TEXT NOT NULL, knob TEXT NOT NULL,
    label TEXT NOT NULL, receipt INTEGER, value TEXT, earlier TEXT, digest TEXT);
CREATE INDEX IF NOT EXISTS stack ON layer (place, knob, number);
CREATE INDEX IF NOT EXISTS owner ON layer (receipt, number);
"""
_BEGIN = """INSERT INTO receipt (identifier, backend, place, owner, at, state, document)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
_COLUMNS = {
    "receipt": "number, identifier, backend, place, owner, at, state, document",
    "layer": "number, place, knob, label, receipt, value, earlier",
}
#: Each row has a digest of its columns, written by database triggers on every change.
_DIGESTS = "".join(
    f"CREATE TRIGGER IF NOT EXISTS {table}_{name} AFTER {event} ON {table} BEGIN UPDATE {table} "
    f"SET digest = slomo_digest({columns}) WHERE number = NEW.number; END;\n"
    for table, columns in _COLUMNS.items()
    for name, event in (("written", "INSERT"), ("changed", f"UPDATE OF {columns}"))
)
_WHOLE = {table: f"digest IS NULL OR digest = slomo_digest({columns})" for table, columns in _COLUMNS.items()}
_ALL = f"SELECT number, identifier, {_WHOLE['receipt']} FROM receipt ORDER BY number"
_OPEN = f"SELECT number, identifier, {_WHOLE['receipt']} FROM receipt WHERE state != 'undone' ORDER BY number"
_HEAD = f"SELECT backend, place, owner, at, state, document, {_WHOLE['receipt']} FROM receipt WHERE number = ?"
_ADD = "INSERT INTO layer (place, knob, label, receipt, value, earlier) VALUES (?, ?, ?, ?, ?, ?)"
_LAYERS = f"SELECT {_COLUMNS['layer']}, {_WHOLE['layer']} FROM layer WHERE receipt = ? ORDER BY number"
_WATCHES = "SELECT DISTINCT knob FROM layer WHERE receipt IS NOT NULL AND knob >= 'watch:' AND knob < 'watch;'"
_STACK = f"SELECT {_COLUMNS['layer']}, {_WHOLE['layer']} FROM layer WHERE place = ? AND knob = ? ORDER BY number"


def _digest(*row: object) -> str:
    """Return the digest of a row; it detects a damaged row."""
    return hashlib.sha256(json.dumps(row).encode()).hexdigest()[:16]


def receipts_directory() -> Path:
    """Return the folder of this machine's journal: SLOMO_JOURNAL if set, else root's folder, else the user's own."""
    named = os.environ.get("SLOMO_JOURNAL")
    if named:
        return Path(named)
    if os.geteuid() == 0 and not os.environ.get("XDG_CACHE_HOME"):
        return MACHINE_FOLDER
    return cache_directory() / "receipts"


@dataclass(frozen=True)
class Layer:
    """One program's value of one setting ("knob"), or the setting's original value."""

    #: Position in the journal; a knob's layer with the highest number is in force.
    number: int
    #: Tree of settings, and the knob's name in it.
    place: str
    knob: str
    #: The knob's name in the driver of the layer's owner.
    label: str
    #: Number of the owner's receipt; None for the original value.
    receipt: int | None
    #: The knob's intended value, and its value before the last change; after a kill the knob may still have the latter.
    value: str | None
    earlier: str | None

    def explains(self, held: str | None) -> bool:
        """Return whether the setting's present value `held` is this layer's value or the one before its last change."""
        return held in (self.value, self.earlier)


class Journal:
    """The journal in a folder; its file is created with the first receipt (record of one program's changes)."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0

    @property
    def path(self) -> Path:
        """Path of the journal's file."""
        return self.folder / FILE

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write all changes of a `with` block or none of them; they are synced to disk when the block ends."""
        with self._lock, self._faults():
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def begin(self, backend: str, place: str, document: Mapping[str, Any]) -> "Receipt":
        """Add a receipt, the record of one program's changes, before the first change is made."""
        identifier = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:8]}"
        row = (identifier, backend, place, new_mark().text, time.time(), "open", json.dumps(document, sort_keys=True))
        with self.transaction() as connection:
            number = connection.execute(_BEGIN, row).lastrowid
            connection.execute(
                "DELETE FROM receipt WHERE state = 'undone' AND number < ?", ((number or 0) - _REMEMBERED,)
            )
        return Receipt(self, number or 0, identifier)

    def receipts(self, *, still_open: bool = False) -> tuple["Receipt", ...]:
        """Return all receipts (records of changes), oldest first. Raises StoreError if the file is no journal."""
        receipts_found = []
        for number, identifier, whole in self._rows(_OPEN if still_open else _ALL):
            if whole:
                receipts_found.append(Receipt(self, number, identifier))
            else:
                warnings.warn(
                    f"journal '{self.path}': receipt {number} ('{identifier}') is not what was written and is left out",
                    stacklevel=2,
                )
        return tuple(receipts_found)

    def layers(self, receipt: "Receipt") -> list[Layer]:
        """Return the values of settings that one receipt records, in order."""
        return self._layers(_LAYERS, (receipt.number,))

    def stack(self, place: str, knob: str) -> list[Layer]:
        """Return all recorded values of one setting, in order; the last one is in force."""
        return self._layers(_STACK, (place, knob))

    def _layers(self, query: str, values: Iterable[object]) -> list[Layer]:
        layers = []
        for *row, whole in self._rows(query, values):
            layer = Layer(*row)
            if not whole:
                raise StoreError(
                    f"journal '{self.path}': what it says of knob '{layer.knob}' (layer {layer.number}) is not what "
                    "was written: its digest differs",
                    hint="check the knob itself and set it by hand; other receipts can be undone",
                )
            layers.append(layer)
        return layers

    def taken_along(self) -> tuple[str, ...]:
        """Return all settings that changed only as a side effect of others, such as the cores of monitoring groups."""
        return tuple(knob for (knob,) in self._rows(_WATCHES))

    def add(self, layer: Layer) -> None:
        """Record a new value of a setting on top of the earlier ones; within a transaction."""
        row = (layer.place, layer.knob, layer.label, layer.receipt, layer.value, layer.earlier)
        self._open().execute(_ADD, row)

    def update(self, layer: Layer, value: str | None, earlier: str | None) -> None:
        """Change a recorded value in place; within a transaction."""
        self._open().execute("UPDATE layer SET value = ?, earlier = ? WHERE number = ?", (value, earlier, layer.number))

    def remove(self, layer: Layer) -> None:
        """Remove a recorded value, and its setting's records if no program's value remains; within a transaction."""
        self.drop(layer)
        self._clear(layer)

    def _clear(self, layer: Layer) -> None:
        if all(each.receipt is None for each in self.stack(layer.place, layer.knob)):
            self._open().execute("DELETE FROM layer WHERE place = ? AND knob = ?", (layer.place, layer.knob))

    def hand_over(self, layer: Layer, receipt: int) -> None:
        """Give a recorded value to another receipt, which then restores the setting; within a transaction."""
        self._open().execute("UPDATE layer SET receipt = ? WHERE number = ?", (receipt, layer.number))

    def drop(self, layer: Layer) -> None:
        """Remove a recorded value that the caller replaces at once; within a transaction."""
        self._open().execute("DELETE FROM layer WHERE number = ?", (layer.number,))

    def rewrite(self, receipt: "Receipt", layers: Sequence[Layer]) -> None:
        """Replace the values that a receipt records."""
        with self.transaction() as connection:
            gone = receipt.layers()
            connection.execute("DELETE FROM layer WHERE receipt = ?", (receipt.number,))
            rows = [tuple(vars(layer).values()) for layer in layers]
            connection.executemany(f"INSERT INTO layer ({_COLUMNS['layer']}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            for layer in gone:
                self._clear(layer)

    def mark(self, receipt: "Receipt", state: str, document: Mapping[str, Any] | None = None) -> None:
        """Store the new state of a receipt (record of changes), and its document if one is given."""
        with self.transaction() as connection:
            connection.execute("UPDATE receipt SET state = ? WHERE number = ?", (state, receipt.number))
            if document is not None:
                text = json.dumps(document, sort_keys=True)
                connection.execute("UPDATE receipt SET document = ? WHERE number = ?", (text, receipt.number))

    def close(self, receipt: "Receipt") -> None:
        """Mark a receipt (record of changes) as undone, since none of its changes remain on the machine."""
        self.rewrite(receipt, ())
        self.mark(receipt, "undone")

    def head(self, receipt: "Receipt") -> dict[str, Any]:
        """Return the stored fields of a receipt (record of changes), without its changes of single settings."""
        columns = ("backend", "place", "owner", "at", "state", "document", "whole")
        rows = self._rows(_HEAD, (receipt.number,))
        if not rows:
            raise StoreError(f"journal '{self.path}' has no receipt '{receipt.identifier}'", hint="slomo enforce show")
        head = dict(zip(columns, rows[0], strict=True))
        try:
            head["document"] = json.loads(str(head["document"]))
            if not head.pop("whole"):
                raise ValueError("its digest differs")
        except (ValueError, RecursionError):
            raise StoreError(
                f"journal '{self.path}', receipt '{receipt.identifier}', is not understood", hint="was it edited?"
            ) from None
        return head

    def _rows(self, query: str, values: Iterable[object] = ()) -> list[tuple[Any, ...]]:
        if not self.path.exists():
            return []
        with self._lock, self._faults():
            return self._open().execute(query, tuple(values)).fetchall()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None or self._process != os.getpid():  # a connection must not be used after a fork
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            self._connection = sqlite3.connect(
                self.path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False
            )
            self._process = os.getpid()
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.create_function("slomo_digest", -1, _digest, deterministic=True)
            self._connection.executescript(_TABLES)
            for table in _COLUMNS:
                if not any(row[1] == "digest" for row in self._connection.execute(f"PRAGMA table_info({table})")):
                    self._connection.execute(f"ALTER TABLE {table} ADD COLUMN digest TEXT")
            self._connection.executescript(_DIGESTS)
            if (integrity := self._connection.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(f"is damaged: {integrity}")
        return self._connection

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeError) as problem:  # UnicodeError if names are damaged or no text
            reason = problem.strerror if isinstance(problem, OSError) else str(problem)
            if not isinstance(problem, OSError) and self._connection is not None and self._process == os.getpid():
                with contextlib.suppress(sqlite3.Error):
                    self._connection.close()
                self._connection = None
            hint = "make room there, or apply with another folder that you may write to: --receipts FOLDER"
            if isinstance(problem, sqlite3.DatabaseError) and not isinstance(problem, sqlite3.OperationalError):
                hint = "the file is damaged: `slomo enforce show --receipts OTHER` shows what is set; reset it by hand"
            raise StoreError(f"journal '{self.path}': {reason}", hint=hint) from None


@dataclass(frozen=True)
class Receipt:
    """Record of the changes that one program has made to a machine, by which they can be undone."""

    #: Journal that holds the receipt.
    journal: Journal
    #: Number of the receipt in the journal.
    number: int
    #: Name of the receipt for `slomo enforce undo`.
    identifier: str
    #: Changes that the last `apply` made.
    made: tuple[Change, ...] = field(default=(), compare=False)

    @property
    def path(self) -> Path:
        """File of the journal that has the receipt (record of changes)."""
        return self.journal.path

    @property
    def head(self) -> dict[str, Any]:
        """Backend, place, owner, time, state and document of the receipt. Raises StoreError if they are damaged."""
        return self.journal.head(self)

    @property
    def state(self) -> str:
        """State of the receipt: ``"open"`` (started), ``"applied"`` or ``"undone"``."""
        return str(self.head["state"])

    @property
    def owner_is_alive(self) -> bool:
        """Whether the process that started the receipt (record of changes) still runs."""
        mark = RunMark.parse(str(self.head["owner"]))
        return mark is not None and mark.owner_is_alive()

    def layers(self) -> list[Layer]:
        """Return the values of settings that this receipt (record of changes) contains, in order."""
        return self.journal.layers(self)

    def changes(self) -> tuple[Change, ...]:
        """Return the settings that this receipt (record of changes) changed, each with its value before and after."""
        changes = []
        for layer in self.layers():
            beneath = [each for each in self.journal.stack(layer.place, layer.knob) if each.number < layer.number]
            before = beneath[-1].value if beneath else None
            if before != layer.value:
                changes.append(Change(layer.label, before, layer.value))
        return tuple(changes)

    def others(self) -> tuple[str, ...]:
        """Return those settings of this receipt for which other receipts (records of changes) have values, too."""
        return tuple(
            layer.label
            for layer in self.layers()
            if any(each.receipt not in (None, self.number) for each in self.journal.stack(layer.place, layer.knob))
        )


def open_receipts(folder: Path | None = None) -> tuple[Receipt, ...]:
    """Return the receipts (records of changes) of a journal that have not been undone, oldest first."""
    return Journal(folder or receipts_directory()).receipts(still_open=True)
