"""The tables of a report: accuracy per model, accuracy per NF, predicted beside measured slowdown.

Columns are those SLOMO (SIGCOMM'20) judges predictors by: mean absolute error, its tail, share within bounds, bias.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from slomo.evaluation.baselines import curves_in_better_form, in_better_form

#: key of `evaluate --json` -> heading with unit.
ACCURACY_COLUMNS = {
    "mape": "mean error [%]",
    "p95": "p95 error [%]",
    "within_5": "within 5 % [%]",
    "within_10": "within 10 % [%]",
    "bias": "bias [%]",
    "coverage": "coverage [%]",
}


@dataclass(frozen=True)
class Table:
    """A table as a value: rendered as text by the command line and as HTML by a report."""

    #: Column headings.
    headers: tuple[str, ...]
    #: Cells: text, numbers, or None for unknown.
    rows: tuple[tuple[object, ...], ...]
    #: One sentence.
    caption: str = ""

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.headers) for row in self.rows), (
            "BUG: a row of a table is longer or shorter than its headings"
        )


def accuracy_table(models: Mapping[str, Mapping[str, Any]], caption: str = "") -> Table:
    """Return one row per model with the columns of `evaluate --json`; of a baseline, the better of line and curve.

    `models`: model -> figures in percent, the value of key ``models`` in `evaluate --json`. `caption`: one sentence.
    """
    rows = tuple((name, *(figures.get(key) for key in ACCURACY_COLUMNS)) for name, figures in _better(models).items())
    return Table(("model", *ACCURACY_COLUMNS.values()), rows, caption)


def accuracy_per_nf_table(per_nf: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Table:
    """Return one row per model and NF; of a baseline's two forms the better one for that NF.

    `per_nf`: NF -> model -> figures in percent.
    """
    rows = tuple(
        (nf, name, *(figures.get(key) for key in ACCURACY_COLUMNS))
        for nf, models in per_nf.items()
        for name, figures in _better(models).items()
    )
    return Table(("NF", "model", *ACCURACY_COLUMNS.values()), rows)


def _better(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return in_better_form(models, {name: figures["mape"] for name, figures in models.items()})


def sources_table(sources: Mapping[str, Mapping[str, float]]) -> Table:
    """Return one row per model: the parts of its error [%], as `Evaluation.sources` has them."""
    parts = ("noise", "sensitivity", "composition", "total")
    rows = tuple((name, *(errors[part] for part in parts)) for name, errors in sources.items())
    return Table(("model", "noise [%]", "model [%]", "composition [%]", "total [%]"), rows)


def mixes_table(
    targets: Sequence[str],
    beside: Sequence[str],
    measured: ArrayLike,
    predicted: ArrayLike,
    verdicts: Sequence[str],
) -> Table:
    """Return one row per mix: predicted and measured slowdown and their difference.

    `targets`, `beside`: target and competitors of each mix, as text. `measured`, `predicted`, shape (n,): slowdown [%].
    `verdicts`: verdict of each prediction.
    """
    first, second = np.asarray(measured, float), np.asarray(predicted, float)
    slowdowns = ("predicted slowdown [%]", "measured slowdown [%]", "difference [points]")
    rows = tuple(
        (target, others, float(p), float(m), float(p - m), verdict)
        for target, others, m, p, verdict in zip(targets, beside, first, second, verdicts, strict=True)
    )
    return Table(("target", "beside", *slowdowns, "verdict"), rows)


def learning_table(curves: Mapping[str, Mapping[int, float]]) -> Table:
    """Return one row per model and one column per number of runs; of a baseline's two forms the better one at each.

    `curves`: model -> runs per NF -> mean absolute error [%].
    """
    curves = curves_in_better_form(curves)
    counts = sorted({count for points in curves.values() for count in points})
    rows = tuple((name, *(points.get(count) for count in counts)) for name, points in curves.items())
    return Table(("model", *(f"{count} runs [%]" for count in counts)), rows)
