"""Latency (time from a packet's arrival to its departure): p50, p95 and p99 as functions of load and pressure.

ResQ (NSDI'18) section 5.2 profiles latency over load, convex and monotone, for an NF alone. Under pressure a packet
takes longer, so the same offered rate is a higher utilisation. In units of the service time under that pressure the
curve stays nearly the same (a queue depends only on utilisation). The model is: latency = service time x rising
factor(load) x (service time over solo service time) ** exponent, with split-conformal intervals (Papadopoulos et al.
2008) on the logarithm. An NF below saturation loses more of the cache to its neighbours between two packets: its
service time is that under pressure scaled by its load (`busy_share`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slomo.files.stored import Stored
from slomo.models.applicability import FAR, SLACK, Verdict
from slomo.models.base import Floats, require
from slomo.models.intervals import conformal_rank
from slomo.models.responses.server_response import ServerResponse
from slomo.vocabulary.metrics import METRICS, Kind

PERCENTILES = ("p50", "p95", "p99")
#: Tolerance when loads are compared, since they are shares of a noisy throughput.
LOAD_SLACK = 0.01
_ROUNDS = 30
_FULL = 0.999


@dataclass(frozen=True, eq=False)
class LatencyCurve(Stored):
    """One latency percentile as a function of load and pressure."""

    #: Logarithm of latency over service time at the lowest load; its slope in -ln(1 - load) on each piece, at least 0;
    #: the exponent of the slowdown, at least -1, shape (pieces + 2,).
    weights: Floats
    #: Held-out errors of the logarithm divided by their scale, ascending, shape (n,).
    scores: Floats
    #: Scale of errors: a constant part, one that grows with -ln(1 - load), and one that grows with the logarithm of the
    #: slowdown, shape (3,).
    scale: Floats

    def half_width(self, load: Floats, slower: Floats, coverage: float) -> Floats:
        """Return half the width of the interval of latency's natural logarithm, at each load and log slowdown."""
        rank = conformal_rank(len(self.scores), coverage)
        if rank > len(self.scores):
            return np.full(np.shape(load), np.inf)
        width: Floats = self.scores[rank - 1] * error_scale(self.scale, load, slower)
        return width

    def fits(self, knots: int) -> bool:
        """Return whether the curve has `knots` knots, never falls, and has its errors in order."""
        weights, scores, scale = self.weights, self.scores, self.scale
        rising = weights.shape == (knots + 1,) and (weights[1:-1] >= 0).all() and weights[-1] >= -1.0
        positive = scale.shape == (3,) and (scale >= 0).all() and (scores >= 0).all()
        return bool(rising and positive and scores.ndim == 1 and (np.diff(scores) >= 0).all())


@dataclass(frozen=True, eq=False)
class LatencyModel(Stored):
    """Latency of one NF's packets."""

    #: Solo throughput at saturation [Mpps]; its inverse is the service time.
    solo_mpps: float
    #: Ends of the pieces in -ln(1 - load), ascending, shape (pieces + 1,).
    knots: Floats
    #: Percentile -> latency over load and pressure.
    curves: Mapping[str, LatencyCurve]
    #: Lowest and highest utilisation of the NF in the profiling runs.
    loads: tuple[float, float]
    #: Least packets per busy time in the runs [Mpps].
    slowest_mpps: float

    def predict_us(self, load: Floats, possible_mpps: Floats) -> dict[str, Floats]:
        """Return each latency percentile [us], shape ``(n,)``, at given loads.

        Beyond the measured loads the curve is constant; :meth:`check` reports that.
        """
        basis = load_basis(load, possible_mpps, self.solo_mpps, self.knots)
        times = {name: np.exp(basis @ curve.weights) / possible_mpps for name, curve in self.curves.items()}
        rising = np.maximum.accumulate(np.stack(list(times.values())), axis=0)  # percentiles never cross
        return dict(zip(times, rising, strict=True))

    def check(self, load: float, possible_mpps: float) -> tuple[Verdict, tuple[str, ...]]:
        """Return whether measurements support latency at this load and pressure, with reasons."""
        low, high = self.loads
        if load >= 1.0:
            return Verdict.UNSUPPORTED, ("more is offered than it can serve: the queue fills and packets are lost",)
        if load > high + LOAD_SLACK:
            return Verdict.UNSUPPORTED, (
                f"it is busy {100 * load:.0f} %; latency was profiled from {100 * low:.0f} to {100 * high:.0f} %",
            )
        verdict, reasons = Verdict.SUPPORTED, []
        if load < low - LOAD_SLACK:
            verdict = Verdict.EXTRAPOLATED
            reasons.append(
                f"it is busy {100 * load:.0f} %; latency was profiled from {100 * low:.0f} %, and taken there"
            )
        slowdown, most = self.solo_mpps / possible_mpps - 1.0, self.solo_mpps / self.slowest_mpps - 1.0
        if slowdown > most + SLACK:
            far = slowdown > most * (1.0 + FAR) + SLACK
            verdict = Verdict.UNSUPPORTED if far else Verdict.EXTRAPOLATED
            reasons.append(
                f"a packet takes {100 * slowdown:.0f} % longer than alone; latency was profiled to {100 * most:.0f} %"
            )
        return verdict, tuple(reasons)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "LatencyModel":
        """Return the object that :meth:`to_dict` described; ConfigurationError for tables that make no curve."""
        made = super().from_dict(data)
        knots, (low, high) = made.knots, made.loads
        ordered = len(knots) > 1 and (np.diff(knots) > 0).all() and 0 < low <= high < 1
        possible = made.curves and ordered and made.slowest_mpps > 0.0 and made.solo_mpps > 0.0
        require(possible, "a latency model whose tables make no curve")
        rising = all(curve.fits(len(knots)) for curve in made.curves.values())
        require(rising, "a latency curve that falls, or scores out of order")
        return replace(made, curves={name: made.curves[name] for name in PERCENTILES if name in made.curves})


def busyness(load: Floats) -> Floats:
    """Return -ln(1 - load), in which the logarithm of a queue's latency is nearly linear."""
    return -np.log1p(-np.clip(load, 0.0, 0.999))


def error_scale(scale: Floats, load: Floats, slower: Floats) -> Floats:
    """Return the scale of the errors of latency's logarithm at these loads and logarithms of slowdowns."""
    result: Floats = scale[0] + scale[1] * busyness(load) + scale[2] * np.maximum(slower, 0.0)
    return result


def load_basis(load: Floats, possible_mpps: Floats, solo_mpps: float, knots: Floats) -> Floats:
    """Return the columns by which a curve's weights are multiplied, shape ``(n, pieces + 2)``.

    >>> load_basis(np.array([0.5]), np.array([1.0]), 2.0, np.array([0.0, 0.5, 3.0])).round(2).tolist()
    [[1.0, 0.5, 0.19, 0.69]]
    """
    at = busyness(np.asarray(load, dtype=float))[:, np.newaxis]
    pieces = np.clip(at - knots[:-1], 0.0, np.diff(knots))
    slower = np.log(solo_mpps / np.asarray(possible_mpps, dtype=float))[:, np.newaxis]
    return np.hstack([np.ones_like(at), pieces, slower])


def busy_share(
    response: ServerResponse | None, pressure: Floats, load: Floats, neighbours: Floats | None = None
) -> Floats:
    """Return the share of time in which an NF is busy at these loads, shape ``(n,)``.

    The content of a cache depends on the order of accesses, not on their speed: an NF busy half of the time performs
    like a saturated one beside neighbours twice as fast (`slomo.equilibrium.server`). Packets therefore take longer
    than at saturation, and utilisation is higher than the load; at load 1 the two are equal.

    `response`: the NF's response to running neighbours; without it only its load is used. `pressure`, shape (n,
    pressures): pressure on it; NaN where unknown. `load`, shape (n,): offered over possible throughput, above 0.
    `neighbours`, shape (n,): number of neighbours; one by default.
    """
    load = np.asarray(load, dtype=float)
    if response is None:
        return load
    flowing = np.array([METRICS[name].kind in (Kind.RATE, Kind.BANDWIDTH) for name in response.pressure_names])
    known_pressure = np.nan_to_num(pressure)
    many = np.ones(len(known_pressure)) if neighbours is None else neighbours
    saturated = response.rows_mpps(known_pressure, many)
    busy = load.copy()
    for _ in range(_ROUNDS):
        faster = np.where(flowing, 1.0 / np.clip(busy, 1e-3, 1.0)[:, np.newaxis], 1.0)
        slowed = np.minimum(response.rows_mpps(known_pressure * faster, many), saturated)
        longer = load * saturated / np.maximum(slowed, 1e-9)
        busy = 0.5 * busy + 0.5 * np.where(load < 1.0, np.clip(longer, load, _FULL), load)
    return busy
