"""A model between two models of one NF: throughput in time per packet, vectors in proportion.

An NF's work per packet adds up in time (Yala, ASPLOS'25, section 4), so that time, not throughput, is interpolated
between two profiles.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slomo.errors import UnsupportedPredictionError
from slomo.models.base import CompositionKind, Floats, SensitivityModel
from slomo.models.contentiousness import ContentiousnessProfile, pressure_basis
from slomo.models.functions.regression import ridge
from slomo.models.intervals import ConformalCalibration
from slomo.models.neighbourhood import UNKNOWN
from slomo.models.nf_model import NFModel
from slomo.models.responses.server_response import ServerResponse
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload

#: Pressures drawn to carry the blend of two profiles over to one basis; six per term of the largest basis.
_SAMPLES = 128


@dataclass(frozen=True)
class InterpolationPath:
    """How to get from profiles along one attribute to a value between two of them.

    Attributes
    ----------
    at : tuple of float
        Where the profiles are, ascending, on the attribute's scale.
    solo_us : tuple of float
        Time per packet alone at each [us].
    asked : float
        Where the answer is wanted, between the first and the last.
    alone_us : float
        Time per packet alone there [us].
    share : float
        How far from the profile below to the one above, 0 to 1, for whatever is interpolated between the two.
    curved : bool
        Whether what pressure adds to the time per packet is interpolated for itself, by a monotone cubic over all
        profiles: a working set that outgrows the cache under pressure has fitted it alone for long.

    Examples
    --------
    >>> way = InterpolationPath((0.0, 1.0, 2.0), (1.0, 1.0, 2.0), 1.5, 1.5, 0.5, curved=True)
    >>> way.below, way.times_us(np.array([[1.0, 1.0, 4.0]])).tolist()
    (1, [2.125])
    """

    at: tuple[float, ...]
    solo_us: tuple[float, ...]
    asked: float
    alone_us: float
    share: float
    curved: bool

    @property
    def below(self) -> int:
        """Number of the profile below the answer."""
        return min(int(np.searchsorted(self.at, self.asked, side="right")) - 1, len(self.at) - 2)

    def times_us(self, times_us: Floats) -> Floats:
        """Return times per packet, shape ``(n,)``, from those at the profiles, shape ``(n, profiles)`` [us]."""
        if self.curved:
            extra = monotone_cubic(np.array(self.at), times_us - np.array(self.solo_us), self.asked)
            return np.maximum(self.alone_us + extra, 1e-9)
        low, high = times_us[:, self.below], times_us[:, self.below + 1]
        mean: Floats = (1.0 - self.share) * low + self.share * high
        return mean


def monotone_cubic(at: Floats, values: Floats, asked: float) -> Floats:
    """Interpolate rows of `values`, shape ``(n, points)``, without overshoot (Fritsch and Carlson 1980).

    Examples
    --------
    >>> monotone_cubic(np.array([0.0, 1.0, 2.0]), np.array([[0.0, 0.0, 1.0]]), 1.5).tolist()
    [0.3125]
    """
    steps = np.diff(at)
    rises = np.diff(values, axis=1) / steps
    i = min(max(int(np.searchsorted(at, asked, side="right")) - 1, 0), len(steps) - 1)
    left, right = _slope(steps, rises, i), _slope(steps, rises, i + 1)
    h, part = steps[i], (asked - at[i]) / steps[i]
    bow = part * (1.0 - part) * h * ((1.0 - part) * (left - rises[:, i]) - part * (right - rises[:, i]))
    result: Floats = values[:, i] + part * h * rises[:, i] + bow
    return result


def _slope(steps: Floats, rises: Floats, point: int) -> Floats:
    """Return the slope at a point: a weighted harmonic mean of both sides, 0 at a bend; at an end, of three points."""
    last = rises.shape[1]
    if last == 1:
        return rises[:, 0]
    if 0 < point < last:
        before, after, h, g = rises[:, point - 1], rises[:, point], steps[point - 1], steps[point]
        same = before * after > 0.0
        one, other = np.where(same, before, 1.0), np.where(same, after, 1.0)
        mean = 3.0 * (h + g) / ((2.0 * g + h) / one + (g + 2.0 * h) / other)
        return np.where(same, mean, 0.0)
    near, next_ = (0, 1) if point == 0 else (last - 1, last - 2)
    h, g, first, second = steps[near], steps[next_], rises[:, near], rises[:, next_]
    slope = ((2.0 * h + g) * first - h * second) / (h + g)
    slope = np.where(slope * first <= 0.0, 0.0, slope)
    return np.where((first * second <= 0.0) & (np.abs(slope) > 3.0 * np.abs(first)), 3.0 * first, slope)


@dataclass(frozen=True, eq=False)
class Blended:
    """Time per packet interpolated between models of one NF.

    Examples
    --------
    >>> from slomo.models.responses.sensitivity import ConstantSensitivity
    >>> way = InterpolationPath((0.0, 1.0), (1.0, 1.0 / 3.0), 0.5, 2.0 / 3.0, 0.5, curved=False)
    >>> half = Blended((ConstantSensitivity("none", 1.0), ConstantSensitivity("none", 3.0)), way)
    >>> half.predict_mpps(np.zeros((1, 0))).round(6).tolist()
    [1.5]
    """

    models: tuple[SensitivityModel, ...]
    way: InterpolationPath

    @property
    def name(self) -> str:
        """Name of the family."""
        return self.models[0].name

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Columns read, in order."""
        return self.models[0].feature_names

    @property
    def composition(self) -> CompositionKind:
        """What the input is composed of."""
        return self.models[0].composition

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps]; 0 where a model stands still."""
        return _between(self.way, [model.predict_mpps(vectors) for model in self.models])

    def to_dict(self) -> dict[str, Any]:
        """Refuse to be saved: it is made anew from the profiles.

        Raises
        ------
        UnsupportedPredictionError
            Always.
        """
        raise UnsupportedPredictionError("an interpolated model is made on request", hint="save the profiled models")


def _between(way: InterpolationPath, mpps: Sequence[Floats]) -> Floats:
    times = np.column_stack([1.0 / np.maximum(values, 1e-9) for values in mpps])
    result: Floats = 1.0 / way.times_us(times)
    return result


def blend(models: Sequence[NFModel], way: InterpolationPath, asked: Workload) -> NFModel:
    """Return a model between profiles: throughput in time per packet, vectors in proportion, intervals the wider ones.

    Parameters
    ----------
    models : sequence of NFModel
        Profiles of one NF along one attribute, in the order of `way`.
    way : InterpolationPath
        How to get to what is asked.
    asked : Workload
        What it stands for afterwards.
    """
    first, second = models[way.below], models[way.below + 1]
    names = [name for name in first.sensitivity if _alike([model.sensitivity.get(name) for model in models])]
    return replace(
        first if way.share < 0.5 else second,
        workload=asked,
        solo_mpps=1.0 / way.alone_us,
        solo_vector=_blended_vector(first.solo_vector, second.solo_vector, way.share),
        sensitivity={name: Blended(tuple(model.sensitivity[name] for model in models), way) for name in names},
        contentiousness=_blended_profile(first.contentiousness, second.contentiousness, way.share),
        calibration=_wider(first.calibration, second.calibration),
        response=_blended_response([model.response for model in models], way),
    )


def _wider(
    one: Mapping[str, ConformalCalibration], other: Mapping[str, ConformalCalibration]
) -> dict[str, ConformalCalibration]:
    """Return, per family, the calibration of the larger errors."""
    return {name: _larger(one[name], other[name]) for name in one if name in other}


def _larger(one: ConformalCalibration, other: ConformalCalibration) -> ConformalCalibration:
    if not (one.count and other.count):
        return one if not one.count else other
    return one if _reach(one) >= _reach(other) else other


def _reach(calibration: ConformalCalibration) -> float:
    """Return how far nine in ten errors stay, whatever the neighbourhood."""
    errors = calibration.centre[UNKNOWN] + calibration.spread[UNKNOWN] * calibration.scores
    return float(np.quantile(np.abs(errors), 0.9))


def _alike(models: Sequence[SensitivityModel | None]) -> bool:
    known = [model for model in models if model is not None]
    return len(known) == len(models) and len({model.feature_names for model in known}) == 1


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


def _blended_response(given: Sequence[ServerResponse | None], way: InterpolationPath) -> ServerResponse | None:
    found = [response for response in given if response is not None]
    if len(found) < len(given) or len({response.sensitivity.feature_names for response in found}) > 1:
        return None
    one, other = found[way.below], found[way.below + 1]
    profile = _blended_profile(one.profile, other.profile, way.share)
    pressure = _drawn(profile.limit)
    speed = _between(way, [response.speed_mpps(pressure) for response in found])
    return replace(
        one if way.share < 0.5 else other,
        profile=profile,
        speed=ridge(pressure_basis(pressure, profile.scale, profile.limit), speed[:, np.newaxis], 1e-6)[:, 0],
        slowest_mpps=min(one.slowest_mpps, other.slowest_mpps),
        fastest_mpps=max(one.fastest_mpps, other.fastest_mpps),
        sensitivity=Blended(tuple(response.sensitivity for response in found), way),
        calibration=_larger(one.calibration, other.calibration),
    )


def _drawn(limit: Floats) -> Floats:
    """Return pressures spread over what was measured, none and the most among them."""
    inside = np.random.default_rng(0).uniform(0.0, 1.0, (_SAMPLES, len(limit))) ** 2
    return np.vstack([np.zeros(len(limit)), np.ones(len(limit)), inside]) * limit
