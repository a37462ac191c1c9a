"""Student's t distribution with a whole number of degrees of freedom, for means whose spread few runs estimate.

Finite sums of Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.7.3 and 26.7.4. Placement is part of
the core, which is installed without scipy.
"""

import math
from functools import lru_cache
from statistics import NormalDist

#: Degrees of freedom from which the normal distribution stands for Student's: quantiles up to 0.999 differ by 0.3 %.
MANY = 1000


def probability_below(value: float, freedom: int) -> float:
    """Return the probability that a t-distributed value is below `value`.

    Examples
    --------
    >>> [round(probability_below(2.0, freedom), 4) for freedom in (1, 2, 5, MANY)]
    [0.8524, 0.9082, 0.949, 0.9772]
    """
    if freedom >= MANY:
        return NormalDist().cdf(value)
    angle = math.atan2(value, math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for step in range(2 + odd, freedom + 1, 2):
        total += term
        term *= cosine * cosine * (step - 1) / step
    inside = math.sin(angle) * total
    return 0.5 + (0.5 * inside if not odd else (angle + inside) / math.pi)


@lru_cache(maxsize=4096)
def quantile(probability: float, freedom: int) -> float:
    """Return the t-distributed value that is not exceeded with this probability, 0.5 or more.

    Examples
    --------
    >>> [round(quantile(0.95, freedom), 3) for freedom in (1, 2, 5, MANY)]
    [6.314, 2.92, 2.015, 1.645]
    """
    if freedom >= MANY:
        return NormalDist().inv_cdf(probability)
    low, high = 0.0, 1.0
    while probability_below(high, freedom) < probability:
        low, high = high, 2.0 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if probability_below(middle, freedom) < probability else (low, middle)
    return high
