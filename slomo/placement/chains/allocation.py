"""Give chains on NUMA nodes exclusive cache ways and memory bandwidth, by NUMASFP's lookup table.

NUMASFP (COMSNETS'22): a profiler's table gives the resources that each network function needs at its rate, and the
placement engine allocates LLC ways (CAT) and memory bandwidth (MBA) accordingly.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slomo.models.responses.partition import PartitionResponse
from slomo.placement.chains.nodes import Need, Node, Nodes, Table
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.problem.chain import RatedChain
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.wire import wire_gbps
from slomo.vocabulary.workload_text import parse_workload

#: Step of Intel's memory bandwidth allocation [%] (Intel SDM 3B, 17.19.7).
MBA_STEP = 10
#: Share of a rate from which on it counts as served; measured curves scatter by less.
SERVED = 0.97


@dataclass(frozen=True)
class Parts:
    """Exclusive cache ways and memory bandwidth that chains get in one interval."""

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
    """Return throttles loosened by an equal share of the unused bandwidth, rounded down to values that MBA can set."""
    return tuple(
        min(int(percent * have / needed) // MBA_STEP * MBA_STEP, 100) if needed > 0 else 100 for percent in throttles
    )


def _divided(ways: int, claims: Sequence[float]) -> list[int]:
    """Divide ways in proportion to claims; each claim gets at least as many ways as it asks for."""
    total = sum(claims)
    exact = [ways * claim / total for claim in claims]
    whole = [int(share) for share in exact]
    order = sorted(range(len(exact)), key=lambda place: whole[place] - exact[place])
    for place in order[: max(ways - sum(whole), 0)]:
        whole[place] += 1
    return whole


def lookup_table(estimates: ThroughputEstimates, host: Machine) -> Table:
    """Return NUMASFP's lookup table: the resources that each network function needs at a traffic rate.

    With a profile, ways are the fewest with which the function serves the rate, or as much of it as it can; without
    one, its solo occupancy. If the profile covers memory traffic and throttles, the throttle is the strongest that
    serves the rate. Without them, memory traffic is that of the model's solo run in proportion to the rate, and nothing
    is throttled. A network function with neither profile nor model counts with one way and no traffic to memory.
    """

    def need(item: RatedChain, mpps: float) -> Need:
        parts = [_required(estimates, host, workload.key, mpps) for workload in item.request.chain]
        ways, memory_gb_s = (sum(part[i] or 0.0 for part in parts) for i in range(2))
        throttles = tuple(percent for _, _, percent in parts if percent is not None)
        return Need(len(parts), max(round(ways), 1), 100 * memory_gb_s / host.usable_memory_gb_s, throttles)

    return need


def _required(estimates: ThroughputEstimates, host: Machine, key: str, mpps: float) -> tuple[float, float, int | None]:
    """Return cache ways, memory traffic [GB/s] and throttle [%] that a function needs at an offered rate [Mpps]."""
    profile = estimates.profile(host.name, key)
    if profile is not None and profile.throttled_us:
        return required(profile, host, mpps)
    ways, memory_gb_s = 1.0, 0.0
    if (host.name, key) in estimates.library:
        model = estimates.library[host.name, key]
        solo, share = model.solo_vector, min(mpps / model.solo_mpps, 1.0)
        ways = (solo.get("L3OCC", 0.0) or 0.0) / (host.llc_mib * 1024 / host.llc_ways)
        memory_gb_s = share * ((solo.get("READ", 0.0) or 0.0) + (solo.get("WRITE", 0.0) or 0.0))
    return float(ways if profile is None else required(profile, host, mpps)[0]), memory_gb_s, None


def required(response: PartitionResponse, host: Machine, mpps: float) -> tuple[int, float, int]:
    """Return the fewest ways, memory traffic [GB/s] and strongest throttle [%] with which a function serves a rate.

    NUMASFP's "VNF profiler" measures these; here the profile over partitions says them. A rate beyond what one core
    serves counts as what it serves.
    """
    most = max(host.llc_ways - host.ddio_ways, response.curve[0][0])
    rate = min(mpps, response.alone_mpps(most))
    ways = next(count for count in range(response.curve[0][0], most + 1) if response.alone_mpps(count) >= SERVED * rate)
    throttles = range(MBA_STEP, 100, MBA_STEP) if response.throttled_us else ()
    latency_ns = response.idle_ns
    percent = next((at for at in throttles if response.mpps(ways, latency_ns, at) >= SERVED * rate), 100)
    moved = response.line(ways)[2] if response.bytes_per_packet else 0.0
    return ways, moved * rate * 1e-3, percent


def resource_rows(
    response: PartitionResponse, host: Machine, rates_gbps: Sequence[float]
) -> list[tuple[str, float, float, int, int, int, float]]:
    """Return rows of NUMASFP's table: rate, cores (equal parts), ways, throttle [%] and memory traffic [GB/s]."""
    per_mpps = wire_gbps(parse_workload(response.workload).traffic.packet_size_b, 1.0)
    rows = []
    for gbps in rates_gbps:
        mpps = gbps / per_mpps
        cores = max(1, math.ceil(mpps / response.alone_mpps(host.llc_ways - host.ddio_ways)))
        ways, memory_gb_s, percent = required(response, host, mpps / cores)
        rows.append((response.workload, gbps, round(mpps, 4), cores, ways, percent, round(memory_gb_s, 3)))
    return rows
