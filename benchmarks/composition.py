"""Composition learned by regression beside the fixed rules, metric by metric, and what it is worth for throughput.

SLOMO (SIGCOMM'20) section 5.3 learns how a metric composes. Here a small non-negative linear map of the fixed rule's
value, the sum, the mean and the largest of the competitors' values is learned on four fifths of the calibration mixes
whose competition was measured alone, and taken for a metric where it is closer on parts of them left out. Printed for
the other fifth in turn: error of each composed metric by the fixed rule and by the one chosen, and error of throughput
by each family from fixed, chosen and measured vectors. None of it is part of a model: better vectors did not make
better predictions of every family (docs/limits.md).

    python benchmarks/composition.py                    both shipped datasets (two minutes of CPU)
    python benchmarks/composition.py --quick            silver-4110, with two families
"""

import argparse
import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from slomo.equilibrium.competition import competitor_vectors, mix_features
from slomo.models.nf_model import NFModel
from slomo.records.catalog import find_dataset
from slomo.records.dataset import ProfileDataset
from slomo.training.calibration import MixRows, mix_rows
from slomo.training.cross_validation import folds
from slomo.training.training import train

MACHINES = ("e5-2620v4", "silver-4110")
FAMILIES = ("slomo-gp", "slomo-xgb", "slomo-smooth", "slomo-gbr")
Floats = NDArray[np.float64]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", action="append", choices=MACHINES, help="repeatable")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    families = FAMILIES[:2] if given.quick else FAMILIES
    for machine in given.machine or (MACHINES[1:] if given.quick else MACHINES):
        dataset = find_dataset(f"slomo-{machine}")
        models = list(train(dataset, models=families, seed=0).values())
        compare(machine, dataset, models, families)
    return 0


def compare(machine: str, dataset: ProfileDataset, models: Sequence[NFModel], families: Sequence[str]) -> None:
    """Print both tables of one machine."""
    fits = [model.sensitivity[family] for model in models for family in families]
    names = sorted({name for fit in fits for name in fit.feature_names})
    rows, measured = alone(dataset, models, machine, names)
    capacities = models[0].capacities
    fixed = mix_features(models, rows.members, names, capacities=capacities)
    parts = summaries(models, rows, names, fixed)
    tenants = np.sort(np.column_stack([rows.target, rows.members]), axis=1)
    run = np.unique(tenants, axis=0, return_inverse=True)[1].ravel()
    chosen = np.column_stack([learned(parts[:, :, i], measured[:, i], run) for i in range(len(names))])
    print(f"\n{machine}: error of composed metrics over {len(run)} mixes [% of the mean]")
    print(f"{'':10}{'fixed':>8}{'chosen':>8}")
    for i, name in enumerate(names):
        size = float(np.abs(measured[:, i]).mean()) or 1.0
        away = [100.0 * float(np.abs(values[:, i] - measured[:, i]).mean()) / size for values in (fixed, chosen)]
        print(f"{name:10}" + "".join(f"{value:8.2f}" for value in away))
    print(f"error of throughput [%]\n{'':14}{'fixed':>8}{'chosen':>8}{'measured':>10}")
    for family in families:
        errors = [throughput_error(models, rows, names, family, values) for values in (fixed, chosen, measured)]
        print(f"{family:14}{errors[0]:8.3f}{errors[1]:8.3f}{errors[2]:10.3f}", flush=True)


def alone(
    dataset: ProfileDataset, models: Sequence[NFModel], machine: str, names: Sequence[str]
) -> tuple[MixRows, Floats]:
    """Return the mixes at full load whose competition was measured before the target started, and that competition."""
    every = mix_rows(dataset, models, machine)
    frame = dataset.frame[dataset.frame["plan"] == "mix"]
    measured = frame[[f"competition.{name}" for name in names]].to_numpy(dtype=float)
    kept = np.isfinite(measured).all(axis=1)
    if every.offered_mpps is not None:
        kept &= ~np.isfinite(every.offered_mpps).any(axis=1)
    return MixRows(every.target[kept], every.members[kept], every.mpps[kept]), measured[kept]


def summaries(models: Sequence[NFModel], rows: MixRows, names: Sequence[str], fixed: Floats) -> Floats:
    """Return what a learned rule may use: fixed rule, sum, mean and largest, shape ``(mixes, 4, metrics)``."""
    values = competitor_vectors(models, rows.members, tuple(names), capacities=models[0].capacities)
    present = (rows.members >= 0)[:, :, None]
    total = np.where(present, values, 0.0).sum(axis=1)
    largest = np.where(present, values, -np.inf).max(axis=1)
    return np.stack([fixed, total, total / present.sum(axis=1), largest], axis=1)


def learned(parts: Floats, measured: Floats, run: NDArray[np.int64]) -> Floats:
    """Return one metric by the rule that is closer on mixes left out, each fifth chosen and learned on the others."""
    result, fold = parts[:, 0].copy(), folds(run, 0)
    for number in np.unique(fold):
        seen = fold != number
        guess, inner = np.zeros(int(seen.sum())), folds(run[seen], 1)
        for part in np.unique(inner):
            out = inner == part
            guess[out] = parts[seen][out] @ fitted(parts[seen][~out], measured[seen][~out])
        if np.abs(guess - measured[seen]).mean() < np.abs(parts[seen][:, 0] - measured[seen]).mean():
            result[~seen] = parts[~seen] @ fitted(parts[seen], measured[seen])
    return result


def fitted(parts: Floats, measured: Floats) -> Floats:
    size = float(np.abs(measured).mean()) or 1.0
    weights: Floats = nnls(parts / size, measured / size)[0]
    return weights


def throughput_error(
    models: Sequence[NFModel], rows: MixRows, names: Sequence[str], family: str, vectors: Floats
) -> float:
    """Return the mean error of a family that reads these vectors [%]."""
    away = np.zeros(len(rows.mpps))
    for number in np.unique(rows.target):
        here, model = rows.target == number, models[number].sensitivity[family]
        read = [list(names).index(name) for name in model.feature_names]
        away[here] = 100.0 * np.abs(model.predict_mpps(vectors[here][:, read]) / rows.mpps[here] - 1.0)
    return float(away.mean())


if __name__ == "__main__":
    sys.exit(main())
