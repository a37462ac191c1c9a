"""What a disk may hold after power was lost: a log of calls played with whatever was not synced left out.

Two disks bound what file systems do (Pillai et al., OSDI'14): on one, names are on the disk at once and data only after
a sync of the file; on the other, names too only after a sync of their folder.
"""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_LINE = re.compile(rb"[^\n]*\n")


@dataclass
class Content:
    """One file: what programs see, and what is on the disk."""

    seen: bytearray = field(default_factory=bytearray)
    kept: bytes = b""


@dataclass(frozen=True)
class Operation:
    """One call: its words and its data."""

    words: tuple[str, ...]
    data: bytes = b""


def operations(log: bytes) -> list[Operation]:
    """Return the calls of a log."""
    found, place = [], 0
    while match := _LINE.match(log, place):
        words, place = tuple(match[0].decode().rstrip("\n").split("\t")), match.end()
        size = int(words[3]) if words[0] == "write" else 0
        found.append(Operation(words, log[place : place + size]))
        place += size
    return found


class Disk:
    """Files below one folder, as seen and as kept."""

    def __init__(self, before: Path, root: Path) -> None:
        self.root = str(root)
        self.names: dict[str, Content] = {}
        for path in before.rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                self.names[f"{root}/{path.relative_to(before)}"] = Content(bytearray(data), data)
        self.kept_names, self.open = dict(self.names), dict[int, Content]()
        self.paths: dict[int, str] = {}
        self.moved: list[tuple[str, str]] = []
        self.acknowledged = 0

    def play(self, operation: Operation) -> None:
        """Make one call."""
        kind, *words = operation.words
        getattr(self, f"_{kind}", lambda *_: None)(operation, *words)

    def _ack(self, _: Operation) -> None:
        self.acknowledged += 1

    def _open(self, _: Operation, descriptor: str, path: str, flags: str) -> None:
        self.paths[int(descriptor)] = path
        if int(flags) & 0o200000:  # a folder
            return
        if int(flags) & 0o100 or path in self.names:
            content = self.names.setdefault(path, Content())
            if int(flags) & 0o1000:
                content.seen.clear()
            self.open[int(descriptor)] = content

    def _close(self, _: Operation, descriptor: str) -> None:
        self.open.pop(int(descriptor), None)
        self.paths.pop(int(descriptor), None)

    def _write(self, operation: Operation, descriptor: str, place: str, size: str) -> None:
        seen, start = self.open[int(descriptor)].seen, int(place)
        seen.extend(bytes(max(start - len(seen), 0)))
        seen[start : start + int(size)] = operation.data

    def _truncate(self, _: Operation, descriptor: str, size: str) -> None:
        seen = self.open[int(descriptor)].seen
        del seen[int(size) :]
        seen.extend(bytes(int(size) - len(seen)))

    def _sync(self, _: Operation, descriptor: str) -> None:
        if int(descriptor) in self.open:
            self.open[int(descriptor)].kept = bytes(self.open[int(descriptor)].seen)
            return
        folder = self.paths[int(descriptor)].rstrip("/")
        inside = [name for name in {*self.names, *self.kept_names} if name.rpartition("/")[0] == folder]
        for name in inside:
            if name in self.names:
                self.kept_names[name] = self.names[name]
            else:
                self.kept_names.pop(name, None)

        for old, new in [each for each in self.moved if each[1].rpartition("/")[0] == folder]:
            self.moved.remove((old, new))
            self.kept_names = _moved(self.kept_names, old, new)

    def _rename(self, _: Operation, old: str, new: str) -> None:
        if old in self.names:
            self.names[new] = self.names.pop(old)
        else:  # a folder
            self.names = _moved(self.names, old, new)
            self.moved.append((old, new))

    def _unlink(self, _: Operation, path: str) -> None:
        self.names.pop(path, None)

    def picture(self, *, are_names_kept: bool) -> Callable[[Path], None]:
        """Return what writes down what is on the disk now."""
        names = self.names if are_names_kept else self.kept_names
        held = {name.removeprefix(f"{self.root}/"): content.kept for name, content in names.items()}

        def write(folder: Path) -> None:
            folder.mkdir(parents=True, exist_ok=True)
            for name, data in held.items():
                if not name.endswith("-shm"):  # an index in memory, made anew after a crash
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    (folder / name).write_bytes(data)

        return write


def _moved(names: dict[str, Content], old: str, new: str) -> dict[str, Content]:
    """Return names with those below one folder below another."""
    below = f"{old}/"
    return {f"{new}/{name[len(below) :]}" if name.startswith(below) else name: each for name, each in names.items()}


def after_power_loss(
    log: bytes, before: Path, root: Path, most: int, dice: random.Random
) -> Iterator[tuple[str, Callable[[Path], None], int]]:
    """Yield, after each call or some of them: when, what writes what is on the disk, and how much was acknowledged."""
    disk, calls = Disk(before, root), operations(log)
    chosen = {*dice.sample(range(len(calls)), min(most, len(calls))), len(calls) - 1}
    for number, operation in enumerate(calls):
        disk.play(operation)
        if number in chosen:
            name = f"after call {number} ({operation.words[0]})"
            yield f"{name}, names kept", disk.picture(are_names_kept=True), disk.acknowledged
            yield f"{name}, names lost", disk.picture(are_names_kept=False), disk.acknowledged
