"""Screen: ten runs beside the synthetic competitor say whether a function is worth sixty.

SLOMO (SIGCOMM'20, section 4.1) spends as many runs on a firewall that loses nothing as on a router that loses half.
What a function loses on average over a design that presses on cache, I/O and memory in turn bounds what a better model
of it could be worth; ten runs tell that average well enough, where they are of all three sources.
"""

from dataclasses import dataclass

import numpy as np

from slomo.errors import MissingMetricError
from slomo.files.stored import Stored
from slomo.records.dataset import ProfileDataset

#: A function that loses less than this share on average needs no more runs. Chosen on both shipped datasets.
WORTH = 0.035
#: Fewer runs beside the competitor say nothing: three of each source.
FEWEST = 9


@dataclass(frozen=True)
class Screen(Stored):
    """What a few runs say about one function.

    Examples
    --------
    >>> Screen("lpm", 10, 0.2, 0.5, True).text
    'lpm: worth more runs; 10 lose 20 % on average, 50 % at most'
    """

    #: Workload key.
    target: str
    #: Runs beside the synthetic competitor.
    runs: int
    #: Mean and most of what it lost in them, as shares of its throughput alone.
    lost: float
    most: float
    #: Whether more runs are worth their time; None where there are too few to say.
    worth: bool | None

    @property
    def text(self) -> str:
        """The answer in one line."""
        told = {True: "worth more runs", False: "needs no more runs", None: f"cannot be told from fewer than {FEWEST}"}
        lost = f"lose {100.0 * self.lost:.2g} % on average, {100.0 * self.most:.2g} % at most"
        return f"{self.target}: {told[self.worth]}; {self.runs} {lost}"


def screen(dataset: ProfileDataset) -> tuple[Screen, ...]:
    """Say of every function of a dataset whether it is worth more runs.

    Parameters
    ----------
    dataset : ProfileDataset
        Runs alone and beside the synthetic competitor, ten or so of each function, at full load.

    Raises
    ------
    MissingMetricError
        Where no function ran beside the competitor, or one of them not alone.
    """
    converged = dataset.converged()
    frame = converged.frame
    pressed = frame[(frame["plan"] == "pressure") & frame["offered_mpps"].isna() & (frame["competitor_count"] > 0)]
    if not len(pressed):
        raise MissingMetricError(
            f"a dataset of {len(dataset)} rows has no run beside the synthetic competitor",
            hint="`slomo profile NF --plan pressure --runs 10` makes ten",
        )
    answers = []
    for (machine, target), rows in pressed.groupby(["machine", "target"], sort=False):
        solo = converged.solo_mpps(str(target), str(machine))
        lost = np.maximum(1.0 - rows["throughput_mpps"].to_numpy(dtype=float) / solo, 0.0)
        worth = None if len(lost) < FEWEST else bool(lost.mean() > WORTH)
        answers.append(Screen(str(target), len(lost), float(lost.mean()), float(lost.max()), worth))
    return tuple(answers)
