"""Pairs of SPEC applications predicted from probes alone, beside the predictions published with the measurements.

The published way takes the one level of the dial that the reporter takes the competitor for; slomo takes the mixture of
levels of most entropy (`slomo.evaluation.probes`). Nothing is fitted: the measured pairs are only judged by. The rule
was chosen without them: where two probes were run, each is predicted from what the other feels beside each application
(first table), and the rule with the least error there is slomo's.
Intervals are as wide as the errors in a random half of the pairs, and judged on the other half.
Goals: at most the published predictions' error, mean and 95th percentile, in every setting; 85 to 95 % of the 90 %
intervals hold, none of no width.

    python benchmarks/spec_pairs.py                      every setting of ../shared/data/spec-pairs
    python benchmarks/spec_pairs.py DIR                  a folder of settings, or one setting
    python benchmarks/spec_pairs.py --seed 300           first of eight draws of halves
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from slomo.errors import ConfigurationError
from slomo.evaluation.probes import ProbeModel, hull_slice, likeliest, measured_pairs
from slomo.models.functions.regression import rising
from slomo.records.importing.named import import_pairs
from slomo.records.importing.probe_tables import ProbeTables, read_probe_tables

ROOT = Path(__file__).resolve().parent.parent
MAPPING = ROOT / "datasets" / "mappings" / "spec-pairs.yaml"
PROBES = ("rand", "stream")
Floats = NDArray[np.float64]


def one_level(x: Floats, y: Floats, felt: float) -> float:
    """Return the slowdown at the level the reporter takes the competitor for (Bubble-Up)."""
    kept = np.concatenate([[True], np.diff(x) > 0.0])
    return float(np.interp(felt, x[kept], y[kept]))


def middle(x: Floats, y: Floats, felt: float) -> float:
    """Return the middle of the performances that phases leave open."""
    fastest, slowest = hull_slice(x, y, felt)
    return 2.0 / (1.0 / fastest + 1.0 / slowest)


RULES: Mapping[str, Callable[[Floats, Floats, float], float]] = {
    "one level": one_level,
    "slice's middle": middle,
    "most entropy": likeliest,
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("SLOMO_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--seed", type=int, default=300)
    parser.add_argument("folder", nargs="?", type=Path, default=data / "spec-pairs")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    folder = given.folder
    settings = [folder] if (folder / "validated.csv").exists() else sorted(folder.glob("*/"))
    settings = [setting for setting in settings if (setting / "validated.csv").exists()]
    if not settings:
        print(f"no measured pairs in {folder}: give the folder of settings, or set SLOMO_DATA", file=sys.stderr)
        return 2
    for setting in settings:
        show_choice(setting)
    print("\nPairs: absolute error of relative performance [%], mean and 95th percentile;")
    print("covered: share of pairs in [low - 1 %, high + 1 %]\n")
    print(
        f"{'setting':20}{'pairs':>6}{'published':>16}" + "".join(f"{name:>16}" for name in RULES) + f"{'covered':>10}"
    )
    off = [setting.name for setting in settings if not judged(setting)]
    print("\n" + (f"OFF: {', '.join(off)}" if off else "ok: at most the published error in every setting"))
    print(f"\n{'setting':20}{'intervals hold':>16}{'half width':>12}{'least width':>13}")
    off = [setting.name for setting in settings if not held(setting, given.seed)]
    print("\n" + (f"OFF: {', '.join(off)}" if off else "ok: intervals hold in every setting"))
    return 0


def held(setting: Path, seed: int) -> bool:
    """Print how many intervals hold, calibrated on one half of the pairs; return whether the goal is met."""
    model = ProbeModel(read_probe_tables(setting, MAPPING))
    dataset = import_pairs(setting / "validated.csv", "spec", unit="share", rates=("actual1", "actual2"))
    measured, drawn = measured_pairs(dataset), []
    names = sorted({tuple(sorted(pair)) for pair in measured})
    for number in range(seed, seed + 8):
        half = {names[place] for place in np.random.default_rng(number).permutation(len(names))[: len(names) // 2]}
        calibrated = model.calibrated({pair: share for pair, share in measured.items() if tuple(sorted(pair)) in half})
        others = [pair for pair in measured if tuple(sorted(pair)) not in half]
        ends = np.array([calibrated.predict(*pair).interval for pair in others])
        shares, width = np.array([measured[pair] for pair in others]), np.diff(ends, axis=1)
        drawn.append((100.0 * ((ends[:, 0] <= shares) & (shares <= ends[:, 1])).mean(), 50.0 * np.median(width),
                      100.0 * width.min()))  # fmt: skip
    hold, half_width, least = np.mean(drawn, axis=0)
    print(f"{setting.name:20}{hold:>14.1f} %{half_width:>10.2f} %{least:>11.2f} %")
    return 85.0 <= hold <= 95.0 and least > 0.0


def show_choice(setting: Path) -> None:
    """Print each rule's error at predicting one probe from the other beside each application; no pair is looked at."""
    try:
        tables = [probe_tables(setting, name) for name in PROBES]
    except ConfigurationError:
        return  # only the mean of the two probes was kept
    print(f"One probe predicted from the other, {setting.name}: error of performance [%]\n")
    print(f"{'rule':20}{'rms':>8}{'mean':>8}{'p95':>8}")
    for name, rule in RULES.items():
        errors = []
        for felt, foreseen in (tables, tables[::-1]):
            x, times = rising(felt.reporter), rising(foreseen.reporter)
            foretold = np.array([times[0] / rule(x, times, felt.beside[app]) for app in felt.names])
            errors.append(100.0 * (foretold - times[0] / np.array([foreseen.beside[app] for app in felt.names])))
        error = np.abs(np.concatenate(errors))
        print(f"{name:20}{np.sqrt(np.mean(error**2)):8.2f}{error.mean():8.2f}{np.quantile(error, 0.95):8.2f}")


def probe_tables(setting: Path, probe: str) -> ProbeTables:
    """Return the tables with one of the two probes as the reporter."""
    document = yaml.safe_load(MAPPING.read_text(encoding="utf-8"))
    for table in ("reporter", "beside"):
        document[table]["column"] = probe
    return read_probe_tables(setting, document)


def judged(setting: Path) -> bool:
    """Print one setting; return whether the goal is met there."""
    model = ProbeModel(read_probe_tables(setting, MAPPING))
    rows = [line.split() for line in (setting / "validated.csv").read_text(encoding="utf-8").splitlines()[1:]]
    pairs = [(a, b) for a, b, *_ in rows] + [(b, a) for a, b, *_ in rows]
    published = np.array([float(row[2]) for row in rows] + [float(row[3]) for row in rows])
    measured = np.array([float(row[4]) for row in rows] + [float(row[5]) for row in rows])
    predictions = [model.predict(target, competitor) for target, competitor in pairs]
    low, high = (np.array([getattr(item, end) for item in predictions]) for end in ("low", "high"))
    covered = 100.0 * float(((measured >= low - 0.01) & (measured <= high + 0.01)).mean())
    errors = [error(published, measured), *(error(by_rule(model, pairs, rule), measured) for rule in RULES.values())]
    shown = "".join(f"{f'{mean:.2f} {tail:6.2f}':>16}" for mean, tail in errors)
    print(f"{setting.name:20}{len(rows):6d}{shown}{covered:8.0f} %")
    ours = error(np.array([item.performance for item in predictions]), measured)
    return ours[0] <= errors[0][0] and ours[1] <= errors[0][1]


def by_rule(model: ProbeModel, pairs: list[tuple[str, str]], rule: Callable[[Floats, Floats, float], float]) -> Floats:
    """Return the performance of each target beside its competitor by a rule."""
    tables = model.tables
    reporter = rising(tables.reporter)
    curves = {name: rising(times) for name, (_, times) in tables.sensitivity.items()}
    whole = {name: np.interp(tables.levels, tables.sensitivity[name][0], times) for name, times in curves.items()}
    return np.array([curves[a][0] / rule(reporter, whole[a], tables.beside[b]) for a, b in pairs])


def error(predicted: Floats, measured: Floats) -> tuple[float, float]:
    """Return mean and 95th percentile of the absolute error [%]."""
    off = 100.0 * np.abs(predicted - measured)
    return float(off.mean()), float(np.quantile(off, 0.95))


if __name__ == "__main__":
    sys.exit(main())
