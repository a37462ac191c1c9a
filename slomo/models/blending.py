"""A model between two models of one NF: throughput in time per packet, vectors in proportion.

An NF's work per packet adds up in time (Yala, ASPLOS'25, section 4), so that time, not throughput, is interpolated
between two profiles.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slomo.errors import UnsupportedPredictionError
from slomo.models.base import CompositionKind, Floats, SensitivityModel
from slomo.models.contentiousness import ContentiousnessProfile, pressure_basis
from slomo.models.intervals import ConformalCalibration
from slomo.models.nf_model import NFModel
from slomo.models.response_fit import ridge
from slomo.models.server_response import ServerResponse
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload

#: Pressures drawn to carry the blend of two profiles over to one basis; six per term of the largest basis.
_SAMPLES = 128


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


def blend(first: NFModel, second: NFModel, share: float, asked: Workload) -> NFModel:
    """Return a model between two: throughput in time per packet, vectors in proportion, intervals the wider ones.

    Parameters
    ----------
    first, second : NFModel
        Two profiles of one NF.
    share : float
        How far from the first to the second, 0 to 1.
    asked : Workload
        What it stands for afterwards.
    """
    names = [n for n in first.sensitivity if _alike(first.sensitivity[n], second.sensitivity.get(n))]
    return replace(
        first if share < 0.5 else second,
        workload=asked,
        solo_mpps=1.0 / ((1.0 - share) / first.solo_mpps + share / second.solo_mpps),
        solo_vector=_blended_vector(first.solo_vector, second.solo_vector, share),
        sensitivity={n: Blended(first.sensitivity[n], second.sensitivity[n], share) for n in names},
        contentiousness=_blended_profile(first.contentiousness, second.contentiousness, share),
        calibration=_wider(first.calibration, second.calibration),
        response=_blended_response(first.response, second.response, share),
    )


def _wider(
    one: Mapping[str, ConformalCalibration], other: Mapping[str, ConformalCalibration]
) -> dict[str, ConformalCalibration]:
    """Return, per family, the calibration of the larger errors."""
    return {name: _larger(one[name], other[name]) for name in one if name in other}


def _larger(one: ConformalCalibration, other: ConformalCalibration) -> ConformalCalibration:
    if not (one.count and other.count):
        return one if not one.count else other
    return one if np.quantile(one.scores, 0.9) >= np.quantile(other.scores, 0.9) else other


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
        calibration=_larger(one.calibration, other.calibration),
    )


def _drawn(limit: Floats) -> Floats:
    """Return pressures spread over what was measured, none and the most among them."""
    inside = np.random.default_rng(0).uniform(0.0, 1.0, (_SAMPLES, len(limit))) ** 2
    return np.vstack([np.zeros(len(limit)), np.ones(len(limit)), inside]) * limit
