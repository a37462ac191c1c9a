"""Extrapolate a model to a slightly larger or smaller working set, as SLOMO does.

SLOMO (SIGCOMM'20), as Yala (ASPLOS'25) re-implements it: access rates scaled by the ratio of working sets, the
difference of working sets added to the occupancy, the difference of solo throughput added to the prediction.
"""

from dataclasses import dataclass, replace

import numpy as np

from slomo.adaptation.blend import DerivedSensitivity
from slomo.models.base import Floats, SensitivityModel
from slomo.models.nf_model import NFModel
from slomo.models.responses.server_response import NOT_LEARNED
from slomo.vocabulary.metrics import METRICS, Kind
from slomo.vocabulary.workload import Workload

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
