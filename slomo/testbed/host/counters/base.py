"""The interface of counter readers: start, stop, and report whether the reader works on this host.

SLOMO (SIGCOMM'20, section 5) reads PCM's counters; PerfSpect and `pcm` also fall back from one source to another. A
metric that a reader cannot read is missing from its vectors, never zero.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from slomo.errors import TestbedError
from slomo.host.tool import is_installed, package_hint
from slomo.vocabulary.vector import MetricVector


@dataclass(frozen=True)
class CounterSample:
    """Counter readings between `start` and `stop`, by core and socket."""

    #: Core-level vectors by CPU.
    cores: Mapping[int, MetricVector] = field(default_factory=dict)
    #: Socket-level vectors by socket.
    sockets: Mapping[int, MetricVector] = field(default_factory=dict)
    #: Vector of the whole machine.
    system: MetricVector | None = None
    #: Time between start and stop [s].
    duration_s: float = 0.0
    #: Scope -> metrics left out because all readings were 0: either the tool could not read them, or they were below
    #: its rounding (`slomo.records.proved_zeros`).
    zero_throughout: Mapping[str, Sequence[str]] = field(default_factory=dict)


def added(parts: Sequence[Mapping[str, float | None]], names: Iterable[str]) -> dict[str, float | None]:
    """Return the sums of some metrics over parts, such as a socket's cores; a sum is missing if one of its parts is.

    >>> added([{"LMB": 1.0, "RMB": 2.0}, {"LMB": 3.0}], ["LMB", "RMB"])
    {'LMB': 4.0, 'RMB': None}
    """
    columns = {name: [part.get(name) for part in parts] for name in names}
    present = {name: [value for value in column if value is not None] for name, column in columns.items()}
    return {name: sum(present[name]) if parts and len(present[name]) == len(parts) else None for name in columns}


@runtime_checkable
class CounterReader(Protocol):
    """Reads hardware counters of some CPUs while NFs run on them."""

    @property
    def name(self) -> str:
        """Name of the reader, which the dataset stores as the source of counters."""
        ...

    def available(self) -> tuple[bool, str]:
        """Return whether the reader works on this host, and a text: what it reads, or why it does not work."""
        ...

    def start(self, cores: Sequence[int]) -> None:
        """Start counting on `cores`. Raises TestbedError if that fails."""
        ...

    def stop(self) -> CounterSample:
        """Stop counting and return the readings; may also be called after a failed run.

        Raises TestbedError if the counters have vanished.
        """
        ...


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
