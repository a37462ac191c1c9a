"""`slomo evaluate --budgets`: train every model on growing numbers of runs and print its error (the learning curve).

Yala (ASPLOS'25) and SLOMO (SIGCOMM'20) section 8 compare models at one budget each, although their costs differ.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slomo.cli.output import emit, figure_path, note
from slomo.files.durable import write_durably

if TYPE_CHECKING:
    from slomo.records.dataset import ProfileDataset


def budgets_of(text: str) -> tuple[int, ...]:
    """Return the numbers of runs given as ``20,60,200``, without duplicates and in ascending order.

    Raises InvalidValueError for a budget that is no whole number above 0.
    """
    from slomo.errors import InvalidValueError
    from slomo.vocabulary.numbers import digits

    budgets = {digits(word.strip(), 10**9) or 0 for word in text.split(",")}
    if 0 in budgets:
        raise InvalidValueError(f"budgets are '{text}', needed numbers of runs above 0", hint="--budgets 20,60,200")
    return tuple(sorted(budgets))


def show_learning_curve(
    budgets: str,
    profile: str | None,
    dataset: str | None,
    *,
    figure: str | None,
    report: str | None,
    as_json: bool,
    **running: Any,
) -> None:
    """Print the error of every model over the number of runs; write the requested figure and report."""
    from slomo.workflow.evaluate import learning_curve

    counts, place = budgets_of(budgets), figure_path(figure)
    learned, judged = _datasets(profile, dataset)
    curves = learning_curve(learned, judged, budgets=counts, **running)
    _write(curves, place, report)
    from slomo.report.tables import learning_table

    table = learning_table(curves)
    emit({"budgets": counts, "mean_error_percent": curves}, table.headers, table.rows, as_json=as_json)
    if not as_json:
        note("\nmean absolute error of throughput [%] by runs per NF under pressure; the same for all models")


def _datasets(profile: str | None, dataset: str | None) -> "tuple[ProfileDataset, ProfileDataset | None]":
    """Return training data and test mixes; the latter are None if mixes are still to be run."""
    from slomo.errors import UsageError
    from slomo.records.catalog import find_dataset

    if profile is None and dataset is None:
        raise UsageError(
            "--budgets trains models, but there are no runs to train on",
            hint="add --profile profile.parquet, or --dataset NAME with runs under pressure and mixes",
        )
    judged = None if dataset is None else find_dataset(dataset)
    learned = judged if profile is None else find_dataset(profile)
    assert learned is not None
    return learned, judged


def _write(curves: Mapping[str, Mapping[int, float]], figure: Path | None, report: str | None) -> None:

    if figure is not None:
        from slomo.report.evaluation_figures import learning_curves

        learning_curves(curves).savefig(figure)
        click.echo(f"learning curve written to {figure}", err=True)
    if report is not None:
        from slomo.report.html import render_html
        from slomo.report.sections import learning_section

        write_durably(report, render_html("What more runs buy", [learning_section(curves)]))
