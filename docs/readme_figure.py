"""Draw the README's figure and print its table, from a dataset that ships: run `make readme-figure` (a few minutes).

Models train on the shipped runs alone and under pressure. Half of the shipped mixes set the width of intervals, the
other half, which nothing was fitted to, judges.
"""

from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes

import slomo
from slomo.evaluation.evaluate import Evaluation, evaluate
from slomo.records.catalog import find_dataset
from slomo.records.dataset import ProfileDataset
from slomo.report.figures import COLOURS, axes_of

DATASET, MACHINE = "slomo-e5-2620v4", "E5-2620 v4"
FIGURE = Path(__file__).parent / "figures" / "predicted-against-measured.svg"
#: Name in the evaluation -> name for readers.
SHOWN = {
    "equilibrium": "slomo",
    "slomo-gbr": "SLOMO's learner and composition",
    "dobrescu-curve": "Dobrescu",
    "bubbleup-curve": "Bubble-Up",
    "mean": "mean slowdown of the profile",
    "none": "no interference",
}


def halves(dataset: ProfileDataset) -> tuple[ProfileDataset, ProfileDataset]:
    """Return the dataset without every second mix, and these mixes: by the order in which mixes were run."""
    mixes = dataset.select(plan="mix").frame["run_key"].drop_duplicates().tolist()
    judged = set(mixes[1::2])
    apart = dataset.frame["run_key"].isin(judged) & (dataset.frame["plan"] == "mix")
    return (
        ProfileDataset(dataset.frame[~apart].reset_index(drop=True), dataset.environment),
        ProfileDataset(dataset.frame[apart].reset_index(drop=True), dataset.environment),
    )


def drawn(evaluation: Evaluation) -> Axes:
    """Draw predicted over measured slowdown of slomo and of the closest of the older methods."""
    figure, axes = axes_of("", "measured slowdown [%]", "predicted slowdown [%]", size=(6.4, 4.6))
    frame = evaluation.to_frame()
    for place, (model, marker) in enumerate((("dobrescu-curve", "x"), ("equilibrium", "o"))):
        rows = frame[frame["model"] == model]
        measured = 100.0 * (1.0 - rows["measured_mpps"] / rows["solo_mpps"])
        predicted = 100.0 * (1.0 - rows["predicted_mpps"] / rows["solo_mpps"])
        label = f"{SHOWN[model]}: {evaluation.models[model].mape:.1f} % off on average"
        style = {"color": COLOURS[1 - place], "marker": marker, "s": 20, "linewidths": 0.9, "alpha": 0.8}
        axes.scatter(measured, predicted, label=label, **style)
    ends = np.array([0.0, axes.get_xlim()[1]])
    axes.plot(ends, ends, color="#222222", linewidth=1, zorder=0)
    axes.annotate("as measured", (ends[1], ends[1]), xytext=(6, -3), textcoords="offset points", fontsize=9)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], frameon=False, loc="upper left", fontsize=10)
    figure.suptitle(
        f"{len(rows)} predictions of mixes never trained on ({MACHINE}, simulated)", fontsize=11, x=0.02, ha="left"
    )
    return axes


def main() -> None:
    """Train, judge, draw, and print the table."""
    learned, judged = halves(find_dataset(DATASET))
    library = slomo.train(learned)
    evaluation = evaluate(library, judged)
    axes = drawn(evaluation)
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "slomo"}):  # text stays text, equal data give equal bytes
        axes.figure.savefig(FIGURE, metadata={"Date": None})
    print(f"{evaluation.mixes} mixes")
    print("| Method | mean error [%] | 95th percentile [%] | 90 % intervals hold [%] |\n| --- | --- | --- | --- |")
    for model, name in SHOWN.items():
        accuracy = evaluation.models[model]
        print(f"| {name} | {accuracy.mape:.2f} | {accuracy.p95:.1f} | {accuracy.coverage:.0f} |")


if __name__ == "__main__":
    main()
