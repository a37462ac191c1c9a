"""NUMASFP's case for memory bandwidth: a firewall beside memory hogs, with nothing, its ways, and its ways and MBA.

NUMASFP (COMSNETS'22) measures losses of 45, 20 and 0 %. The ways are the fewest with which the firewall keeps 97 % of
its throughput while nobody else runs, as its profiler's table has them; hogs have the others and are throttled to 10 %.
NUMASFP runs on OpenNetVM, whose ring before a function holds 16384 packets (onvm/onvm_nflib/onvm_common.h): so many
buffers are under way where the function is saturated.
What docs/papers.md says of other machines and hogs:

    python benchmarks/numasfp_allocation.py                                 # shipped machines
    python benchmarks/numasfp_allocation.py e5-2620v4 --percent 50          # hogs throttled less
    python benchmarks/numasfp_allocation.py e5-2620v4 --buffers 256
    python benchmarks/numasfp_allocation.py e5-2620v4 --outside-ddio        # hogs with ways of their own
    slomo machine show silver-4110 --yaml |
        sed 's/socket: 8/socket: 12/; s/llc_mib: 11.0/llc_mib: 16.5/; s/38.4/57.6/' > twelve-cores.yaml
    python benchmarks/numasfp_allocation.py twelve-cores.yaml
"""

import argparse
import sys

from slomo.enforce.backends.simulated import Occupant, SimulatedServer
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.way_masks import way_block
from slomo.vocabulary.workload import Workload

HOG = Workload("synthetic", configuration={"data_size_mib": 64.0, "pattern": "sequential", "reads_per_packet": 1000})
PAPER = (-0.45, -0.20, 0.0)
KEPT = 0.97
#: OpenNetVM's NF_QUEUE_RINGSIZE.
BUFFERS = 16384


def served(server: SimulatedServer, ways: int | None, percent: int | None, seed: int = 1, outside: int = 0) -> float:
    """Return what the firewall does with so many ways of its own, and the hogs throttled and outside some ways."""
    full = server.machine.full_way_mask
    mine = full if ways is None else (1 << ways) - 1
    for name in server.occupants:
        mask = mine if name == "firewall" or ways is None else full & ~(mine | outside)
        server.knobs[f"ways:{name}"] = f"{mask:x}"
        server.knobs[f"bandwidth:{name}"] = None if name == "firewall" or percent is None else str(percent)
    return server.simulate(seed).tenants[0].throughput_mpps


def losses(
    machine_name: str,
    nf: str,
    seed: int = 1,
    *,
    percent: int = 10,
    buffers: int = BUFFERS,
    outside_ddio: bool = False,
) -> tuple[int, tuple[float, ...]]:
    """Return the ways of the firewall, and what it loses unmanaged, with its ways, with its ways and MBA."""
    machine = load_machine(machine_name)
    firewall = Occupant("firewall", Workload(nf, {"packet_buffers": buffers}))
    alone = SimulatedServer(machine, [firewall])
    solo = served(alone, None, None, seed)
    fits = (ways for ways in range(1, machine.llc_ways) if served(alone, ways, None, seed) >= KEPT * solo)
    ways = next(fits, machine.llc_ways - 1)
    hogs = [Occupant(f"hog{number}", HOG) for number in range(machine.cores_per_socket - 1)]
    server = SimulatedServer(machine, [firewall, *hogs])
    outside = way_block(machine.ddio_ways, machine.llc_ways - machine.ddio_ways) if outside_ddio else 0
    policies = ((None, None), (ways, None), (ways, percent))
    return ways, tuple(served(server, own, throttle, seed, outside) / solo - 1.0 for own, throttle in policies)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machines", nargs="*", default=["e5-2620v4", "silver-4110", "e5-2695v4", "e5-2699v4"])
    parser.add_argument("--percent", type=int, default=10, help="of the memory bandwidth, for each hog")
    parser.add_argument("--buffers", type=int, default=BUFFERS, help="of the firewall [packets]")
    parser.add_argument("--outside-ddio", action="store_true", help="hogs do not fill DDIO's ways")
    given = parser.parse_args()
    print(f"{'machine':12} {'firewall':20} {'ways':>4}  unmanaged      LLC  LLC+MBA   (paper {PAPER})")
    for machine in given.machines:
        for nf in ("firewall", "stateless-firewall"):
            ways, lost = losses(
                machine, nf, percent=given.percent, buffers=given.buffers, outside_ddio=given.outside_ddio
            )
            print(f"{machine:12} {nf:20} {ways:4d}  " + "  ".join(f"{100 * share:7.1f}" for share in lost), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
