"""Slowdown of a reporter: extra time per unit of its work, used in place of a counter.

Bubble-Up (MICRO'11, section 4.2) calls an application's pressure what it does to a reporter. Times add where shares of
a speed do not: two competitors that cost a reporter 0.2 and 0.3 of its time cost it 0.5, until the resource is full.
"""

_LEAST_RATIO = 1e-3


def extra_time(ratio: float) -> float:
    """Return the extra time per unit of a reporter's work, relative to its time without competition; never negative.

    `ratio`: its throughput beside the competition over that without.

    Examples
    --------
    >>> extra_time(0.5), extra_time(1.02)
    (1.0, 0.0)
    """
    return max(0.0, 1.0 / max(ratio, _LEAST_RATIO) - 1.0)
