"""Draw the README's figure and those of the gallery, print the README's table: run `make figures` (a few minutes).

Models train on the runs alone and under pressure. Of the datasets that our simulator made half of the mixes set the
width of intervals, the other half, which nothing was fitted to, judges; of ChampSim's all mixes judge.
"""

import itertools
import sys
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import slomo
from slomo.evaluation.baselines import better_forms
from slomo.evaluation.evaluate import Evaluation, evaluate
from slomo.evaluation.rows import predict_rows
from slomo.models.library import ModelLibrary
from slomo.prediction.predictor import Predictor
from slomo.records.catalog import find_dataset
from slomo.records.dataset import ProfileDataset
from slomo.records.importing.named import import_pairs
from slomo.report import sections
from slomo.report.explanation_figures import waterfall
from slomo.report.figures import COLOURS, axes_of, legend_below
from slomo.report.html import svg_bytes
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.defaults import DEFAULT_MODEL
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.vector import Floats
from slomo.vocabulary.workload import Workload

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from mixes_as_runs import mixes_as_runs
from tables import tables

FIGURES = Path(__file__).parent / "figures"
MACHINES = ("e5-2620v4", "silver-4110")
#: Dataset that a simulator of others made, and the seed of benchmarks/champsim.py.
OUTSIDE, OUTSIDE_SEED = "champsim-4", 2026
DRAWS = 20
#: Runs of each function with which carried models are drawn.
CARRIED_RUNS = (0, 5, 10, 20)
#: Name in the evaluation -> name for readers.
SHOWN = {
    DEFAULT_MODEL: "slomo",
    "equilibrium": "slomo",
    "slomo-gbr": "SLOMO's learner and composition",
    "dobrescu": "Dobrescu, line",
    "dobrescu-curve": "Dobrescu, curve",
    "bubbleup": "Bubble-Up, line",
    "bubbleup-curve": "Bubble-Up, curve",
    "mean": "mean slowdown of the profile",
    "none": "no interference",
}


def halves(dataset: ProfileDataset, draw: int = 0) -> tuple[ProfileDataset, ProfileDataset]:
    """Return the dataset without half of its mixes, and these mixes, drawn at random.

    Not every second one: mixes were run in turns of unlike neighbours and like ones, which would fall apart that way.
    """
    mixes = dataset.select(plan="mix").frame["run_key"].drop_duplicates().to_numpy()
    judged = np.random.default_rng(draw).permutation(mixes)[: len(mixes) // 2]
    apart = dataset.frame["run_key"].isin(judged) & (dataset.frame["plan"] == "mix")
    return (
        ProfileDataset(dataset.frame[~apart].reset_index(drop=True), dataset.environment),
        ProfileDataset(dataset.frame[apart].reset_index(drop=True), dataset.environment),
    )


def drawn(evaluation: Evaluation) -> Axes:
    """Draw predicted over measured slowdown of slomo and of the closest of the older methods, in its better form.

    As small as it stands beside the README's text, so that nothing is scaled down there.
    """
    figure, axes = axes_of("", "measured slowdown [%]", "predicted slowdown [%]", size=(3.4, 3.0))
    frame = evaluation.to_frame()
    older = better_forms({name: accuracy.mape for name, accuracy in evaluation.models.items()})["Dobrescu"]
    for place, (model, marker) in enumerate(((older, "x"), (DEFAULT_MODEL, "o"))):
        rows = frame[frame["model"] == model]
        measured = 100.0 * (1.0 - rows["measured_mpps"] / rows["solo_mpps"])
        predicted = 100.0 * (1.0 - rows["predicted_mpps"] / rows["solo_mpps"])
        label = f"{SHOWN[model]}: {evaluation.models[model].mape:.1f} %"
        style = {"color": COLOURS[1 - place], "marker": marker, "s": 20, "linewidths": 0.9, "alpha": 0.8}
        axes.scatter(measured, predicted, label=label, **style)
    ends = np.array([0.0, 60.0])
    axes.plot(ends, ends, color="#222222", linewidth=1, zorder=0)
    axes.set(xlim=(-1, 60), ylim=(-1, 60))
    place = {"loc": "upper left", "borderaxespad": 0.0, "handletextpad": 0.2}  # no point lies there
    axes.legend(fontsize=9, frameon=False, title="mean error", title_fontsize=9, alignment="left", **place)
    title = f"{len(rows)} predictions of mixes never trained on\n(traces on ChampSim; line: as measured)"
    figure.suptitle(title, fontsize=10, x=0.02, ha="left")
    return axes


def held(machine: str) -> str:
    """Return how often intervals hold over draws of the mixes that judge: mean and range, then least function."""
    dataset, shares, functions = find_dataset(f"slomo-{machine}"), [], []
    for draw in range(DRAWS):
        learned, judged = halves(dataset, draw)
        evaluation = evaluate(slomo.train(learned, models=["none"]), judged, ["equilibrium"])
        shares.append(evaluation.models["equilibrium"].coverage)
        functions.append({nf: by_model["equilibrium"].coverage for nf, by_model in evaluation.per_nf.items()})
    by_function = {nf: float(np.mean([each[nf] for each in functions if nf in each])) for nf in functions[0]}
    worst = min(by_function, key=lambda nf: by_function[nf])
    ends = f"{min(shares):.0f} to {max(shares):.0f}"
    return f"{np.mean(shares):.1f} % ({ends}); least {worst}, {by_function[worst]:.0f} %"


def gallery(library: ModelLibrary, learned: ProfileDataset, evaluation: Evaluation) -> dict[str, Figure]:
    """Return the figures of one machine by name."""
    machine = load_machine(evaluation.machine)
    drawn = {
        "errors": sections.accuracy_section(evaluation).figure,
        "scatter": sections.scatter_section(evaluation, "equilibrium").figure,
        "surface": sections.surface_section(learned, "ip-router", llc_mib=machine.llc_mib).figure,
        "pairs": sections.pairs_section(Predictor(library, machine.name), instances=3).figure,
    }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def outside() -> Evaluation:
    """Predict all mixes that ChampSim played from the profile that it played."""
    dataset = find_dataset(OUTSIDE)
    library = slomo.train(dataset.select(plan=["solo", "pressure"]), seed=OUTSIDE_SEED)
    mixes = dataset.select(plan="mix")
    return evaluate(library, mixes, models=(DEFAULT_MODEL, *evaluate(library, mixes).models))


def print_table(evaluation: Evaluation, what: str = "") -> None:
    """Print errors and coverage of every model."""
    print(f"\n{evaluation.machine}: {evaluation.mixes} mixes{what}")
    print("| Method | mean error [%] | 95th percentile [%] | 90 % intervals hold [%] |\n| --- | --- | --- | --- |")
    for model, accuracy in evaluation.models.items():
        print(f"| {SHOWN.get(model, model)} | {accuracy.mape:.2f} | {accuracy.p95:.1f} | {accuracy.coverage:.0f} |")


def two_machines() -> Figure:
    """Draw the error of models carried from either shipped machine to the other, over runs of each function there."""
    figure, axes = axes_of(
        "", "runs of each function on the new machine", "mean error on unseen mixes [%]", size=(5.6, 3.8)
    )
    for place, (before, after) in enumerate((MACHINES, MACHINES[::-1])):
        learned, target = find_dataset(f"slomo-{before}"), find_dataset(f"slomo-{after}")
        library = slomo.train(learned, models=["none"])
        frame = target.frame
        full = frame[(frame["plan"] == "pressure") & frame["offered_mpps"].isna()]
        errors = []
        for runs in CARRIED_RUNS:
            kept = full.index[full.groupby("target").cumcount() < runs].union(frame.index[frame["plan"] == "solo"])
            few = ProfileDataset(frame.loc[kept].reset_index(drop=True), target.environment) if runs else None
            carried = slomo.train(few, start=library, machine=after)
            judged = evaluate(carried, target.select(plan="mix"), models=["equilibrium"]).models["equilibrium"]
            errors.append(judged.mape)
            print(f"{before} -> {after}, {runs} runs: {judged.mape:.2f} %, intervals hold {judged.coverage:.0f} %")
        label = f"from {load_machine(before).description.split(' (')[0]}"
        axes.plot(CARRIED_RUNS, errors, marker="o", color=COLOURS[place], label=label)
    axes.set(ylim=(0.0, None), xticks=CARRIED_RUNS)
    legend_below(axes, columns=2)
    return figure


def intervals(seen: Floats, told: Floats, solo: Floats | float, what: str) -> Figure:
    """Draw predictions and the ends of their 90 % intervals, shape (n, 3), over what was measured, relative to solo."""
    figure, axes = axes_of("", f"measured {what}", f"predicted {what}", size=(5.6, 3.8))
    away = np.abs(told[:, 1:] - told[:, [0]]).T / solo
    axes.errorbar(seen / solo, told[:, 0] / solo, away, fmt="o", markersize=4, color=COLOURS[0], elinewidth=1)
    ends = [min(seen / solo), max(seen / solo)]
    axes.plot(ends, ends, color=COLOURS[1])
    held = 100.0 * ((told[:, 1] <= seen) & (seen <= told[:, 2])).mean()
    print(f"{what}: {len(seen)} predictions, {100.0 * np.abs(told[:, 0] - seen).mean() / np.mean(solo):.2f} % off, "
          f"{held:.0f} % of the intervals hold")  # fmt: skip
    return figure


def named_pairs() -> Figure:
    """Draw the hidden half of all pairs of the shipped functions, told by names and rates of the other half."""
    machine, testbed = MACHINES[0], SimulatedTestbed(MACHINES[0])
    names = [key.partition("@")[0] for key in find_dataset(f"slomo-{machine}").profiled_targets]
    hidden, draw = list[tuple[str, str, float]](), np.random.default_rng(0)
    alone = {name: testbed.run(Colocation(machine, Workload(name))).target.throughput_mpps for name in names}
    lines = ["one,other,one_mpps,other_mpps", *(f"{name},,{mpps}," for name, mpps in alone.items())]
    for one, other in itertools.combinations_with_replacement(names, 2):
        tenants = testbed.run(Colocation(machine, Workload(one), (Workload(other),))).beside.tenants
        first, second = (each.throughput_mpps for each in tenants)
        if draw.random() < 0.5:
            hidden += [(one, other, first), (other, one, second)]
        else:
            lines.append(f"{one},{other},{first},{second}")
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "pairs.csv")
        table.write_text("\n".join(lines) + "\n", encoding="utf-8")
        predictor = Predictor(slomo.train(import_pairs(table, machine)), machine)
    answers = [predictor.predict(one, [other], explain=False) for one, other, _ in hidden]
    told = np.array([(each.throughput_mpps, *each.interval) for each in answers])
    solo = np.array([each.solo_mpps for each in answers])
    return intervals(np.array([mpps for _, _, mpps in hidden]), told, solo, "share of solo throughput")


def imported_table() -> Figure:
    """Draw a fifth of the rows of a made-up table, predicted from the others."""
    table = next(table for name, table in tables(0) if name == "made up: a knee")
    learned = np.random.default_rng(0).permutation(len(table)) >= len(table) // 5
    (model,) = slomo.train(table.rows(learned)).values()
    answers = predict_rows(model, table.rows(~learned))
    told = np.column_stack([answers.throughput_mpps, answers.low_mpps, answers.high_mpps])
    return intervals(answers.measured_mpps, told, table.throughput.max(), "share of the highest throughput")


def main() -> None:
    """Train, judge and draw for each machine; print the README's table."""
    on_champsim = outside()
    print_table(on_champsim)
    (FIGURES / "predicted-against-measured.svg").write_bytes(svg_bytes(drawn(on_champsim).get_figure()))
    for machine in MACHINES:
        learned, judged = halves(find_dataset(f"slomo-{machine}"))
        library = slomo.train(learned)
        evaluation = evaluate(library, judged)
        for name, figure in gallery(library, learned, evaluation).items():
            (FIGURES / f"{machine}-{name}.svg").write_bytes(svg_bytes(figure))
        print_table(evaluation)
        print_table(evaluate(slomo.train(mixes_as_runs(library, learned)), judged), "; the others learned, as runs")
        print(f"90 % intervals of slomo hold, {DRAWS} draws of the mixes that judge: {held(machine)}")
        if machine == MACHINES[0]:
            why = slomo.predict("ip-router", ["pfsense:2", "maglev:2", "vpn"], library, explain=True)
            (FIGURES / "explanation-waterfall.svg").write_bytes(svg_bytes(waterfall(why)))
    (FIGURES / "two-machines.svg").write_bytes(svg_bytes(two_machines()))
    (FIGURES / "named-pairs.svg").write_bytes(svg_bytes(named_pairs()))
    (FIGURES / "imported-table.svg").write_bytes(svg_bytes(imported_table()))


if __name__ == "__main__":
    main()
