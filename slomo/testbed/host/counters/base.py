"""The contract of every counter reader: start, stop, and say honestly whether it can.

SLOMO (SIGCOMM'20, section 5) reads PCM; PerfSpect and `pcm` fall back from one source to another the same way. What a
reader cannot read is missing from its vectors, never zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from slomo.vocabulary.vector import MetricVector


@dataclass(frozen=True)
class CounterSample:
    """What a reader saw between start and stop."""

    #: Core-level vectors by CPU.
    cores: Mapping[int, MetricVector] = field(default_factory=dict)
    #: Socket-level vectors by socket.
    sockets: Mapping[int, MetricVector] = field(default_factory=dict)
    #: Of the whole machine.
    system: MetricVector | None = None
    #: Time between start and stop [s].
    duration_s: float = 0.0
    #: Scope -> metrics left out because they read 0 throughout: either not read, or less than the tool's rounding
    #: (`slomo.records.proved_zeros`).
    zero_throughout: Mapping[str, Sequence[str]] = field(default_factory=dict)


@runtime_checkable
class CounterReader(Protocol):
    """Reads hardware counters of some CPUs while NFs run on them."""

    @property
    def name(self) -> str:
        """As it stands in the provenance."""
        ...

    def available(self) -> tuple[bool, str]:
        """Return whether this host lets it read, and why not (or what it can)."""
        ...

    def start(self, cores: Sequence[int]) -> None:
        """Begin to count on `cores`; TestbedError if it cannot."""
        ...

    def stop(self) -> CounterSample:
        """End counting, and return what was counted; may be called after a failed run, too.

        Raises TestbedError if the counters vanished meanwhile.
        """
        ...
