"""NUMASFP's comparison (COMSNETS'22) on a simulated two-socket server, every node line by line.

20 chains of three, five per server, rates from 1 to 10 Gbit/s that change every interval. The NIC is on node 0 and
packets live there. ANAT is the mean over intervals of throughput served over throughput offered. The paper: NUMASFP 16,
25 and 23 % ahead of Octans, node-balance and node-first; theirs are static, NUMASFP and ours migrate.

    python benchmarks/placement/prepare.py DIR --machine e5-2620v4 --nf ip-router@128B ...   (see FUNCTIONS)
    python benchmarks/placement/numasfp.py DIR
"""

import argparse
import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from slomo.models.library import ModelLibrary
from slomo.placement.knowledge import Knowledge
from slomo.placement.numa import CHAIN_POLICIES, Need, best_nodes, migrations, nodes_of, place_chains
from slomo.placement.workloads import RatedChain, numasfp_chains
from slomo.simulator.engine import Tenant, simulate
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import load_network_function
from slomo.vocabulary.workload_text import parse_workload

FUNCTIONS = ("ip-router", "flowstats", "stateless-firewall", "maglev", "l2fwd")
PACKET_B = 128
MACHINE = "e5-2620v4"
PAPER = {"octans": 16, "node-balance": 25, "node-first": 23}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="models of FUNCTIONS at 128 B")
    parser.add_argument("--intervals", type=int, default=12)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--accesses", type=int, default=200_000, help="of each simulation")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    knowledge = Knowledge(ModelLibrary.load(given.directory / "models"), risk=0.5)
    made = numasfp_chains(5 * given.servers, intervals=given.intervals, seed=given.seed, nfs=FUNCTIONS)
    chains = [replace(item, request=replace(item.request, chain=sized(item))) for item in made]
    servers = [chains[i : i + 5] for i in range(0, len(chains), 5)]
    rates: dict[str, list[float]] = {}
    moved: dict[str, int] = {}
    for policy in (*CHAIN_POLICIES, "slomo"):
        rates[policy], moved[policy] = follow(policy, servers, given, knowledge)
        print(f"{policy}: {' '.join(f'{100 * rate:.0f}' for rate in rates[policy])}", file=sys.stderr, flush=True)
    ours = np.mean(rates["numasfp"])
    print(f"{'policy':14}{'ANAT %':>8}{'moves':>7}{'numasfp ahead by %':>20}{'paper':>7}")
    for policy, values in rates.items():
        ahead = 100 * (ours / np.mean(values) - 1)
        print(f"{policy:14}{100 * np.mean(values):8.1f}{moved[policy]:7d}{ahead:20.1f}{PAPER.get(policy, '-'):>7}")
    return 0


def sized(item: RatedChain) -> tuple:
    return tuple(w.with_traffic(replace(w.traffic, packet_size_b=PACKET_B)) for w in item.request.chain)


def follow(
    policy: str, servers: list[list[RatedChain]], given: argparse.Namespace, knowledge: Knowledge
) -> tuple[list[float], int]:
    """Return throughput served over offered per interval, and stages moved."""
    nodes = nodes_of(load_machine(MACHINE))
    before: list[dict | None] = [None] * len(servers)
    shares, moved = [], 0
    for interval in range(given.intervals):
        served = offered = 0.0
        for number, chains in enumerate(servers):
            if policy == "slomo":
                placed = best_nodes(chains, interval, nodes, estimate(knowledge), before[number])
            else:
                placed = place_chains(policy, chains, interval, nodes, table(knowledge), before[number])
            moved += migrations(before[number] or {}, placed)
            before[number] = placed
            served += run(chains, interval, placed, given)
            offered += sum(item.offered_mpps(interval) for item in chains)
        shares.append(served / offered)
    return shares, moved


def estimate(knowledge: Knowledge) -> Callable:
    """Return the predicted throughput of stages on a node; away from the NIC, times what each keeps there alone."""
    cache: dict[tuple[int, tuple[str, ...]], tuple[float, ...]] = {}

    def rates(node: int, keys: tuple[str, ...]) -> tuple[float, ...]:
        if (node, keys) not in cache:
            found = knowledge.rates(MACHINE, [keys])[0]
            cache[node, keys] = tuple(found[key][0] * (remote_keeps(key) if node else 1.0) for key in keys)
        return cache[node, keys]

    return rates


@functools.cache
def remote_keeps(key: str) -> float:
    """Measure which share of its solo throughput a network function keeps on the node without the NIC."""
    machine, workload = load_machine(MACHINE), parse_workload(key)
    function = load_network_function(workload.nf)
    local = Tenant(workload, function, 0)
    remote = Tenant(workload, function, machine.cores_per_socket, memory_socket=machine.nic_socket)
    near, far = (simulate(machine, [seat], seed=0).tenants[0].throughput_mpps for seat in (local, remote))
    return min(far / near, 1.0)


def table(knowledge: Knowledge) -> Callable:
    """Return NUMASFP's lookup table from solo vectors: ways by occupancy, bandwidth by traffic to memory and rate."""
    machine = load_machine(MACHINE)

    def need(item: RatedChain, mpps: float) -> Need:
        ways = memory = 0.0
        for workload in item.request.chain:
            model = knowledge.library[MACHINE, workload.key]
            share = min(mpps / model.solo_mpps, 1.0)
            ways += (model.solo_vector.get("L3OCC", 0.0) or 0.0) / (machine.llc_mib * 1024 / machine.llc_ways)
            memory += share * (
                (model.solo_vector.get("READ", 0.0) or 0.0) + (model.solo_vector.get("WRITE", 0.0) or 0.0)
            )
        return Need(len(item.request.chain), max(round(ways), 1), 100 * memory / machine.usable_memory_gb_s)

    return need


def run(chains: list[RatedChain], interval: int, placed: dict, given: argparse.Namespace) -> float:
    """Simulate one server for one interval; return the throughput of all chains [Mpps]."""
    machine = load_machine(MACHINE)
    free = [
        iter(range(n * machine.cores_per_socket, (n + 1) * machine.cores_per_socket)) for n in range(machine.sockets)
    ]
    tenants, owners = [], []
    for item in chains:
        offered = round(min(item.offered_mpps(interval), machine.line_rate_mpps(PACKET_B)), 4)
        for workload, node in zip(item.request.chain, placed[item.request.id], strict=True):
            loaded = workload.with_traffic(replace(workload.traffic, offered_mpps=offered))
            remote = None if node == machine.nic_socket else machine.nic_socket
            tenants.append(Tenant(loaded, load_network_function(workload.nf), next(free[node]), memory_socket=remote))
            owners.append(item.request.id)
    result = simulate(machine, tenants, seed=given.seed, accesses=given.accesses)
    rates: dict[str, float] = {}
    for owner, tenant in zip(owners, result.tenants, strict=True):
        rates[owner] = min(rates.get(owner, np.inf), tenant.throughput_mpps)
    return float(sum(min(rates[item.request.id], item.offered_mpps(interval)) for item in chains))


if __name__ == "__main__":
    sys.exit(main())
