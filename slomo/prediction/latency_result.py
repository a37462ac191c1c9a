"""What is predicted about latency: sojourn times at an offered load, their intervals, and whether to believe them.

A value only; `slomo.prediction.latency` makes it. The percentiles are those of ResQ (NSDI'18): p95, with p50 and p99.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from slomo.files.stored import Stored
from slomo.models.applicability import Verdict


@dataclass(frozen=True)
class LatencyPrediction(Stored):
    """How long packets of one NF stay.

    Examples
    --------
    >>> found = LatencyPrediction(1.8, 2.0, {"p95": 4.0}, {"p95": (3.0, None)}, 0.9, Verdict.SUPPORTED)
    >>> found.load, LatencyPrediction.from_dict(found.to_dict()) == found
    (0.9, True)
    """

    #: What arrives [Mpps].
    offered_mpps: float
    #: What the NF could serve beside the others [Mpps].
    possible_mpps: float
    #: ``p50``, ``p95``, ``p99`` [us]; empty where there is no number to give.
    percentiles_us: Mapping[str, float]
    #: Interval of each with probability `coverage` [us]; the upper end is None where nothing bounds it.
    intervals_us: Mapping[str, tuple[float, float | None]]
    #: Nominal coverage of the intervals, 0 to 1.
    coverage: float
    #: Whether what was measured supports this.
    verdict: Verdict
    #: What speaks against it.
    reasons: tuple[str, ...] = ()

    @property
    def load(self) -> float:
        """Offered over possible throughput; 1 and more means that packets are lost."""
        return self.offered_mpps / self.possible_mpps if self.possible_mpps > 0.0 else float("inf")
