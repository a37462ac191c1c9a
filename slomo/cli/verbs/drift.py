"""`slomo drift`: check whether models still agree with measurements, and update them from a few runs."""

from typing import Any

import click

from slomo.cli.options import json_option, machine_option, models_option, seed_option, settings
from slomo.cli.output import emit_json, emit_table, emit_text, note
from slomo.cli.types import DATASET, MODEL, SECONDS, SHARE
from slomo.errors import UnsupportedPredictionError
from slomo.units import plural


@click.group()
def command() -> None:
    """Check whether models agree with new measurements, and correct models by a few new runs."""


@command.command("check")
@click.argument("readings", type=click.Path(), metavar="DATASET")
@models_option
@machine_option
@click.option("--model", type=MODEL, help="Model that predicts. [setting: model]")
@click.option(
    "--false-alarm-every",
    type=SECONDS,
    metavar="N",
    default=1000.0,
    help="Mean number of readings of one network function between two false alarms.",
)
@click.option("--noise", type=SHARE, default=0.02, help="Relative standard deviation of one reading.")
@click.option(
    "--reference", type=DATASET, help="Dataset on which the models were trained; with it, pressure is checked, too."
)
@click.option("--strict", is_flag=True, help="Exit with code 5 unless the models hold.")
@seed_option
@json_option
def check(
    readings: str, models: str | None, machine: str | None, seed: int | None, as_json: bool, **options: Any
) -> None:
    """Compare the measured mixes of DATASET, in their order, with the models' predictions.

    Prints the network functions whose throughput, or pressure on others, differs from the prediction. By chance, one
    alarm is raised per --false-alarm-every readings of a network function. With too few readings, or too few held-out
    errors of mixes, the answer is "not enough evidence" with what is missing.

    Example: slomo drift check today.parquet
    """
    from slomo.records.catalog import find_dataset
    from slomo.workflow.drift import check_drift

    chosen = settings(models=models, machine=machine, seed=seed, model=options.pop("model"))
    reference, strict = options.pop("reference"), options.pop("strict")
    checked = check_drift(
        chosen.models,
        find_dataset(readings),
        machine=machine,
        model=chosen.model,
        reference=None if reference is None else find_dataset(reference),
        seed=chosen.seed,
        **options,
    )
    if as_json:
        emit_json({**checked.report.to_dict(), "read": checked.read, "passed_over": checked.passed_over})
    else:
        emit_text(f"{checked.report}\n")
        note(f"{plural(checked.read, 'reading')} judged, {checked.passed_over} of or beside others passed over")
    if strict and not checked.report.holds:
        raise UnsupportedPredictionError(str(checked.report), hint="profile again, or let more readings come in")


@command.command("refit")
@click.argument("runs", type=click.Path(), metavar="DATASET")
@models_option
@click.option("--target", "targets", multiple=True, metavar="NF", help="Refit only this network function, repeatable.")
@json_option
def refit(runs: str, models: str | None, targets: tuple[str, ...], as_json: bool) -> None:
    """Correct models by the few runs of DATASET, and save them in the same directory.

    A model stays unchanged if its refit does not reduce the error on runs left out. One solo run and a handful of runs
    beside the synthetic competitor suffice: slomo profile NF --plan pressure --design sobol --runs 7.
    """
    from slomo.models.library import load_library
    from slomo.records.catalog import find_dataset
    from slomo.workflow.drift import refit_models

    chosen = settings(models=models)
    library = load_library(chosen.models)
    updated = refit_models(library, find_dataset(runs), targets=targets or None)
    if updated:
        library.merge(updated).save(chosen.models)
    factors = {key: dict(model.manifest["refit"]) for key, model in updated.items()}
    if as_json:
        listed = [{"machine": machine, "target": key, **refit} for (machine, key), refit in factors.items()]
        emit_json({"models": chosen.models, "refit": listed})
        return
    if not updated:
        emit_text("nothing saved: on runs left out no refit errs less than the model it would replace\n")
        return
    rows = []
    for key, correction in factors.items():
        losses = correction["loss_factors"].values()
        span = f"{min(losses):.2f} to {max(losses):.2f}"
        rows.append((*key, correction["rows"], correction["solo_ratio"], span))
    emit_table(("machine", "target", "runs", "solo, new to old", "losses, new to old"), rows)
    note(f"{plural(len(rows), 'model')} saved in {chosen.models}")
