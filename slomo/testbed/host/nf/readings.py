"""Keep the counts of served packets over time, and compute throughput over a window.

Sources report counters, amounts per interval or rates, with or without their own clock; all are converted to a
cumulative count.
"""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import attrgetter

from slomo.errors import MeasurementError
from slomo.units import plural

_MOST_READINGS = 100_000
_ARRIVED = attrgetter("arrived_s")


@dataclass(frozen=True)
class Reading:
    """A cumulative packet count at one time."""

    #: Time at which slomo received the count [s, monotonic clock].
    arrived_s: float
    #: Packets served since the start.
    packets: float
    #: Time reported by the NF [s, the NF's clock].
    stated_s: float | None = None
    #: Latency percentiles over the interval that ends at this reading [us].
    latency_us: Mapping[str, float] = field(default_factory=dict)


class FunctionReadings:
    """The readings of one NF; one thread adds readings while another reads them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.garbage = 0
        self.problem: str | None = None
        self._items: list[Reading] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._items)

    def add(
        self,
        meaning: str,
        arrived_s: float,
        amount: float,
        stated_s: float | None = None,
        latency_us: Mapping[str, float] | None = None,
    ) -> None:
        """Add one count of served packets, with its meaning.

        ``"counter"``: packets since the start (a smaller count than the last means that the counter was reset).
        ``"interval"``, ``"rate"``: packets, or packets per second, since the last reading.
        """
        with self._lock:
            reading = Reading(arrived_s, amount, stated_s, latency_us or {})
            last = self._items[-1] if self._items else None
            if meaning == "counter":
                if last is not None and amount < last.packets:
                    self._items.clear()
            else:
                grown = amount if meaning == "interval" else 0.0 if last is None else amount * _elapsed(last, reading)
                reading = replace(reading, packets=grown + (0.0 if last is None else last.packets))
            if len(self._items) >= _MOST_READINGS:
                self._items.clear()
            self._items.append(reading)

    def between(self, start_s: float, end_s: float) -> list[Reading]:
        """Return the readings that arrived in a window."""
        with self._lock:
            start = bisect_left(self._items, start_s, key=_ARRIVED)
            return self._items[start : bisect_right(self._items, end_s, key=_ARRIVED)]

    def rate_mpps(self, start_s: float, end_s: float) -> float:
        """Return the mean throughput over a window [Mpps], from the first and the last count in the window."""
        inside = self.between(start_s, end_s)
        elapsed_s = _elapsed(inside[0], inside[-1]) if len(inside) > 1 else 0.0
        if elapsed_s <= 0.0:
            why = self.problem or (f"{plural(self.garbage, 'line')} could not be read" if self.garbage else "")
            raise MeasurementError(
                f"throughput of '{self.name}' was reported {len(inside)} times in a window of {end_s - start_s:.2f} s, "
                f"needed at least 2{why and f'; {why}'}",
                hint="let it report more often, or take longer windows; see `throughput` in its `host:` section",
            )
        return (inside[-1].packets - inside[0].packets) / elapsed_s / 1e6

    def rates_mpps(self, start_s: float, end_s: float) -> list[float]:
        """Return the throughput between successive readings of a window [Mpps]."""
        pairs = [(a, b, _elapsed(a, b)) for a, b in pairwise(self.between(start_s, end_s))]
        return [(b.packets - a.packets) / elapsed_s / 1e6 for a, b, elapsed_s in pairs if elapsed_s > 0.0]


def _elapsed(first: Reading, last: Reading) -> float:
    if first.stated_s is not None and last.stated_s is not None:
        return last.stated_s - first.stated_s
    return last.arrived_s - first.arrived_s
