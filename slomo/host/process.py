"""One process of an NF: started in its own session on its cores, paused, resumed, and ended in every case.

It is pinned by inheriting the affinity of the thread that starts it, so no Python code runs between fork and exec;
`numactl` binds it to its NUMA node if there are several.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from slomo.errors import TestbedError
from slomo.host.cores import node_of
from slomo.host.draining import Drain, LineHandler
from slomo.host.family import Family
from slomo.host.marker import VARIABLE, RunMark

_POLL_S = 0.01
_AFTER_KILL_S = 5.0
_LONGEST_QUOTE = 200
_starting = threading.Lock()


class ManagedProcess:
    """A started process that will be ended.

    Raises TestbedError if the command does not exist or may not be run, or a core does not exist.

    Parameters
    ----------
    name : str
        Of the network function, for errors.
    words : sequence of str
        Command; never a shell line.
    cores : sequence of int
        CPUs it may run on.
    mark : RunMark
        Written into its environment.
    environment : mapping, optional
        Variables added to this process's own.
    directory : path, optional
        Where it starts.
    """

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        cores: Sequence[int],
        mark: RunMark,
        *,
        environment: Mapping[str, str] | None = None,
        directory: str | Path | None = None,
    ) -> None:
        self.name, self.cores = name, tuple(cores)
        self.words = (*_numa_binding(cores), *words)
        self.mark = mark
        self.paused = False
        self._last_state: os.waitid_result | None = None
        variables = {**os.environ, **(environment or {}), VARIABLE: mark.text}
        self._process = self._start(variables, directory)
        self._family = Family(mark, self._process.pid)
        self.started_s = time.monotonic()
        self._handlers: dict[str, list[LineHandler]] = {"stdout": [], "stderr": []}
        self._drains: dict[str, Drain] = {}

    def listen(self) -> None:
        """Begin to read its output; add handlers first, then no line is lost."""
        for name, pipe in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
            assert pipe is not None
            if name not in self._drains:
                self._drains[name] = Drain(pipe, self._handlers[name])

    def _start(self, variables: Mapping[str, str], directory: str | Path | None) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        try:
            with _starting, _pinned(self.cores):
                return subprocess.Popen(
                    self.words,
                    stdin=subprocess.DEVNULL,
                    stdout=pipe,
                    stderr=pipe,
                    env=variables,
                    cwd=directory,
                    start_new_session=True,
                )
        except FileNotFoundError as error:
            missing = os.fsdecode(error.filename) if error.filename else self.words[0]
            what = (
                f"directory '{missing}'"
                if directory is not None and missing == str(directory)
                else f"command '{self.words[0]}'"
            )
            raise TestbedError(
                f"network function '{self.name}': {what} does not exist",
                hint="install it, or correct `command` in the NF's `host:` section",
            ) from None
        except OSError as error:
            raise TestbedError(
                f"network function '{self.name}': '{self.words[0]}' cannot be started on cores {list(self.cores)}: "
                f"{error.strerror}",
                hint="check that it may be executed, and that the cores exist",
            ) from None

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        # a dead process is not reaped here: its id stays taken, so that its group can be killed safely
        return self._exit_state() is None

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs, or if a signal ended it."""
        state = self._exit_state()
        return state.si_status if state is not None and state.si_code == os.CLD_EXITED else None

    def _exit_state(self) -> os.waitid_result | None:
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return self._last_state

    def on_line(self, stream: str, handler: LineHandler) -> None:
        """Call `handler` with every further line of ``"stdout"`` or ``"stderr"``."""
        self._handlers[stream].append(handler)

    def cpu_time_s(self) -> float:
        """Return the CPU time of all its threads [s], in nanosecond resolution unlike ``/proc/PID/stat``."""
        if not self.alive:
            return 0.0
        with contextlib.suppress(OSError):
            return time.clock_gettime(
                ((~self.pid) << 3) | 2
            )  # the clock id of CPUCLOCK_SCHED of a process, clock_getcpuclockid(3)
        return 0.0

    def pause(self) -> None:
        """Stop the whole group: it keeps its memory but uses no CPU."""
        self._signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """Resume a paused group."""
        self._signal(signal.SIGCONT)
        self.paused = False

    def require_alive(self, doing: str) -> None:
        """Raise TestbedError, with exit code and last output, unless it still runs."""
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
        """Return the end of its output as a sentence; empty without output."""
        for name in ("stderr", "stdout"):
            heard = self._drains[name].last_lines if name in self._drains else ()
            spoken = [line[:_LONGEST_QUOTE] for line in heard if line.strip()]
            if spoken:
                return f" It last said: {' | '.join(spoken[-lines:])}"
        return " It said nothing."

    def stop(self, number: signal.Signals = signal.SIGINT, limit_s: float = 3.0) -> None:
        """Terminate it, then kill the rest of its group; return when none is left."""
        try:
            if self.alive:
                self._signal(number)
                self._signal(signal.SIGCONT)
                deadline = time.monotonic() + limit_s
                while self.alive and time.monotonic() < deadline:
                    time.sleep(_POLL_S)
        finally:  # also when Ctrl-C arrives while waiting
            self._signal(signal.SIGKILL)
            self._family.end()
            self._reap()
            for drain in self._drains.values():
                drain.join(0.5)
            if not self._drains:
                self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def _reap(self) -> None:
        deadline = time.monotonic() + _AFTER_KILL_S
        while self.alive and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        self._last_state = self._exit_state()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.1)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is not None:
            return  # reaped: another process may have the number by now
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


@contextlib.contextmanager
def _pinned(cores: Sequence[int]):  # type: ignore[no-untyped-def]
    """Pin the calling thread while it starts a child, which inherits the pinning."""
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
