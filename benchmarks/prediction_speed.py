"""Speed of predicting: one mix, a hundred thousand mixes in one call, and the published way, in one run.

The published way is one scikit-learn `predict` per one-row DataFrame, without composition. Here a prediction includes
the competitors' contentiousness under each other's pressure, their composition, the interval and (one mix) verdict and
explanation. All mixes of a batch differ, but targets share competitions, which are composed once per batch; between
batches nothing is remembered, but for the memo of whole servers.

    python benchmarks/prediction_speed.py                  profiles a few network functions first (a minute or two)
    python benchmarks/prediction_speed.py --models DIR     with models trained before
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from slomo.equilibrium.competition import mix_features
from slomo.equilibrium.memo import JointMemo
from slomo.equilibrium.server import solve_joint
from slomo.models.library import ModelLibrary
from slomo.prediction.predictor import Predictor
from slomo.vocabulary.workload import Workload

MACHINE = "e5-2620v4"
NETWORK_FUNCTIONS = ("ip-router", "flowstats", "maglev", "snort")
#: So many workloads make 421 200 different mixes of a target and 4 competitors.
WORKLOADS = 24
BATCH = 100_000
FEW = 2_048
ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, help="folder of a saved library")
    parser.add_argument("--machine", default=MACHINE)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        saved = given.models or trained(Path(folder) / "models", given.machine)
        report(ModelLibrary.load(saved), given.machine)
        report_cold_starts(saved, given.machine)


def trained(folder: Path, machine: str) -> Path:
    """Train on a small profile and save the models."""
    from slomo.profiling.campaign.run import run_campaign
    from slomo.profiling.plans.basic import pressure_plan
    from slomo.testbed.simulated import SimulatedTestbed
    from slomo.training.training import train

    plan = pressure_plan(list(NETWORK_FUNCTIONS), machine, "sobol", runs=60)
    return train(run_campaign(plan, SimulatedTestbed(machine))).save(folder)


def report(library: ModelLibrary, machine: str) -> None:
    library = widened(library, machine)
    predictor = Predictor(library, machine)
    targets, places = distinct_mixes(np.random.default_rng(0), len(predictor.workloads), BATCH)
    names = [workload.key for workload in predictor.workloads]
    named = [[names[i] for i in row] for row in places.tolist()]
    subjects = [names[i] for i in targets.tolist()]
    singles = list(zip(subjects[:200], named[:200], strict=True))
    predict_row = published_way(library, machine)
    models = [library[machine, key] for key in library.workloads(machine)]
    servers = np.column_stack([targets, places[:, :3]])
    memo = JointMemo(models)
    published = Predictor(library, machine, "slomo-gbr", "published")
    features, published_features = (models[0].sensitivity[name].feature_names for name in ("slomo-xgb", "slomo-gbr"))
    ways: dict[str, tuple[int, Callable[[], object]]] = {
        "published way: scikit-learn, one row": (200, lambda: [predict_row() for _ in range(200)]),
        "predict, one mix of 4 competitors": (200, lambda: [predictor.predict(*mix, explain=False) for mix in singles]),
        "predict, with explanation": (200, lambda: [predictor.predict(*mix) for mix in singles]),
        "predict_batch, named mixes": (BATCH, lambda: predictor.predict_batch(subjects, named)),
        "predict_batch, mixes as indices": (BATCH, lambda: predictor.predict_batch(targets, places)),
        "the same, composed as published": (BATCH, lambda: published.predict_batch(targets, places)),
        "compose alone, under pressure": (BATCH, lambda: mix_features(models, places, features)),
        "compose alone, as published": (
            BATCH,
            lambda: mix_features(models, places, published_features, compat="published"),
        ),
        "whole servers of 4 NFs, solved anew": (FEW, lambda: solve_joint(models, servers[:FEW])),
        "whole servers of 4 NFs, memo warm": (BATCH, lambda: memo.solve(servers)),
    }
    wall: dict[str, list[float]] = {name: [] for name in ways}
    processor: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS + 1):  # interleaved, so that a slow moment of the machine hits all; the first compiles
        for name, (_, call) in ways.items():
            started, busy = time.perf_counter(), time.process_time()
            call()
            processor[name].append(time.process_time() - busy)
            wall[name].append(time.perf_counter() - started)
    base = statistics.median(processor["published way: scikit-learn, one row"][1:]) / 200
    print("processor time is what one core would need; wall time also waits for others on a shared machine")
    print(
        f"{'medians of ' + str(ROUNDS):38}{'wall us/mix':>13}{'core us/mix':>13}{'mixes/core s':>14}{'x published':>13}"
    )
    for name, (count, _) in ways.items():
        core = statistics.median(processor[name][1:]) / count
        waited = 1e6 * statistics.median(wall[name][1:]) / count
        print(f"{name:38}{waited:13.2f}{1e6 * core:13.2f}{1 / core:14,.0f}{base / core:13,.1f}")
    first = wall["predict_batch, named mixes"][0]
    print(f"first batch, with loading or compiling the kernels: {first:.1f} s")


def widened(library: ModelLibrary, machine: str) -> ModelLibrary:
    """Return `WORKLOADS` models made of those there are; speed depends on their shape only."""
    originals = [library[owner, key] for owner, key in library if owner == machine]
    models = [originals[i % len(originals)] for i in range(WORKLOADS)]
    return ModelLibrary(replace(m, workload=Workload(m.workload.nf, {"copy": i})) for i, m in enumerate(models))


def distinct_mixes(random: np.random.Generator, workloads: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw targets, shape (count,), and competitors, shape (count, 4), no two alike in any order."""
    drawn = np.empty((0, 5), dtype=np.int64)
    while len(drawn) < count:
        fresh = random.integers(0, workloads, (2 * count, 5))
        fresh[:, 1:].sort(axis=1)
        drawn = np.unique(np.concatenate([drawn, fresh]), axis=0)
    drawn = random.permutation(drawn)[:count]
    return drawn[:, 0], random.permuted(drawn[:, 1:], axis=1)


def published_way(library: ModelLibrary, machine: str) -> Callable[[], object]:
    """Return a prediction as the published scripts make it: scikit-learn's defaults, a DataFrame of one row."""
    import pandas as pd
    from sklearn.ensemble import GradientBoostingRegressor

    model = library[machine, library.workloads(machine)[0]]
    names = list(
        model.sensitivity["slomo-gbr"].feature_names
        if "slomo-gbr" in model.sensitivity
        else model.contentiousness.metric_names
    )
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.uniform(size=(600, len(names))), columns=names)
    estimator = GradientBoostingRegressor(random_state=0).fit(frame, random.uniform(1.0, 5.0, 600))
    row = frame.iloc[[0]]
    return lambda: estimator.predict(row)


def report_cold_starts(saved: Path, machine: str) -> None:
    names = [key.split("@")[0] for owner, key in ModelLibrary.load(saved) if owner == machine]
    target, *others = names[:4]
    beside = [part for name in others for part in ("--with", name)]
    cli = [sys.executable, "-m", "slomo"]
    installed = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import slomo": [sys.executable, "-c", "import slomo"],
        "import slomo.prediction.predictor": [sys.executable, "-c", "import slomo.prediction.predictor"],
        "slomo --help": [*cli, "--help"],
        "slomo predict": [*cli, "predict", "--target", target, *beside, "--models", str(saved), "--machine", machine],
    }
    print(f"\n{'cold start, median of ' + str(ROUNDS):38}{'ms':>12}")
    for name, command in commands.items():
        times = []  # the first run writes the byte code that an installation has
        for _ in range(ROUNDS + 1):
            started = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=installed)
            times.append(time.perf_counter() - started)
        failed = f"  failed: {done.stderr.strip().splitlines()[-1]}" if done.returncode else ""
        print(f"{name:38}{1e3 * statistics.median(times[1:]):12.0f}{failed}")


if __name__ == "__main__":
    main()
