"""Fail, cut short, interrupt or end every I/O call of every writer in turn; lose what was not synced.

Run with `seam.c` preloaded: ``python -m tests.faults.seam FOLDER FAULTS KILLS SEED``. Each case is a child of this
process, forked once everything is imported, on a copy of what the writer finds. Prints one line of JSON per writer.
"""

import contextlib
import ctypes
import errno
import gc
import json
import os
import pickle
import random
import shutil
import signal
import sqlite3
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slomo.cli.faults import describe
from slomo.files.durable import DRAFT
from slomo.service.door.problems import problem_of
from tests.faults.lost import after_power_loss
from tests.faults.writers import CARELESS, STATE, Writer, put_shared, writers

COUNT, FAIL, FAIL_ON, SHORT, KILL_BEFORE, KILL_AFTER, CLOCK, READ_ONLY = range(8)
#: What happens at a call, how, with which error: a full disk stays full, a failing one may fail once.
FAULTS = {
    "disk is full": (FAIL_ON, errno.ENOSPC),
    "full for one call": (FAIL, errno.ENOSPC),
    "I/O error": (FAIL, errno.EIO),
    "I/O errors from then on": (FAIL_ON, errno.EIO),
    "interrupted": (FAIL, errno.EINTR),
    "writes less": (SHORT, 0),
    "clock jumps ahead": (CLOCK, 10**8),
    "clock jumps back": (CLOCK, -(10**8)),
}
KILLS = {"killed before": (KILL_BEFORE, 0), "killed after": (KILL_AFTER, 0)}


class Seam:
    """The preloaded library."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.seam_disarm.restype = ctypes.c_long

    def arm(self, folder: Path, mode: int, number: int = 0, error: int = 0, record: int = -1) -> None:
        """Watch calls below a folder."""
        self._library.seam_arm(str(folder).encode(), mode, ctypes.c_long(number), error, record)

    def disarm(self) -> int:
        """Stop; return how many calls there were."""
        return int(self._library.seam_disarm())


def in_child(run: Callable[[Callable[[Any], None]], None]) -> tuple[list[Any], int]:
    """Run something in a child of this process; return what it told, and how it ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        told = os.fdopen(writer, "wb", buffering=0)
        code = 1
        try:
            signal.alarm(900)  # a child that hangs, not one on a busy machine
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run(lambda value: told.write(pickle.dumps(value)))
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        values = []
        while True:
            try:
                values.append(pickle.load(pipe))
            except EOFError:
                break
    return values, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Case:
    """One writer on copies of one folder."""

    def __init__(self, seam: Seam, writer: Writer, folder: Path) -> None:
        self.seam, self.writer, self.folder = seam, writer, folder
        self.before, self.now = folder / "before", folder / "now"
        self.before.mkdir(parents=True)
        self.told(lambda tell: tell(writer.prepare(self.before) and None))
        self.start()
        self.calls, _, error = self.write("new", COUNT)
        assert error is None, error
        assert self.read() == writer.steps
        assert self.write("again", COUNT)[2] is None
        self.clean = self.shape()

    def told(self, run: Callable[[Callable[[Any], None]], None]) -> list[Any]:
        values, code = in_child(run)
        assert code == 0, f"{self.writer.name}: a child ended with {code}"
        return values

    def start(self) -> None:
        """Put the folder back to what it was before."""
        shutil.rmtree(self.now, ignore_errors=True)
        shutil.copytree(self.before, self.now)

    def write(self, note: str, mode: int, number: int = 0, error: int = 0, record: int = -1) -> tuple[int, int, Any]:
        """Run the writer; return calls made, steps acknowledged, and its error (``"killed"`` where it was)."""

        def run(tell: Callable[[Any], None]) -> None:
            failed = None
            self.seam.arm(self.now, mode, number, error, record)
            try:
                for _ in self.writer.write(self.now, note):
                    os.write(record, b"ack\n") if record >= 0 else tell("ack")
            except sqlite3.Error as problem:  # the service's: its door says what it means (`problem_of`)
                failed = describe(problem) if self.writer.name != STATE else problem_of(problem, "")[0]
            except BaseException as problem:
                failed = describe(problem)
            calls = self.seam.disarm()
            tell((calls, failed))

        values, code = in_child(run)
        acknowledged = sum(value == "ack" for value in values)
        if code == -signal.SIGKILL:
            return 0, acknowledged, "killed"
        assert code == 0, f"{self.writer.name}: ended with {code} at call {number} in mode {mode}"
        return values[-1][0], acknowledged, values[-1][1]

    def read(self, folder: Path | None = None) -> Any:
        """Return how many steps the folder holds, or what went wrong."""

        def run(tell: Callable[[Any], None]) -> None:
            try:
                tell(self.writer.read(folder or self.now))
            except BaseException as problem:
                tell(f"{type(problem).__name__}: {problem}"[:300])

        return self.told(run)[-1]

    def shape(self) -> tuple[int, int]:
        """Return how many files and folders there are."""
        listed = list(self.now.rglob("*"))
        return sum(path.is_file() for path in listed), sum(path.is_dir() for path in listed)

    def leftovers(self) -> list[str]:
        """Return drafts and locks that are left, and whether there are more files than after undisturbed runs."""
        names = [path.name for path in self.now.rglob("*") if path.name.endswith((DRAFT, ".turn", "-journal"))]
        files, folders = self.shape()
        return names + ([f"{files} files in {folders} folders, {self.clean} elsewise"] if files > self.clean[0] else [])

    def problem(self, mode: int, number: int, error: int) -> str:
        """Return what is wrong after one fault; nothing where all is as it must be."""
        self.start()
        _, acknowledged, failed = self.write("new", mode, number, error)
        there = self.read()
        if not isinstance(there, int):
            return f"unreadable: {there}"
        steps = self.writer.steps
        if not acknowledged <= there <= min(acknowledged + 1, steps):
            return f"{acknowledged} steps were acknowledged, {there} are there"
        if isinstance(failed, int) and failed not in (503, 507):
            return f"answered with {failed}"
        if failed is None and there != steps:
            return f"ended well with {there} of {steps} steps"
        if isinstance(failed, tuple):
            name, message, _, code = failed
            if code not in (2, 3):
                return f"exit code {code}: {name}: {message}"
            if str(self.now) not in message:
                return f"names no file: {message}"
        again = self.write("again", COUNT)[2]
        if again is not None:
            return f"the next run fails: {again}"
        left = self.leftovers()
        return f"left after the next run: {left}" if left else ""

    def run(self, cases: list[tuple[str, int, int, int]]) -> dict[str, Any]:
        """Try cases; return counts and what went wrong."""
        found, done = [], dict[str, int]()
        for name, mode, number, error in cases:
            done[name] = done.get(name, 0) + 1
            if problem := self.problem(mode, number, error):
                found.append(f"{name} at call {number} of {self.calls}: {problem}")
        return {"writer": self.writer.name, "calls": self.calls, "done": done, "bad": found}

    def power(self, most: int, dice: random.Random) -> tuple[int, list[str]]:
        """Lose power after every call, with all that was not synced; return how many cases, and what went wrong."""
        self.start()
        log = self.folder / "log"
        descriptor = os.open(log, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        self.write("new", COUNT, record=descriptor)
        os.close(descriptor)
        found, done = [], 0
        for name, picture, acknowledged in after_power_loss(log.read_bytes(), self.before, self.now, most, dice):
            place = self.folder / "lost"
            shutil.rmtree(place, ignore_errors=True)
            picture(place)
            there, done = self.read(place), done + 1
            if not isinstance(there, int) or not acknowledged <= there <= min(acknowledged + 1, self.writer.steps):
                found.append(f"power lost {name}: {acknowledged} steps were acknowledged, read: {there}")
        return done, found


def main(folder: str, faults: str, kills: str, seed: str) -> None:
    """Try `faults` cases of each writer (0: every call with every fault), and `kills` kills over all writers.

    The last writer is careless: what finds nothing wrong with it finds nothing.
    """
    dice, seam, place = random.Random(int(seed)), Seam(), Path(folder).resolve()
    in_child(lambda _: put_shared(place / "shared"))
    made = writers(place / "shared")
    gc.freeze()
    for number, writer in enumerate((*made, CARELESS)):
        before = time.process_time()
        case = Case(seam, writer, place / str(number))
        every = [(name, mode, call, error) for name, (mode, error) in FAULTS.items() for call in _calls(case)]
        chosen = [("read-only", READ_ONLY, 0, errno.EROFS), *every]
        if int(faults):
            chosen = [chosen[0], *dice.sample(every, min(int(faults), len(every)))]
        if writer is CARELESS:
            chosen = [("disk is full", FAIL_ON, 2, errno.ENOSPC), ("killed after", KILL_AFTER, 1, 0)]
        for _ in range(int(kills) // len(made) if writer is not CARELESS else 0):
            name = dice.choice(list(KILLS))
            chosen.append((name, KILLS[name][0], dice.randint(1, case.calls), 0))
        result = case.run(chosen)
        lost, bad = case.power(int(faults) or 10**9, dice)
        result["done"]["power lost"] = lost
        result["bad"] += bad
        sys.stdout.write(json.dumps({**result, "cpu_s": time.process_time() - before}) + "\n")
        sys.stdout.flush()
        with contextlib.suppress(OSError):
            shutil.rmtree(place / str(number))


def _calls(case: Case) -> range:
    return range(1, case.calls + 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
