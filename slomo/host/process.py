"""Start programs in sessions of their own and end them in every case; network functions are also pinned and paused.

A process inherits the CPU affinity of the thread that starts it, so that no Python code runs between fork and exec. If
there are several NUMA nodes, `numactl` binds the process to its node.

Output is read by one thread per stream; memory is bounded whatever the process prints.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from slomo.errors import TestbedError
from slomo.host.cores import node_of
from slomo.host.family import Family
from slomo.host.marker import VARIABLE, RunMark

LineHandler = Callable[[float, str], None]
_CHUNK_B = 1 << 16
_LONGEST_LINE_B = 1 << 16
_LAST_LINES = 20
_POLL_S = 0.01
_AFTER_KILL_S = 5.0
_LONGEST_QUOTE = 200
_starting = threading.Lock()


class Drain:
    """Reads one output stream of a process in a thread of its own.

    `handlers`, to which more may be added, get the arrival time [s, monotonic] and the text of every line.
    """

    def __init__(self, stream: IO[bytes], handlers: list[LineHandler]) -> None:
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._handlers = handlers
        self._rest = b""
        self._thread = threading.Thread(target=self._loop, args=(stream,), daemon=True, name="slomo-drain")
        self._thread.start()

    def join(self, limit_s: float) -> None:
        """Wait until the stream has ended."""
        self._thread.join(limit_s)

    def _loop(self, stream: IO[bytes]) -> None:
        with stream:
            while chunk := _read(stream.fileno()):
                self._take(chunk)
            self._take(b"\n" if self._rest else b"")

    def _take(self, chunk: bytes) -> None:
        arrived_s = time.monotonic()
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[:_LONGEST_LINE_B]
        for line in lines:
            text = line[:_LONGEST_LINE_B].decode("utf-8", "replace").rstrip("\r")
            self.last_lines.append(text[:500])
            for handle in tuple(self._handlers):
                handle(arrived_s, text)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _CHUNK_B)
    except OSError:
        return b""


class ProcessGroup(ABC):
    """A program in a session of its own; slomo reads its output, and ends all its descendants with it.

    `mark`: mark written into its environment, to which `environment` is added. `cores`: CPUs on which it may run; if
    empty, those of this process. `listens`: whether it reads what `write` sends.
    """

    def __init__(
        self,
        words: Sequence[str],
        mark: RunMark,
        *,
        environment: Mapping[str, str] | None = None,
        directory: str | Path | None = None,
        cores: Sequence[int] = (),
        listens: bool = False,
    ) -> None:
        self.words, self.mark = tuple(words), mark
        self._last_state: os.waitid_result | None = None
        try:
            with _starting, _pinned(cores or os.sched_getaffinity(0)):
                self._process = subprocess.Popen(
                    self.words,
                    stdin=subprocess.PIPE if listens else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**os.environ, **(environment or {}), VARIABLE: mark.text},
                    cwd=directory,
                    start_new_session=True,
                )
        except OSError as error:
            raise self._fault(error) from None
        self._family = Family(mark, self._process.pid)
        self._handlers: dict[str, list[LineHandler]] = {"stdout": [], "stderr": []}
        self._drains: dict[str, Drain] = {}

    @abstractmethod
    def _fault(self, error: OSError) -> TestbedError:
        """Return the error for a command that cannot be started."""

    def listen(self) -> None:
        """Begin to read the program's output; handlers that were added earlier get every line."""
        for name, pipe in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
            assert pipe is not None
            if name not in self._drains:
                self._drains[name] = Drain(pipe, self._handlers[name])

    def on_line(self, stream: str, handler: LineHandler) -> None:
        """Call `handler` with every further line of ``"stdout"`` or ``"stderr"``."""
        self._handlers[stream].append(handler)

    def write(self, text: str) -> None:
        """Send text to the program's standard input; a program that has ended gets nothing."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            os.write(self._process.stdin.fileno(), text.encode())

    @property
    def pid(self) -> int:
        """Process id of the program."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the program still runs."""
        # a dead process is not reaped here, so that its id is not reused and its group can be killed safely
        return self._exit_state() is None

    def _exit_state(self) -> os.waitid_result | None:
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return self._last_state

    def wait(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Wait until `condition` is true; return False if the program ends or the time limit [s] passes before."""
        deadline = time.monotonic() + limit_s
        while not condition():
            if not self.alive or time.monotonic() > deadline:
                return condition()
            time.sleep(_POLL_S)
        return True

    def end(self, number: signal.Signals, limit_s: float) -> int:
        """Terminate the program, kill the rest of its group, and return its exit code when no process is left.

        The exit code is the negative signal number if a signal killed the program.
        """
        try:
            if self.alive:
                self._signal(number)
                self._signal(signal.SIGCONT)
                self.wait(lambda: not self.alive, limit_s)
        finally:  # even if Ctrl-C arrives while waiting
            self._signal(signal.SIGKILL)
            self._family.end()
            self.wait(lambda: not self.alive, _AFTER_KILL_S)
            self._last_state = self._exit_state()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)
            for drain in self._drains.values():
                drain.join(0.5)
            outputs = () if self._drains else (self._process.stdout, self._process.stderr)
            for pipe in (self._process.stdin, *outputs):
                if pipe is not None:
                    pipe.close()
        return -int(signal.SIGKILL) if self._process.returncode is None else self._process.returncode

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is not None:
            return  # already reaped: another process may have the id by now
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


class ManagedProcess(ProcessGroup):
    """The process of the network function `name`, pinned to its cores; parameters as for `ProcessGroup`."""

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        cores: Sequence[int],
        mark: RunMark,
        *,
        environment: Mapping[str, str] | None = None,
        directory: str | Path | None = None,
        listens: bool = False,
    ) -> None:
        self.name, self.cores, self._directory = name, tuple(cores), directory
        self.paused = False
        words = (*_numa_binding(cores), *words)
        super().__init__(words, mark, environment=environment, directory=directory, cores=cores, listens=listens)

    def _fault(self, error: OSError) -> TestbedError:
        who, command = f"network function '{self.name}'", f"'{self.words[0]}'"
        if isinstance(error, FileNotFoundError):
            missing = os.fsdecode(error.filename) if error.filename else self.words[0]
            is_folder = self._directory is not None and missing == str(self._directory)
            what = f"directory '{missing}'" if is_folder else f"command {command}"
            return TestbedError(
                f"{who}: {what} does not exist", hint="install it, or correct `command` in the NF's `host:` section"
            )
        return TestbedError(
            f"{who}: {command} cannot be started on cores {list(self.cores)}: {error.strerror}",
            hint="check that it may be executed, and that the cores exist",
        )

    @property
    def exit_code(self) -> int | None:
        """Exit code of the process; None while it runs, or if a signal ended it."""
        state = self._exit_state()
        return state.si_status if state is not None and state.si_code == os.CLD_EXITED else None

    def cpu_time_s(self) -> float:
        """Return the CPU time of all threads of the process [s], in a finer resolution than ``/proc/PID/stat``."""
        if not self.alive:
            return 0.0
        with contextlib.suppress(OSError):
            # the clock id of CPUCLOCK_SCHED of a process, clock_getcpuclockid(3)
            return time.clock_gettime(((~self.pid) << 3) | 2)
        return 0.0

    def pause(self) -> None:
        """Pause all processes of the group: they keep their memory but use no CPU."""
        self._signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """Resume the processes that `pause` has paused."""
        self._signal(signal.SIGCONT)
        self.paused = False

    def require_alive(self, doing: str) -> None:
        """Raise TestbedError, with the exit code and the last output, if the process has ended."""
        if not self.alive:
            for drain in self._drains.values():
                drain.join(0.2)
            raise TestbedError(
                f"network function '{self.name}' {self._ending()} while {doing}.{self.last_words()}",
                hint=f"try the command by hand: {' '.join(self.words)}",
            )

    def _ending(self) -> str:
        state = self._exit_state()
        if state is None or state.si_code == os.CLD_EXITED:
            return f"ended with exit code {state.si_status if state else 0}"
        return f"was killed by {signal.Signals(state.si_status).name}"

    def last_words(self, lines: int = 3) -> str:
        """Return the last lines of the process's output as a sentence; empty if there was no output."""
        for name in ("stderr", "stdout"):
            heard = self._drains[name].last_lines if name in self._drains else ()
            spoken = [line[:_LONGEST_QUOTE] for line in heard if line.strip()]
            if spoken:
                return f" It last said: {' | '.join(spoken[-lines:])}"
        return " It said nothing."

    def stop(self, number: signal.Signals = signal.SIGINT, limit_s: float = 3.0) -> None:
        """Terminate the process, then kill the rest of its group; return when no process is left."""
        self.end(number, limit_s)


@contextlib.contextmanager
def _pinned(cores: Iterable[int]) -> Iterator[None]:
    """Pin the calling thread to `cores` while it starts a child process, which inherits the affinity."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _numa_binding(cores: Sequence[int]) -> tuple[str, ...]:
    nodes = {node_of(core) for core in cores}
    several = len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) > 1
    if not several or len(nodes) != 1 or None in nodes or shutil.which("numactl") is None:
        return ()
    return ("numactl", f"--membind={nodes.pop()}")
