"""Every place where slomo opens a file is one that the fuzz reads through; hostile files are refused at once."""

import ast
import functools
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import slomo.files.opening as opening
from slomo.errors import SlomoError
from slomo.models.library import ModelLibrary
from tests.faults.counts import note
from tests.faults.readers import Reader, readers
from tests.faults.test_fuzz import attempt

PACKAGE = Path(__file__).resolve().parents[2] / "slomo"
#: Functions that open a file -> the module that defines them.
DOORS = {
    "slomo.files.opening": ("open_regular", "read_bytes", "read_text"),
    "slomo.files.documents": ("read",),
    "slomo.records.tables": ("read_text",),
}
#: Rooms that read the kernel's files and what programs of theirs write; all others open files by the one reader.
KERNEL = (
    "host/", "testbed/host/", "testbed/champsim/", "enforce/backends/", "enforce/conflicts.py",
    "fleet/campaign.py", "fleet/asking.py", "fleet/starting.py", "control/pools/workload.py",
)  # fmt: skip
#: A file that opens none holds none of these.
WORDS = re.compile("read_text|read_bytes|open|sqlite3|documents")
#: Files of slomo itself.
SHIPPED = (
    "with_suffix('.sig')", "os.open(", "resources.files(", "native_sources()", "joinpath(name)", "Path(__file__)",
    "card.read_text", "(files(home) / part)", "archive.read_bytes()", "lzma.open(archive)",
    "Path('/proc/self/statm')",
)  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A call that opens a file: where it stands, what is called, and its text."""

    place: str
    function: str
    called: str
    text: str


@functools.cache
def _calls() -> tuple[Call, ...]:
    """Return every call outside `files/` that opens a file."""
    found = []

    def visit(tree: ast.AST, place: str, function: str, doors: set[str]) -> None:
        for node in ast.iter_child_nodes(tree):
            inside = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
            if isinstance(node, ast.Call):
                last = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if last in doors | {"read_text", "read_bytes", "open"} or ast.unparse(node.func) == "sqlite3.connect":
                    found.append(Call(place, inside, ast.unparse(node.func), ast.unparse(node)))
            visit(node, place, inside, doors)

    for path in sorted(PACKAGE.rglob("*.py")):
        place, text = path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")
        if place.startswith("files/") or not WORDS.search(text):
            continue
        tree = ast.parse(text)
        visit(tree, place, "<module>", _doors(tree))
    return tuple(found)


def _doors(tree: ast.Module) -> set[str]:
    """Return the names under which a module has functions that open a file."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in DOORS.get(node.module or "", ())
    }


def _is_the_one(call: Call) -> bool:
    """Return whether a call is one of the one reader's, or opens a database."""
    plain = "." not in call.called and call.called != "open"
    return plain or call.called.startswith(("tables.", "opening.", "sqlite3."))


def _stack(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    while frame is not None:
        if frame.f_code.co_filename.startswith(str(PACKAGE)):
            yield Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix(), frame.f_code.co_name
        frame = frame.f_back


class _SeenSystem:
    """The system as `slomo.files.opening` sees it; notes who asks."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()

    def fstat(self, descriptor: int) -> os.stat_result:
        """Note who opened a file."""
        self.seen |= set(_stack(sys._getframe(1)))
        return os.fstat(descriptor)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


@pytest.fixture(scope="module")
def every_reader(tmp_path_factory: pytest.TempPathFactory, toy_library: ModelLibrary) -> tuple[Reader, ...]:
    """Return every reader with a right file."""
    return readers(tmp_path_factory.mktemp("every") / "seeds", toy_library)


def test_every_caller_of_the_one_reader_is_fuzzed(
    every_reader: tuple[Reader, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the right files of the fuzz runs through every function that opens a file."""
    system, connect = _SeenSystem(), sqlite3.connect

    def connected(*words: Any, **more: Any) -> sqlite3.Connection:
        system.seen |= set(_stack(sys._getframe(1)))
        return connect(*words, **more)

    monkeypatch.setattr(opening, "os", system)
    monkeypatch.setattr(sqlite3, "connect", connected)
    for reader in every_reader:
        assert attempt(reader, tmp_path / f"{reader.name}{reader.suffix}", reader.content) == "", reader.name
    assert {(call.place, call.function) for call in _calls() if _is_the_one(call)} - system.seen == set()


def test_no_file_is_opened_elsewise() -> None:
    """Outside the rooms of the host nothing opens a file but by the one reader, or slomo's own."""
    others = [
        call
        for call in _calls()
        if not _is_the_one(call)
        and not call.place.startswith(KERNEL)
        and not any(part in call.text for part in SHIPPED)
    ]
    assert others == []


def _aliases() -> bytes:
    """Return lists of which each holds nine of the one before: a billion fields."""
    lists = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    return "\n".join(["a0: &a0 [x]", *lists]).encode()


def _merges() -> bytes:
    """Return mappings that merge nine of the one before."""
    mappings = [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 10)]
    return "\n".join(["a0: &a0 {k: v}", *mappings]).encode()


def _listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def _sparse(path: Path, size_b: int) -> None:
    path.touch()
    os.truncate(path, size_b)


def _parquet_bomb(path: Path) -> None:
    """Write a small file that stands for gigabytes."""
    indices = pa.array(np.zeros(11_000_000, dtype=np.int32))
    column = pa.DictionaryArray.from_arrays(indices, ["x" * 1000])
    pq.write_table(pa.table({"a": column, "b": column}), path, compression="zstd")


def _content(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


#: What may stand in the place of a file -> what puts it there.
HOSTILE: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a folder": os.mkdir,
    "a socket": _listening,
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a link to a terminal": lambda path: path.symlink_to("/dev/ptmx"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to a process's memory": lambda path: path.symlink_to("/proc/self/mem"),
    "a sparse file of 3 GiB": partial(_sparse, size_b=3 << 30),
    "a sparse file of 1.9 GiB": partial(_sparse, size_b=2_000_000_000),
    "aliases that stand for a billion": _content(_aliases()),
    "merges that stand for a billion": _content(_merges()),
    "20,000 levels of JSON": _content(b'{"a":' * 20_000),
    "20,000 levels of YAML": _content(b"[" * 20_000),
    "20,000 levels of TOML": _content(b"a = " + b"[" * 20_000),
    "a number of 900,000 digits": _content(b'{"a": ' + b"9" * 900_000 + b"}"),
    "900,000 commas": _content(b"," * 900_000),
    "one line of 900,000 letters": _content(b"x" * 900_000),
    "nothing": lambda path: path.touch(),
}
#: Readers that go on without the file: a save mends an index, a watch without a token is told 401.
WITHOUT = {
    "library-saved-over", "library-left-over", "library-superseded.json", "library-found", "library-served",
    "pod-token", "pod-namespace", "agent-token",
}  # fmt: skip
#: Nothing there is a state without entries; a link that was moved leads nowhere.
ABSENT = ("nothing", "a link to itself")


def test_hostile_files_are_refused_at_once(every_reader: tuple[Reader, ...], tmp_path: Path) -> None:
    """FIFOs, devices, links, bombs and nothing at all in the place of any file: refused, each within a second."""
    slowest, taken, tried = (0.0, ""), [], 0
    for reader in every_reader:
        bombs = {**HOSTILE, **({"a parquet bomb": _parquet_bomb} if reader.suffix == ".parquet" else {})}
        for name, put in bombs.items() if reader.is_file else ():
            path = tmp_path / f"{tried}{reader.suffix}"
            put(path)
            before, tried = time.process_time(), tried + 1
            if not _refuses(reader, path) and reader.name not in WITHOUT and name not in ABSENT:
                taken.append((reader.name, name))
            slowest = max(slowest, (time.process_time() - before, f"{reader.name}: {name}"))
    assert slowest[0] < 1.0, slowest
    assert not taken
    note("bombs, FIFOs, links", "all readers", tried, 0, took_s=slowest[0])


def _hangs(*_: object) -> None:
    raise AssertionError("waits for ever")


def _refuses(reader: Reader, path: Path) -> bool:
    """Return whether what stands there is refused; anything but an error of ours is raised."""
    signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(60)  # what waits for ever ends here, not what is slow on a busy machine
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(path)
    except SlomoError as error:
        if error.exit_code not in (2, 3, 4, 5):
            raise
        return True
    finally:
        signal.alarm(0)
    return False


#: Reads 8,000 requests (450 KB) a few times, and says what the quickest took of the processor [s].
REQUESTS = """
import json, time
from slomo.placement.problem.documents import parse_requests
text = json.dumps({"requests": [{"id": f"r{n}", "nf": "lpm", "slo": {"min_share": 0.9}} for n in range(8000)]})
def took_s():
    before = time.process_time()
    assert len(parse_requests(text, "requests.json")) == 8000
    return time.process_time() - before
print(min(took_s() for _ in range(7)))
"""


def test_eight_thousand_requests_take_no_time() -> None:
    """8,000 requests of JSON are read in about 0.1 s of an idle core; the parser before this one took 7.5 s."""
    told = subprocess.run([sys.executable, "-c", REQUESTS], capture_output=True, text=True, check=True)
    note("8,000 requests", "JSON", 8000, 0, took_s=float(told.stdout))
    assert float(told.stdout) < 1.5
