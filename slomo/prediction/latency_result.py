"""Result of a latency prediction: percentiles, their intervals and the verdict.

`slomo.prediction.latency` makes it. The percentiles are p95, as in ResQ (NSDI'18), and p50 and p99.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from slomo.files.stored import Stored
from slomo.models.applicability import Verdict


@dataclass(frozen=True)
class LatencyPrediction(Stored):
    """Predicted latency (time from arrival to departure) of one NF's packets.

    Examples
    --------
    >>> found = LatencyPrediction(1.8, 2.0, {"p95": 4.0}, {"p95": (3.0, None)}, 0.9, Verdict.SUPPORTED)
    >>> found.load, LatencyPrediction.from_dict(found.to_dict()) == found
    (0.9, True)
    """

    #: Offered load [Mpps].
    offered_mpps: float
    #: Throughput that the NF would serve beside the others if saturated [Mpps].
    possible_mpps: float
    #: Predicted ``p50``, ``p95``, ``p99`` [us]; empty if latency cannot be predicted.
    percentiles_us: Mapping[str, float]
    #: Interval of each percentile with probability `coverage` [us]; the upper bound is None if infinite.
    intervals_us: Mapping[str, tuple[float, float | None]]
    #: Nominal coverage of the intervals, 0 to 1.
    coverage: float
    #: Whether the profile supports this prediction.
    verdict: Verdict
    #: Reasons against the prediction.
    reasons: tuple[str, ...] = ()

    @property
    def load(self) -> float:
        """Offered load divided by the throughput that the NF can reach; from 1 on, packets are lost."""
        return self.offered_mpps / self.possible_mpps if self.possible_mpps > 0.0 else float("inf")
