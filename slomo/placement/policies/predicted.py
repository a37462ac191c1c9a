"""`slomo`: best fit on predictions; packs a socket until the first SLO would break.

SLOMO (SIGCOMM'20) section 2 gives the use: ask what everybody would lose before placing. A socket's mix is judged as a
whole, each tenant by its own model beside all others, at the risk asked for.
"""

from collections.abc import Mapping

from slomo.placement.mixes import Host, Signature
from slomo.placement.packing import pack
from slomo.placement.policies.base import Demand, Policy, in_order


class PredictedBestFit(Policy):
    """Take the fullest socket on which every SLO still holds; among these the one with the least headroom."""

    name = "slomo"
    picks = "best"
    predicts = True
    sorts = True

    def plan(self, host: Host, demand: Demand) -> Mapping[Signature, int] | None:
        """Pack the batch by counts, the most demanding pieces first."""
        return pack(self.oracle, host, demand, in_order(self, host, demand))
