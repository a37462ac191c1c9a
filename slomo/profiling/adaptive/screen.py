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
    """Whether more runs are worth making for one function.

    >>> Screen("lpm", 10, 0.2, 0.5, True).text
    'lpm: worth more runs; 10 lose 20 % on average, 50 % at most'
    """

    #: Workload key.
    target: str
    #: Runs beside the synthetic competitor.
    runs: int
    #: Mean and largest loss in these runs, as shares of solo throughput.
    lost: float
    most: float
    #: Whether more runs are worthwhile; None with too few runs.
    worth: bool | None

    @property
    def text(self) -> str:
        """The result in one line, for display."""
        words = {True: "worth more runs", False: "needs no more runs", None: f"cannot be told from fewer than {FEWEST}"}
        lost = f"lose {100.0 * self.lost:.2g} % on average, {100.0 * self.most:.2g} % at most"
        return f"{self.target}: {words[self.worth]}; {self.runs} {lost}"


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
