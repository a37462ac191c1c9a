"""`slomo train`: train models from a dataset, one per network function and machine, and save them in a directory."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slomo.cli.options import (
    RenamedOption,
    jobs_option,
    json_option,
    models_option,
    scheduler_option,
    seed_option,
    settings,
)
from slomo.cli.output import emit_json, emit_table, note
from slomo.cli.types import DIR, MACHINE, MODEL
from slomo.errors import ConfigurationError
from slomo.units import plural
from slomo.vocabulary.defaults import DEFAULT_MODEL

if TYPE_CHECKING:
    from slomo.models.library import ModelLibrary


@click.command()
@click.argument("dataset", type=click.Path(), nargs=-1)
@models_option
@click.option(
    "--from-models",
    "--from",
    "start",
    cls=RenamedOption,
    type=DIR,
    help="Models of another machine from which training starts; DATASET then needs only a handful of runs, or none.",
)
@click.option(
    "--machine",
    type=MACHINE,
    help="With --from-models: the new machine, by name or YAML file; by default the dataset's.",
)
@click.option("--model", "names", multiple=True, type=MODEL, help="Model family to fit, repeatable; by default all.")
@click.option("--target", "targets", multiple=True, metavar="NF", help="Fit only this network function, repeatable.")
@seed_option
@scheduler_option
@jobs_option
@json_option
def command(
    dataset: tuple[str, ...],
    models: str | None,
    start: str | None,
    machine: str | None,
    names: tuple[str, ...],
    targets: tuple[str, ...],
    seed: int | None,
    scheduler: str | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Train models of every network function of DATASET, and save them; several DATASETs are merged.

    Rows of plans `solo` and `pressure` (and imported rows) are fitted; rows of `mix` set the width of intervals, and 30
    or more with counters also teach the equilibrium. Models of other network functions in DIR stay there; models of the
    same network functions are replaced, with a note. "Composed by" names the family that predicts if no family is
    requested and the equilibrium is not available. It is the first of slomo-smooth, slomo-xgb, slomo-gp, slomo-gbr
    whose error, on calibration mixes and on runs left out, is not materially worse than that of the best family.

    With `--from-models`, models of one machine are converted to another by the latencies of its caches and memory, and
    corrected by the runs in DATASET. Without runs, predictions have the verdict `unknown`, since their error was
    measured only on other machines.

    Example: slomo train profile.parquet
    """
    from slomo.workflow.names import dataset_of
    from slomo.workflow.train import train

    chosen = settings(models=models, seed=seed)
    rows_given = dataset_of(dataset) if dataset else None
    spread: dict[str, Any] = {"jobs": 1 if jobs is None else jobs, "scheduler": scheduler}
    spread |= {"start": start, "machine": machine, "progress": sys.stderr.isatty()}
    held = _kept(Path(chosen.models))  # a folder with other content is refused before hours of training
    library = train(rows_given, models=names or None, targets=targets or None, seed=chosen.seed, **spread)
    replaced = sorted(held & library.keys())
    library.save(chosen.models)
    if as_json:
        emit_json({"models": chosen.models, "network_functions": _entries(library), "replaced": replaced})
        return
    rows = [
        (machine, key, model.solo_mpps, model.named(DEFAULT_MODEL), len(model.sensitivity))
        for (machine, key), model in library.items()
    ]
    emit_table(("machine", "target", "solo [Mpps]", "composed by", "models"), rows)
    fitted = dict.fromkeys(name for model in library.values() for name in model.sensitivity)
    note(f"note: models fitted: {', '.join(fitted)}")
    if rows_given is not None and (left_out := len(rows_given) - len(rows_given.converged())):
        note(f"note: {left_out} of {len(rows_given)} rows left out: their runs did not converge")
    if replaced:
        names_replaced = ", ".join(f"'{key}' on {machine}" for machine, key in replaced)
        note(f"note: replaced what {chosen.models} held of {names_replaced}")
    for entry in _entries(library):
        for name, reason in entry["left_out"].items():
            note(f"note: no model '{name}' of '{entry['target']}': {reason}")
        for remark in entry["remarks"]:
            note(f"note: '{entry['target']}': {remark}")
    if Path(chosen.models).name in fitted:
        family = f"for one family --model {Path(chosen.models).name}"
        note(f"note: --models names a folder: '{chosen.models}' holds {len(fitted)} families; {family}")
    note(f"{plural(len(rows), 'network function')} saved in {chosen.models}")


def _entries(library: "ModelLibrary") -> list[dict[str, Any]]:
    from slomo.training.remarks import remarks

    return [
        {
            "machine": machine,
            "target": key,
            "solo_mpps": model.solo_mpps,
            "models": list(model.sensitivity),
            "default": model.manifest.get("default", {}),
            "remarks": list(remarks(model)),
            "left_out": dict(model.manifest.get("left_out", {})),
        }
        for (machine, key), model in library.items()
    ]


def _kept(place: Path) -> set[tuple[str, str]]:
    """Return the models already in the directory, of which training replaces only those of the same functions."""
    from slomo.models.library import ModelLibrary
    from slomo.models.storage import INDEX, entries_in

    if place.is_file():
        raise ConfigurationError(f"models cannot be saved in '{place}', which is a file", hint="name a folder")
    entries = set(entries_in(place))
    if not entries and place.is_dir() and any(place.iterdir()) and not (place / INDEX).exists():
        ModelLibrary.load(place)  # raises an error if the folder is no library
    return entries
