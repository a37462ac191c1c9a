"""Does the verdict separate: how accurate are supported answers, and how accurate are all others.

Sets of mixes that no model was fitted to or calibrated on: of the shipped profiles (whole, and 60 of their runs per
function), and own draws that contend for cache, I/O
and memory (`benchmarks/three_sources.py`). Every tenant of a mix is asked about, one question at a time.
Goal: supported answers at least 1.5 times as accurate as the rest, in every set that has five or more of both.

    python benchmarks/verdicts.py --store DIR              all sets; keeps every run; go on where it stopped
    python benchmarks/verdicts.py --learn learn.parquet --mixes one.parquet --mixes other.parquet     own measurements
"""

import argparse
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import three_sources as drawn

from slomo.models.library import ModelLibrary
from slomo.prediction.predictor import Predictor
from slomo.profiling.plans.basic import mixes_plan
from slomo.records.catalog import find_dataset
from slomo.records.dataset import ProfileDataset
from slomo.training.training import train

MACHINES = ("e5-2620v4", "silver-4110")
FEWEST, GOAL = 5, 1.5
#: Whole servers answer, whatever other families were trained.
ANSWERING = ("slomo-smooth",)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=61)
    parser.add_argument("--store", type=Path, help="folder that keeps the runs")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--learn", help="profile with calibration mixes, instead of the sets")
    parser.add_argument("--mixes", action="append", default=[], help="repeatable: mixes to judge by")
    given, missed = parser.parse_args(), 0
    print(f"{'set':40}{'n':>6}{'supported':>11}{'error':>8}{'rest':>8}{'times':>8}{'held':>8}{'rest':>8}")
    for name, library, mixes in own(given) if given.learn else sets(given):
        missed += shown(name, judged(library, mixes))
    print("ok: all sets" if not missed else f"OFF: {missed} sets")
    return 0


def own(given: Namespace) -> Iterator[tuple[str, ModelLibrary, ProfileDataset]]:
    library = train(ProfileDataset.read_parquet(given.learn), models=ANSWERING, seed=given.seed)
    for path in given.mixes:
        yield Path(path).stem, library, ProfileDataset.read_parquet(path)


def sets(given: Namespace) -> Iterator[tuple[str, ModelLibrary, ProfileDataset]]:
    settings = {"seed": given.seed, "store": given.store, "jobs": given.jobs}
    for machine in MACHINES:
        whole = find_dataset(f"slomo-{machine}")
        names = list(dict.fromkeys(whole.workload(key).nf for key in whole.targets))
        plan = mixes_plan(names, machine, 120, stream="test", seed=given.seed)
        mixes = drawn.run(plan, drawn.machine_of(machine), Namespace(**settings))
        for name, profile in (("grid", whole), ("60 runs", fewer(whole, 60, given.seed))):
            yield f"{machine}, shipped, {name}", train(profile, models=ANSWERING, seed=given.seed), mixes
    for name in drawn.MACHINES:
        machine, kinds = drawn.machine_of(name), drawn.kinds(drawn.FUNCTIONS)
        every = list(dict.fromkeys(kind for listed in kinds.values() for kind in listed))
        asked = Namespace(**settings, design="sources", runs=60, calibration=120, mixes=40)
        library = train(drawn.learned(every, machine, asked), models=ANSWERING, seed=given.seed)
        for source, mixes in drawn.stratified(kinds, machine, asked).items():
            yield f"{name}, {source}", library, mixes


def fewer(whole: ProfileDataset, runs: int, seed: int) -> ProfileDataset:
    """Return a dataset with this many runs of each function's profile, drawn at random."""
    frame = whole.frame
    pressure = frame[frame["plan"] == "pressure"].sample(frac=1.0, random_state=seed)
    drawn_rows = pressure.index[pressure.groupby("target").cumcount() < runs]
    kept = frame.loc[sorted([*drawn_rows, *frame.index[frame["plan"] != "pressure"]])]
    return ProfileDataset(kept.reset_index(drop=True), whole.environment)


def judged(library: ModelLibrary, dataset: ProfileDataset) -> np.ndarray:
    """Return whether it is supported, the error [%] and whether the interval holds, of every row of a mix."""
    mixes = dataset.select(plan="mix")
    machine = str(mixes.frame["machine"].iloc[0])
    predictor, rows = Predictor(library, machine), []
    for row, (key, mpps) in enumerate(zip(mixes.frame["target"], mixes.throughput, strict=True)):
        answer = predictor.predict(mixes.workload(str(key)), mixes.competitors(row))
        low, high = answer.interval
        error = 100.0 * abs(answer.throughput_mpps / mpps - 1.0)
        rows.append((str(answer.verdict) == "supported", error, low <= mpps <= high))
    return np.array(rows, dtype=float)


def shown(name: str, rows: np.ndarray) -> bool:
    """Print a set; return whether it misses the goal."""
    supported = rows[:, 0] > 0.0
    line = f"{name:40}{len(rows):>6}{100.0 * supported.mean():>10.0f}%"
    if min(supported.sum(), (~supported).sum()) < FEWEST:
        print(f"{line}{rows[:, 1].mean():>8.2f}  nearly all alike")
        return False
    (error, rest), (held, others) = ([float(rows[part, i].mean()) for part in (supported, ~supported)] for i in (1, 2))
    off = rest < GOAL * error
    print(f"{line}{error:>8.2f}{rest:>8.2f}{rest / error:>8.1f}{100 * held:>8.0f}{100 * others:>8.0f}"
          f"{'  OFF' if off else ''}", flush=True)  # fmt: skip
    return off


if __name__ == "__main__":
    sys.exit(main())
