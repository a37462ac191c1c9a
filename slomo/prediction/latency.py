"""Predict the latency of packets at an offered load, for an NF beside others.

ResQ (NSDI'18) section 5 guarantees latency by a curve over load, measured solo in a cache partition. Without a
partition, both utilisation and time per packet depend on the neighbours; they are computed from the predicted
throughput.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from slomo.models.applicability import Verdict, worst
from slomo.models.nf_model import NFModel
from slomo.models.responses.latency import LOAD_SLACK, busy_share
from slomo.prediction.latency_result import LatencyPrediction
from slomo.prediction.result import Prediction
from slomo.prediction.server_result import ServerPrediction, TenantPrediction
from slomo.prediction.tenants import TenantModel
from slomo.vocabulary.vector import Floats


def latency_of(
    tenant: TenantModel, load_mpps: float, saturated: Prediction, beside: ServerPrediction
) -> LatencyPrediction:
    """Return the latency (time from arrival to departure) of packets of a server's first NF at its load.

    The tenant's model needs runs at several loads (`slomo profile --latency`). `saturated`: prediction of the NF at
    full load; its interval contributes to that of latency, as does the scatter of a measurement. `beside`: fixed point
    of all NFs at their loads, used whichever method predicts throughput. The result has no numbers and the verdict
    ``unsupported`` if the relative load is 1 or more or above those measured, or if latency was not profiled.
    """
    first, *rest = beside.tenants
    others, mpps = [other for other in rest if other.socket == first.socket], saturated.throughput_mpps
    case = _Case(tenant.model, load_mpps, mpps, _pressure_of(others, tenant.model), len(others), saturated.coverage)
    answer = _answer(case, saturated.interval)
    reasons = (*answer.reasons, *saturated.reasons)
    if tenant.adapted and answer.percentiles_us:
        reasons = (*reasons, "latency in units of the time per packet taken from the nearest profile")
    return replace(answer, verdict=worst((answer.verdict, saturated.verdict)), reasons=reasons)


@dataclass(frozen=True, eq=False)
class _Case:
    """One NF at one load, under the pressure of others."""

    model: NFModel
    offered_mpps: float
    possible_mpps: float
    pressure: Floats
    neighbours: int
    coverage: float

    def busy(self, possible_mpps: Floats) -> Floats:
        """Return the share of time in which the NF is busy if its possible throughput is `possible_mpps`."""
        pressure = np.broadcast_to(self.pressure, (len(possible_mpps), len(self.pressure)))
        many = np.full(len(pressure), float(self.neighbours))
        return busy_share(self.model.response, pressure, self.offered_mpps / possible_mpps, many)


def _pressure_of(others: Sequence[TenantPrediction], model: NFModel) -> Floats:
    """Return the pressure that the other NFs of a socket cause; 0 without an equilibrium."""
    names = () if model.response is None else model.response.pressure_names
    vectors = [tenant.vector for tenant in others if tenant.vector is not None]
    return np.array([sum((vector.get(name) or 0.0) for vector in vectors) for name in names], dtype=float)


def _answer(case: _Case, ends: tuple[float, float]) -> LatencyPrediction:
    """Return the latency at one load and pressure, with an interval from both bounds of the throughput's interval."""
    latency, offered, possible = case.model.latency, case.offered_mpps, case.possible_mpps
    nothing = LatencyPrediction(offered, possible, {}, {}, case.coverage, Verdict.UNSUPPORTED)
    if latency is None:
        return replace(nothing, reasons=("latency was not profiled at several loads: slomo profile NF --latency",))
    if not possible > 0.0:
        return replace(nothing, reasons=("nothing can be served there",))
    at = np.array([possible, max(ends[0], 1e-6), max(ends[1], possible)])
    busy = case.busy(at)
    verdict, reasons = latency.check(float(busy[0]), offered / float(busy[0]))
    if verdict is Verdict.UNSUPPORTED:
        return replace(nothing, reasons=reasons)
    slowdown = np.log(latency.solo_mpps * busy[:1] / offered)
    times = {name: values.tolist() for name, values in latency.predict_us(busy, offered / busy).items()}
    bounded = bool(busy[1] <= latency.loads[1] + LOAD_SLACK)
    intervals = {}
    for name, (middle, slower, faster) in times.items():
        scatter = float(latency.curves[name].half_width(busy[:1], slowdown, case.coverage)[0])
        # two independent errors: that of the throughput, and the scatter of a measurement
        down, up = math.hypot(scatter, math.log(middle / faster)), math.hypot(scatter, math.log(slower / middle))
        high = middle * math.exp(up) if bounded and math.isfinite(up) else None
        intervals[name] = (middle * math.exp(-down), high)
    if not bounded:
        verdict = Verdict.EXTRAPOLATED
        low = f"{at[1]:.3g} Mpps, the load is {offered / at[1]:.3g}"
        reasons = (*reasons, f"at the low end of what it may serve, {low}: no upper bound")
    percentiles = {name: values[0] for name, values in times.items()}
    return LatencyPrediction(offered, possible, percentiles, intervals, case.coverage, verdict, reasons)
