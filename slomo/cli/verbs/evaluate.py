"""`slomo evaluate`: run or read mixes that models were never trained on, and report every model's error.

With `--budgets` it prints a learning curve: Yala (ASPLOS'25) and SLOMO (SIGCOMM'20) section 8 compare models at one
budget each, although their costs differ.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from slomo.cli.options import (
    compat_option,
    coverage_option,
    machine_option,
    models_option,
    own_network_functions,
    report_option,
    run_options,
    settings,
)
from slomo.cli.output import emit, emit_json, emit_table, figure_path, note
from slomo.cli.progress import announce_compilation
from slomo.cli.types import DATASET, FILE, MODEL, POSITIVE_COUNT
from slomo.errors import InvalidValueError, UsageError
from slomo.files.durable import write_durably
from slomo.units import plural

if TYPE_CHECKING:
    from slomo.evaluation.evaluate import Evaluation


@click.command()
@models_option
@machine_option
@click.option(
    "--mixes",
    type=POSITIVE_COUNT,
    help="Number of mixes to run, each with 1 to 7 unlike competitors; by default 200, or all if there are fewer.",
)
@click.option("--dataset", type=FILE, help="Read the mixes from a dataset instead of running them.")
@click.option("--model", "names", multiple=True, type=MODEL, help="Model to evaluate, repeatable; by default all.")
@click.option(
    "--store",
    type=FILE,
    help="File in which finished runs are stored; the same command, started again, continues from them.",
)
@report_option
@click.option(
    "--budgets",
    metavar="N,N,...",
    help="Instead: for each N, train every model on the same N runs per NF under pressure, and print the errors.",
)
@click.option("--profile", type=DATASET, help="Runs on which --budgets trains; by default those of --dataset.")
@click.option("--figure", type=FILE, help="Draw the errors found with --budgets: .png, .svg or .pdf.")
@coverage_option
@compat_option
@run_options
def command(
    as_json: bool, report: str | None, budgets: str | None, profile: str | None, figure: str | None, **options: Any
) -> None:
    """Compare every model with measurements of mixes that it was never trained on.

    Prints per network function and overall: mean and 95th percentile of the absolute error, shares of errors within 5
    and 10 %, bias (mean signed error; above 0 if predictions are too high) and coverage of the intervals, all in
    percent.

    With --budgets 20,60,200, trains every model on the same 20, 60 and 200 runs, and prints a learning curve: its mean
    error on the same mixes after each.

    Example: slomo evaluate --mixes 50
    """
    if budgets is not None:
        show_learning_curve(budgets, profile, options, figure=figure, report=report, as_json=as_json)
        return
    if lone := [name for name, value in (("profile", profile), ("figure", figure)) if value is not None]:
        raise UsageError(f"--{lone[0]} was given without --budgets", hint="add --budgets 20,60,200")
    evaluation, doubt = _evaluated(**options)
    if report is not None:
        _write_report(evaluation, report, doubt)
    if as_json:
        emit_json(evaluation.to_dict())
        return
    from slomo.report.tables import accuracy_per_nf_table, accuracy_table, sources_table

    table = evaluation.to_dict()
    parts = [accuracy_per_nf_table(table["per_nf"]), accuracy_table(table["models"])]
    for part in [*parts, *([sources_table(evaluation.sources)] if evaluation.sources else [])]:
        emit_table(part.headers, part.rows)
        click.echo()
    for gap in evaluation.gaps:
        note(gap)
    for name, baseline in evaluation.baselines.items():
        text, times = f"{name} in its better form ({baseline['form']}): {baseline['mape']:.2f} %", baseline["times"]
        note(text if times is None else f"{text}, {times:.1f} times as far off as the {baseline['default']}")
    promise = f"intervals promise {100 * evaluation.nominal_coverage:g} %"
    note(f"{plural(evaluation.mixes, 'mix', 'mixes')} on {evaluation.machine}; {promise}")


def _evaluated(
    mixes: int | None,
    dataset: str | None,
    names: tuple[str, ...],
    store: str | None,
    compat: Any,
    nf_files: tuple[str, ...],
    scheduler: str | None,
    **options: Any,
) -> tuple["Evaluation", str]:
    """Return the evaluation, and a note with reasons to doubt its figures."""
    from slomo.models.library import load_library
    from slomo.models.responses.latent import PAIRS
    from slomo.records.catalog import find_dataset
    from slomo.workflow.evaluate import calibration_mixes, evaluate
    from slomo.workflow.progress import ProgressBar

    chosen = settings(**options)
    library = load_library(chosen.models)
    common: dict[str, Any] = {"models": names or None, "coverage": chosen.coverage, "compat": compat}
    if dataset is not None:
        mixes_read = find_dataset(dataset)
        doubt = ""
        if pairs := next((model.manifest[PAIRS] for model in library.values() if model.chosen == PAIRS), None):
            doubt = (
                f"'{PAIRS}' learns from all mixes of its table; on these, error and coverage look better than on new "
                f"mixes. Its held-out error in training was {pairs['error_percent_of_solo']:.3g} % of solo"
            )
        elif overlap := calibration_mixes(mixes_read):
            doubt = (
                f"{overlap} of these mixes belong to the half from which training learns and calibrates intervals; "
                "if it did, error and coverage look better than on new mixes"
            )
        if doubt:
            note(f"note: {doubt}")
        return evaluate(library, mixes_read, machine=options["machine"], **common), doubt
    announce_compilation()
    with ProgressBar("running mixes") as bar:
        evaluation = evaluate(
            library,
            machine=options["machine"] or (chosen.machine if chosen.machine in library.machines else None),
            mixes=mixes,
            seed=chosen.seed,
            own=own_network_functions(nf_files),
            testbed=chosen.testbed,
            store=store,
            jobs=chosen.jobs or None,
            progress=bar,
            scheduler=scheduler,
            **common,
        )
    return evaluation, ""


def _write_report(evaluation: "Evaluation", path: str, doubt: str) -> None:
    from slomo.evaluation.baselines import default_of
    from slomo.report.html import render_html
    from slomo.report.sections import (
        accuracy_section,
        headline,
        per_nf_section,
        reliability_section,
        scatter_section,
        sources_section,
    )

    shown = default_of(evaluation.models) or next(iter(evaluation.models))
    sections = [accuracy_section(evaluation), scatter_section(evaluation, shown), per_nf_section(evaluation)]
    if evaluation.sources:
        sections.append(sources_section(evaluation))
    if evaluation.reliability:
        sections.append(reliability_section(evaluation))
    facts = headline(evaluation, shown)
    write_durably(path, render_html(f"Predictions on {evaluation.machine}", sections, headline=facts, lead=doubt))


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
