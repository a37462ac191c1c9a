"""Combine the uncertain throughputs that several resources allow into one distribution.

Yala (ASPLOS'25), composition by execution pattern: a pipeline is as fast as its slowest stage, run-to-completion takes
the sum of its stages' times per packet. The minimum of varying quantities lies below the smallest of their medians:
P(min > x) is the product of all P(stage > x). If one stage is much slower than the others this makes no difference;
near balance, the minimum of medians over-predicts. Nothing is fitted here: the spreads are inputs.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.vocabulary.vector import Floats

#: How an NF uses its resources: concurrently on different packets, or one after the other on each packet.
Pattern = Literal["pipeline", "run-to-completion"]
PATTERNS: tuple[Pattern, ...] = ("pipeline", "run-to-completion")
#: Number of equally likely values that represent a distribution; odd, so that one of them is the median.
VALUES = 41
#: Probabilities below each of these values.
LEVELS: Floats = (np.arange(VALUES) + 0.5) / VALUES
_CHUNK = 1024


def checked_pattern(pattern: str) -> Pattern:
    """Return `pattern` if it is valid; UnknownNameError with the nearest."""
    if pattern not in PATTERNS:
        raise UnknownNameError("execution pattern", str(pattern), PATTERNS)
    return pattern


def composed_values(parts: Sequence[Floats], pattern: Pattern = "pipeline") -> Floats:
    """Return the distribution of an NF's throughput, given independent distributions for its resources.

    Raises InvalidValueError without resources, or for arrays of different shapes; UnknownNameError for an unknown
    pattern.

    `parts`: one array per resource, shape (n, values), of equally likely throughputs [Mpps], above 0, if this resource
    alone decided; infinite where it takes no time. `pattern`: in a pipeline the slowest decides, run-to-completion adds
    times per packet. The result is ascending, and NaN in rows where any is.
    """
    checked_pattern(pattern)
    if not parts or len({part.shape for part in parts}) > 1:
        raise InvalidValueError(f"{len(parts)} resources of shapes {[part.shape for part in parts]}, needed one shape")
    whole = np.sort(parts[0], axis=1)
    for part in parts[1:]:
        chunks = [slice(begin, begin + _CHUNK) for begin in range(0, len(whole), _CHUNK)]
        whole = np.concatenate([_pair(whole[rows], part[rows], pattern) for rows in chunks]) if chunks else whole
    return whole


def quantile(values: Floats, level: float) -> Floats:
    """Return a quantile of every row of equally likely values, shape (n,)."""
    place = level * values.shape[1] - 0.5
    low = int(np.clip(np.floor(place), 0, values.shape[1] - 1))
    high = min(low + 1, values.shape[1] - 1)
    share = float(np.clip(place - low, 0.0, 1.0))
    if share == 0.0:
        return values[:, low]
    return np.asarray((1.0 - share) * values[:, low] + share * values[:, high])


def _pair(first: Floats, second: Floats, pattern: Pattern) -> Floats:
    """Combine two distributions value by value, and reduce the result to the same number of values."""
    one, other = first[:, :, np.newaxis], second[:, np.newaxis, :]
    pairs = np.minimum(one, other) if pattern == "pipeline" else 1.0 / (1.0 / one + 1.0 / other)
    count = first.shape[1]
    ordered = np.sort(pairs.reshape(len(first), -1), axis=1)
    # the middle of every group of `count` neighbours is the value at its level
    return ordered[:, count // 2 :: count]
