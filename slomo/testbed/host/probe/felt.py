"""Slowdown of a reporter: extra time per unit of its work, used instead of a counter.

Bubble-Up (MICRO'11, section 4.2) defines an application's pressure by its effect on a reporter. Extra times add up,
shares of speed do not: two competitors that cost a reporter 0.2 and 0.3 of its time together cost 0.5, until the
resource is full.
"""

_LEAST_RATIO = 1e-3


def extra_time(ratio: float) -> float:
    """Return the extra time per unit of a reporter's work, relative to its solo time; never negative.

    `ratio`: its throughput beside the competition over its solo throughput.

    Examples
    --------
    >>> extra_time(0.5), extra_time(1.02)
    (1.0, 0.0)
    """
    return max(0.0, 1.0 / max(ratio, _LEAST_RATIO) - 1.0)
