"""Predictions judged by a simulator that nobody here wrote: ChampSim, playing traces of our native network functions.

Six functions are profiled beside the synthetic competitor, all models are trained on that profile, and mixes of two,
three and four functions are predicted and compared with what ChampSim says (docs/guides/champsim.md says how it is
built). Interval widths come from the profile alone; the mixes calibrate nothing.

    python benchmarks/champsim.py                      from the shipped dataset, in seconds
    python benchmarks/champsim.py --make FOLDER        play everything first (hours; goes on where it was killed)
    python benchmarks/champsim.py --make FOLDER --variant prefetch --runs 12 --mixes 12
"""

import argparse
import itertools
import sys
import tempfile
from pathlib import Path

import numpy as np

from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.dataset import ProfileDataset
from slomo.testbed.champsim.testbed import MACHINE, ChampSimTestbed, champsim_machine
from slomo.testbed.champsim.traces import Window
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.workload import Traffic, Workload

#: Zipf, so that a capture draws its packets: one packet per flow in turn would be a scan, which LRU never serves.
FLOWS = {"packet_size_b": 64, "flow_distribution": "zipf", "zipf_exponent": 0.5}
DPI = NetworkFunction(
    "dpi",
    "search for strings in payloads, Aho and Corasick",
    settings={"patterns": 3000},
    host={
        "command": ["{slomo_nf}", "--nf", "dpi", "--cores", "{core}", "--pcap", "{pcap}", "--patterns", "{patterns}"],
        "throughput": {"source": "json-lines", "packets": "packets"},
    },
)
FUNCTIONS = (
    Workload("ip-router", {"routes": 200}, Traffic(flow_count=3000, **FLOWS)),
    Workload("mazunat", {"flow_capacity": 4096}, Traffic(flow_count=2000, **FLOWS)),
    Workload("flowstats", {"flow_capacity": 8192}, Traffic(flow_count=4000, **FLOWS)),
    Workload("stateless-firewall", {"rules": 60}, Traffic(flow_count=1000, **FLOWS)),
    Workload("maglev", {"flow_capacity": 8192}, Traffic(flow_count=3000, **FLOWS)),
    Workload("dpi", {"patterns": 60}, Traffic(flow_count=2000, **FLOWS)),
)
#: Levels of the synthetic competitor, from a trickle within its own L2 to more than the LLC and the channel bear.
SEED = 2026
SIZES_MIB, READS, INSTANCES = (0.0625, 0.125, 0.25, 0.5, 2), (1, 8, 50), (1, 1, 2, 2, 3)
VARIANTS = {
    "base": {},
    "seed2": {"virtual_memory.randomization": 2},
    "seed3": {"virtual_memory.randomization": 3},
    "prefetch": {"L1D.prefetcher": "next_line", "L2C.prefetcher": "ip_stride"},
    "ship": {"LLC.replacement": "ship"},
}


def competitor(size_mib: float, reads: int, writes: int = 0) -> Workload:
    settings = {"data_size_mib": float(size_mib), "reads_per_packet": reads, "packet_buffers": 64}
    return Workload("synthetic", settings | ({"writes_per_packet": writes} if writes else {}), Traffic(flow_count=1000))


def profile_plan(most: int = 27) -> ExperimentPlan:
    """Every function alone and beside `most` settings of the competitor, in an order of which every begin is balanced."""
    each = [competitor(size, reads) for size in SIZES_MIB for reads in READS]
    random = np.random.default_rng(SEED)
    drawn = [(each[number], count) for count in INSTANCES for number in random.permutation(len(each))]
    order = random.permutation(len(drawn))
    settings = list(dict.fromkeys((drawn[number][0],) * drawn[number][1] for number in order))[:most]
    beside = [(), *settings]
    return ExperimentPlan("pressure", tuple(Colocation(MACHINE, nf, others) for others in beside for nf in FUNCTIONS))


def mixes_plan(most: int = 60) -> ExperimentPlan:
    """All pairs, threes and fours of unlike functions, pairs of like ones and some fours of two kinds, in a drawn order."""
    together = [
        *itertools.combinations_with_replacement(FUNCTIONS, 2),
        *itertools.combinations(FUNCTIONS, 3),
        *itertools.combinations(FUNCTIONS, 4),
        *((one, one, other, other) for one, other in itertools.pairwise((*FUNCTIONS[:5],))),
    ]
    drawn = np.random.default_rng(SEED).permutation(len(together))[:most]
    return ExperimentPlan("mixes", tuple(Colocation(MACHINE, *_split(together[number])) for number in drawn))


def _split(tenants: tuple[Workload, ...]) -> tuple[Workload, tuple[Workload, ...]]:
    return tenants[0], tenants[1:]


def make(folder: Path, variant: str, runs: int, mixes: int, jobs: int | None) -> ProfileDataset:
    """Play a profile and mixes; whatever was played before is taken from the folder."""
    testbed = ChampSimTestbed(network_functions=(DPI,), variant=VARIANTS[variant], folder=folder)
    plans = (profile_plan(runs), mixes_plan(mixes))
    parts = [run_campaign(plan, testbed, folder / f"{variant}-{plan.name}-{len(plan)}.sqlite", jobs) for plan in plans]
    return parts[0].merge(parts[1])


if __name__ == "__main__":
    sys.exit(main())
