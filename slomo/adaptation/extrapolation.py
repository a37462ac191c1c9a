"""Extrapolate a model to a slightly larger or smaller working set, as SLOMO does.

SLOMO (SIGCOMM'20), as Yala (ASPLOS'25) re-implements it: access rates scaled by the ratio of working sets, the
difference of working sets added to the occupancy, the difference of solo throughput added to the prediction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from slomo.adaptation.blend import DerivedSensitivity
from slomo.models.base import Floats, SensitivityModel
from slomo.models.contentiousness import ContentiousnessProfile
from slomo.models.nf_model import NFModel
from slomo.models.responses.server_response import NOT_LEARNED
from slomo.vocabulary.metrics import METRICS, Kind
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload

_FLOWING = (Kind.RATE, Kind.BANDWIDTH)


def shifted(model: NFModel, requested: Workload, solo_difference_mpps: float = 0.0) -> NFModel:
    """Return SLOMO's extrapolation of a model to another working set.

    `model`: at the profiled traffic. `requested`: the workload that the model describes afterwards; its working set
    grows in proportion to its flow count. `solo_difference_mpps`: solo throughput there less solo throughput here,
    where it was measured [Mpps].
    """
    ratio = requested.traffic.flow_count / model.workload.traffic.flow_count
    held = model.solo_vector.get("L3OCC") or 0.0
    extra = (ratio - 1.0) * held
    response = model.response
    if response is not None:
        moved = Shifted(response.sensitivity, ratio, extra, solo_difference_mpps)
        response = replace(
            response,
            profile=_shifted_profile(response.profile, ratio, extra),
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
        solo_vector=_shifted_vector(model.solo_vector, ratio, extra),
        sensitivity={n: Shifted(m, ratio, extra, solo_difference_mpps) for n, m in model.sensitivity.items()},
        contentiousness=_shifted_profile(model.contentiousness, ratio, extra),
        response=response,
        allocation=None,
    )


def _factors(names: Sequence[str], ratio: float, extra_kib: float) -> tuple[Floats, Floats]:
    """Return by which factor, and by which amount, each counter changes."""
    kinds = [METRICS[name].kind if name in METRICS else None for name in names]
    return (
        np.array(
            [ratio if kind in _FLOWING and name != "INST" else 1.0 for name, kind in zip(names, kinds, strict=True)]
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
class Shifted(DerivedSensitivity):
    """A sensitivity model extrapolated to a slightly different working set, as SLOMO does.

    Examples
    --------
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
        factor, added = _factors(self.feature_names, self.ratio, self.extra_kib)
        pressed = (vectors > 0.0).any(axis=1, keepdims=True)
        mpps = self.base.predict_mpps(np.maximum(vectors * factor + np.where(pressed, added, 0.0), 0.0))
        return np.maximum(mpps + self.solo_difference_mpps, 0.0)
