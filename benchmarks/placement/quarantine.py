"""A function nobody profiled, from quarantine to its own model: servers it takes, and promises that break, by stage.

Each of some functions in turn is taken out of the shipped dataset, mixes included. A third of the requests is of it.
Stages: `alone` (a socket for itself), `worst-case` (the worst neighbour of the library stands in), `screened` (40 runs
of its own beside the synthetic competitor, no mixes: its held-out errors there are the headroom), `promoted` (its whole
profile, and mixes). `Placer.lifecycle.use` goes from stage to stage: "at risk" is what it names then, while nothing
moves. The simulator judges every stage, placed afresh.

    python benchmarks/placement/quarantine.py

Target: no promise breaks at any stage, and each stage takes no more servers than the one before.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from slomo.models.library import ModelLibrary
from slomo.placement.online.placer import Placer
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request
from slomo.records.dataset import ProfileDataset
from slomo.records.storage import load_dataset
from slomo.vocabulary.workload import Workload
from slomo.workflow.place import make_judge
from slomo.workflow.train import train

FOLDER = Path(__file__).parents[2] / "datasets"
SCREEN = 40


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="slomo-silver-4110")
    parser.add_argument("--nf", action="append", help="taken for unknown in turn, repeatable")
    parser.add_argument("--requests", type=int, default=30)
    parser.add_argument("--share", type=float, default=0.8, help="of solo throughput that all are promised")
    parser.add_argument("--seed", type=int, default=24)
    given = parser.parse_args()
    dataset, judge = load_dataset(FOLDER / given.dataset), make_judge()
    missed = 0
    for stranger in given.nf or ("ip-router", "snort", "maglev"):
        before = None
        for stage, library, fallback in stages(dataset, stranger, given.seed):
            machine = library.machines[0]
            draw = np.random.default_rng([given.seed, len(stranger)])
            known = [key.split("@")[0] for key in library.workloads(machine) if not key.startswith(stranger)]
            names = [stranger if i % 3 == 0 else str(draw.choice(known)) for i in range(given.requests)]
            requests = [Request(f"r{i}", nf, SLO(min_share=given.share)) for i, nf in enumerate(names)]
            placer = Placer(library, Cluster.uniform(machine, given.requests), fallback=fallback)
            placer.place_all(requests)
            at_risk = 0 if before is None or stage == "worst-case" else len(before.lifecycle.use(library).at_risk)
            judged = judge.judge(placer)
            broken = sorted({item.label for item in judged.violations})
            off = " OFF" if broken or (before and placer.servers_used > before.servers_used) else ""
            missed += bool(off)
            print(
                f"{stranger:12} {stage:10} placed {judged.placed:3d} on {placer.servers_used:3d} servers, broken "
                f"{len(judged.violations):2d} {', '.join(broken)}; at risk when it came {at_risk}{off}", flush=True,
            )  # fmt: skip
            before = placer
    return 1 if missed else 0


def stages(dataset: ProfileDataset, stranger: str, seed: int) -> list:
    """Return each stage's name, models, and what is done with a function without one."""
    frame = dataset.frame
    own = frame["nf"] == stranger
    beside = frame["competitors"].astype(str).str.contains(Workload(stranger).key, regex=False)
    others = train(ProfileDataset(frame[~own & ~beside].reset_index(drop=True), dataset.environment), seed=seed)
    pressed = frame[own & (frame["plan"] == "pressure")].sample(SCREEN, random_state=seed).index
    screen = frame[frame.index.isin(pressed) | (own & (frame["plan"] == "solo"))].reset_index(drop=True)
    screened = others.merge(train(ProfileDataset(screen, dataset.environment), seed=seed))
    everything: ModelLibrary = train(dataset, seed=seed)
    return [
        ("alone", others, "alone"),
        ("worst-case", others, "worst-case"),
        ("screened", screened, "worst-case"),
        ("promoted", everything, "worst-case"),
    ]


if __name__ == "__main__":
    sys.exit(main())
