"""Allocate exclusive cache ways and memory bandwidth to chains on NUMA nodes, by NUMASFP's lookup table.

NUMASFP (COMSNETS'22): a profiler's table gives the resources that each network function needs at its rate, and the
placement engine allocates LLC ways (CAT) and memory bandwidth (MBA) accordingly.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from slomo.placement.chains.nodes import Need, Node, Nodes, Table
from slomo.placement.chains.resource_table import ResourceTable
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.problem.chain import RatedChain
from slomo.vocabulary.machine import Machine

#: Step of Intel's memory bandwidth allocation [%] (Intel SDM 3B, 17.19.7).
MBA_STEP = 10


@dataclass(frozen=True)
class Parts:
    """Exclusive cache ways and memory bandwidth of chains in one interval."""

    #: Chain -> cache ways.
    ways: Mapping[str, int] = field(default_factory=dict)
    #: Chain -> memory bandwidth throttle of each stage (MBA) [%].
    throttles: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __or__(self, other: "Parts") -> "Parts":
        """Return the union of two allocations, for instance of two servers."""
        return Parts({**self.ways, **other.ways}, {**self.throttles, **other.throttles})


def allocated(chains: Sequence[RatedChain], interval: int, seats: Nodes, nodes: Sequence[Node], table: Table) -> Parts:
    """Return the exclusive cache ways and memory bandwidth of each chain.

    Ways and bandwidth left over are divided in proportion to the table's; stages of a chain that is split over nodes
    share their ways with other such stages. If the chains of a node need more ways or bandwidth than it has, both stay
    shared on that node: no chain is given less than the table says.
    """
    parts = Parts()
    for number, node in enumerate(nodes):
        here = [item for item in chains if number in seats[item.request.id]]
        needs = {item.request.id: table(item, item.offered_mpps(interval)) for item in here}
        parts |= _on_node(needs, {name: seats[name] for name in needs}, number, node)
    return parts


def _on_node(needs: Mapping[str, Need], seats: Nodes, number: int, node: Node) -> Parts:
    shares = {name: seats[name].count(number) / len(seats[name]) for name in needs}
    whole = [name for name in needs if shares[name] == 1.0]
    claims = {name: float(needs[name].ways) for name in whole}
    split = sum(max(share * needs[name].ways, 1.0) for name, share in shares.items() if share < 1.0)
    bandwidth = sum(share * needs[name].memory_percent for name, share in shares.items())
    if sum(claims.values()) + split > node.ways or bandwidth > node.memory_percent:
        return Parts()
    ways = _divided(node.ways, [*claims.values(), *([split] if split else [])])
    raised = {
        name: _raised(needs[name].throttles, node.memory_percent, bandwidth) for name in whole if needs[name].throttles
    }
    return Parts(dict(zip(claims, ways, strict=False)), raised)


def _raised(throttles: Sequence[int], have: float, needed: float) -> tuple[int, ...]:
    """Return throttles raised by a share of the unused bandwidth each, rounded down to values that MBA can set."""
    return tuple(
        min(int(percent * have / needed) // MBA_STEP * MBA_STEP, 100) if needed > 0 else 100 for percent in throttles
    )


def _divided(ways: int, claims: Sequence[float]) -> list[int]:
    """Divide ways in proportion to claims; each gets at least its claim (largest remainders are rounded up)."""
    total = sum(claims)
    exact = [ways * claim / total for claim in claims]
    whole = [int(share) for share in exact]
    order = sorted(range(len(exact)), key=lambda place: whole[place] - exact[place])
    for place in order[: max(ways - sum(whole), 0)]:
        whole[place] += 1
    return whole


def lookup_table(estimates: ThroughputEstimates, host: Machine, measured: ResourceTable | None = None) -> Table:
    """Return NUMASFP's lookup table: the resources that each network function needs at a traffic rate.

    A measured one has ways, bandwidth and throttle. Without a measured table, ways are the fewest with which a profile
    serves the rate, or as much of it as the function can serve; without a profile, its solo occupancy. Memory bandwidth
    is then its solo traffic in proportion to the rate, and nothing is throttled.

    A network function with neither profile nor model counts with one way and no traffic to memory. A measured table
    is of this machine type, with every network function asked about.
    """
    of_one = _measured(measured) if measured is not None else _estimated(estimates, host)

    def need(item: RatedChain, mpps: float) -> Need:
        parts = [of_one(workload.key, mpps) for workload in item.request.chain]
        ways, memory_gb_s = (sum(part[i] or 0.0 for part in parts) for i in range(2))
        throttles = tuple(percent for _, _, percent in parts if percent is not None)
        return Need(len(parts), max(round(ways), 1), 100 * memory_gb_s / host.usable_memory_gb_s, throttles)

    return need


#: Workload key, offered rate [Mpps] -> cache ways, memory traffic [GB/s], throttle [%] or None.
_OfOne = Callable[[str, float], tuple[float, float, int | None]]


def _measured(table: ResourceTable) -> _OfOne:
    def of_one(key: str, mpps: float) -> tuple[float, float, int | None]:
        row = table.row(key, mpps)
        return float(row.ways), row.memory_gb_s, row.memory_percent

    return of_one


def _estimated(estimates: ThroughputEstimates, host: Machine) -> _OfOne:
    machine, way_kib = host.name, host.llc_mib * 1024 / host.llc_ways

    def of_one(key: str, mpps: float) -> tuple[float, float, int | None]:
        ways, memory_gb_s = 1.0, 0.0
        if (machine, key) in estimates.library:
            model = estimates.library[machine, key]
            solo, share = model.solo_vector, min(mpps / model.solo_mpps, 1.0)
            ways = (solo.get("L3OCC", 0.0) or 0.0) / way_kib
            memory_gb_s = share * ((solo.get("READ", 0.0) or 0.0) + (solo.get("WRITE", 0.0) or 0.0))
        profile = estimates.profile(machine, key)
        if profile is not None:
            ways = float(profile.ways_for(min(mpps, profile.promise_mpps(profile.ways[-1][0]))) or 1)
        return ways, memory_gb_s, None

    return of_one
