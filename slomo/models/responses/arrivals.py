"""How far the packets served in a measurement of finite length deviate from the offered load.

Independent arrivals form a Poisson process: over a time T, the rate of an NF that serves its whole load has standard
deviation sqrt(offered / T). Its queue is shorter or longer at the end than at the start, by a number of packets that
grows as 1 / (1 - load) (queue M/M/1: Kleinrock, Queueing Systems I, section 3.2). If T is not given, the quantile of
|served - offered| (1 - load) / sqrt(offered) over calibration mixes is used (split conformal, as in
`slomo.models.intervals`, with its step outwards for few scores).
"""

import numpy as np

from slomo.errors import InvalidValueError
from slomo.models.base import Floats
from slomo.models.interval_ends import LEAST
from slomo.models.intervals import conformal_rank, outwards
from slomo.models.noise import central_quantile

#: Largest load used for calibration, and that of a full port: closer to saturation, variation of the NF's own speed
#: shows as well.
BUSIEST = 0.95


def arrival_scores(served_mpps: Floats, offered_mpps: Floats, load: Floats | float) -> Floats:
    """Return the sorted scores of NFs that served their whole load; NFs can be pooled.

    `served_mpps`, `offered_mpps`, shape (n,): measured throughput, and offered load above 0 [Mpps]. `load`: offered
    load over the throughput that the NF could reach.
    """
    idle = 1.0 - np.minimum(load, BUSIEST)
    return np.sort(np.abs(served_mpps - offered_mpps) * idle / np.sqrt(offered_mpps))


def arrival_half_width_mpps(
    offered_mpps: Floats, load: Floats | float, scores: Floats, coverage: float, window_s: float | None = None
) -> Floats:
    """Return how far one measurement may deviate from the offered load [Mpps], at `coverage`.

    Raises InvalidValueError for a measurement of length 0.

    `offered_mpps`, `load`, `scores`: as in :func:`arrival_scores`; without scores, the answer is that of an endless
    measurement: as far as repeats of one run differ. `coverage`: above 0 and below 1. `window_s`: length of the
    measurement [s]; then Poisson's law answers instead of the scores.
    """
    if window_s is not None:
        if not window_s > 0.0:
            raise InvalidValueError(f"a measurement of {window_s} s, needed above 0 s", hint="1 s is usual")
        return np.asarray(central_quantile(coverage) * np.sqrt(offered_mpps / (1e6 * window_s)))
    if not len(scores):
        return np.asarray(LEAST * offered_mpps)
    rank, count = conformal_rank(len(scores), coverage), len(scores)
    if rank > count:  # too few to say: anything from nothing to twice the load
        return np.array(offered_mpps)
    score = scores[min(rank + round(outwards(count, coverage)), count) - 1]
    return np.asarray(score * np.sqrt(offered_mpps) / (1.0 - np.minimum(load, BUSIEST)))
