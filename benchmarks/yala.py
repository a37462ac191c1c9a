"""Yala's measured FlowMonitor (BlueField-2): errors in leave-one-out, and memory composed with the regex accelerator.

    python benchmarks/yala.py --data ../shared/data/yala-flowmon

Reads the published training files only. The choice of the model is made by cross-validation inside them; the
composition is predicted for the measured competitions at several match densities, with its intervals. A file of test
rows (`--rows FILE --mapping FILE`), where somebody has one, is predicted and, if it holds throughputs, judged.
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np

from slomo.evaluation.rows import predict_rows
from slomo.records.dataset import ProfileDataset
from slomo.records.importing.door import import_table
from slomo.training.cross_validation import held_out
from slomo.training.families.registry import make_family
from slomo.training.features import Subject, subjects
from slomo.training.service_time_fit import service_time_of
from slomo.training.training import train
from slomo.vocabulary.defaults import DEFAULT_MODEL

ROOT = Path(__file__).resolve().parents[1]
MAPPINGS = ROOT / "datasets" / "mappings"
DATA = Path(os.environ.get("SLOMO_DATA", ROOT.parent / "shared" / "data")) / "yala-flowmon"
TARGETS = {"sample_slomo_train.txt": 1.2, "sample_yala_mem_train.txt": 4.5}
AIM_PERCENT = 3.3
#: Match densities that leave the accelerator faster than any row measured; parts of the rows kept back.
DENSITIES, FOLDS = (50.0, 100.0), 10
FAMILIES = ("slomo-gbr", "slomo-xgb", "slomo-gp", "mean")


def leave_one_out(subject: Subject, name: str) -> np.ndarray:
    """Return the relative error [%] of every row, predicted by a model that saw all others."""
    family = make_family(name)
    names = family.select_features(subject.names)
    vectors, mpps = subject.columns(names), subject.mpps

    def fit(seen):
        # solo throughput of such a table is its best row: it too comes from the rows seen
        model = family.fit(names, vectors[seen], mpps[seen], solo_mpps=float(mpps[seen].max()), seed=0)
        return lambda left_out: model.predict_mpps(vectors[left_out])

    guess = held_out(fit, np.arange(len(mpps)))
    return 100.0 * (guess - mpps) / mpps


def show_leave_one_out(folder: Path, families: tuple[str, ...]) -> None:
    """Print the table of errors beside the targets."""
    print(f"{'file':28} {'model':12} {'mean':>6} {'median':>7} {'p95':>6} {'bias':>6} {'target':>7}")
    for file, target in TARGETS.items():
        subject = next(subjects(import_table(folder / file, MAPPINGS / "yala-flow-monitor.yaml")))
        for name in families:
            error = leave_one_out(subject, name)
            size = np.abs(error)
            mark = "reached" if size.mean() <= target else ""
            print(
                f"{file:28} {name:12} {size.mean():6.2f} {np.median(size):7.2f} {np.percentile(size, 95):6.2f} "
                f"{error.mean():+6.2f} {target:7.1f} {mark}"
            )


def show_composition(folder: Path, rows: str | None, mapping: str | None) -> None:
    """Print the composed predictions, or judge the rows given."""
    accelerator = service_time_of(import_table(folder / "sample_yala_reg_train.txt", MAPPINGS / "yala-regex.yaml"))
    flow_monitor = MAPPINGS / "yala-flow-monitor.yaml"
    dataset = import_table(folder / "sample_yala_mem_train.txt", flow_monitor)
    model = next(iter(train(dataset).values()))
    family = model.named(DEFAULT_MODEL)
    print(f"\nregex: {accelerator.base_us:.4f} us + {accelerator.slope_us:.6f} us per match density")
    print(f"memory: '{family}', chosen among {', '.join(model.sensitivity)} by cross-validation")
    if rows is not None:
        given = import_table(Path(rows), Path(mapping) if mapping else flow_monitor)
        composed = predict_rows(model, given, accelerator)
        error = np.abs(composed.error_percent)
        inside = (composed.low_mpps <= composed.measured_mpps) & (composed.measured_mpps <= composed.high_mpps)
        mark = "" if error.mean() <= AIM_PERCENT else " OFF"
        print(f"{len(error)} rows: mean error {error.mean():.2f} %, aim {AIM_PERCENT}{mark};", end=" ")
        print(f"{100 * inside.mean():.0f} % inside")
        return
    print(f"{'density':>8} {'memory':>8} {'regex':>8} {'composed':>9} {'interval':>17} {'width':>8}   (medians, kpps)")
    for density in (100.0, 330.0, 450.0, 628.0):
        frame = dataset.frame.assign(**{"traffic.match_density": density})
        composed = predict_rows(model, ProfileDataset(frame, dataset.environment), accelerator)
        low, high = np.median(composed.low_mpps), np.median(composed.high_mpps)
        width = 100.0 * np.mean((composed.high_mpps - composed.low_mpps) / composed.throughput_mpps)
        print(
            f"{density:8.0f} {1e3 * np.median(composed.memory_mpps):8.0f} {1e3 * composed.accelerator_mpps[0]:8.0f} "
            f"{1e3 * np.median(composed.throughput_mpps):9.0f} {1e3 * low:8.0f} {1e3 * high:8.0f} {width:7.1f} %"
        )


def show_coverage(folder: Path) -> None:
    """Print how often measured rows lie inside 90 % intervals of models that did not see them."""
    accelerator = service_time_of(import_table(folder / "sample_yala_reg_train.txt", MAPPINGS / "yala-regex.yaml"))
    print(
        f"\n{'rows kept back of':28} {'by':12} {'density':>8} {'mean':>6} {'inside':>7} {'width':>7}   (aim 85 to 95 %)"
    )
    for file in TARGETS:
        dataset = import_table(folder / file, MAPPINGS / "yala-flow-monitor.yaml")
        frame = dataset.frame
        flows = frame["traffic.flow_count"].rank(method="dense").to_numpy(dtype=int)
        ways = {"rows": np.random.default_rng(0).permutation(len(frame)) % FOLDS}
        if len(set(flows)) > 1:
            ways["flow counts"] = flows * FOLDS // (flows.max() + 1)
        for way, fold in ways.items():
            for density in DENSITIES:
                with_density = frame.assign(**{"traffic.match_density": density})
                parts = [
                    _kept_back(with_density, dataset, fold == number, accelerator) for number in set(fold.tolist())
                ]
                inside, size, width = (np.concatenate(column) for column in zip(*parts, strict=True))
                share = 100 * inside.mean()
                print(f"{file:28} {way:12} {density:8.0f} {size.mean():6.2f} {share:6.0f}% {width.mean():6.1f}%")


def _kept_back(frame, dataset, out, accelerator):
    """Predict the rows `out` by a model of the others; memory decides at densities as low as these."""
    seen, held_back = (ProfileDataset(frame[rows].reset_index(drop=True), dataset.environment) for rows in (~out, out))
    model = next(iter(train(seen, models=["slomo-gp"]).values()))
    predictions = predict_rows(model, held_back, accelerator)
    inside = (predictions.low_mpps <= predictions.measured_mpps) & (predictions.measured_mpps <= predictions.high_mpps)
    return (
        inside,
        np.abs(predictions.error_percent),
        100.0 * (predictions.high_mpps - predictions.low_mpps) / predictions.measured_mpps,
    )


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--models", default=",".join(FAMILIES))
    parser.add_argument("--rows", help="rows to predict")
    parser.add_argument("--mapping", help="what their columns are; that of the memory table by default")
    given = parser.parse_args()
    if not (given.data / "sample_yala_mem_train.txt").is_file():
        print(f"there are no tables in {given.data}: fetch profile/flowmon of NetX-lab/Yala", file=sys.stderr)
        return 2
    show_leave_one_out(given.data, tuple(given.models.split(",")))
    show_composition(given.data, given.rows, given.mapping)
    show_coverage(given.data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
