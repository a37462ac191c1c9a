"""Mixes that compete for memory and for an accelerator at once, predicted from profiles of each resource apart.

    python benchmarks/accelerators.py [--runs 60] [--mixes 24]

Profiles users and non-users of a regex accelerator on the simulator: beside the synthetic competitor for memory, and
beside the one for the accelerator. Then runs mixes of both kinds and compares: memory alone (SLOMO's way), and memory
composed with the accelerator. Nothing of a mix is trained on.
"""

import argparse
import time
from dataclasses import replace

import numpy as np

from slomo.models.library import ModelLibrary
from slomo.prediction.predictor import Predictor
from slomo.testbed.simulated import SimulatedTestbed
from slomo.training.training import train
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.workload import Workload
from slomo.workflow.predict import predict
from slomo.workflow.profile import profile

MACHINE = "e5-2620v4"
USERS = (Workload("flow-monitor-regex"), Workload("ids-regex"), Workload("ids-regex", {"service_ns": 100.0}))
OTHERS = (Workload("flowstats"), Workload("ip-router"), Workload("snort"))


def drawn(count: int, seed: int) -> list[list[Workload]]:
    """Return mixes of two or three users of the accelerator and one to five others, a user first."""
    random = np.random.default_rng(seed)
    mixes = []
    for _ in range(count):
        users = [USERS[i] for i in random.integers(0, len(USERS), random.integers(2, 4))]
        mixes.append([*users, *(OTHERS[i] for i in random.integers(0, len(OTHERS), random.integers(1, 6)))])
    return mixes


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=60, help="memory runs per network function")
    parser.add_argument("--mixes", type=int, default=24)
    parser.add_argument("--seed", type=int, default=5)
    given = parser.parse_args()
    begun = time.perf_counter()
    nfs = [*USERS, *OTHERS]
    pressure = profile(nfs, machine=MACHINE, plan="pressure", runs=given.runs, seed=1)
    library = train(pressure.merge(profile(nfs, machine=MACHINE, plan="accelerator", seed=1)))
    blind = ModelLibrary([replace(model, accelerator=None) for model in library.values()])
    for model in library.values():
        print(f"{model.workload.key:40} {model.solo_mpps:6.3f} Mpps solo, accelerator: {model.accelerator}")
    testbed = SimulatedTestbed(MACHINE)
    errors: dict[str, list[float]] = {}
    inside = []
    for number, (target, *others) in enumerate(drawn(given.mixes, given.seed)):
        record = testbed.run(Colocation(MACHINE, target, tuple(others)), seed=100 + number)
        assert record.beside is not None
        truth = record.beside.tenants[0].throughput_mpps
        for name in ("slomo-gp", "slomo-xgb"):
            memory = Predictor(blind, MACHINE, name).predict(target, others, explain=False).throughput_mpps
            both = predict(target, others, library, model=name)
            errors.setdefault(f"{name}, memory alone", []).append(memory / truth - 1.0)
            errors.setdefault(f"{name}, composed", []).append(both.throughput_mpps / truth - 1.0)
            if name == "slomo-xgb":
                inside.append(both.interval[0] <= truth <= both.interval[1])
    print(f"\n{given.mixes} mixes of users and others on {MACHINE}\n{'':26} {'mean':>7} {'p95':>7} {'bias':>7}")
    for name, signed in errors.items():
        size = 100.0 * np.abs(signed)
        print(f"{name:26} {size.mean():6.2f}% {np.percentile(size, 95):6.2f}% {100.0 * np.mean(signed):+6.2f}%")
    print(f"90 % intervals of slomo-xgb hold {100.0 * np.mean(inside):.0f} %; {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
