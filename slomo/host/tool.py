"""External command-line tools: started in a group of their own, read without blocking, ended within a time limit.

Counter readers, traffic generators and isolation use such tools (pcm, perf, pqos, testpmd, ssh). Each carries this
process's mark, so leftovers of a killed campaign are found like network functions.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from slomo.errors import TestbedError
from slomo.host.draining import Drain
from slomo.host.marker import VARIABLE, new_mark

_POLL_S = 0.01
_AFTER_KILL_S = 5.0
_MOST_CHARACTERS = 16 * 2**20
#: Debian package of each tool.
PACKAGES = {
    "pcm": "pcm",
    "pcm-memory": "pcm",
    "pcm-pcie": "pcm",
    "perf": "linux-perf",
    "pqos": "intel-cmt-cat",
    "dpdk-testpmd": "dpdk-dev",
    "ssh": "openssh-client",
}


@dataclass(frozen=True)
class Finished:
    """How a tool ended."""

    #: Its command.
    words: tuple[str, ...]
    #: Exit code; negative for the signal that killed it.
    code: int
    #: Its output, up to 16 MiB each.
    stdout: str
    stderr: str

    def last_words(self, lines: int = 2) -> str:
        r"""Return the end of its output, in one line.

        Examples
        --------
        >>> Finished(("pcm",), 1, "", "a\n\nb\n").last_words()
        'a | b'
        """
        spoken = [line.strip() for line in (self.stdout + "\n" + self.stderr).splitlines() if line.strip()]
        return " | ".join(spoken[-lines:]) or "it said nothing"


class RunningTool:
    """A tool that runs until it is stopped; a context manager.

    Raises TestbedError if the command does not exist or may not be run.

    `words`: command; never a shell line.

    Examples
    --------
    >>> with RunningTool(["sleep", "60"]) as tool:
    ...     tool.alive
    True
    >>> tool.alive
    False
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._texts: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._sizes = {"stdout": 0, "stderr": 0}
        self._lock = threading.Lock()
        self._finished: Finished | None = None
        self._process = self._start({**os.environ, "LC_ALL": "C", VARIABLE: new_mark().text})
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._drains = [
            Drain(self._process.stdout, [lambda _, line: self._keep("stdout", line)]),
            Drain(self._process.stderr, [lambda _, line: self._keep("stderr", line)]),
        ]

    def _start(self, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self.words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=variables,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise TestbedError(f"command '{self.words[0]}' does not exist", hint=package_hint(self.words[0])) from None
        except OSError as problem:
            raise TestbedError(
                f"command '{self.words[0]}' cannot be run: {problem.strerror}", hint="check its permissions"
            ) from None

    def __enter__(self) -> "RunningTool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def alive(self) -> bool:
        """Whether it still runs; a dead tool is not reaped here, so that its group's id stays taken."""
        if self._finished is not None:
            return False
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        return False

    def lines(self, stream: str = "stdout") -> list[str]:
        """Return the lines printed so far on ``"stdout"`` or ``"stderr"``."""
        with self._lock:
            return list(self._texts[stream])

    def wait(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Wait until `condition` holds; return whether it did before the tool ended or the time limit [s]."""
        deadline = time.monotonic() + limit_s
        while not condition():
            if not self.alive or time.monotonic() > deadline:
                return condition()
            time.sleep(_POLL_S)
        return True

    def stop(self, number: signal.Signals = signal.SIGINT, limit_s: float = 5.0) -> Finished:
        """Terminate it, kill the rest of its group, and return the result; may be called again."""
        if self._finished is None:
            try:
                if self.alive:
                    self._signal(number)
                    self.wait(lambda: not self.alive, limit_s)
            finally:
                self._signal(signal.SIGKILL)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_AFTER_KILL_S)
                for drain in self._drains:
                    drain.join(0.5)
                self._finished = self._result()
        return self._finished

    def _result(self) -> Finished:
        code = self._process.returncode
        texts = {name: "".join(f"{line}\n" for line in self.lines(name)) for name in self._texts}
        return Finished(self.words, -int(signal.SIGKILL) if code is None else code, texts["stdout"], texts["stderr"])

    def _keep(self, stream: str, line: str) -> None:
        with self._lock:
            self._sizes[stream] += len(line) + 1
            if self._sizes[stream] <= _MOST_CHARACTERS:
                self._texts[stream].append(line)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def run_tool(words: Sequence[str], limit_s: float = 10.0) -> Finished:
    r"""Run a tool to its end.

    Raises TestbedError if it does not exist, or exceeds its time limit.

    Parameters
    ----------
    words : sequence of str
        Command.
    limit_s : float
        How long it may take [s].

    Examples
    --------
    >>> run_tool(["echo", "hello"]).stdout
    'hello\n'
    """
    with RunningTool(words) as tool:
        if not tool.wait(lambda: not tool.alive, limit_s):
            raise TestbedError(
                f"'{' '.join(words)}' did not end within {limit_s:g} s",
                hint="try it by hand; another program may hold the counters or the device it needs",
            )
        return tool.stop()


def is_installed(command: str) -> bool:
    """Return whether a command can be found.

    Examples
    --------
    >>> is_installed("sh"), is_installed("no-such-command")
    (True, False)
    """
    return shutil.which(command) is not None


def package_hint(command: str) -> str:
    """Return how to install a tool.

    Examples
    --------
    >>> package_hint("pqos")
    'install it: apt-get install intel-cmt-cat'
    """
    package = PACKAGES.get(Path(command).name)
    return f"install it: apt-get install {package}" if package else "install it, or correct its path"
