"""NUMASFP's comparison (COMSNETS'22) on simulated servers of two sockets, packet by packet, link and all.

20 chains of three, five per server, rates from 1 to 10 Gbit/s over 12 intervals of 10 s. The NIC is on node 0. ANAT is
throughput served over throughput offered, averaged over intervals. The paper: NUMASFP 16, 25 and 23 % ahead of Octans,
node-balance and node-first; these are static, NUMASFP and ours migrate.

The paper names no packet size. At 256 B these rates load the chains to about what they can serve; at 128 B nearly all
are overloaded, and the faster of two chains has no more to gain from the better node.

What a move costs is simulated, too (hand-over, cold cache, remote memory), or `--move-s` of a chain's service. What
`slomo-numa` takes hand-overs to cost is simulated, or what the paper measured on OpenNetVM (`--handover measured`).
Only `slomo-numa` and `octans-predicted` need models. The talk names neither cores of a node, packet size nor what a
chain serves. `--sweep simulated` plays functions of several costs (`--hop`) with several cores and sizes. `--sweep
talk` takes no simulator, but the talk's own costs of crossing (22 and 52 %), and asks which cores, capacities and
contention of rivals give its margins. `--sweep hogs` puts memory hogs on every node: beside `numasfp` they have two
ways and a tenth of the bandwidth, beside rivals either nothing holds them, or the same (`everybody`). `--sweep loads`
offers more than 1 to 10 Gbit/s a chain: the rates are those of the talk's run of two chains, it has none of 20.

    python benchmarks/placement/prepare.py DIR --machine e5-2620v4 --nf ip-router@256B ...   (see FUNCTIONS)
    slomo profile ip-router@256B ... --machine e5-2620v4 --plan partitions --out DIR/partitions.json
    python benchmarks/placement/numasfp.py DIR
"""

import argparse
import json
import statistics
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

from numasfp_allocation import HOG

from slomo.models.library import ModelLibrary
from slomo.models.partition_profile import PartitionProfile, load_profiles
from slomo.models.responses.partition import PartitionResponse
from slomo.placement.chains.nodes import handover_keeps
from slomo.placement.chains.policies import chain_policy, chain_policy_names
from slomo.placement.over_time.judgement import Judgement
from slomo.placement.problem.chain import RatedChain
from slomo.placement.problem.cluster import Cluster
from slomo.placement.workloads import numasfp_chains
from slomo.simulator.sharing.engine import StagePlace
from slomo.vocabulary.chain_file import DEFAULT_CAPACITY
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.way_masks import way_block
from slomo.workflow.chains.judge import COUNTED_MS, NodeNoise, judge_chains
from slomo.workflow.chains.on_nodes import place_chains

FUNCTIONS = ("ip-router", "flowstats", "stateless-firewall", "maglev", "l2fwd")
MACHINE = "e5-2620v4"
#: Work with which a simulated stage takes as long per packet as a hop of `slomo chain run` (82 cycles, of which 21 are
#: the packet's and the ring's lines; `python benchmarks/nfvnice.py --hop`), and a function that is no more than that.
HOP_WORK_CYCLES = 60.8
#: Share by which NUMASFP is ahead [%]; the paper does not say whether its node-balance keeps chains whole.
PAPER = {"octans": 16, "node-balance": 25, "node-balance-stages": 25, "node-first": 23}
#: Label -> policy, whether chains have ways and bandwidth of their own, whether the table's throttles are applied. The
#: paper's rivals share the cache; in the second half they are given by the table, too, what only `numasfp` has there.
VARIANTS = (
    {name: (name, chain_policy(name).allocates, True) for name in chain_policy_names()}
    | {"numasfp, ways only": ("numasfp", True, False), "numasfp, nothing of its own": ("numasfp", False, False)}
    | {f"{name}, ways only": (name, True, False) for name in chain_policy_names() if not chain_policy(name).allocates}
    | {
        f"{name}, ways and bandwidth": (name, True, True)
        for name in chain_policy_names()
        if not chain_policy(name).allocates
    }
)
#: Work of a function [cycles], packet sizes [B], cores of a node for stages: what `--sweep simulated` combines.
SIMULATED = ((HOP_WORK_CYCLES, 120.0, 240.0, 480.0), (64, 128), (8, 10, 15))
#: Cores of a node, what a chain serves on the NIC's node [Gbit/s], and the share of it that contention leaves to
#: rivals, which have no ways and bandwidth of their own: what `--sweep talk` combines.
TALK = ((8, 9, 10, 12, 15), (4.0, 6.0, 8.0, 10.0), (1.0, 0.9, 0.8))
#: Memory hogs of a node, and who has hogs confined and chains in ways of their own: what `--sweep hogs` combines.
HOGS = ((0, 2, 4, 8), ("numasfp", "everybody"))
HOG_WAYS, HOG_PERCENT = 2, 10.0
#: Times the rates of 1 to 10 Gbit/s: what `--sweep loads` plays.
LOADS = (1.0, 1.25, 1.5, 2.0)


def hand_on(cycles: float) -> NetworkFunction:
    """Return a function that does so much work on a packet, and hands it on."""
    return NetworkFunction(
        "hand-on", "hands packets on", source="benchmarks/nfvnice.py --hop",
        simulated={"compute_cycles": cycles, "instructions": 2 * cycles, "packet": {"written_lines": 1}},
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="models and partition profiles of FUNCTIONS at the packet size")
    parser.add_argument("--intervals", type=int, default=12)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--packet", type=int, default=256, metavar="B", help="frame size")
    parser.add_argument("--load", type=float, default=1.0, help="times the rates of 1 to 10 Gbit/s")
    parser.add_argument("--change", choices=["drift", "jump"], default="drift", help="how rates change")
    parser.add_argument("--handover", choices=["simulated", "measured"], default="simulated")
    parser.add_argument("--move-s", type=float, help="for which a chain whose stage moves serves nothing; simulated")
    parser.add_argument("--variant", choices=list(VARIANTS), action="append", help="repeatable; all by default")
    parser.add_argument("--ms", type=float, default=COUNTED_MS, help="simulated time counted of each interval")
    parser.add_argument(
        "--hop",
        type=float,
        nargs="?",
        const=HOP_WORK_CYCLES,
        metavar="CYCLES",
        help="functions that work so long and hand on, as OpenNetVM's examples; no profiles",
    )
    parser.add_argument("--manager", action="store_true", help="OpenNetVM's two threads, all packets pass them")
    parser.add_argument("--ring", type=int, default=DEFAULT_CAPACITY, help="packets before a stage; OpenNetVM: 16384")
    parser.add_argument("--machine", default=MACHINE)
    parser.add_argument("--cores", type=int, help="of each node for stages; all by default")
    parser.add_argument("--seed", type=int, action="append", help="of the draw of chains, repeatable; 0 by default")
    parser.add_argument("--hogs", type=int, default=0, help="memory hogs on every node, beside the chains")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--ceiling", action="store_true", help="only what each chain serves alone on the NIC's node")
    parser.add_argument(
        "--sweep",
        choices=["simulated", "talk", "hogs", "loads"],
        help="lead of `numasfp` over what the talk leaves open",
    )
    given = parser.parse_args()
    if given.sweep:
        sweep(given)
        return 0
    if given.ceiling:
        for seed in given.seed or [0]:
            print(f"seed {seed}: chains alone on the NIC's node serve {100 * ceiling(given, seed):.1f} %", flush=True)
        return 0
    judged = {label: [run(label, given, seed) for seed in given.seed or [0]] for label in given.variant or VARIANTS}
    show(judged)
    if given.json:
        text = json.dumps({label: [item.to_dict() for item in items] for label, items in judged.items()}, indent=1)
        given.json.write_text(text + "\n")
    return 0


def run(label: str, given: Namespace, seed: int) -> Judgement:
    """Place and judge one draw of chains."""
    policy, allocate, throttled = VARIANTS[label]
    chains, machine = drawn(given, seed), load_machine(given.machine)
    library, profiles = (ModelLibrary([]), ()) if given.hop else sources(given.directory, throttled=throttled)
    reserved = machine.cores_per_socket - given.cores if given.cores else 0
    ways = machine.llc_ways - machine.ddio_ways - (HOG_WAYS if given.hogs else 0)
    cluster = Cluster.uniform(given.machine, given.servers, cores_reserved=reserved, llc_ways_usable=ways)
    placed = place_chains(
        cluster, chains, policy, library, needs=profiles, allocate=allocate,
        handover=given.handover,
    )  # fmt: skip
    judgement = judge_chains(
        placed, own=own_functions(given), move=given.move_s, duration_ms=given.ms, seed=0,
        manager_cycles=HOP_WORK_CYCLES if given.manager else None, queue_capacity=given.ring,
        beside=NodeNoise(HOG, given.hogs, hog_place(machine, confined=allocate)) if given.hogs else None,
    )  # fmt: skip
    own = sum(len(parts.ways) for parts in placed.plan.parts) / sum(len(seats) for seats in placed.plan.seats)
    held = f", {100 * own:.0f} % of chains with ways of their own" if own else ""
    print(f"{label}, seed {seed}: ANAT {100 * judgement.anat:.1f}{held}", file=sys.stderr, flush=True)
    return judgement


def hog_place(machine: Machine, *, confined: bool) -> StagePlace:
    """Return where hogs run: in the ways behind the chains', throttled, or wherever."""
    mask = way_block(HOG_WAYS, machine.llc_ways - machine.ddio_ways - HOG_WAYS)
    return StagePlace(mask, HOG_PERCENT) if confined else StagePlace()


def own_functions(given: Namespace) -> tuple[NetworkFunction, ...]:
    """Return the functions that are not shipped."""
    return (hand_on(given.hop),) if given.hop else ()


def drawn(given: Namespace, seed: int) -> tuple[RatedChain, ...]:
    """Return one draw of chains."""
    chains = numasfp_chains(
        5 * given.servers, intervals=given.intervals, seed=seed,
        nfs=[function.name for function in own_functions(given)] or FUNCTIONS,
        change=given.change, packet_size_b=given.packet,
    )  # fmt: skip
    return tuple(replace(chain, gbps=tuple(rate * given.load for rate in chain.gbps)) for chain in chains)


def ceiling(given: Namespace, seed: int) -> float:
    """Return the ANAT of a draw where every chain has a server to itself: no placement of them together serves more."""
    cluster, chains = Cluster.uniform(given.machine, 1), drawn(given, seed)
    alone = [
        judge_chains(
            place_chains(cluster, [chain], "node-first"),
            own=own_functions(given),
            duration_ms=given.ms,
            queue_capacity=given.ring,
            seed=0,
        )
        for chain in chains
    ]
    shares = []
    for interval in range(given.intervals):
        offered = [chain.offered_mpps(interval) for chain in chains]
        served = [one.anat_over_time[interval] * rate for one, rate in zip(alone, offered, strict=True)]
        shares.append(sum(served) / sum(offered))
    return sum(shares) / len(shares)


def sweep(given: Namespace) -> None:
    """Print the lead of `numasfp` over each rival for all combinations of what the talk leaves open."""
    policies = ("numasfp", *PAPER)
    known, cells = {
        "simulated": (("hop cycles", "B", "cores"), SIMULATED),
        "talk": (("cores", "Gbit/s", "rivals keep"), TALK),
        "hogs": (("hogs", "confined by"), HOGS),
        "loads": (("times 1 to 10 Gbit/s",), (LOADS,)),
    }[given.sweep]
    columns = (*known, "numasfp serves %", *(f"ahead of {name} %" for name in PAPER), "rivals serve %")
    print("| " + " | ".join(columns) + " |\n" + "| --- " * len(columns) + "|", flush=True)
    for cell in product(*cells):
        served = {
            name: 100 * statistics.fmean(_served(name, given, seed, cell) for seed in given.seed or [0])
            for name in policies
        }
        ahead = [f"{100 * (served['numasfp'] / served[name] - 1):.1f}" for name in PAPER]
        rivals = [served[name] for name in PAPER]
        row = [*map(str, cell), f"{served['numasfp']:.1f}", *ahead]
        print("| " + " | ".join([*row, f"{min(rivals):.0f} to {max(rivals):.0f}"]) + " |", flush=True)


def _served(policy: str, given: Namespace, seed: int, cell: tuple[Any, ...]) -> float:
    """Return the ANAT of one draw under one policy, simulated, or by the talk's costs of crossing."""
    if given.sweep == "simulated":
        hop, packet, cores = cell
        return run(
            policy, Namespace(**vars(given) | {"hop": hop, "packet": int(packet), "cores": int(cores)}), seed
        ).anat
    if given.sweep == "loads":
        return run(policy, Namespace(**vars(given) | {"load": cell[0]}), seed).anat
    if given.sweep == "hogs":
        hogs, who = cell
        others = who == "everybody" and not chain_policy(policy).allocates
        label = f"{policy}, ways and bandwidth" if others else policy
        return run(label, Namespace(**vars(given) | {"hogs": hogs}), seed).anat
    cores, gbps, kept = cell
    chains = drawn(Namespace(**vars(given) | {"hop": HOP_WORK_CYCLES}), seed)
    reserved = load_machine(given.machine).cores_per_socket - int(cores)
    plan = place_chains(Cluster.uniform(given.machine, given.servers, cores_reserved=reserved), chains, policy).plan
    capacity = gbps * (1.0 if chain_policy(policy).allocates else kept)
    shares = []
    for interval, seats in enumerate(plan.seats):
        offered = {chain.request.id: chain.gbps[interval] for chain in chains}
        served = [min(offered[name], capacity * handover_keeps(nodes)) for name, nodes in seats.items()]
        shares.append(sum(served) / sum(offered.values()))
    return statistics.fmean(shares)


@lru_cache
def sources(directory: Path, *, throttled: bool) -> tuple[ModelLibrary, tuple[PartitionProfile, ...]]:
    """Return the models and the profiles over partitions, in which no throttle serves where nobody is throttled."""
    profiles, models = load_profiles(directory / "partitions.json"), directory / "models"
    if not throttled:
        profiles = tuple(replace(each, responses=_unthrottled(each.responses)) for each in profiles)
    return ModelLibrary.load(models) if models.exists() else ModelLibrary([]), profiles


def _unthrottled(responses: Mapping[str, PartitionResponse]) -> dict[str, PartitionResponse]:
    """Return responses in which every throttle takes a packet a second."""
    forbidding = ((99.0, 1.0), (100.0, 0.0))
    return {
        key: replace(each, throttled_us=(1e6,) * len(each.ways), throttle=forbidding) for key, each in responses.items()
    }


def show(judged: dict[str, list[Judgement]]) -> None:
    """Print the mean ANAT, moves, and by how much and in how many draws `numasfp` is ahead."""
    print(f"{'policy':30}{'ANAT %':>8}{'moves':>7}{'numasfp ahead by %':>20}{'in draws':>9}{'paper':>7}")
    ours = [item.anat for item in judged.get("numasfp", [])]
    for label, items in judged.items():
        theirs = [item.anat for item in items]
        ahead = f"{100 * (sum(ours) / sum(theirs) - 1):.1f}" if ours else "-"
        won = sum(mine > other for mine, other in zip(ours, theirs, strict=False))
        moves = sum(item.migrations for item in items)
        mean = 100 * sum(theirs) / len(theirs)
        print(f"{label:30}{mean:8.1f}{moves:7d}{ahead:>20}{won:9d}{PAPER.get(label, '-'):>7}")


if __name__ == "__main__":
    sys.exit(main())
