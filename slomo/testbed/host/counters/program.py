"""Base class of readers that run an external program; it tries the program once and explains failures."""

from abc import ABC, abstractmethod

from slomo.errors import TestbedError
from slomo.host.tool import is_installed, package_hint


class ProgramReader(ABC):
    """A counter reader that starts a measuring program, such as `pcm`, and reads its output."""

    name: str

    def __init__(self, command: str) -> None:
        self.command = command
        self._verdict: tuple[bool, str] | None = None
        self._cores: tuple[int, ...] = ()

    def available(self) -> tuple[bool, str]:
        """Run the program briefly to see whether it works; the result is cached."""
        if self._verdict is None:
            try:
                missing = f"'{self.command}' is not installed ({package_hint(self.name)})"
                self._verdict = self._tried() if is_installed(self.command) else (False, missing)
            except TestbedError as problem:
                self._verdict = False, problem.message
        return self._verdict

    def _require(self) -> None:
        """Raise an error if the program cannot read the counters."""
        usable, why = self.available()
        if not usable:
            raise TestbedError(f"counters cannot be read with '{self.name}': {why}", hint=self._hint(why))

    def _not_started(self) -> TestbedError:
        return TestbedError(f"'{self.name}' was not started", hint="call `start` first")

    @abstractmethod
    def _tried(self) -> tuple[bool, str]:
        """Return whether the installed program works on this host, and the reason if not; or raise TestbedError."""

    @abstractmethod
    def _hint(self, why: str) -> str:
        """Return the remedy for the reason why the program does not work."""
