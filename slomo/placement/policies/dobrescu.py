"""First fit on Dobrescu et al.'s predictor (NSDI'12), as ResQ (NSDI'18) section 6.2 compares with it.

An instance goes on the first server whose SLOs it does not break; throughput is a line in the competitors' summed solo
cache accesses.
"""

from slomo.placement.policies.base import Policy


class DobrescuFirstFit(Policy):
    """Take the first socket on which every SLO holds by the predictor from solo cache access rates."""

    name = "dobrescu"
    predicts = True
    model = "dobrescu"
