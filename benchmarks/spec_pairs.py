"""Pairs of SPEC applications predicted from probes alone, beside the predictions published with the measurements.

The published way takes the one level of the dial that the reporter takes the competitor for; slomo's takes the middle
of what the competitor's phases leave open (`slomo.models.probes`). `one level` is the published idea by slomo's own
hand, so that the difference can be told apart from details. Nothing is fitted: the measured pairs are only judged by.
Goal: at most the published predictions' error in every setting.

    python benchmarks/spec_pairs.py                      every setting of ../shared/data/spec-pairs
    python benchmarks/spec_pairs.py DIR                  a folder of settings, or one setting
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slomo.models.probes import ProbeModel, rising
from slomo.records.probe_tables import read_probe_tables

ROOT = Path(__file__).resolve().parent.parent
MAPPING = ROOT / "datasets" / "mappings" / "spec-pairs.yaml"
Floats = NDArray[np.float64]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("SLOMO_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("folder", nargs="?", type=Path, default=data / "spec-pairs")
    return parser.parse_args()


def main() -> int:
    folder = arguments().folder
    settings = [folder] if (folder / "validated.csv").exists() else sorted(folder.glob("*/"))
    settings = [setting for setting in settings if (setting / "validated.csv").exists()]
    if not settings:
        print(f"no measured pairs in {folder}: give the folder of settings, or set SLOMO_DATA", file=sys.stderr)
        return 2
    print(
        "absolute error of relative performance [%]: mean, 95th percentile; share of pairs in [low - 1 %, high + 1 %]\n"
    )
    print(f"{'setting':16}{'pairs':>6}{'published':>16}{'one level':>16}{'slomo':>16}{'covered':>10}")
    off = [setting.name for setting in settings if not judged(setting)]
    print("\n" + (f"off: {', '.join(off)}" if off else "ok: at most the published error in every setting"))
    return 0


def judged(setting: Path) -> bool:
    """Print one setting; return whether the goal is met there."""
    model = ProbeModel(read_probe_tables(setting, MAPPING))
    rows = [line.split() for line in (setting / "validated.csv").read_text(encoding="utf-8").splitlines()[1:]]
    pairs = [(a, b) for a, b, *_ in rows] + [(b, a) for a, b, *_ in rows]
    published = np.array([float(row[2]) for row in rows] + [float(row[3]) for row in rows])
    measured = np.array([float(row[4]) for row in rows] + [float(row[5]) for row in rows])
    found = [model.predict(target, competitor) for target, competitor in pairs]
    ours = np.array([item.performance for item in found])
    single = np.array([one_level(model, *pair) for pair in pairs])
    low, high = (np.array([getattr(item, end) for item in found]) for end in ("low", "high"))
    covered = 100.0 * float(((measured >= low - 0.01) & (measured <= high + 0.01)).mean())
    shown = "".join(f"{text(values, measured):>16}" for values in (published, single, ours))
    print(f"{setting.name:16}{len(rows):6d}{shown}{covered:9.0f} %")
    return mean_error(ours, measured) <= mean_error(published, measured)


def one_level(model: ProbeModel, target: str, competitor: str) -> float:
    """Return the performance at the level the reporter takes the competitor for."""
    levels, times = model.tables.sensitivity[target]
    slowed = rising(times)
    return float(slowed[0] / np.interp(model.predict(target, competitor).level, levels, slowed))


def mean_error(predicted: Floats, measured: Floats) -> float:
    """Return the mean absolute error [%]."""
    return 100.0 * float(np.abs(predicted - measured).mean())


def text(predicted: Floats, measured: Floats) -> str:
    """Return mean and 95th percentile of the absolute error [%]."""
    error = 100.0 * np.abs(predicted - measured)
    return f"{error.mean():.2f} {np.quantile(error, 0.95):6.2f}"


if __name__ == "__main__":
    sys.exit(main())
