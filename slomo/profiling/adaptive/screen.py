"""Tell from ten runs beside the synthetic competitor whether sixty are worth making for a function.

SLOMO (SIGCOMM'20, section 4.1) spends the same number of runs on a firewall that loses no throughput as on a router
that loses half of it. A better model can reduce a function's prediction error at most by its mean loss under pressure
on cache, I/O and memory. Ten runs over all three resources determine that mean well enough.
"""

from dataclasses import dataclass

import numpy as np

from slomo.errors import MissingMetricError
from slomo.files.stored import Stored
from slomo.records.dataset import ProfileDataset
from slomo.units import plural

#: Mean loss below which a function needs no more runs. Chosen on both shipped datasets.
WORTH = 0.035
#: Least number of runs beside the competitor for a verdict: three of each source.
FEWEST = 9


@dataclass(frozen=True)
class Screen(Stored):
    """Whether more runs are worth making for one function."""

    #: Workload key.
    target: str
    #: Runs beside the synthetic competitor.
    runs: int
    #: Mean and largest loss in these runs, as shares of solo throughput.
    lost: float
    most: float
    #: Whether more runs are worthwhile; None with too few runs.
    worth: bool | None


def screen(dataset: ProfileDataset) -> tuple[Screen, ...]:
    """Return, for every function of a dataset, whether more runs are worth making.

    Ten runs or so of each function beside the synthetic competitor are enough, and one alone.
    """
    converged = dataset.converged()
    frame = converged.frame
    pressed = frame[(frame["plan"] == "pressure") & frame["offered_mpps"].isna() & (frame["competitor_count"] > 0)]
    if not len(pressed):
        raise MissingMetricError(
            f"a dataset of {plural(len(dataset), 'row')} has no run beside the synthetic competitor",
            hint="`slomo profile NF --plan pressure --runs 10` makes ten",
        )
    answers = []
    for (machine, target), rows in pressed.groupby(["machine", "target"], sort=False):
        solo = converged.solo_mpps(str(target), str(machine))
        lost = np.maximum(1.0 - rows["throughput_mpps"].to_numpy(dtype=float) / solo, 0.0)
        worth = None if len(lost) < FEWEST else bool(lost.mean() > WORTH)
        answers.append(Screen(str(target), len(lost), float(lost.mean()), float(lost.max()), worth))
    return tuple(answers)
