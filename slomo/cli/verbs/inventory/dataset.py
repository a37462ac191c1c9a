"""`slomo dataset`: import measurements from tables and Intel PCM, export them, and rank metrics."""

import functools
from typing import TYPE_CHECKING

import click

from slomo.cli.options import json_option
from slomo.cli.output import SHARES, emit, emit_json, emit_table, note, tell
from slomo.errors import MissingMetricError, UsageError
from slomo.units import plural

if TYPE_CHECKING:
    from slomo.records.dataset import ProfileDataset


@click.group()
def command() -> None:
    """Import, show, list, export and merge datasets; rank their competitors' metrics."""


@command.command("import")
@click.argument("file", type=click.Path(exists=True), nargs=-1, required=True)
@click.option(
    "--mapping",
    metavar="MAP.yaml|NAME",
    type=click.Path(),
    help="Mapping from columns to metrics, target and traffic: a file, or the name of a mapping that ships "
    "with slomo. Without it, FILE must hold co-locations by name.",
)
@click.option("--machine", metavar="NAME", help="For co-locations by name: machine on which they were measured.")
@click.option(
    "--unit", metavar="UNIT", help="For co-locations by name: unit of the rates (Mpps, kpps, us, share, ...)."
)
@click.option(
    "--rates",
    metavar="COLUMN,...",
    help="For co-locations by name: columns that hold rates; by default all columns of numbers.",
)
@click.option(
    "--probes",
    metavar="PROBES.json",
    type=click.Path(),
    help="For co-locations by name: run times beside probes, from which training estimates unmeasured pairs.",
)
@click.option(
    "--out", metavar="OUT", required=True, type=click.Path(), help="Dataset to write: .parquet, .csv or a directory."
)
@json_option
def import_dataset(
    file: tuple[str, ...],
    mapping: str | None,
    machine: str | None,
    unit: str | None,
    rates: str | None,
    probes: str | None,
    out: str,
    as_json: bool,
) -> None:
    """Convert measured tables, co-locations by name, or recordings of `pcm -csv` to a dataset.

    Several FILEs are merged. Without a mapping, each row of FILE names two or more network functions and holds the rate
    of the first or of all: slomo dataset import pairs.csv --machine NAME --out pairs.parquet. With a mapping of kind
    `probes`, FILE is the folder of run times beside probes, and OUT the .json that `slomo probes` reads.
    docs/guides/import-your-data.md describes mappings, with examples.

    Example: slomo dataset import pairs.csv --machine rack-7 --out pairs.parquet
    """
    from slomo.records.importing.door import import_table
    from slomo.records.importing.named import import_pairs
    from slomo.records.importing.probe_tables import is_probe_mapping, load_probe_tables

    if mapping is None:
        if machine is None:
            raise UsageError("neither --mapping nor --machine", hint="co-locations by name need --machine NAME")
        columns = rates.split(",") if rates else ()
        known = None if probes is None else load_probe_tables(probes)
        named = [import_pairs(path, machine, unit=unit, rates=columns, probes=known) for path in file]
        _report(_merged(named), out, as_json)
        return
    for name, value in (("machine", machine), ("unit", unit), ("rates", rates), ("probes", probes)):
        if value is not None:
            raise UsageError(f"--{name} together with --mapping", hint="it is for co-locations by name; leave it out")
    if is_probe_mapping(mapping):
        _import_probes(file, mapping, out, as_json)
        return
    _report(_merged([import_table(path, mapping) for path in file]), out, as_json)


def _import_probes(folders: tuple[str, ...], mapping: str, out: str, as_json: bool) -> None:
    from slomo.records.importing.probe_tables import read_probe_tables, save_probe_tables

    if len(folders) != 1 or not out.endswith(".json"):
        raise UsageError(
            f"probe tables of {len(folders)} folders to {out}", hint="needed one folder, and --out probes.json"
        )
    probed = read_probe_tables(folders[0], mapping)
    save_probe_tables(probed, out)
    document = {"out": out, "machine": probed.machine, "applications": probed.names}
    text = f"probes of {len(probed.names)} applications on {probed.machine} written to {out}"
    tell(document, text, as_json=as_json)


@command.command("show")
@click.argument("dataset", type=click.Path())
@json_option
def show_dataset(dataset: str, as_json: bool) -> None:
    """Show the targets, the number of rows, the ranges of metrics and the environment of a dataset."""
    from slomo.records.catalog import find_dataset
    from slomo.records.provenance import holds_shares

    loaded = find_dataset(dataset)
    if as_json:
        emit_json(_summary(loaded))
        return
    rows = _summary(loaded)["targets"]
    assert isinstance(rows, list)
    emit_table(
        ("machine", "target", "rows", "solo [Mpps]", "lowest [Mpps]", "highest [Mpps]"),
        [tuple(row.values()) for row in rows],
    )
    if holds_shares(loaded.environment):
        note(SHARES)


@command.command("list")
@json_option
def list_datasets(as_json: bool) -> None:
    """List the datasets that ship with slomo."""
    from slomo.records.catalog import catalog

    datasets = catalog()
    shown = [{"name": item.name, "path": str(item.path), "summary": item.summary} for item in datasets]
    emit(shown, ("name", "summary"), [(item.name, item.summary) for item in datasets], as_json=as_json)


@command.command("metrics")
@click.argument("dataset", type=click.Path())
@click.option("--target", "targets", multiple=True, metavar="NF", help="Only this network function, repeatable.")
@json_option
def rank(dataset: str, targets: tuple[str, ...], as_json: bool) -> None:
    """Rank the competitors' metrics: a model's error with each metric alone, and its gain from adding each metric.

    Errors are mean errors of throughput relative to solo throughput, for competitor settings left out of training; all
    network functions count equally. Metrics are in the order in which forward selection adds them.
    """
    from slomo.records.catalog import find_dataset
    from slomo.training.metric_ranking import rank_metrics, unranked_metrics

    loaded = find_dataset(dataset)
    keys = [key for name in targets for key in loaded.select(target=name).profiled_targets]
    ranked = rank_metrics(loaded, keys or None)
    if as_json:
        emit_json(ranked)
        return
    rows = [(item.place, item.name, item.alone, item.error, item.gain, item.without) for item in ranked]
    emit_table(("", "metric", "alone [%]", "with those above [%]", "adds [%]", "without it [%]"), rows)
    for name, why in unranked_metrics(loaded, ranked).items():
        note(f"{name} has no rank: {why}")


@command.command("screen")
@click.argument("dataset", type=click.Path())
@json_option
def screen_dataset(dataset: str, as_json: bool) -> None:
    """Show for every function, from about ten runs beside the synthetic competitor, whether 60 runs are worthwhile.

    A network function that loses less than 3.5 % on average over design `sources` needs no more runs: slomo profile NF
    --plan pressure --runs 10 --out few.parquet; slomo dataset screen few.parquet.
    """
    from slomo.profiling.adaptive.screen import screen
    from slomo.records.catalog import find_dataset

    answers = screen(find_dataset(dataset))
    words = {True: "yes", False: "no", None: "unknown"}
    rows = [
        (answer.target, answer.runs, 100 * answer.lost, 100 * answer.most, words[answer.worth]) for answer in answers
    ]
    emit(answers, ("target", "runs", "lost [%]", "at most [%]", "worth more runs"), rows, as_json=as_json)


@command.command("export")
@click.argument("dataset", type=click.Path())
@click.option(
    "--out", metavar="OUT", required=True, type=click.Path(), help="File to write: .csv or .parquet, or a directory."
)
@json_option
def export_dataset(dataset: str, out: str, as_json: bool) -> None:
    """Write a dataset in another format."""
    from slomo.records.catalog import find_dataset

    _report(find_dataset(dataset), out, as_json)


@command.command("merge")
@click.argument("dataset", type=click.Path(), nargs=-1, required=True)
@click.option(
    "--out", metavar="OUT", required=True, type=click.Path(), help="Dataset to write: .parquet, .csv or a directory."
)
@json_option
def merge_datasets(dataset: tuple[str, ...], out: str, as_json: bool) -> None:
    """Merge datasets into one. If they must not be merged, print how they differ."""
    from slomo.records.catalog import find_dataset

    _report(_merged([find_dataset(path) for path in dataset]), out, as_json)


def _merged(parts: "list[ProfileDataset]") -> "ProfileDataset":
    return functools.reduce(lambda whole, part: whole.merge(part), parts)


def _report(dataset: "ProfileDataset", out: str, as_json: bool) -> None:
    from slomo.records.storage import save_dataset

    save_dataset(dataset, out)
    text = f"{plural(len(dataset), 'row')} of {plural(len(dataset.profiled_targets), 'target')} written to {out}"
    tell({"out": out, **_summary(dataset)} if as_json else None, text, as_json=as_json)


def _summary(dataset: "ProfileDataset") -> dict[str, object]:
    targets: list[dict[str, object]] = []
    for machine in dataset.machines:
        there = dataset.select(machine=machine)
        for target in there.profiled_targets:
            rows = there.select(target=target)
            try:
                solo: float | None = there.solo_mpps(target)
            except MissingMetricError:
                solo = None
            lowest, highest = float(rows.throughput.min()), float(rows.throughput.max())
            counts = {"machine": machine, "target": target, "rows": len(rows)}
            targets.append({**counts, "solo_mpps": solo, "lowest_mpps": lowest, "highest_mpps": highest})
    return {
        "rows": len(dataset),
        "machines": list(dataset.machines),
        "targets": targets,
        "environment": dataset.environment,
    }
