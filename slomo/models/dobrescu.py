"""Dobrescu's predictor: throughput as a function of the competitors' summed solo cache access rate alone.

Dobrescu, Argyraki and Ratnasamy (NSDI'12) section 5: what matters is the competing references per second, and a
competitor's references are those of its solo run. Linear, as SLOMO (SIGCOMM'20) section 7.2 evaluates it.
"""

from slomo.models.single_metric import SingleMetricFamily


def dobrescu() -> SingleMetricFamily:
    """Return the registry's ``dobrescu``.

    Examples
    --------
    >>> dobrescu().select_features(["L2MISS", "L3OCC"])
    ('L2MISS',)
    """
    return SingleMetricFamily("dobrescu", "L2MISS")
