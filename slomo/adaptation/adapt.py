"""Derive a model for traffic or settings that were not profiled: between profiles, or slightly beyond one.

Packet size, flow count and every numeric setting are coordinates: SLOMO (SIGCOMM'20) section 7 extrapolates over flow
counts only; Yala (ASPLOS'25) section 5 names match density, too, and a rule-set size is a setting like any other.
`routes` chooses which profiles to interpolate between, from their coordinates and solo throughputs alone; `blend` then
makes the model. Between profiles, time per packet is interpolated; near a single profile, SLOMO (SIGCOMM'20)
extrapolates flow counts by up to 20 %. The result states which method was used, and how far from the profiles; all
other requests are refused. Candidate profiles are arguments: this module looks up no names.

Beyond a profile (SLOMO, SIGCOMM'20, as Yala, ASPLOS'25, re-implements it): access rates scaled by the ratio of working
sets, the difference of working sets added to the occupancy, the difference of solo throughput added to the prediction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from slomo.adaptation.blend import DerivedSensitivity, model_at
from slomo.adaptation.routes import FLOWS, REACH, SIZE, ZIPF, PointBeyond, Position, ProfiledPoint, route_to
from slomo.errors import UnknownNameError, UnsupportedPredictionError
from slomo.models.base import TRAFFIC_PREFIX, Floats, SensitivityModel
from slomo.models.nf_model import NFModel
from slomo.models.responses.server_response import NOT_LEARNED
from slomo.vocabulary.metrics import METRICS, Kind
from slomo.vocabulary.workload import Setting, Workload

_FLOWING = (Kind.RATE, Kind.BANDWIDTH)


def shifted(model: NFModel, requested: Workload, solo_difference_mpps: float = 0.0) -> NFModel:
    """Return SLOMO's extrapolation of a model to another working set, which grows in proportion to the flow count.

    `solo_difference_mpps`: solo throughput there less solo throughput here, where it was measured [Mpps].
    """
    ratio = requested.traffic.flow_count / model.workload.traffic.flow_count
    held = model.solo_vector.get("L3OCC") or 0.0
    extra = (ratio - 1.0) * held
    changes = _changes(ratio, extra)
    response = model.response
    if response is not None:
        moved = Shifted(response.sensitivity, ratio, extra, solo_difference_mpps)
        response = replace(
            response,
            profile=response.profile.scaled(*changes),
            part_load=None,
            holding=NOT_LEARNED,
            speed=response.speed + np.eye(1, len(response.speed))[0] * solo_difference_mpps,
            fastest_mpps=response.fastest_mpps + max(solo_difference_mpps, 0.0),
            sensitivity=moved,
        )
    return replace(
        model,
        workload=requested,
        solo_mpps=model.solo_mpps + solo_difference_mpps,
        solo_vector=model.solo_vector.scaled(*changes),
        sensitivity={n: Shifted(m, ratio, extra, solo_difference_mpps) for n, m in model.sensitivity.items()},
        contentiousness=model.contentiousness.scaled(*changes),
        response=response,
        allocation=None,
    )


def _changes(ratio: float, extra_kib: float) -> tuple[dict[str, float], dict[str, float]]:
    """Return the factors and the added amounts of counters that change with the working set."""
    flowing = [name for name, metric in METRICS.items() if metric.kind in _FLOWING and name != "INST"]
    return dict.fromkeys(flowing, ratio), {"L3OCC": extra_kib}


@dataclass(frozen=True, eq=False)
class Shifted(DerivedSensitivity):
    """A sensitivity model extrapolated to a slightly different working set, as SLOMO does.

    >>> from slomo.models.responses.sensitivity import LinearSensitivity
    >>> line = LinearSensitivity("line", ("L2MISS",), "solo", intercept_mpps=5.0, slope=-0.01)
    >>> Shifted(line, ratio=1.2, extra_kib=100.0, solo_difference_mpps=-0.5).predict_mpps(np.array([[0.0], [100.0]]))
    array([4.5, 3.3])
    """

    base: SensitivityModel
    ratio: float
    extra_kib: float
    solo_difference_mpps: float

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps]; without competitors nothing is shifted."""
        factors, amounts = _changes(self.ratio, self.extra_kib)
        factor = np.array([factors.get(name, 1.0) for name in self.feature_names])
        added = np.array([amounts.get(name, 0.0) for name in self.feature_names])
        pressed = (vectors > 0.0).any(axis=1, keepdims=True)
        mpps = self.base.predict_mpps(np.maximum(vectors * factor + np.where(pressed, added, 0.0), 0.0))
        return np.maximum(mpps + self.solo_difference_mpps, 0.0)


@dataclass(frozen=True)
class Adapted:
    """A model for the requested workload."""

    #: As profiled, interpolated, or extrapolated.
    model: NFModel
    #: ``"profiled"``, ``"interpolated"`` or ``"extrapolated"``.
    way: str
    #: How it was derived and how far from profiles; empty if the workload was profiled.
    reasons: tuple[str, ...] = ()


def at_workload(profiles: Sequence[NFModel], workload: Workload) -> Adapted:
    """Return a model for a workload whose traffic and settings need not have been profiled, whatever its offered load.

    `profiles`: all models of its NF on one machine. Raises UnknownNameError for a setting that is no number and was not
    profiled; UnsupportedPredictionError for traffic or settings that no profile reaches.
    """
    return _at_saturation(tuple(profiles), workload.saturated)


@lru_cache(maxsize=256)
def _at_saturation(profiles: tuple[NFModel, ...], requested: Workload) -> Adapted:
    exact = next((model for model in profiles if model.workload.key == requested.key), None)
    if exact is not None and exact.knows_pressure:
        return Adapted(exact, "profiled")
    if exact is None and len(profiles) == 1 and profiles[0].traffic:
        return Adapted(_as_asked(profiles[0], requested), "profiled")
    points = _comparable(profiles, requested)
    if exact is not None and not any(point.knows_pressure for point in points):
        return Adapted(exact, "profiled")
    if not points:
        raise UnknownNameError("profiled workload", requested.key, [model.workload.key for model in profiles])
    point = route_to(position_of(requested), points)
    if point is None:
        profiled = "; ".join(profiles[each.number].workload.key for each in points)
        raise UnsupportedPredictionError(
            f"no profile reaches {requested.key}: profiled are {profiled}",
            hint=f"profile it there, on both sides of it, or with a flow count within {100 * REACH:g} %",
        )
    if isinstance(point, PointBeyond):
        end = profiles[point.end.number]
        if exact is None:
            return Adapted(shifted(end, requested), "extrapolated", (*point.reasons, "solo throughput as there"))
        known = shifted(end, requested, exact.solo_mpps - end.solo_mpps)
        return Adapted(known, "extrapolated", (*point.reasons, "solo throughput as measured"))
    return Adapted(model_at(point, profiles, requested), point.way, point.reasons)


def _comparable(profiles: Sequence[NFModel], requested: Workload) -> list[ProfiledPoint]:
    """Return which profiles differ from a workload in numbers only."""
    position = position_of(requested)
    points = [
        ProfiledPoint(number, position_of(model.workload), model.solo_mpps, model.knows_pressure)
        for number, model in enumerate(profiles)
        if model.workload.traffic.offered_mpps is None
    ]
    return [point for point in points if point.position.comparable(position)]


def _as_asked(model: NFModel, requested: Workload) -> NFModel:
    """Return the model of a table that varies over traffic, at the requested traffic.

    Only traffic features that it reads can be set; the verdict says whether they were measured.
    """
    own = model.workload
    requested_settings: dict[str, Setting] = {**requested.configuration, **_attributes(requested)}
    measured: dict[str, Setting] = {**own.configuration, **_attributes(own)}
    changed = {
        TRAFFIC_PREFIX + name: value for name, value in requested_settings.items() if measured.get(name) != value
    }
    unread = [name.removeprefix(TRAFFIC_PREFIX) for name in changed if name not in model.traffic]
    if unread or requested.traffic.flow_distribution != own.traffic.flow_distribution:
        raise UnsupportedPredictionError(
            f"the model of '{own.key}' does not read {', '.join(unread) or 'how flows are drawn'}, "
            f"so that it cannot answer about {requested.key}",
            hint=f"it reads {', '.join(model.traffic)}; profile the rest, or import it as a feature",
        )
    traffic = {**model.traffic, **{n: float(v) for n, v in changed.items()}}
    return replace(model, workload=requested, traffic=traffic, allocation=None if changed else model.allocation)


def _attributes(workload: Workload) -> dict[str, Setting]:
    return {SIZE: workload.traffic.packet_size_b, FLOWS: workload.traffic.flow_count}


def position_of(workload: Workload) -> Position:
    """Return a workload's numbers; settings that it does not state have the NF's defaults.

    >>> dict(position_of(Workload("ip-router", {"routes": 65536})).numbers)["routes"]
    65536.0
    >>> position_of(Workload("ip-router", {"routes": 131072})) == position_of(Workload("ip-router"))
    True
    """
    traffic = workload.traffic
    settings = {**_defaults(workload.nf), **workload.configuration}
    numbers = {FLOWS: float(traffic.flow_count), SIZE: float(traffic.packet_size_b)}
    if traffic.flow_distribution != "uniform":
        numbers[ZIPF] = traffic.zipf_exponent
    numbers |= {name: float(value) for name, value in sorted(settings.items()) if _numeric(value)}
    rest = tuple((name, value) for name, value in sorted(settings.items()) if not _numeric(value))
    return Position((workload.nf, traffic.flow_distribution, rest), numbers)


def _numeric(value: Setting) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _defaults(nf: str) -> dict[str, Setting]:
    """Return a shipped NF's default settings, including the sizes of its data structures."""
    # descriptions are YAML, read only for workloads that were not profiled
    from slomo.vocabulary.network_function import load_network_function, network_function_names, stage_names

    if not {*stage_names(nf)} <= {*network_function_names()}:
        return {}
    function = load_network_function(nf)
    structures = (function.simulated or {}).get("structures", ())
    sizes = {f"{item['name']}_mib": item["size_mib"] for item in structures if _numeric(item.get("size_mib", ""))}
    return {**sizes, **function.settings}
