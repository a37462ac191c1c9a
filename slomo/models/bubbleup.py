"""Bubble-Up's predictor: throughput as a function of the competitors' summed cache occupancy alone.

Mars et al. (MICRO'11): a bubble of growing working set stands for the competitors. Linear in L3OCC, as SLOMO
(SIGCOMM'20) section 7.2 evaluates it.
"""

from slomo.models.single_metric import SingleMetricFamily


def bubbleup() -> SingleMetricFamily:
    """Return the registry's ``bubbleup``.

    Examples
    --------
    >>> bubbleup().select_features(["L2MISS", "L3OCC"])
    ('L3OCC',)
    """
    return SingleMetricFamily("bubbleup", "L3OCC")
