"""Record how a network function executes: every instruction and memory access, from a marked function on.

`valgrind --tool=lackey --trace-mem=yes` prints one line per reference (Valgrind User Manual, chapter 14). Calls of
`worker_step` mark the bursts. The first bursts warm the function's tables; of them only the referenced cache lines are
kept.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from slomo.errors import ConfigurationError, TestbedError

#: Kinds of references; a modification is a load, then a store.
LOAD, STORE, MODIFY = 0, 1, 2
_KINDS = {b" L": LOAD, b" S": STORE, b" M": MODIFY}
_CHUNK_B = 1 << 20
_LINE_B = 64


@dataclass(frozen=True, eq=False)
class Recording:
    """Instructions of a program in order of execution, and their data references."""

    #: Address and length of each instruction [B], shape (instructions,).
    ip: NDArray[np.uint64]
    size: NDArray[np.uint8]
    #: Index of the instruction, address, and kind of each data reference, shape (references,).
    owner: NDArray[np.int64]
    address: NDArray[np.uint64]
    kind: NDArray[np.uint8]
    #: Cache lines referenced before the recording, each once, in order of their last reference, shape (lines,).
    history: NDArray[np.uint64]
    #: Number of calls of the marked function within the recording.
    calls: int


def symbol_address(program: Path, name: str) -> int:
    """Return the address of a function in a program that is not position-independent."""
    try:
        listed = subprocess.run(["nm", str(program)], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise TestbedError(f"'{program}': its functions cannot be listed: {error}", hint="install binutils") from None
    match = re.search(rf"^([0-9a-f]+) [tT] {re.escape(name)}$", listed, re.MULTILINE)
    if match is None:
        raise TestbedError(f"'{program}' has no function '{name}', needed as marker", hint="use a build with symbols")
    return int(match[1], 16)


def record(command: list[str], marker: int, *, skipped_calls: int, instructions: int) -> Recording:
    """Run a program under valgrind's lackey; return its execution after `skipped_calls` calls of the marked function.

    The skipped calls warm the tables; only the cache lines that they reference are kept. The program is killed once
    enough was recorded; TestbedError if valgrind is missing or the program ends too early.
    """
    if shutil.which("valgrind") is None:
        raise TestbedError(
            "network functions are traced with valgrind, which is not installed", hint="install valgrind"
        )
    reading, writing = os.pipe()
    words = ["valgrind", "--tool=lackey", "--trace-mem=yes", f"--log-fd={writing}", *command]
    with subprocess.Popen(
        words, pass_fds=(writing,), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        os.close(writing)
        try:
            with os.fdopen(reading, "rb") as stream:
                warm, text = _read(stream, b"I  %08x," % marker, skipped_calls, instructions)
        finally:
            process.kill()  # the program ignores a closed pipe
    try:
        return parse(text, history=_last_lines(warm), marker=marker, instructions=instructions)
    except ConfigurationError as error:
        raise TestbedError(f"{' '.join(command)}: {error.message}", hint=error.hint) from None


def parse(text: bytes, *, history: NDArray[np.uint64], marker: int, instructions: int) -> Recording:
    """Convert lackey's output to a recording."""
    ips, sizes, owners, addresses, kinds = [], [], [], [], []
    count = 0
    for number, line in enumerate(text.split(b"\n"), 1):
        mark = line[:2]
        if mark == b"I ":
            if count == instructions:
                break
            place, _, size = line[3:].partition(b",")
            ips.append(int(place, 16))
            sizes.append(int(size))
            count += 1
        elif mark in _KINDS:
            if not count:
                continue
            owners.append(count - 1)
            addresses.append(int(line[3:].partition(b",")[0], 16))
            kinds.append(_KINDS[mark])
        elif line and not line.startswith(b"=="):
            raise ConfigurationError(
                f"trace, line {number}: {line[:40]!r} is no reference, needed 'I  address,size', ' L', ' S' or ' M'",
                hint="record it with valgrind --tool=lackey --trace-mem=yes",
            )
    if count < instructions:
        raise ConfigurationError(
            f"trace: ends after {count} instructions, needed {instructions}",
            hint="the trace was cut short: record it again, with more packets",
        )
    ip = np.array(ips, dtype=np.uint64)
    return Recording(
        ip,
        np.array(sizes, dtype=np.uint8),
        np.array(owners, dtype=np.int64),
        np.array(addresses, dtype=np.uint64),
        np.array(kinds, dtype=np.uint8),
        history,
        int(np.count_nonzero(ip == marker)),
    )


def _read(stream: BinaryIO, mark: bytes, skipped_calls: int, instructions: int) -> tuple[bytes, bytes]:
    """Return lackey's output from the marker's first call up to the recording, and the recording's own output."""
    parts, rest, calls = [], b"", 0
    while calls <= skipped_calls:
        chunk = stream.read(_CHUNK_B)
        if not chunk:
            return b"", b""
        text = rest + chunk
        here = text.count(mark)
        if calls + here > skipped_calls:
            place = -1
            for _ in range(skipped_calls - calls + 1):
                place = text.index(mark, place + 1)
            parts.append(text[:place])
            body, count = [text[place:]], text.count(b"\nI", place)
            break
        keep = text.rfind(b"\n") + 1
        if calls or here:
            parts.append(text[:keep])
        calls, rest = calls + text[:keep].count(mark), text[keep:]
    while count <= instructions:
        chunk = stream.read(_CHUNK_B)
        if not chunk:
            break
        body.append(chunk)
        count += chunk.count(b"\nI")
    return b"".join(parts), b"".join(body)


def _last_lines(text: bytes) -> NDArray[np.uint64]:
    """Return the cache lines that lackey's output mentions, in order of last use."""
    addresses = [int(line[3:].partition(b",")[0], 16) for line in text.split(b"\n") if line[:2] in _KINDS]
    return in_order_of_last_use(np.array(addresses, dtype=np.uint64) // np.uint64(_LINE_B))


def in_order_of_last_use(lines: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return every cache line once; the line used last comes last.

    >>> in_order_of_last_use(np.array([7, 3, 7, 5], dtype=np.uint64)).tolist()
    [3, 7, 5]
    """
    unique, first = np.unique(lines[::-1], return_index=True)
    return unique[np.argsort(-first)]
