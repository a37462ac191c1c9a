"""The sections of a report, each from the value that it shows: a dataset, a library, an evaluation, mixes.

The sections show what SLOMO (SIGCOMM'20) section 8 shows: errors of all models beside baselines, errors per network
function, and what the models predict for each. The headline has three numbers: a model's error, its
interval coverage and its worst case.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from slomo.evaluation.baselines import in_better_form
from slomo.report import figures
from slomo.report.evaluation_figures import learning_curves, reliability_diagram
from slomo.report.html import Fact, Section
from slomo.report.tables import (
    Table,
    accuracy_per_nf_table,
    accuracy_table,
    learning_table,
    mixes_table,
    sources_table,
)
from slomo.units import plural
from slomo.vocabulary.workload_text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from slomo.evaluation.evaluate import Evaluation
    from slomo.prediction.predictor import Predictor
    from slomo.prediction.result import Prediction
    from slomo.records.dataset import ProfileDataset

_CACHE_AXES = ("L2MISS", "L3OCC")
_KIB_PER_MIB = 1024.0
#: Families between the default and the baselines: shown in the table, but not among the curves.
_TABLE_ALONE = ("slomo-gbr", "slomo-xgb", "slomo-smooth", "slomo-gp", "slomo-additive")


def mixes_section(predictions: "Sequence[Prediction]", measured_mpps: Sequence[float]) -> Section:
    """Show predicted slowdown beside that of the target when the mix was run, one row per mix."""
    table = mixes_rows(predictions, measured_mpps)
    worst_first = tuple(sorted(table.rows, key=lambda row: -abs(float(str(row[4])))))
    text = "Each row was predicted from the models, then run. Worst first."
    return Section("Mixes never run before", text, Table(table.headers, worst_first))


def mixes_rows(predictions: "Sequence[Prediction]", measured_mpps: Sequence[float]) -> Table:
    """Return the table of :func:`mixes_section`: slowdown in percent, one row per mix."""
    solo = np.array([item.solo_mpps for item in predictions])
    predicted = 100.0 * np.array([item.slowdown for item in predictions])
    measured = 100.0 * (1.0 - np.asarray(measured_mpps, float) / solo)
    verdicts = [str(item.verdict) for item in predictions]
    targets = [item.target.nf for item in predictions]
    return mixes_table(
        targets,
        [counted(sorted(w.nf for w in item.competitors)) or "nobody" for item in predictions],
        measured,
        predicted,
        verdicts=verdicts,
    )


def headline(evaluation: "Evaluation", model: str) -> tuple[Fact, ...]:
    """Return the headline: a model's error, its interval coverage, its worst case with the reason."""
    errors = evaluation.models[model]
    names = tuple(evaluation.rows)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*evaluation.rows.values(), strict=True)]
    rows = [row for row in rows if row["model"] == model]
    worst = max(rows, key=lambda row: abs(row["error_percent"]))
    target, beside = worst["target"], worst["competitors"] or "nobody"
    inside = worst["low_mpps"] <= worst["measured_mpps"] <= worst["high_mpps"]
    means = {nf: by_model[model].mape for nf, by_model in evaluation.per_nf.items() if model in by_model}
    usual = float(np.median([abs(row["error_percent"]) for row in rows if row["target"] == target]))
    why = (
        f"{target} is the function most off, {means[target]:.1f} % on average"
        if means[target] == max(means.values())
        else f"alone of its kind: half of the predictions of {target} are at most {usual:.1f} % off"
    )
    promised = 100.0 * evaluation.nominal_coverage
    return (
        Fact(
            f"{errors.mape:.1f} %",
            "off on average",
            f"{plural(errors.predictions, 'prediction')} of {plural(evaluation.mixes, 'mix', 'mixes')}; "
            f"95 % of them are at most {errors.p95:.1f} % off.",
        ),
        Fact(
            f"{errors.coverage:.0f} %",
            f"of the intervals hold; they promise {promised:g} %",
            f"On average an interval is {errors.width:.1f} % of the throughput wide.",
        ),
        Fact(
            f"{worst['error_percent']:+.1f} %",
            f"worst case: {target} beside {beside}",
            f"Predicted {worst['predicted_mpps']:.2f}, measured {worst['measured_mpps']:.2f} Mpps, "
            f"{'inside' if inside else 'outside'} its interval; {why}.",
        ),
    )


def accuracy_section(evaluation: "Evaluation") -> Section:
    """Show every model's errors, and their distribution."""
    table = evaluation.to_dict()
    promise = f"intervals promise {100 * evaluation.nominal_coverage:g} %"
    caption = (
        f"{plural(evaluation.mixes, 'mix', 'mixes')} on {evaluation.machine}, every tenant a target once; {promise}."
    )
    caption = " ".join([caption, *evaluation.gaps])
    frame = evaluation.to_frame()
    errors = {name: frame.loc[frame["model"] == name, "error_percent"].abs().to_numpy() for name in evaluation.models}
    text = (
        "All models were trained on the same runs and are judged on the same mixes. "
        "Baselines are a line or a falling curve over one metric, whichever was closer on these mixes."
    )
    shown = in_better_form(errors, {name: float(away.mean()) for name, away in errors.items()})
    drawn = figures.error_cdf({name: away for name, away in shown.items() if name not in _TABLE_ALONE})
    return Section(
        "How far predictions are off",
        text,
        accuracy_table(table["models"], caption),
        drawn,
        "Distribution of absolute errors, one curve per model.",
    )


def per_nf_section(evaluation: "Evaluation", models: Sequence[str] | None = None) -> Section:
    """Show errors per network function, of all models or those named."""
    per_nf = evaluation.to_dict()["per_nf"]
    chosen = {
        nf: {name: row for name, row in rows.items() if models is None or name in models} for nf, rows in per_nf.items()
    }
    return Section("Errors per network function", "", accuracy_per_nf_table(chosen))


def sources_section(evaluation: "Evaluation") -> Section:
    """Show where each model's error comes from."""
    return Section(
        "Where errors come from",
        "Mean absolute errors [%]. Model: asked about the measured competition (noise included). Composition: what "
        "changes when the competition is composed instead. The total is at most the sum of these two.",
        sources_table(evaluation.sources),
    )


def reliability_section(evaluation: "Evaluation") -> Section:
    """Show whether intervals have their nominal coverage."""
    return Section(
        "Reliability of the intervals",
        "Above the diagonal: wider than promised; below: too narrow.",
        figure=reliability_diagram(evaluation.reliability),
        alternative="Observed over nominal coverage.",
    )


def learning_section(curves: Mapping[str, Mapping[int, float]]) -> Section:
    """Show the errors over the number of runs, the same runs for every model."""
    return Section(
        "Learning curves",
        "Every model trained on the same runs, judged on the same mixes: mean absolute error of throughput.",
        learning_table(curves),
        figure=learning_curves(curves),
        alternative="Mean error over number of runs.",
    )


def scatter_section(evaluation: "Evaluation", model: str, *, ax: "Axes | None" = None) -> Section:
    """Show predicted over measured slowdown of one model."""
    frame = evaluation.to_frame()
    frame = frame[frame["model"] == model].sort_values("target", kind="stable")
    solo = frame["solo_mpps"].to_numpy()
    measured = 100.0 * (1.0 - frame["measured_mpps"].to_numpy() / solo)
    predicted = 100.0 * (1.0 - frame["predicted_mpps"].to_numpy() / solo)
    drawn = figures.predicted_against_measured(
        measured, predicted, list(frame["target"]), title=f"{model}: predicted against measured", ax=ax
    )
    return Section(
        "Predicted against measured",
        f"Model {model}; the closer to the diagonal, the better.",
        figure=drawn,
        alternative="Scatter of slowdowns.",
    )


def surface_section(
    dataset: "ProfileDataset", target: str, *, llc_mib: float | None = None, ax: "Axes | None" = None
) -> Section:
    """Show a target's slowdown, as measured, over access rate and occupancy of the synthetic competitor.

    Raises MissingMetricError if the dataset lacks one of the metrics, or solo throughput.
    """
    rows = dataset.select(target=target, plan="pressure")
    vectors = rows.vectors("competition", _CACHE_AXES)
    slowdown = 100.0 * (1.0 - rows.throughput / dataset.solo_mpps(target))
    name = dataset.workload(target).nf
    drawn = figures.sensitivity_surface(
        vectors[_CACHE_AXES[0]].to_numpy(),
        vectors[_CACHE_AXES[1]].to_numpy() / _KIB_PER_MIB,
        slowdown,
        target=name,
        llc_mib=llc_mib,
        ax=ax,
    )
    text = f"{plural(len(rows), 'run')} of {name} beside the synthetic competitor: what its model learns from."
    return Section(
        f"Sensitivity of {name}",
        text,
        figure=drawn,
        alternative="Slowdown over cache access rate and occupancy of the competitors.",
    )


def pairs_section(predictor: "Predictor", *, instances: int = 1) -> Section:
    """Show the predicted slowdown of every target beside `instances` instances of every competitor."""
    workloads = [item for item in predictor.workloads if item.nf != "synthetic"]
    targets = [target for target in workloads for _ in workloads]
    mixes = [[competitor] * instances for _ in workloads for competitor in workloads]
    slowdown = 100.0 * predictor.predict_batch(targets, mixes).slowdown.reshape(len(workloads), len(workloads))
    names = [item.nf for item in workloads]
    beside = "one instance" if instances == 1 else f"{instances} instances"
    drawn = figures.pair_matrix(slowdown, names, names, title=f"Predicted slowdown beside {beside}")
    text = f"Every target beside {beside} of every competitor, predicted with {predictor.model} on {predictor.machine}."
    return Section("Who disturbs whom", text, figure=drawn, alternative="Matrix of predicted slowdowns.")


def dataset_section(dataset: "ProfileDataset") -> Section:
    """Show the measurements: rows per target and plan, solo throughput."""
    rows = []
    for target in dataset.profiled_targets:
        plans = dataset.select(target=target).frame["plan"].value_counts()
        counts = [int(plans.get(plan, 0)) for plan in ("solo", "pressure", "mix", "imported")]
        solo = dataset.solo_mpps(target) if counts[0] or counts[3] else None
        rows.append((target, solo, *counts))
    headers = ("target", "solo [Mpps]", "solo runs", "under pressure", "in mixes", "imported")
    return Section(
        "What was measured",
        "Rows of the dataset the models were trained on; mixes set the width of intervals and teach whole servers.",
        Table(headers, tuple(rows)),
    )
