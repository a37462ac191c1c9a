"""`slomo nf`: list and show network functions, and fit simulated ones (twins) to measurements."""

import json
from pathlib import Path

import click

from slomo.cli.options import RenamedOption, json_option, yaml_option
from slomo.cli.output import emit, emit_json, emit_table, emit_text, note
from slomo.cli.types import MACHINE, NF, POSITIVE_COUNT
from slomo.files.durable import write_durably


@click.group()
def command() -> None:
    """List and show network functions; fit a simulated one (a twin) to measurements of a real one."""


@command.command("list")
@json_option
def list_network_functions(as_json: bool) -> None:
    """List the network functions that ship with slomo."""
    from slomo.vocabulary.network_function import load_network_function, network_function_names

    rows = [(name, load_network_function(name).description) for name in network_function_names()]
    headers = ("name", "description")
    emit([dict(zip(headers, row, strict=True)) for row in rows], headers, rows, as_json=as_json)


@command.command("show")
@click.argument("name", metavar="NAME|FILE", type=NF)
@yaml_option
@json_option
def show_network_function(name: str, as_json: bool, as_yaml: bool) -> None:
    """Show one network function: its work per packet, and the sources of the numbers."""
    from slomo.vocabulary.documents import to_yaml
    from slomo.vocabulary.network_function import load_network_function

    table = load_network_function(name).to_dict()
    if as_yaml and not as_json:
        emit_text(to_yaml(table, "a network function, as `slomo nf show --yaml` writes it"))
        return
    rows = [
        (field, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for field, value in _flat(table)
        if field != "schema_version"
    ]
    emit(table, ("field", "value"), rows, as_json=as_json)


@command.command("fit")
@click.argument("dataset", type=click.Path())
@click.option(
    "--target",
    "--nf",
    "nf",
    cls=RenamedOption,
    required=True,
    metavar="NF",
    help="Network function of the dataset: name or workload key.",
)
@click.option("--machine", type=MACHINE, help="Machine to simulate; by default the dataset's.")
@click.option(
    "--runs",
    type=POSITIVE_COUNT,
    default=12,
    help="Number of runs to fit to; they are chosen to spread over all slowdowns.",
)
@click.option(
    "--fit-machine",
    metavar="FILE",
    help="Also fit cache size, bandwidth and latency, and write the machine to this file.",
)
@click.option("--out", metavar="FILE", help="File to which the twin is written; by default NAME-twin.yaml.")
@json_option
def fit_network_function(
    dataset: str, nf: str, machine: str | None, runs: int, fit_machine: str | None, out: str | None, as_json: bool
) -> None:
    """Fit a simulated twin to measured runs of DATASET, and write it as a network function's file.

    Use the file with `--nf`, for simulated profiles, `slomo place --check` and what-if questions.
    """
    from slomo.records.catalog import find_dataset
    from slomo.testbed.host.doctor.machine_file import write_machine
    from slomo.vocabulary.documents import to_yaml
    from slomo.workflow.twin import fit_twin

    twin = fit_twin(find_dataset(dataset), nf, machine=machine, runs=runs, fit_machine=fit_machine is not None)
    place = Path(out or f"{twin.function.name}.yaml")
    write_durably(place, to_yaml(twin.function.to_dict(), f"fitted by `slomo nf fit {dataset} --target {nf}`"))
    if fit_machine is not None:
        write_machine(Path(fit_machine), twin.machine, {item.name: "fitted" for item in twin.parameters})
    if not twin.tells:
        lost, noise = f"{twin.lost_points:.1f} points lost on average", f"noise {twin.noise_points:.1f}"
        note(f"{lost}, {noise}: nothing to tell, any function fits such runs")
    elif vague := [item.name for item in twin.parameters if not item.determined]:
        note(f"the runs do not determine {', '.join(vague)}: other values fit as well")
    if as_json:
        emit_json({"file": str(place), **twin.to_dict()})
        return
    rows = [(item.name, f"{item.value:.3g}", f"{item.low:.3g} .. {item.high:.3g}") for item in twin.parameters]
    emit_table(("parameter", "fitted", "90 % interval"), rows)
    note(f"{twin.runs} runs, mean error {twin.error_points:.2f} points of solo; written to {place}")


def _flat(table: dict[str, object], prefix: str = "") -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for field, value in table.items():
        rows.extend(_flat(value, f"{prefix}{field}.") if isinstance(value, dict) else [(prefix + field, value)])
    return rows
