"""ResQ's comparison of schedulers (NSDI'18, Figures 8 and 9) on the simulated E5-2695 v4, beside the paper's figures.

About 200 SLO terms per family at 90 % of solo throughput, 9 cores per server, 90 % of the cache usable. Every policy
places the same requests; the simulator, which shares no equation with any predictor, runs every server and says whose
SLO is broken.

    python benchmarks/placement/prepare.py DIR
    python benchmarks/placement/resq.py DIR                      all families and policies
    python benchmarks/placement/resq.py DIR --family combination --terms 50
    python benchmarks/placement/resq.py DIR --sweep              one packer, several predictors, at equal violations

The sweep gives the same packer each predictor at every confidence, and names the fewest servers each needs so that no
SLO (and no more than 1 % of SLOs) is broken: predictors differ in how much margin they need, so that servers can only
be compared at equal violations.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from slomo.models.library import ModelLibrary
from slomo.models.partition_profile import load_profiles
from slomo.placement.online.placer import Placer
from slomo.placement.over_time.judge import Judge
from slomo.placement.over_time.judgement import Judgement
from slomo.placement.problem.cluster import Cluster
from slomo.placement.workloads import RESQ_FAMILIES, RESQ_REPLICAS, resq_requests
from slomo.workflow.place import make_judge

#: line of the table -> policy, sensitivity model, with profiles over ways
LINES = {
    "first-fit (shared cache)": ("first-fit", "default", False),
    "equal partitions": ("equal-partition", "default", False),
    "e2": ("e2", "default", False),
    "dobrescu first fit": ("dobrescu", "dobrescu", False),
    "resq-greedy": ("resq-greedy", "default", True),
    "resq-milp": ("resq-milp", "default", True),
    "predicted": ("predicted", "default", False),
    "slomo-search": ("slomo-search", "default", False),
    "slomo-search + ways": ("slomo-search", "default", True),
    "predicted packer, dobrescu": ("predicted", "dobrescu", False),
    "predicted packer, bubbleup": ("predicted", "bubbleup", False),
}
#: The paper's machines and violations [%] per family; None where it gives none.
PAPER: dict[str, dict[str, tuple[int | None, int | None]]] = {
    "first-fit (shared cache)": {"insensitive": (None, 0), "combination": (None, 11), "sensitive": (None, 91)},
    "equal partitions": {"insensitive": (None, 0), "combination": (None, 55), "sensitive": (None, 100)},
    "e2": {"insensitive": (22, None), "combination": (35, None), "sensitive": (44, None)},
    "dobrescu first fit": {"insensitive": (22, 0), "combination": (48, 0), "sensitive": (128, 0)},
    "resq-greedy": {"insensitive": (22, 0), "combination": (35, 0), "sensitive": (45, 0)},
    "resq-milp": {"insensitive": (22, 0), "combination": (30, 0), "sensitive": (38, 0)},
}


#: The sweep's predictors: sensitivity model and method.
PREDICTORS = {
    "slomo": ("slomo-xgb", "composed"),
    "slomo, equilibrium": ("default", "equilibrium"),
    "dobrescu": ("dobrescu", "composed"),
    "bubbleup": ("bubbleup", "composed"),
}
CONFIDENCES = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="what prepare.py wrote")
    parser.add_argument("--family", action="append", choices=list(RESQ_FAMILIES))
    parser.add_argument("--line", action="append", choices=list(LINES))
    parser.add_argument("--terms", type=int, default=200)
    parser.add_argument("--replicas", type=int, default=RESQ_REPLICAS, help="instances a term may be split into")
    parser.add_argument("--confidence", type=float, default=0.95)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sweep", action="store_true", help="one packer, several predictors and confidences")
    parser.add_argument("--predictor", action="append", choices=list(PREDICTORS), help="of the sweep; all by default")
    parser.add_argument("--at", type=float, action="append", metavar="CONFIDENCE", help="of the sweep, repeatable")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    given = parser.parse_args()
    library = ModelLibrary.load(given.directory / "models")
    profiles = load_profiles(given.directory / "profiles.json")
    judge, results = make_judge(), {}
    for family in given.family or RESQ_FAMILIES:
        drawn = resq_requests(family, given.terms, seed=given.seed)
        requests = tuple(replace(request, replicas=given.replicas) for request in drawn)
        cluster = Cluster.uniform("e5-2695v4", 4 * given.terms, cores_reserved=9, sockets=1)
        if given.sweep:
            sweep(family, cluster, requests, library, judge, given.predictor or PREDICTORS, given.at or CONFIDENCES)
            continue
        head = f"{'servers':>8}{'paper':>7}{'broken %':>10}{'paper':>7}{'ANAT %':>8}{'placed':>8}{'s':>7}"
        print(f"\n{family}: {given.terms} SLO terms, confidence {given.confidence:g}\n{'policy':28}{head}")
        for line in given.line or LINES:
            made, took, said = run(line, cluster, requests, library, profiles, judge, given.confidence)
            machines, broken = PAPER.get(line, {}).get(family, (None, None))
            servers, broken_here = f"{made.servers_used:8d}{shown(machines):>7}", f"{100 * made.violated_share:10.1f}"
            rest = f"{100 * made.anat:8.1f}{made.placed:8d}{took:7.1f}  {said}"
            print(f"{line:28}{servers}{broken_here}{shown(broken):>7}{rest}", flush=True)
            results[f"{family}: {line}"] = made.to_dict()
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


def sweep(
    family: str,
    cluster: Cluster,
    requests: tuple,
    library: ModelLibrary,
    judge: Judge,
    predictors: Iterable[str],
    confidences: Sequence[float],
) -> None:
    print(f"\n{family}, up to {requests[0].replicas} instances per term: servers and broken SLOs [%] by confidence")
    print(f"{'predictor':20}" + "".join(f"{confidence:>10g}" for confidence in confidences) + f"{'none':>8}{'1 %':>6}")
    for name in predictors:
        (model, method), by_confidence = PREDICTORS[name], []
        for confidence in confidences:
            placer = Placer(library, cluster, "predicted", model=model, confidence=confidence, method=method)
            placer.place_all(requests)
            made = judge.judge(placer, requests=len(requests))
            by_confidence.append((made.servers_used, 100 * made.violated_share))
        fewest = [
            min((servers for servers, broken in by_confidence if broken <= most), default="-") for most in (0.0, 1.0)
        ]
        cells = "".join(f"{servers:>5d}{broken:5.1f}" for servers, broken in by_confidence)
        print(f"{name:20}{cells}{fewest[0]:>8}{fewest[1]:>6}", flush=True)


def run(
    line: str,
    cluster: Cluster,
    requests: tuple,
    library: ModelLibrary,
    profiles: tuple,
    judge: Judge,
    confidence: float,
) -> tuple[Judgement, float, str]:
    """Place by one policy, and judge."""
    policy, model, with_ways = LINES[line]
    ways = profiles if with_ways else ()
    placer = Placer(
        library, cluster, policy, model=model, confidence=confidence, profiles=ways, observe=judge.throughput
    )
    begun = time.perf_counter()
    placer.place_all(requests)
    took = time.perf_counter() - begun
    plan = getattr(placer.policy, "last", None)
    return judge.judge(placer, requests=len(requests)), took, str(getattr(plan, "text", plan or ""))


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


if __name__ == "__main__":
    sys.exit(main())
