"""Decide when a simulation has warmed up and when it has measured long enough, for each tenant (running NF).

Time is divided into batches of equal length. The start of the run is discarded until every tenant has fetched as many
lines as it holds and neither its rate nor its occupancy drifts (initial transient: White, Cobb and Spratt, WSC 2000).
The batches after it are measured until the standard error of every rate is within the tolerance; it is estimated from
batch means and their lag-one autocorrelation (Law, Simulation Modeling and Analysis, section 9.5).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from slomo.simulator import state as s

#: Largest and least number of batches; above the largest, adjacent batches are joined.
MOST_BATCHES, LEAST_BATCHES = 64, 16
#: Fetches from beyond L2 per LLC line held, after which a tenant counts as warm.
TURNOVERS = 6.0
#: Number of standard errors compared with the tolerance: a normal deviation exceeds two in 1 of 20 cases.
DEVIATIONS = 2.0
#: Two halves differ if their difference exceeds this many standard errors (1 of 100 by chance) and the tolerance.
DRIFT_DEVIATIONS = 2.6
#: Least number of a tenant's packets for which latency percentiles are reported.
PERCENTILE_PACKETS = 5000
#: Fractions of a run that may be discarded as warm-up, in the order in which they are tried.
_LEFT_OUT = (1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 3 / 4)
#: Number of batches between two tests of whether the run is long enough.
_BETWEEN_LOOKS = 4
#: Largest lag-one autocorrelation that the standard error corrects for; above it, batches are made longer.
_LARGEST_LAG_ONE = 0.9


@dataclass(frozen=True)
class Measured:
    """A finished measurement: counts per batch of simulated time, the scale, and which tenants converged."""

    batches: s.Batches
    scale: int
    warm_up_ns: float
    accesses: int
    converged: s.Bools


def join(batches: s.Batches) -> None:
    """Join neighbouring batches of simulated time in pairs, in place."""
    rows = len(batches.span_ns) - 1
    early, late = (batches.part(slice(begin, rows, 2)) for begin in (0, 1))
    for row in range(rows // 2):
        for tenant in range(batches.samples.shape[1]):
            parts = [each.latency_ns[row, tenant, : each.samples[row, tenant]] for each in (early, late)]
            joined = np.concatenate(parts)
            thinned = joined[:: 1 + max(joined.size - 1, 0) // s.LATENCY_SAMPLES]
            batches.latency_ns[row, tenant, : thinned.size] = thinned
            batches.samples[row, tenant] = thinned.size
    spans = early.span_ns + late.span_ns
    for name in ("held", "in_ddio"):
        first, second = ((each.span_ns / spans)[:, None] * getattr(each, name) for each in (early, late))
        getattr(batches, name)[: rows // 2] = first + second
    for name in ("span_ns", "accesses", "counters", "sums", "busy_ns", "packets", "own_ns"):
        getattr(batches, name)[: rows // 2] = getattr(early, name) + getattr(late, name)


class Estimate(NamedTuple):
    """Ratios of two means over batches, with standard errors; NaN where the denominator counted nothing."""

    value: s.Floats
    error: s.Floats


def ratio(parts: s.Floats, wholes: s.Floats) -> Estimate:
    """Estimate ratios of two counts from their batches, with standard errors.

    `parts`, `wholes`, shape (batches, ...): numerator and denominator in each batch.

    >>> found = ratio(np.array([1.0, 3.0, 2.0, 2.0]), np.ones(4))
    >>> float(found.value), round(float(found.error), 3)
    (2.0, 0.408)
    """
    whole = np.asarray(wholes.sum(axis=0))
    whole = np.where(whole > 0.0, whole, np.nan)
    value = parts.sum(axis=0) / whole
    return Estimate(value, standard_error(parts - value * wholes) * len(parts) / whole)


def standard_error(values: s.Floats) -> s.Floats:
    """Return standard errors of the means of batches, corrected for correlation of successive batches."""
    count = len(values)
    spread = values - values.sum(axis=0) / count
    square = (spread * spread).sum(axis=0)
    lag_one = (spread[1:] * spread[:-1]).sum(axis=0) / np.maximum(square, 1e-300)
    lag_one = np.minimum(np.maximum(lag_one, 0.0), _LARGEST_LAG_ONE)
    return np.asarray(np.sqrt(square / (count - 1) / count * (1.0 + lag_one) / (1.0 - lag_one)))


def served(counted: s.Floats, arrived: s.Floats, expected: s.Floats) -> s.Floats:
    """Return the counts per batch under randomly arriving packets, corrected for how many happened to arrive.

    Arrivals are a control variate (Law, section 11.4): their mean is known, so the variation of the counts that they
    explain is removed. They explain all of it if every packet is processed, and none if the core is always busy.

    `counted`, `arrived`, `expected`, shape (batches, ...): packets processed (or lost), packets that came, and their
    mean.

    >>> served(np.array([9.0, 12.0]), np.array([9.0, 12.0]), np.array([10.0, 10.0])).tolist()
    [10.0, 10.0]
    >>> served(np.array([5.0, 5.0]), np.array([9.0, 12.0]), np.array([10.0, 10.0])).tolist()
    [5.0, 5.0]
    """
    count = len(counted)
    excess = arrived - expected
    spread = excess - excess.sum(axis=0) / count
    square = (spread * spread).sum(axis=0)
    slope = (spread * counted).sum(axis=0) / np.maximum(square, 1e-300)
    return np.asarray(counted - np.minimum(np.maximum(slope, 0.0), 1.0) * excess)


def drifts(parts: s.Floats, wholes: s.Floats, allowed: s.Floats) -> s.Bools:
    """Return for which tenants the two halves of the batches differ by more than chance and `allowed`."""
    half = len(parts) // 2
    early, late = ratio(parts[:half], wholes[:half]), ratio(parts[half:], wholes[half:])
    change = np.abs(late.value - early.value)
    return np.asarray(change > np.maximum(allowed, DRIFT_DEVIATIONS * np.hypot(early.error, late.error)))


class Series:
    """The batches of one simulation, and the tests of whether there are enough of them."""

    def __init__(self, state: s.State, timed: s.Bools, tolerance: float, least_warm_up_ns: float = 0.0) -> None:
        #: Rows for the largest number of batches and a last row for sums; `count`: number of batches so far.
        self.batches = s.no_batches(MOST_BATCHES + 1, len(state.clock), len(state.channels))
        self.count = 0
        self._tolerance, self._least_warm_up_ns = tolerance, least_warm_up_ns
        self._saturated = state.tenants[:, s.T_SATURATED] != 0
        self._timed = timed & ~self._saturated
        self._per_ns = 1.0 / state.rates[:, s.F_INTERARRIVAL]
        ways = np.array([int(mask).bit_count() for mask in state.tenants[:, s.T_WAY_MASK]])
        self._room = ways * float(state.machine[s.M_LLC_SETS])

    @property
    def until_next_look(self) -> int:
        """Number of batches at which the next test of the run's length is due."""
        return max(LEAST_BATCHES, self.count + _BETWEEN_LOOKS - self.count % _BETWEEN_LOOKS)

    def is_at(self, count: int) -> bool:
        """Record the number of batches; if there are too many, join them in pairs and return True."""
        self.count = count
        if count < MOST_BATCHES:
            return False
        join(self.batches)
        self.count = count // 2
        return True

    def _after(self, first: int) -> s.Batches:
        return self.batches.part(slice(first, self.count))

    def rates(self, batches: s.Batches) -> tuple[s.Floats, s.Floats]:
        """Return numerator and denominator of each tenant's rate, shapes ``(batches, tenants)``.

        At saturation they are packets and time; with an offered load, `served` and expected packets.
        """
        packets, spans = batches.packets, batches.span_ns[:, None]
        if self._saturated.all():
            return packets, np.broadcast_to(spans, packets.shape)
        arrived, expected = batches.counters[:, :, s.C_ARRIVED].astype(np.float64), batches.own_ns * self._per_ns
        loaded = served(packets, arrived, expected)
        return np.where(self._saturated, packets, loaded), np.where(self._saturated, spans, expected)

    def warm_up(self, accesses: int = 0) -> int | None:
        """Return the number of batches to discard at the start; None if a tenant is not warm or too few batches follow.

        `accesses`: least number of line accesses that must follow the discarded batches.
        """
        for first in dict.fromkeys(max(1, int(self.count * part)) for part in _LEFT_OUT):
            if self.count - first < LEAST_BATCHES or self.accesses(first) < accesses:
                return None
            if self._turned_over(first).all() and self._carried(first) and self._warm(first).all():
                return first
        return None

    def _carried(self, first: int) -> bool:
        """Return whether the ports sent no more than their line rate allows, from batch `first` on."""
        after = self._after(first)
        wire_ns, span_ns = (float(sum(each.tolist())) for each in (after.busy_ns[:, -1], after.span_ns))
        return wire_ns <= span_ns * (1.0 + 0.5 * self._tolerance)

    def _turned_over(self, first: int) -> s.Bools:
        """Return which tenants had fetched at least `TURNOVERS` times the lines that they hold before batch `first`."""
        if self.warm_up_ns(first) < self._least_warm_up_ns:
            return np.zeros(self._saturated.size, dtype=bool)
        counted = self.batches.counters[:first, :, s.C_L3_HIT : s.C_RX_MISS + 1].sum(axis=0)
        fetched = counted[:, [0, 1, s.C_RX_HIT - s.C_L3_HIT, -1]].sum(axis=1)
        held = self._held(self._after(first)).sum(axis=0)
        return np.asarray(fetched >= TURNOVERS * held / (self.count - first))

    def _held(self, batches: s.Batches) -> s.Floats:
        """Return how many LLC lines each tenant holds at the end of each batch."""
        return np.asarray(batches.held[:, ::2] + batches.held[:, 1::2])

    def _warm(self, first: int) -> s.Bools:
        """Return which tenants were warm at batch `first` and did not drift after it."""
        after = self._after(first)
        held = self._held(after)
        packets, wholes = self.rates(after)
        busy = after.span_ns[:, None] - after.sums[:, :, s.A_IDLE]
        slack = 0.5 * self._tolerance
        done = after.packets
        rate, work = packets.sum(axis=0) / wholes.sum(axis=0), busy.sum(axis=0) / np.maximum(1e-9, done.sum(axis=0))
        moves = drifts(
            np.concatenate((packets, busy, held), axis=1),
            np.concatenate((wholes, done, np.ones_like(held)), axis=1),
            np.concatenate((slack * rate, slack * work, self._tolerance * self._room)),
        )
        return np.asarray(self._turned_over(first) & ~moves.reshape(3, -1).any(axis=0))

    def precise(self, first: int) -> s.Bools:
        """Return which tenants' rates, measured from batch `first` on, have standard errors within the tolerance."""
        packets, wholes = self.rates(self._after(first))
        estimate = ratio(packets, wholes)
        enough = ~self._timed | (packets.sum(axis=0) >= PERCENTILE_PACKETS)
        return np.asarray((DEVIATIONS * estimate.error <= self._tolerance * estimate.value) & enough)

    def accesses(self, first: int = 0) -> int:
        """Return the simulated line accesses from batch `first` on."""
        return int(self.batches.accesses[first : self.count].sum())

    def warm_up_ns(self, first: int) -> float:
        """Return the simulated time before batch `first` [ns]."""
        return float(sum(self.batches.span_ns[:first].tolist()))

    def measured(self, first: int, scale: int) -> Measured:
        """Return the measurement from batch `first` on, of a machine scaled down by `scale`."""
        converged = self._warm(first) & self.precise(first) & self._carried(first)
        return Measured(self._after(first), scale, self.warm_up_ns(first), self.accesses(), converged)
