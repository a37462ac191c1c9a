"""A receipt: every change of an apply, written ahead, in order, and flushed, so that it can be undone after kill -9.

One JSON object per line. A change is on the disk before it is made; a torn last line is a change that was not made.
"""

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from slomo.enforce.change import Change
from slomo.enforce.plan import EnforcementPlan
from slomo.errors import StoreError
from slomo.host.places import cache_directory

SCHEMA_VERSION = 1
_LARGEST_B = 64 << 20


def receipts_directory() -> Path:
    """Return where receipts are kept unless told otherwise.

    Examples
    --------
    >>> receipts_directory().name
    'receipts'
    """
    return cache_directory() / "receipts"


class Receipt:
    """What was changed, by which backend, on which machine and boot.

    Parameters
    ----------
    path : path
        Its file.

    Examples
    --------
    >>> Receipt(Path("/no/such/receipt.jsonl")).exists
    False
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        #: Its first line, until there is a second: both wait for the disk once.
        self._begun: list[Mapping[str, Any]] = []

    @property
    def exists(self) -> bool:
        """Whether it was written."""
        return self.path.is_file()

    @property
    def identifier(self) -> str:
        """Its name, which `slomo enforce undo` takes."""
        return self.path.stem

    @classmethod
    def begin(cls, folder: Path, backend: str, place: str, plan: EnforcementPlan) -> "Receipt":
        """Begin a new receipt, which is written with its first changes.

        Raises
        ------
        StoreError
            If there is no folder for it; then nothing must be changed.
        """
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        receipt = cls(folder / f"{stamp}-{uuid.uuid4().hex[:8]}.jsonl")
        head = {"schema_version": SCHEMA_VERSION, "backend": backend, "place": place, "at": time.time()}
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise receipt.fault(problem) from None
        receipt._begun = [{**head, "plan": plan.to_dict()}]
        return receipt

    def append(self, lines: Sequence[Mapping[str, Any]], *, flushed: bool = True) -> None:
        """Add all lines or none, and wait until they are on the disk unless told not to.

        Raises
        ------
        StoreError
            If it cannot be written, for instance to a full file system.
        """
        new = bool(self._begun)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if new else 0)
        data = "".join(json.dumps(line, sort_keys=True) + "\n" for line in (*self._begun, *lines)).encode()
        try:
            descriptor = os.open(self.path, flags, 0o600)
            try:
                start = os.fstat(descriptor).st_size
                if os.write(descriptor, data) != len(data):
                    os.ftruncate(descriptor, start)
                    raise OSError(28, "No space left on device")
                if flushed:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if new and flushed:
                _flush_directory(self.path.parent)
            self._begun = []
        except OSError as problem:
            if new and not isinstance(problem, FileExistsError):
                self.path.unlink(missing_ok=True)
            raise self.fault(problem) from None

    def intend(self, *changes: Change) -> None:
        """Write changes down before they are made.

        Raises
        ------
        StoreError
            If they cannot be written; then none of them must be made.
        """
        if changes:
            self.append([{"knob": each.knob, "before": each.before, "after": each.after} for each in changes])

    def mark(self, what: str) -> None:
        """Write down that it is ``applied`` or ``undone``; nothing is lost with a mark that does not reach the disk."""
        self.append([{"mark": what, "at": time.time()}], flushed=False)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Return what was written; a torn last line is left out.

        Raises
        ------
        StoreError
            If it is no receipt.
        """
        try:
            if self.path.stat().st_size > _LARGEST_B:
                raise StoreError(f"receipt '{self.path}' is larger than {_LARGEST_B >> 20} MiB")
            raw = self.path.read_bytes()
        except OSError as problem:
            raise self.fault(problem) from None
        whole = raw.split(b"\n")[:-1]
        for number, text in enumerate(whole):
            try:
                line = json.loads(text)
            except (ValueError, RecursionError):
                line = None
            if not isinstance(line, dict):
                raise StoreError(f"receipt '{self.path}', line {number + 1}, is not understood", hint="was it edited?")
            yield line

    @property
    def head(self) -> dict[str, Any]:
        """Backend, place, time and plan.

        Raises
        ------
        StoreError
            If it is no receipt of this version.
        """
        head = next(self.lines(), {})
        if head.get("schema_version") != SCHEMA_VERSION or "backend" not in head:
            raise StoreError(
                f"'{self.path}' is no receipt of version {SCHEMA_VERSION}", hint="see `slomo enforce show`"
            )
        return head

    @property
    def state(self) -> str:
        """``"open"`` (something began), ``"applied"`` or ``"undone"``."""
        state = "open"
        for line in self.lines():
            state = line.get("mark", "open" if "knob" in line else state)
        return state

    def changes(self) -> tuple[Change, ...]:
        """Return the changes in the order they were made; those before it was last undone are left out."""
        made: list[Change] = []
        for line in self.lines():
            if "knob" in line:
                made.append(Change(str(line["knob"]), line.get("before"), line.get("after")))
            elif line.get("mark") == "undone":
                made.clear()
        return tuple(made)

    def originals(self) -> tuple[Change, ...]:
        """Return one change per knob: what it held first and holds last, in the order they were first touched."""
        first: dict[str, Change] = {}
        for change in self.changes():
            earlier = first.get(change.knob)
            first[change.knob] = Change(change.knob, earlier.before if earlier else change.before, change.after)
        return tuple(first.values())

    def fault(self, problem: OSError) -> StoreError:
        """Return the error for a receipt that cannot be written or read."""
        return StoreError(
            f"receipt '{self.path}': {problem.strerror}",
            hint="name a folder with room that you may write to: --receipts FOLDER",
        )


def all_receipts(folder: Path | None = None) -> tuple[Receipt, ...]:
    """Return the receipts of a folder, oldest first."""
    return tuple(Receipt(path) for path in sorted((folder or receipts_directory()).glob("*.jsonl")))


def open_receipts(folder: Path | None = None) -> tuple[Receipt, ...]:
    """Return those that were not undone, oldest first; unreadable ones too."""
    left = []
    for receipt in all_receipts(folder):
        with contextlib.suppress(StoreError):
            if receipt.state == "undone":
                continue
        left.append(receipt)
    return tuple(left)


def _flush_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
