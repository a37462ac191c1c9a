"""Packets served over time, from any source, and the rate over a window.

Sources differ (counters, amounts per interval, rates; with or without their own clock); all are converted to one
cumulative count.
"""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from slomo.errors import MeasurementError

_MOST_READINGS = 100_000


@dataclass(frozen=True)
class Reading:
    """A cumulative count at a time."""

    #: Time of its arrival here [s, monotonic clock].
    arrived_s: float
    #: Packets served since the start.
    packets: float
    #: Time stated by the NF [s, the NF's clock].
    stated_s: float | None = None
    #: Percentiles over the interval that ends here [us].
    latency_us: Mapping[str, float] = field(default_factory=dict)


class FunctionReadings:
    """A growing series of readings; one thread adds, another reads.

    Examples
    --------
    >>> series = FunctionReadings("x")
    >>> for second in range(4):
    ...     series.add_counter(float(second), 2e6 * second)
    >>> series.rate_mpps(0.5, 3.5)
    2.0
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.garbage = 0
        self.problem: str | None = None
        self._items: list[Reading] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._items)

    def add_counter(
        self,
        arrived_s: float,
        packets: float,
        stated_s: float | None = None,
        latency_us: Mapping[str, float] | None = None,
    ) -> None:
        """Add a count since the start; a smaller one (a restarted counter) starts anew."""
        with self._lock:
            last = self._items[-1] if self._items else None
            if (last is not None and packets < last.packets) or len(self._items) >= _MOST_READINGS:
                self._items.clear()
            self._items.append(Reading(arrived_s, packets, stated_s, latency_us or {}))

    def add_interval(
        self,
        arrived_s: float,
        packets: float,
        stated_s: float | None = None,
        latency_us: Mapping[str, float] | None = None,
    ) -> None:
        """Add packets served since the last reading."""
        self.add_counter(arrived_s, (self._items[-1].packets if self._items else 0.0) + packets, stated_s, latency_us)

    def add_rate(
        self,
        arrived_s: float,
        packets_per_s: float,
        stated_s: float | None = None,
        latency_us: Mapping[str, float] | None = None,
    ) -> None:
        """Add a rate over the time since the last reading."""
        last = self._items[-1] if self._items else None
        elapsed_s = 0.0 if last is None else _elapsed(last, Reading(arrived_s, 0.0, stated_s))
        self.add_counter(arrived_s, (last.packets if last else 0.0) + packets_per_s * elapsed_s, stated_s, latency_us)

    def between(self, start_s: float, end_s: float) -> list[Reading]:
        """Return the readings that arrived in a window."""
        with self._lock:
            return self._items[
                bisect_left(self._items, start_s, key=_arrived) : bisect_right(self._items, end_s, key=_arrived)
            ]

    def rate_mpps(self, start_s: float, end_s: float) -> float:
        """Return the throughput over a window [Mpps]: the difference of its first and last count over the time between.

        Raises MeasurementError with fewer than two readings in the window.
        """
        inside = self.between(start_s, end_s)
        elapsed_s = _elapsed(inside[0], inside[-1]) if len(inside) > 1 else 0.0
        if elapsed_s <= 0.0:
            why = (
                f"; {self.problem}"
                if self.problem
                else f"; {self.garbage} lines could not be read"
                if self.garbage
                else ""
            )
            raise MeasurementError(
                f"throughput of '{self.name}' was reported {len(inside)} times in a window of {end_s - start_s:.2f} s, "
                f"needed at least 2{why}",
                hint="let it report more often, or take longer windows; see `throughput` in its `host:` section",
            )
        return (inside[-1].packets - inside[0].packets) / elapsed_s / 1e6

    def rates_mpps(self, start_s: float, end_s: float) -> list[float]:
        """Return the throughput between successive readings of a window [Mpps]."""
        pairs = [(a, b, _elapsed(a, b)) for a, b in pairwise(self.between(start_s, end_s))]
        return [(b.packets - a.packets) / elapsed_s / 1e6 for a, b, elapsed_s in pairs if elapsed_s > 0.0]


def _arrived(reading: Reading) -> float:
    return reading.arrived_s


def _elapsed(first: Reading, last: Reading) -> float:
    if first.stated_s is not None and last.stated_s is not None:
        return last.stated_s - first.stated_s
    return last.arrived_s - first.arrived_s
