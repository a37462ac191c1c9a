"""`slomo evaluate --budgets`: train every model on growing numbers of runs and print its error (the learning curve).

Yala (ASPLOS'25) and SLOMO (SIGCOMM'20) section 8 compare models at one budget each, although their costs differ.
"""

from collections.abc import Mapping
from typing import Any

from slomo.cli.options import own_network_functions, settings
from slomo.cli.output import emit, figure_path, note
from slomo.errors import InvalidValueError, UsageError
from slomo.files.durable import write_durably


def budgets_of(text: str) -> tuple[int, ...]:
    """Return the numbers of runs given as ``20,60,200``, without duplicates and in ascending order."""
    from slomo.vocabulary.numbers import digits

    budgets = {digits(word.strip(), 10**9) or 0 for word in text.split(",")}
    if 0 in budgets:
        raise InvalidValueError(f"budgets are '{text}', needed numbers of runs above 0", hint="--budgets 20,60,200")
    return tuple(sorted(budgets))


def show_learning_curve(
    budgets: str,
    profile: str | None,
    options: Mapping[str, Any],
    *,
    figure: str | None,
    report: str | None,
    as_json: bool,
) -> None:
    """Run the mixes that are missing; print the error of every model over the number of runs, draw and report it.

    `options`: the other options of `slomo evaluate`.
    """
    from slomo.records.catalog import find_dataset
    from slomo.report.tables import learning_table
    from slomo.workflow.evaluate import learning_curve
    from slomo.workflow.progress import ProgressBar

    counts, place, dataset = budgets_of(budgets), figure_path(figure), options["dataset"]
    judged = None if dataset is None else find_dataset(dataset)
    learned = judged if profile is None else find_dataset(profile)
    if learned is None:
        raise UsageError(
            "--budgets trains models, but there are no runs to train on",
            hint="add --profile profile.parquet, or --dataset NAME with runs under pressure and mixes",
        )
    chosen = settings(**{name: options[name] for name in ("machine", "seed", "jobs")})
    with ProgressBar("running mixes") as bar:
        curves = learning_curve(
            learned,
            judged,
            budgets=counts,
            models=options["names"] or None,
            machine=options["machine"],
            mixes=options["mixes"],
            seed=chosen.seed,
            own=own_network_functions(options["nf_files"]),
            testbed=chosen.testbed,
            store=options["store"],
            jobs=chosen.jobs or None,
            progress=bar,
            scheduler=options["scheduler"],
        )
    if place is not None:
        from slomo.report.evaluation_figures import learning_curves

        learning_curves(curves).savefig(place)
        note(f"learning curve written to {place}")
    if report is not None:
        from slomo.report.html import render_html
        from slomo.report.sections import learning_section

        write_durably(report, render_html("What more runs buy", [learning_section(curves)]))
    table = learning_table(curves)
    emit({"budgets": counts, "mean_error_percent": curves}, table.headers, table.rows, as_json=as_json)
    if not as_json:
        note("\nmean absolute error of throughput [%] by runs per NF under pressure; the same for all models")
