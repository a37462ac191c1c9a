"""Decide, per tenant, when a simulation has warmed up and when its measurement is long enough.

Time is divided into batches of equal length. The start of the run is discarded until every tenant has fetched as many
lines as it holds and neither its rate nor its occupancy drifts (initial transient: White, Cobb and Spratt, WSC 2000).
The rest is measured until the standard error of every rate, from batch means and their lag-one autocorrelation (Law,
Simulation Modeling and Analysis, section 9.5), is within the tolerance.
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
#: Two halves differ if by more than this many standard errors (1 of 100 by chance) and by more than the tolerance.
DRIFT_DEVIATIONS = 2.6
#: Number of packets of a tenant from which percentiles are reported.
PERCENTILE_PACKETS = 5000
#: Parts of a run that may be discarded as warm-up.
_LEFT_OUT = (1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 3 / 4)
#: Latencies stored per tenant and batch.
_KEPT_LATENCIES = 4096
#: Largest lag-one autocorrelation that is corrected for; above it batches are made longer.
_LARGEST_LAG_ONE = 0.9


class Batch(NamedTuple):
    """Counts of one batch: sums, and the mean number of lines held."""

    span_ns: float
    counters: s.Ints  # (tenants, C_COLUMNS)
    sums: s.Floats  # (tenants, A_COLUMNS)
    busy_ns: s.Floats  # (channels,)
    packets: s.Floats  # (tenants,) with fractions
    own_ns: s.Floats  # (tenants,) by each core's own clock
    held: s.Floats  # (2 * tenants,) LLC lines: packet buffers, data
    in_ddio: s.Floats  # (tenants,)
    latency_ns: tuple[s.Floats, ...]  # (tenants,) samples of each
    accesses: int


@dataclass(frozen=True)
class Measured:
    """The measured batches, the scale factor of sizes, the discarded part, and which tenants converged."""

    batches: list[Batch]
    scale: int
    warm_up_ns: float
    accesses: int
    converged: s.Bools


def join(first: Batch, second: Batch) -> Batch:
    """Return two successive batches as one."""
    span = first.span_ns + second.span_ns
    early, late = first.span_ns / span, second.span_ns / span
    return Batch(
        span,
        first.counters + second.counters,
        first.sums + second.sums,
        first.busy_ns + second.busy_ns,
        first.packets + second.packets,
        first.own_ns + second.own_ns,
        early * first.held + late * second.held,
        early * first.in_ddio + late * second.in_ddio,
        tuple(_thinned(np.concatenate(both)) for both in zip(first.latency_ns, second.latency_ns, strict=True)),
        first.accesses + second.accesses,
    )


def _thinned(samples: s.Floats) -> s.Floats:
    return samples[:: 1 + (samples.size - 1) // _KEPT_LATENCIES] if samples.size else samples


class Estimate(NamedTuple):
    """Ratios of two means over batches, with standard errors; NaN without events."""

    value: s.Floats
    error: s.Floats


def ratio(parts: s.Floats, wholes: s.Floats) -> Estimate:
    """Estimate ratios of means from batches along the first axis.

    Parameters
    ----------
    parts, wholes : ndarray, shape (batches, ...)
        What is divided by what in each.

    Examples
    --------
    >>> found = ratio(np.array([1.0, 3.0, 2.0, 2.0]), np.ones(4))
    >>> float(found.value), round(float(found.error), 3)
    (2.0, 0.408)
    """
    whole = np.asarray(wholes.sum(axis=0))
    whole = np.where(whole > 0.0, whole, np.nan)
    value = parts.sum(axis=0) / whole
    return Estimate(value, standard_error(parts - value * wholes) * len(parts) / whole)


def standard_error(values: s.Floats) -> s.Floats:
    """Return standard errors of means of batches along the first axis, corrected for their lag-one autocorrelation."""
    count = len(values)
    spread = values - values.sum(axis=0) / count
    square = (spread * spread).sum(axis=0)
    lag_one = (spread[1:] * spread[:-1]).sum(axis=0) / np.maximum(square, 1e-300)
    lag_one = np.minimum(np.maximum(lag_one, 0.0), _LARGEST_LAG_ONE)
    return np.asarray(np.sqrt(square / (count - 1) / count * (1.0 + lag_one) / (1.0 - lag_one)))


def served(counted: s.Floats, arrived: s.Floats, expected: s.Floats) -> s.Floats:
    """Return the counts of a random load per batch, adjusted to the expected number of arrivals.

    Arrivals are a control variate (Law, section 11.4): their mean is known, so the part of the count explained by their
    randomness is removed. That is all of it if every packet is processed, and nothing if the core is always busy.

    Parameters
    ----------
    counted, arrived, expected : ndarray, shape (batches, ...)
        Packets processed (or lost), packets that came, and their mean.

    Examples
    --------
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
    """Return for which tenants the halves of the batches differ by more than chance and `allowed`."""
    half = len(parts) // 2
    early, late = ratio(parts[:half], wholes[:half]), ratio(parts[half:], wholes[half:])
    change = np.abs(late.value - early.value)
    return np.asarray(change > np.maximum(allowed, DRIFT_DEVIATIONS * np.hypot(early.error, late.error)))


class Series:
    """The batches of one run, with the tests on them; with `timed`, percentiles are waited for as well."""

    def __init__(self, state: s.State, timed: s.Bools, tolerance: float, least_warm_up_ns: float = 0.0) -> None:
        self.batches: list[Batch] = []
        self._tolerance, self._least_warm_up_ns = tolerance, least_warm_up_ns
        self._saturated = state.tenants[:, s.T_SATURATED] != 0
        self._timed = timed & ~self._saturated
        self._per_ns = 1.0 / state.rates[:, s.F_INTERARRIVAL]
        ways = np.array([int(mask).bit_count() for mask in state.tenants[:, s.T_WAY_MASK]])
        self._room = ways * float(state.machine[s.M_LLC_SETS])

    def add(self, batch: Batch) -> bool:
        """Append a batch; return whether batches were joined, after which the next must be twice as long."""
        self.batches.append(batch)
        if len(self.batches) < MOST_BATCHES:
            return False
        self.batches = [join(*pair) for pair in zip(self.batches[::2], self.batches[1::2], strict=True)]
        return True

    def rates(self, batches: list[Batch]) -> tuple[s.Floats, s.Floats]:
        """Return numerator and denominator of each tenant's rate, shapes ``(batches, tenants)``.

        At saturation they are packets and time; with an offered load, `served` and expected packets.
        """
        packets = np.array([batch.packets for batch in batches])
        spans = np.array([[batch.span_ns] for batch in batches])
        if self._saturated.all():
            return packets, np.broadcast_to(spans, packets.shape)
        arrived = np.array([batch.counters[:, s.C_ARRIVED] for batch in batches], dtype=np.float64)
        expected = np.array([batch.own_ns for batch in batches]) * self._per_ns
        loaded = served(packets, arrived, expected)
        return np.where(self._saturated, packets, loaded), np.where(self._saturated, spans, expected)

    def warm_up(self, accesses: int = 0) -> int | None:
        """Return the number of batches to discard at the start; None if a tenant is not warm or too few batches follow.

        `accesses`: line accesses that must follow at least.
        """
        count = len(self.batches)
        for first in dict.fromkeys(max(1, int(count * part)) for part in _LEFT_OUT):
            if count - first < LEAST_BATCHES or self.accesses(first) < accesses:
                return None
            if self._turned_over(first).all() and self._carried(first) and self._warm(first).all():
                return first
        return None

    def _carried(self, first: int) -> bool:
        """Return whether the ports carried the load from batch `first` on: at first, queued frames arrive early."""
        wire_ns = sum(float(batch.busy_ns[-1]) for batch in self.batches[first:])
        span_ns = sum(batch.span_ns for batch in self.batches[first:])
        return wire_ns <= span_ns * (1.0 + 0.5 * self._tolerance)

    def _turned_over(self, first: int) -> s.Bools:
        """Return which tenants had replaced their lines often enough at batch `first`."""
        if sum(batch.span_ns for batch in self.batches[:first]) < self._least_warm_up_ns:
            return np.zeros(self._saturated.size, dtype=bool)
        counters = np.sum([batch.counters for batch in self.batches[:first]], axis=0)
        fetched = (
            counters[:, s.C_L3_HIT] + counters[:, s.C_L3_MISS] + counters[:, s.C_RX_HIT] + counters[:, s.C_RX_MISS]
        )
        return np.asarray(fetched >= TURNOVERS * self._held(first).sum(axis=0) / (len(self.batches) - first))

    def _held(self, first: int) -> s.Floats:
        """Return the LLC lines that each tenant holds at the end of each batch from `first` on."""
        held = np.array([batch.held for batch in self.batches[first:]])
        return np.asarray(held[:, ::2] + held[:, 1::2])

    def _warm(self, first: int) -> s.Bools:
        """Return which tenants were warm at batch `first` and did not drift after it."""
        after = self.batches[first:]
        held = self._held(first)
        packets, wholes = self.rates(after)
        busy = np.array([batch.span_ns - batch.sums[:, s.A_IDLE] for batch in after])
        slack = 0.5 * self._tolerance
        done = np.array([batch.packets for batch in after])
        rate, work = packets.sum(axis=0) / wholes.sum(axis=0), busy.sum(axis=0) / np.maximum(1e-9, done.sum(axis=0))
        moves = drifts(
            np.concatenate((packets, busy, held), axis=1),
            np.concatenate((wholes, done, np.ones_like(held)), axis=1),
            np.concatenate((slack * rate, slack * work, self._tolerance * self._room)),
        )
        return np.asarray(self._turned_over(first) & ~moves.reshape(3, -1).any(axis=0))

    def precise(self, first: int) -> s.Bools:
        """Return which tenants' rates are known to the tolerance from batch `first` on."""
        packets, wholes = self.rates(self.batches[first:])
        estimate = ratio(packets, wholes)
        enough = ~self._timed | (packets.sum(axis=0) >= PERCENTILE_PACKETS)
        return np.asarray((DEVIATIONS * estimate.error <= self._tolerance * estimate.value) & enough)

    def accesses(self, first: int = 0) -> int:
        """Return the simulated line accesses from batch `first` on."""
        return sum(batch.accesses for batch in self.batches[first:])

    def measured(self, first: int, scale: int) -> Measured:
        """Return the measurement from batch `first` on, of a machine scaled down by `scale`."""
        warm_up_ns = sum(batch.span_ns for batch in self.batches[:first])
        converged = self._warm(first) & self.precise(first) & self._carried(first)
        return Measured(self.batches[first:], scale, warm_up_ns, self.accesses(), converged)
