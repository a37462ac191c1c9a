"""One prediction in process, beside scikit-learn's one row: the time to the number, its interval and its verdict.

    python benchmarks/one_prediction.py [--models DIR] [--questions 300]

Asks `Predictor.predict` about mixes of four competitors, all different, in turns with one row of scikit-learn's
gradient boosting, so that whatever else the machine does hits all alike: question by question, where each finds the
caches as the others left them, and fifty questions at a time, as a program that asks nothing else does. Goals: at most
100 us where scikit-learn takes 480 (0.21 of it), the same bits as the batch; a whole process of `slomo predict` below
0.25 s.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor

from slomo.models.library import ModelLibrary
from slomo.prediction.predictor import Predictor
from slomo.records.catalog import find_dataset
from slomo.training.training import train

DATASET, MACHINE = "slomo-e5-2620v4", "e5-2620v4"
GOAL_US, GOAL_S, SCIKIT_US = 100.0, 0.25, 480.0
AT_A_TIME = 50


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, help="models trained before, of several NFs on one machine")
    parser.add_argument("--questions", type=int, default=300)
    given = parser.parse_args()
    folder = given.models or train(find_dataset(DATASET), models=["slomo-xgb"]).save(tempfile.mkdtemp())
    library = ModelLibrary.load(folder)
    predictors = {name: Predictor(library, MACHINE, method=name) for name in ("composed", "equilibrium")}
    workloads = predictors["composed"].workloads
    draw = np.random.default_rng(0)
    numbers = draw.integers(0, len(workloads), (given.questions, 5))
    mixes = [[workloads[number] for number in row] for row in numbers.tolist()]
    rows, speed = draw.uniform(0.0, 1.0, (400, 5)), draw.uniform(0.0, 1.0, 400)
    scikit = GradientBoostingRegressor().fit(rows, speed)
    ways = {
        **{
            f"{name}{', explained' if explain else ''}": (
                lambda mix, each=each, explain=explain: each.predict(mix[0], mix[1:], explain=explain)
            )
            for name, each in predictors.items()
            for explain in (False, True)
        },
        "scikit-learn, one row": lambda _: scikit.predict(rows[:1]),
    }
    turns = {1: {name: list[float]() for name in ways}, AT_A_TIME: {name: list[float]() for name in ways}}
    for each in predictors.values():  # as after a thousand questions: then the compiled rounds are loaded
        each.predict_batch(np.resize(numbers[:, 0], 2048), np.resize(numbers[:, 1:], (2048, 4)))
    for together, times in turns.items():
        for first in range(0, len(mixes), together):
            for name, ask in ways.items():
                for mix in mixes[first : first + together]:
                    begun = time.perf_counter()
                    ask(mix)
                    times[name].append(1e6 * (time.perf_counter() - begun))
        reference = float(np.median(times["scikit-learn, one row"]))
        print(f"{f'four competitors, {together} at a time':36} {'median':>9} {'of scikit-learn':>16}")
        print(f"{'goal':36} {GOAL_US:7.0f} us {GOAL_US / SCIKIT_US:16.2f}")
        for name, taken in times.items():
            print(f"{name:36} {np.median(taken):7.0f} us {np.median(taken) / reference:16.2f}")
    for name, each in predictors.items():
        batch = each.predict_batch(numbers[:, 0], numbers[:, 1:])
        ones = [each.predict(mix[0], mix[1:], explain=False) for mix in mixes]
        same = [(one.throughput_mpps, *one.interval) for one in ones] == list(
            zip(batch.throughput_mpps.tolist(), batch.low_mpps.tolist(), batch.high_mpps.tolist(), strict=True)
        )
        print(f"{name}: {'the same bits as' if same else 'OFF: other numbers than'} the batch")
    line = [
        "predict",
        "--target",
        workloads[0].key,
        "--with",
        workloads[1].key,
        "--models",
        str(folder),
        "--machine",
        MACHINE,
    ]
    spent, bare, nothing = [], [], []
    with tempfile.TemporaryDirectory() as cache:  # byte code as an installation has it, warm after the first of them
        for _ in range(8):
            spent.append(_whole(["-m", "slomo", *line], cache))
            bare.append(_whole(["-c", "import numpy"], cache))
            nothing.append(_whole(["-c", ""], cache))
    mark = " OFF" if min(spent) > GOAL_S else ""
    print(f"slomo predict, whole process: {min(spent):.2f} s CPU, goal {GOAL_S}{mark};", end=" ")
    print(f"importing numpy: {min(bare):.2f} s, nothing: {min(nothing):.2f} s")
    return 0


def _whole(words: list[str], cache: str) -> float:
    """Return what one process takes of a processor [s], with its byte code kept in a folder."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *words], check=True, capture_output=True, env={**environment, "PYTHONPYCACHEPREFIX": cache}
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
