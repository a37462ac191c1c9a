"""What chain policies go by: a lookup table of needs, predictions of nodes, and the cost of hand-overs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slomo.placement.chains.moves import Moving
from slomo.placement.chains.nodes import Node, Nodes, Table
from slomo.placement.problem.chain import RatedChain

#: Workload key of a stage, and its offered load [Mpps].
Stage = tuple[str, float]
#: A node, and the stages on it.
Mix = tuple[int, tuple[Stage, ...]]
#: Mixes -> throughput of each stage of each [Mpps].
Estimate = Callable[[Sequence[Mix]], Sequence[Sequence[float]]]
#: A chain and the nodes of its stages -> share of its throughput that it keeps for hand-overs between nodes.
Keeps = Callable[[RatedChain, Sequence[int]], float]


@dataclass(frozen=True)
class Judges:
    """What chain policies go by: a lookup table of needs; for `slomo-numa` predictions and the cost of hand-overs."""

    #: What a chain takes at a rate.
    table: Table
    #: What the stages of a node serve beside each other; `slomo-numa` needs it.
    estimate: Estimate | None = None
    #: Share that a chain keeps of its throughput, given the nodes of its stages.
    keeps: Keeps | None = None
    #: Share of an interval's service that moving costs a chain; nothing where None.
    moving: Moving | None = None


#: Chains of one server, interval, nodes (the NIC's first), judges, nodes before -> node of each stage.
ChainPolicy = Callable[[Sequence[RatedChain], int, Sequence[Node], Judges, Nodes | None], dict[str, tuple[int, ...]]]
