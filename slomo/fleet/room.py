"""Reserve disk space for a host's last runs, so that these survive even if the disk is full.

A file of fixed size is overwritten in place, which needs no space (as databases recycle log segments). Every slot has a
digest: a truncated one reads as empty.
"""

import hashlib
import json
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slomo.errors import StoreError
from slomo.files.durable import overwrite, write_durably
from slomo.files.opening import read_bytes

#: Number of runs that fit. A host makes one run at a time; several wait for collection only while workers are missing.
PARTS = 4
#: Space of one compressed run [B], and its largest size when read back [B].
_PART_BYTES, _MOST_BYTES = 16_384, 2**22
#: Header of the content: digest and length.
_HEAD = struct.Struct(">32sI")


@dataclass(frozen=True)
class FinishedRun:
    """A run stored by a host: key of the co-location, replicate, record as a document, duration [s]."""

    colocation: str
    replicate: int
    record: dict[str, Any]
    wall_s: float

    @property
    def key(self) -> tuple[str, int]:
        """The co-location's key and the replicate, as a run store uses them."""
        return self.colocation, self.replicate


@dataclass(frozen=True)
class Room:
    """A file with space for a host's last runs."""

    path: Path

    def set_aside(self) -> None:
        """Reserve the space unless that was done before. Raises StoreError if the disk has too little."""
        if not self.path.exists() or self.path.stat().st_size != PARTS * _PART_BYTES:
            write_durably(self.path, bytes(PARTS * _PART_BYTES))

    def keep(self, plan: str, run: FinishedRun) -> None:
        """Store a run in the oldest slot. Raises StoreError if it is too large, or no space was reserved."""
        parts = self._parts()
        numbers = [part["number"] if part else 0 for part in parts] or [0]
        content = {"number": max(numbers) + 1, "plan": plan, "run": vars(run)}
        packed = zlib.compress(json.dumps(content, separators=(",", ":")).encode())
        if len(packed) > _PART_BYTES - _HEAD.size:
            raise StoreError(
                f"{self.path}: a run of {len(packed)} B does not fit in {_PART_BYTES} B", hint="free some space"
            )
        head = _HEAD.pack(hashlib.sha256(packed).digest(), len(packed))
        overwrite(self.path, head + packed, _PART_BYTES * numbers.index(min(numbers)))

    def runs(self, plan: str) -> list[FinishedRun]:
        """Return the stored runs of a plan."""
        return [FinishedRun(**part["run"]) for part in self._parts() if part and part["plan"] == plan]

    def _parts(self) -> list[dict[str, Any] | None]:
        if not self.path.exists():
            return []
        hint = "remove it, where no coordinator runs"
        content = read_bytes(self.path, PARTS * _PART_BYTES, hint)
        if len(content) != PARTS * _PART_BYTES:
            raise StoreError(f"{self.path}: has {len(content)} B, needed {PARTS * _PART_BYTES}", hint=hint)
        return [_content(content[place : place + _PART_BYTES]) for place in range(0, len(content), _PART_BYTES)]


def _content(part: bytes) -> dict[str, Any] | None:
    """Return a slot's content; None if it is empty or truncated."""
    digest, length = _HEAD.unpack_from(part)
    packed = part[_HEAD.size : _HEAD.size + length]
    if hashlib.sha256(packed).digest() != digest:
        return None
    content: dict[str, Any] = json.loads(zlib.decompressobj().decompress(packed, _MOST_BYTES))
    return content
