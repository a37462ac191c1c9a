"""Run external command-line tools in process groups of their own, with time limits, reading output without blocking.

Counter readers, traffic generators and isolation use such tools (pcm, perf, pqos, testpmd, ssh). Each tool carries this
process's mark, so that the next campaign finds and ends tools that a killed campaign left.
"""

import functools
import shutil
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slomo.errors import TestbedError
from slomo.host.marker import new_mark
from slomo.host.process import ProcessGroup

_MOST_CHARACTERS = 16 * 2**20
#: Tool -> its Debian package.
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
    """Exit code and output of a tool that has ended."""

    #: Words of the command.
    words: tuple[str, ...]
    #: Exit code; negative for the signal that killed it.
    code: int
    #: Standard output and standard error, up to 16 MiB each.
    stdout: str
    stderr: str

    @property
    def output(self) -> list[str]:
        """Lines of standard output, then of standard error, without empty ones."""
        return [line.strip() for line in (self.stdout + "\n" + self.stderr).splitlines() if line.strip()]

    def last_words(self, lines: int = 2) -> str:
        """Return the end of the tool's output, in one line."""
        return " | ".join(self.output[-lines:]) or "it said nothing"


class RunningTool(ProcessGroup):
    """Context manager of a tool that runs until it is stopped; TestbedError if its command cannot be run."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._texts: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._sizes = {"stdout": 0, "stderr": 0}
        self._lock = threading.Lock()
        self._finished: Finished | None = None
        super().__init__(words, new_mark(), environment={"LC_ALL": "C", **(environment or {})})
        for stream in self._texts:
            self.on_line(stream, functools.partial(self._keep, stream))
        self.listen()

    def __enter__(self) -> "RunningTool":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _fault(self, error: OSError) -> TestbedError:
        if isinstance(error, FileNotFoundError):
            return TestbedError(f"command '{self.words[0]}' does not exist", hint=package_hint(self.words[0]))
        return TestbedError(f"command '{self.words[0]}' cannot be run: {error.strerror}", hint="check its permissions")

    def lines(self, stream: str = "stdout") -> list[str]:
        """Return the lines printed so far on ``"stdout"`` or ``"stderr"``."""
        with self._lock:
            return list(self._texts[stream])

    def stop(self, number: signal.Signals = signal.SIGINT, limit_s: float = 5.0) -> Finished:
        """Terminate the tool, kill the rest of its group, and return the result; may be called again."""
        if self._finished is None:
            code = self.end(number, limit_s)
            texts = ["".join(f"{line}\n" for line in self.lines(name)) for name in ("stdout", "stderr")]
            self._finished = Finished(self.words, code, *texts)
        return self._finished

    def _keep(self, stream: str, _: float, line: str) -> None:
        with self._lock:
            self._sizes[stream] += len(line) + 1
            if self._sizes[stream] <= _MOST_CHARACTERS:
                self._texts[stream].append(line)


def run_tool(words: Sequence[str], limit_s: float = 10.0, environment: Mapping[str, str] | None = None) -> Finished:
    """Run a tool until it ends and return the result; TestbedError if it does not exist or exceeds its time limit."""
    with RunningTool(words, environment) as tool:
        if not tool.wait(lambda: not tool.alive, limit_s):
            raise TestbedError(
                f"'{' '.join(words)}' did not end within {limit_s:g} s",
                hint="try it by hand; another program may hold the counters or the device it needs",
            )
        return tool.stop()


def is_installed(command: str) -> bool:
    """Return whether a command can be found."""
    return shutil.which(command) is not None


def package_hint(command: str) -> str:
    """Return a hint on how to install a tool."""
    package = PACKAGES.get(Path(command).name)
    return f"install it: apt-get install {package}" if package else "install it, or correct its path"
