"""SLOMO's utilisation (SIGCOMM'20): requests that a cluster admits with each predictor, at equal safety.

The paper says "6-14% more efficient cluster utilization" in its abstract; the set-up here is ours. Servers of its first
machine (8 cores) are asked for as many requests as they have cores, one after the other: SLOMO's network functions,
promised 75 to 95 % of what they serve alone. The simulator judges what was admitted. Each predictor is given the
confidence with which most requests are admitted while at most 1 % of the promises break; that can be known only
afterwards, for all alike. Dobrescu's and Bubble-Up's have the best of four: line or curve, with and without the mixes
learned as runs, since the default learns from mixes, too. `slomo, composed` is the paper's way (`slomo-xgb`).

    slomo train slomo-e5-2620v4 --models DIR/models     # what it does itself without DIR
    python benchmarks/placement/utilisation.py DIR --seed 1

Beside it: a server for each request; E2, which adds up to four instances where throughput falls short, as it is and at
equal safety; and Dobrescu's first fit as ResQ (NSDI'18) describes it. E2 has no confidence: it may use the most cores
of a server at which as few promises break, which is all that an operator could turn.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from mixes_as_runs import mixes_as_runs

from slomo.models.library import ModelLibrary
from slomo.placement.online.placer import Placer
from slomo.placement.over_time.judge import Judge
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import Request
from slomo.placement.workloads import slomo_requests
from slomo.records.catalog import find_dataset
from slomo.training.training import train
from slomo.workflow.place import make_judge

MACHINE, SERVERS, CORES = "e5-2620v4", 12, 8
#: Share of admitted promises that may break.
SAFE = 0.01
CONFIDENCES = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98)
#: Line -> sensitivity models, method.
PREDICTORS = {"slomo, equilibrium": (("default",), "equilibrium"), "slomo, composed": (("slomo-xgb",), "composed")}
#: Line -> the two forms of a baseline.
BASELINES = {"dobrescu": ("dobrescu", "dobrescu-curve"), "bubbleup": ("bubbleup", "bubbleup-curve")}
E2_INSTANCES = 4


@dataclass(frozen=True)
class Admitted:
    """Requests that were admitted, the share of their promises that broke, and the confidence and model asked for."""

    requests: int
    broken: float
    confidence: float | None = None
    cores: int | None = None
    model: str | None = None

    def __str__(self) -> str:
        asked = "" if self.confidence is None else f" by {self.model} at {self.confidence:g}"
        asked += "" if self.cores is None else f" on {self.cores} cores"
        return f"{self.requests} admitted, {100 * self.broken:.1f} % broken{asked}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?", help="with the models; trained here if not given")
    parser.add_argument("--seed", type=int, action="append", help="of the draw, repeatable; 1 by default")
    parser.add_argument(
        "--share", type=float, help="of solo throughput, promised to all; drawn from 0.75 to 0.95 if not"
    )
    parser.add_argument("--replicas", type=int, default=1, help="instances a request may be split into")
    given = parser.parse_args()
    models = given.directory and given.directory / "models"
    library = ModelLibrary.load(models) if models else train(find_dataset(f"slomo-{MACHINE}"))
    for seed in given.seed or [1]:
        print(f"seed {seed}, up to {given.replicas} instances: {SERVERS} requests on exclusive servers", flush=True)
        requests = drawn(library, seed, given.replicas)
        if given.share:
            requests = [replace(each, slo=replace(each.slo, min_share=given.share)) for each in requests]
        found = compared(library, requests)
        e2 = by_e2(library, requests, make_judge())
        for name, each in (found | dict(zip(("e2", "e2, equal safety"), e2, strict=True))).items():
            print(f"  {name:20} {each}", flush=True)
    return 0


def compared(library: ModelLibrary, requests: Sequence[Request]) -> dict[str, Admitted]:
    """Return what is admitted by every predictor at equal safety, and by Dobrescu's first fit; one draw."""
    judge = make_judge()
    found = {name: by_predictor({"": library}, requests, *PREDICTORS[name], judge) for name in PREDICTORS}
    libraries = {"": library, ", mixes as runs": with_mixes(library)}
    found |= {name: by_predictor(libraries, requests, forms, "composed", judge) for name, forms in BASELINES.items()}
    first_fit = Placer(library, cluster(), "dobrescu", model="dobrescu", observe=judge.throughput)
    found["dobrescu first fit"] = admitted(first_fit, requests, judge)
    return found


def drawn(library: ModelLibrary, seed: int, replicas: int = 1) -> list[Request]:
    """Return as many requests as there are cores."""
    nfs = sorted(key.split("@")[0] for key in library.workloads(MACHINE))
    return [replace(each, replicas=replicas) for each in slomo_requests(SERVERS * CORES, seed=seed, nfs=nfs)]


def with_mixes(library: ModelLibrary) -> ModelLibrary:
    """Return baselines that learned from the shipped mixes as from runs."""
    forms = [form for forms in BASELINES.values() for form in forms]
    return train(mixes_as_runs(library, find_dataset(f"slomo-{MACHINE}")), models=forms)


def by_predictor(
    libraries: Mapping[str, ModelLibrary], requests: Sequence[Request], models: Sequence[str], method: str, judge: Judge
) -> Admitted:
    """Return the most that one predictor admits safely, in its best form; libraries are by their label."""
    tried = []
    for (label, library), model, confidence in product(libraries.items(), models, CONFIDENCES):
        placer = Placer(library, cluster(), "predicted", model=model, method=method, confidence=confidence)
        made = admitted(placer, requests, judge)
        tried.append(replace(made, confidence=confidence, model=f"{model}{label}"))
    return most_safely(tried)


def by_e2(library: ModelLibrary, requests: Sequence[Request], judge: Judge) -> tuple[Admitted, Admitted]:
    """Return what E2 admits on all cores, and the most that it admits safely on fewer."""
    scaled = [replace(each, replicas=E2_INSTANCES) for each in requests]
    by_cores = [
        replace(admitted(Placer(library, cluster(cores), "e2", observe=judge.throughput), scaled, judge), cores=cores)
        for cores in range(CORES, 0, -1)
    ]
    return by_cores[0], most_safely(by_cores)


def cluster(cores: int = CORES) -> Cluster:
    """Return the servers, of which so many cores may be used."""
    return Cluster.uniform(MACHINE, SERVERS, sockets=1, cores_reserved=CORES - cores)


def admitted(placer: Placer, requests: Iterable[Request], judge: Judge) -> Admitted:
    """Ask for one request after the other, and judge what was admitted."""
    for request in requests:
        placer.admit(request)
    made = judge.judge(placer)
    return Admitted(made.placed, made.violated_share)


def most_safely(tried: Sequence[Admitted]) -> Admitted:
    """Return the safe one that admits most, the last if none is safe."""
    safe = [each for each in tried if each.broken <= SAFE]
    return max(safe, key=lambda each: each.requests) if safe else tried[-1]


if __name__ == "__main__":
    sys.exit(main())
