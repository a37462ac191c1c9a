"""What chain policies are given: resources that functions need, predictions for nodes, the cost of crossing nodes."""

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
#: A chain and the nodes of its stages -> share of throughput that it keeps when packets cross nodes.
Keeps = Callable[[RatedChain, Sequence[int]], float]


@dataclass(frozen=True)
class Judges:
    """Tables and functions that chain policies are given; only `slomo-numa` needs predictions and crossing costs."""

    #: Resources that a chain needs at a rate.
    table: Table
    #: Throughput of the stages of a node beside each other; `slomo-numa` needs it.
    estimate: Estimate | None = None
    #: Share of throughput that a chain keeps, given the nodes of its stages.
    keeps: Keeps | None = None
    #: Share of an interval's service that a chain loses to moving; None means nothing.
    moving: Moving | None = None


#: (chains of one server, interval, nodes with the NIC's first, judges, nodes before) -> node of each stage.
ChainPolicy = Callable[[Sequence[RatedChain], int, Sequence[Node], Judges, Nodes | None], dict[str, tuple[int, ...]]]
