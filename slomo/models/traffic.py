"""A model for traffic that was not profiled: between profiles of one NF, or a little beyond a single one.

SLOMO (SIGCOMM'20), as Yala (ASPLOS'25) re-implements it, extrapolates to a flow count within 20 % of the profiled one:
access rates scaled by the ratio of working sets, the difference of working sets added to the occupancy, the difference
of solo throughput added to the prediction. Between several profiles, time per packet is interpolated over the logarithm
of the flow count, or over the packet size, since an NF's work per packet adds up in time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slomo.errors import UnknownNameError, UnsupportedPredictionError
from slomo.models.base import CompositionKind, Floats, SensitivityModel
from slomo.models.contentiousness import ContentiousnessProfile, pressure_basis
from slomo.models.library import ModelLibrary
from slomo.models.nf_model import NFModel
from slomo.models.response_fit import ridge
from slomo.models.server_response import ServerResponse
from slomo.vocabulary.metrics import METRICS, Kind
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Traffic, Workload

#: SLOMO's reach: a flow count at most this share away from the profiled one.
REACH = 0.20
_FLOWING = (Kind.RATE, Kind.BANDWIDTH)
#: Pressures drawn to carry the blend of two profiles over to one basis; six per term of the largest basis.
_SAMPLES = 128


@dataclass(frozen=True)
class Adapted:
    """A model for the traffic asked about.

    Attributes
    ----------
    model : NFModel
        As profiled, interpolated, or extrapolated.
    way : str
        ``"profiled"``, ``"interpolated"`` or ``"extrapolated"``.
    reasons : tuple of str
        What was done and how far it reached; empty where the traffic was profiled.
    """

    model: NFModel
    way: str
    reasons: tuple[str, ...] = ()


def at_traffic(library: ModelLibrary, workload: Workload, machine: str | None = None) -> Adapted:
    """Return a model for a workload whose traffic need not have been profiled.

    Parameters
    ----------
    library : ModelLibrary
        Trained models; several traffic profiles of an NF allow interpolation.
    workload : Workload
        NF, configuration and traffic. Its offered load is no matter here.
    machine : str, optional
        Needed where the library has models of several machines.

    Raises
    ------
    UnknownNameError
        For an NF (or configuration) that was not profiled at all.
    UnsupportedPredictionError
        For traffic that no profile reaches.

    References
    ----------
    SLOMO (SIGCOMM'20), extrapolation of traffic attributes.
    """
    asked = workload.with_traffic(replace(workload.traffic, offered_mpps=None))
    try:
        return Adapted(library.find(asked, machine), "profiled")
    except UnknownNameError:
        known = [model for model in library.values() if _same_function(model.workload, asked, model.machine, machine)]
        if not known:
            raise
    for attribute in ("flow_count", "packet_size_b"):
        found = _between(known, asked, attribute) or _near(known, asked, attribute)
        if found is not None:
            return found
    profiled = "; ".join(model.workload.key for model in known)
    raise UnsupportedPredictionError(
        f"no profile reaches {asked.key}: profiled are {profiled}",
        hint=f"profile it there, on both sides of it, or with a flow count within {100 * REACH:g} %",
    )


def _same_function(known: Workload, asked: Workload, owner: str, machine: str | None) -> bool:
    same = (known.nf, known.configuration, known.traffic.flow_distribution) == (
        asked.nf, asked.configuration, asked.traffic.flow_distribution,
    )  # fmt: skip
    return same and (machine is None or owner == machine)


def _differs_only_in(known: Traffic, asked: Traffic, attribute: str) -> bool:
    return replace(known, **{attribute: getattr(asked, attribute)}) == asked


def _between(known: Sequence[NFModel], asked: Workload, attribute: str) -> Adapted | None:
    """Interpolate between the nearest profiles below and above; both must be able to answer."""
    fitting = [
        model
        for model in known
        if model.sensitivity and _differs_only_in(model.workload.traffic, asked.traffic, attribute)
    ]
    value = float(getattr(asked.traffic, attribute))
    at = sorted((float(getattr(model.workload.traffic, attribute)), i) for i, model in enumerate(fitting))
    below, above = [item for item in at if item[0] < value], [item for item in at if item[0] > value]
    if not below or not above:
        return None
    (low, first), (high, second) = below[-1], above[0]
    # lines moved and time on the wire grow with the packet; misses with the logarithm of the flows
    scale = math.log if attribute == "flow_count" else float
    share = (scale(value) - scale(low)) / (scale(high) - scale(low))
    reason = f"{attribute} {value:g} interpolated between profiles at {low:g} and {high:g}"
    return Adapted(_blend(fitting[first], fitting[second], share, asked), "interpolated", (reason,))


def _near(known: Sequence[NFModel], asked: Workload, attribute: str) -> Adapted | None:
    """Extrapolate as SLOMO does, where a profile's flow count is near enough."""
    if attribute != "flow_count":
        return None
    fitting = [model for model in known if _differs_only_in(model.workload.traffic, asked.traffic, attribute)]
    if not fitting:
        return None
    wanted = asked.traffic.flow_count
    nearest = min(fitting, key=lambda model: abs(model.workload.traffic.flow_count / wanted - 1.0))
    base = nearest.workload.traffic.flow_count
    away = wanted / base - 1.0
    if abs(away) > REACH + 1e-9:
        return None
    reason = (
        f"flow_count {wanted} extrapolated from a profile at {base}, {100 * away:+.0f} % away (reach {100 * REACH:g} %)"
    )
    return Adapted(shifted(nearest, asked, 1.0 + away), "extrapolated", (reason, "solo throughput taken as unchanged"))


def shifted(model: NFModel, asked: Workload, ratio: float, solo_difference_mpps: float = 0.0) -> NFModel:
    """Return SLOMO's extrapolation of a model to another working set.

    Parameters
    ----------
    model : NFModel
        At the profiled traffic.
    asked : Workload
        What it stands for afterwards.
    ratio : float
        Working set there over working set here; that of flow counts where nothing else is known.
    solo_difference_mpps : float
        Solo throughput there less solo throughput here, where it was measured [Mpps].
    """
    held = model.solo_vector.get("L3OCC") or 0.0
    extra = (ratio - 1.0) * held
    response = model.response
    if response is not None:
        moved = Shifted(response.sensitivity, ratio, extra, solo_difference_mpps)
        response = replace(
            response,
            profile=_shifted_profile(response.profile, ratio, extra),
            speed=response.speed + np.eye(1, len(response.speed))[0] * solo_difference_mpps,
            fastest_mpps=response.fastest_mpps + max(solo_difference_mpps, 0.0),
            sensitivity=moved,
        )
    return replace(
        model,
        workload=asked,
        solo_mpps=model.solo_mpps + solo_difference_mpps,
        solo_vector=_shifted_vector(model.solo_vector, ratio, extra),
        sensitivity={n: Shifted(m, ratio, extra, solo_difference_mpps) for n, m in model.sensitivity.items()},
        contentiousness=_shifted_profile(model.contentiousness, ratio, extra),
        response=response,
    )


def _factors(names: Sequence[str], ratio: float, extra_kib: float) -> tuple[Floats, Floats]:
    """Return what multiplies and what is added to each metric."""
    known = [METRICS[name].kind if name in METRICS else None for name in names]
    return (
        np.array(
            [ratio if kind in _FLOWING and name != "INST" else 1.0 for name, kind in zip(names, known, strict=True)]
        ),
        np.array([extra_kib if name == "L3OCC" else 0.0 for name in names]),
    )


def _shifted_vector(vector: MetricVector, ratio: float, extra_kib: float) -> MetricVector:
    names = tuple(vector)
    factor, added = _factors(names, ratio, extra_kib)
    values = np.maximum(vector.to_array(names) * factor + added, 0.0)
    return MetricVector(dict(zip(names, values.tolist(), strict=True)), scope=vector.scope)


def _shifted_profile(profile: ContentiousnessProfile, ratio: float, extra_kib: float) -> ContentiousnessProfile:
    factor, added = _factors(profile.metric_names, ratio, extra_kib)
    weights = profile.weights * factor
    weights[0] += added
    return replace(
        profile,
        solo=_shifted_vector(profile.solo, ratio, extra_kib),
        by_count={count: _shifted_vector(vector, ratio, extra_kib) for count, vector in profile.by_count.items()},
        weights=weights,
        low=np.maximum(profile.low * factor + added, 0.0),
        high=np.maximum(profile.high * factor + added, 0.0),
    )


@dataclass(frozen=True, eq=False)
class Shifted:
    """A sensitivity model asked about a working set a little larger or smaller than profiled, as SLOMO extrapolates.

    Examples
    --------
    >>> from slomo.models.sensitivity import LinearSensitivity
    >>> line = LinearSensitivity("line", ("L2MISS",), "solo", intercept_mpps=5.0, slope=-0.01)
    >>> Shifted(line, ratio=1.2, extra_kib=100.0, solo_difference_mpps=-0.5).predict_mpps(np.array([[0.0], [100.0]]))
    array([4.5, 3.3])
    """

    base: SensitivityModel
    ratio: float
    extra_kib: float
    solo_difference_mpps: float

    @property
    def name(self) -> str:
        """Name of the family."""
        return self.base.name

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Columns read, in order."""
        return self.base.feature_names

    @property
    def composition(self) -> CompositionKind:
        """What the input is composed of."""
        return self.base.composition

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps]; nothing is shifted where nobody presses."""
        factor, added = _factors(self.feature_names, self.ratio, self.extra_kib)
        pressed = (vectors > 0.0).any(axis=1, keepdims=True)
        mpps = self.base.predict_mpps(np.maximum(vectors * factor + np.where(pressed, added, 0.0), 0.0))
        return np.maximum(mpps + self.solo_difference_mpps, 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Refuse to be saved: it is made anew from the profile.

        Raises
        ------
        UnsupportedPredictionError
            Always.
        """
        raise UnsupportedPredictionError("an extrapolated model is made on request", hint="save the profiled model")


@dataclass(frozen=True, eq=False)
class Blended:
    """Time per packet interpolated between two models of one NF.

    Examples
    --------
    >>> from slomo.models.sensitivity import ConstantSensitivity
    >>> half = Blended(ConstantSensitivity("none", 1.0), ConstantSensitivity("none", 3.0), 0.5)
    >>> half.predict_mpps(np.zeros((1, 0))).tolist()
    [1.5]
    """

    first: SensitivityModel
    second: SensitivityModel
    share: float

    @property
    def name(self) -> str:
        """Name of the family."""
        return self.first.name

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Columns read, in order."""
        return self.first.feature_names

    @property
    def composition(self) -> CompositionKind:
        """What the input is composed of."""
        return self.first.composition

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps]; 0 where either model stands still."""
        times = [1.0 / np.maximum(model.predict_mpps(vectors), 1e-9) for model in (self.first, self.second)]
        mpps: Floats = 1.0 / ((1.0 - self.share) * times[0] + self.share * times[1])
        return mpps

    def to_dict(self) -> dict[str, Any]:
        """Refuse to be saved: it is made anew from the profiles.

        Raises
        ------
        UnsupportedPredictionError
            Always.
        """
        raise UnsupportedPredictionError("an interpolated model is made on request", hint="save the profiled models")


def _blend(first: NFModel, second: NFModel, share: float, asked: Workload) -> NFModel:
    """Return a model between two: throughput in time per packet, vectors linearly, intervals the wider ones."""
    names = [n for n in first.sensitivity if _alike(first.sensitivity[n], second.sensitivity.get(n))]
    response = _blended_response(first.response, second.response, share)
    return replace(
        first if share < 0.5 else second,
        workload=asked,
        solo_mpps=1.0 / ((1.0 - share) / first.solo_mpps + share / second.solo_mpps),
        solo_vector=_blended_vector(first.solo_vector, second.solo_vector, share),
        sensitivity={n: Blended(first.sensitivity[n], second.sensitivity[n], share) for n in names},
        contentiousness=_blended_profile(first.contentiousness, second.contentiousness, share),
        response=response,
    )


def _alike(one: SensitivityModel, other: SensitivityModel | None) -> bool:
    return other is not None and one.feature_names == other.feature_names


def _blended_vector(one: MetricVector, other: MetricVector, share: float) -> MetricVector:
    names = [name for name in one if name in other]
    return MetricVector({name: (1.0 - share) * one[name] + share * other[name] for name in names}, scope=one.scope)


def _blended_profile(
    one: ContentiousnessProfile, other: ContentiousnessProfile, share: float
) -> ContentiousnessProfile:
    """Blend two profiles; their bases differ, so that the blend is fitted onto one between them."""
    if one.pressure_names != other.pressure_names or one.metric_names != other.metric_names:
        return one if share < 0.5 else other
    scale, limit = np.sqrt(one.scale * other.scale), np.maximum(one.limit, other.limit)
    pressure = _drawn(limit)
    target = (1.0 - share) * one.under(pressure) + share * other.under(pressure)
    counts = [count for count in one.by_count if count in other.by_count]
    return ContentiousnessProfile(
        one.metric_names,
        one.pressure_names,
        _blended_vector(one.solo, other.solo, share),
        {count: _blended_vector(one.by_count[count], other.by_count[count], share) for count in counts},
        scale,
        limit,
        ridge(pressure_basis(pressure, scale, limit), target, 1e-6),
        (1.0 - share) * one.low + share * other.low,
        (1.0 - share) * one.high + share * other.high,
    )


def _blended_response(one: ServerResponse | None, other: ServerResponse | None, share: float) -> ServerResponse | None:
    if one is None or other is None or one.pressure_names != other.pressure_names:
        return None
    profile = _blended_profile(one.profile, other.profile, share)
    pressure = _drawn(profile.limit)
    speed = 1.0 / ((1.0 - share) / one.speed_mpps(pressure) + share / other.speed_mpps(pressure))
    nearer = one if share < 0.5 else other
    return replace(
        nearer,
        profile=profile,
        speed=ridge(pressure_basis(pressure, profile.scale, profile.limit), speed[:, np.newaxis], 1e-6)[:, 0],
        slowest_mpps=min(one.slowest_mpps, other.slowest_mpps),
        fastest_mpps=max(one.fastest_mpps, other.fastest_mpps),
        sensitivity=Blended(one.sensitivity, other.sensitivity, share),
    )


def _drawn(limit: Floats) -> Floats:
    """Return pressures spread over what was measured, none and the most among them."""
    inside = np.random.default_rng(0).uniform(0.0, 1.0, (_SAMPLES, len(limit))) ** 2
    return np.vstack([np.zeros(len(limit)), np.ones(len(limit)), inside]) * limit
