"""NUMASFP's comparison (COMSNETS'22) on simulated two-socket servers, every node line by line.

20 chains of three, five per server, rates from 1 to 10 Gbit/s over 12 intervals of 10 s. The NIC is on node 0. ANAT is
throughput served over throughput offered, averaged over intervals. The paper: NUMASFP 16, 25 and 23 % ahead of Octans,
node-balance and node-first; these are static, NUMASFP and ours migrate.

The paper names no packet size. At 256 B these rates load the chains to about what they can serve; at 128 B nearly all
are overloaded, and the faster of two chains has no more to gain from the better node.

What handing packets between nodes costs is simulated packet by packet (`--handover simulated`, the default), or taken
from the paper, which measured it on OpenNetVM (`measured`): 22 % for a remote chain, 52 % where the stages alternate.
A move costs `--move-s` of a chain's service.

    python benchmarks/placement/prepare.py DIR --machine e5-2620v4 --nf ip-router@256B ...   (see FUNCTIONS)
    python benchmarks/placement/numasfp.py DIR
"""

import argparse
import json
import sys
from pathlib import Path

from slomo.models.library import ModelLibrary
from slomo.placement.chains.registry import chain_policy_names
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.way_profiles import load_profiles
from slomo.placement.workloads import numasfp_chains
from slomo.workflow.place_chains import place_chains
from slomo.workflow.run_chains import ACCESSES, judge_chains

FUNCTIONS = ("ip-router", "flowstats", "stateless-firewall", "maglev", "l2fwd")
MACHINE = "e5-2620v4"
#: Share by which NUMASFP is ahead [%].
PAPER = {"octans": 16, "node-balance": 25, "node-first": 23}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="models of FUNCTIONS at the packet size")
    parser.add_argument("--intervals", type=int, default=12)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--packet", type=int, default=256, metavar="B", help="frame size")
    parser.add_argument("--change", choices=["drift", "jump"], default="drift", help="how rates change")
    parser.add_argument("--handover", choices=["simulated", "measured"], default="simulated")
    parser.add_argument("--move-s", type=float, default=0.1, help="for which a chain whose stage moves serves nothing")
    parser.add_argument("--accesses", type=int, default=ACCESSES, help="of each simulation")
    parser.add_argument("--seed", type=int, action="append", help="of the draw of chains, repeatable; 0 by default")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    given = parser.parse_args()
    library = ModelLibrary.load(given.directory / "models")
    profiles = load_profiles(given.directory / "profiles.json")
    judged: dict[str, list] = {}
    for policy in chain_policy_names():
        for seed in given.seed or [0]:
            judged.setdefault(policy, []).append(run(policy, library, profiles, given, seed))
        anat = " ".join(f"{100 * item.anat:.1f}" for item in judged[policy])
        print(f"{policy}: ANAT {anat}", file=sys.stderr, flush=True)
    mean = {policy: sum(item.anat for item in items) / len(items) for policy, items in judged.items()}
    print(f"{'policy':14}{'ANAT %':>8}{'moves':>7}{'numasfp ahead by %':>20}{'paper':>7}")
    for policy, items in judged.items():
        ahead = 100 * (mean["numasfp"] / mean[policy] - 1)
        moves = sum(item.migrations for item in items)
        print(f"{policy:14}{100 * mean[policy]:8.1f}{moves:7d}{ahead:20.1f}{PAPER.get(policy, '-'):>7}")
    if given.json:
        text = json.dumps({policy: [item.to_dict() for item in items] for policy, items in judged.items()}, indent=1)
        given.json.write_text(text + "\n")
    return 0


def run(policy: str, library: ModelLibrary, profiles: tuple, given: argparse.Namespace, seed: int):
    """Place and judge one draw of chains."""
    chains = numasfp_chains(
        5 * given.servers, intervals=given.intervals, seed=seed, nfs=FUNCTIONS, change=given.change,
        packet_size_b=given.packet,
    )  # fmt: skip
    cluster = Cluster.uniform(MACHINE, given.servers)
    placed = place_chains(cluster, chains, policy, library, profiles=profiles, handover=given.handover)
    return judge_chains(placed, handover=given.handover, move_s=given.move_s, accesses=given.accesses, seed=0)


if __name__ == "__main__":
    sys.exit(main())
