"""A committee of monotone tree ensembles: where its members disagree, one more experiment tells most.

Query by committee (Seung, Opper and Sompolinsky, COLT'92) with members fitted to bootstrap samples (Breiman, 1996).
More pressure never speeds up an NF, so every member is monotone in every input, for which a few dozen runs suffice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slomo.errors import InvalidValueError
from slomo.models.base import Floats
from slomo.training.families.xgb import MonotoneBoosting

MEMBERS = 8


@dataclass(frozen=True, eq=False)
class Committee:
    """The fitted members of a committee.

    Examples
    --------
    >>> pressure = np.array([[0.0], [1.0], [2.0], [8.0], [9.0]])
    >>> committee = fit_committee(pressure, 1.0 - pressure[:, 0] / 10.0, seed=1)
    >>> committee.spread(np.array([[1.0], [5.0]])).shape
    (2,)
    """

    #: Each predicts the response from inputs of shape ``(n, features)``.
    members: Sequence[Any]

    def spread(self, inputs: Floats) -> Floats:
        """Return the standard deviation over the members' predictions, shape ``(n,)``, in the response's unit."""
        answers = np.array([member.predict(inputs) for member in self.members])
        spread: Floats = answers.std(axis=0, ddof=1)
        return spread

    def mean(self, inputs: Floats) -> Floats:
        """Return the mean of the members' predictions, shape ``(n,)``."""
        mean: Floats = np.mean([member.predict(inputs) for member in self.members], axis=0)
        return mean


def fit_committee(inputs: Floats, response: Floats, *, seed: int) -> Committee:
    """Fit a committee to a response that does not increase with any input.

    Larger inputs, shape ``(n, features)``, mean more pressure; each member is fitted to a bootstrap sample.

    Raises
    ------
    InvalidValueError
        For fewer than two rows.
    """
    if len(inputs) < 2:
        raise InvalidValueError(f"a committee over {len(inputs)} rows, needed 2 or more")
    generator = np.random.default_rng([seed, len(inputs)])
    falling = (-1,) * inputs.shape[1]
    fitted = []
    for number in range(MEMBERS):
        rows = generator.integers(len(inputs), size=len(inputs))
        fitted.append(MonotoneBoosting(falling, n_estimators=60, seed=number).fit(inputs[rows], response[rows]))
    return Committee(tuple(fitted))
