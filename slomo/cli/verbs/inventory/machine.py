"""`slomo machine`: list and show machines, and which caches their cores share."""

import click

from slomo.cli.options import json_option, yaml_option
from slomo.cli.output import emit, emit_text
from slomo.cli.types import MACHINE


@click.group()
def command() -> None:
    """List and show machines."""


@command.command("list")
@json_option
def list_machines(as_json: bool) -> None:
    """List the machines that ship with slomo."""
    from slomo.vocabulary.machine import load_machine, machine_names

    machines = [load_machine(name) for name in machine_names()]
    shown = [{"name": machine.name, "description": machine.description} for machine in machines]
    rows = [(m.name, m.sockets, m.cores_per_socket, m.llc_mib, m.memory_peak_gb_s, m.description) for m in machines]
    headers = ("name", "sockets", "cores per socket", "LLC [MiB]", "memory [GB/s]", "description")
    emit(shown, headers, rows, as_json=as_json)


@command.command("show")
@click.argument("name", metavar="NAME|FILE", type=MACHINE)
@yaml_option
@json_option
def show_machine(name: str, as_json: bool, as_yaml: bool) -> None:
    """Show all properties of one machine, with their source."""
    from slomo.vocabulary.documents import to_yaml
    from slomo.vocabulary.machine import load_machine

    table = load_machine(name).to_dict()
    if as_yaml and not as_json:
        emit_text(to_yaml(table, "a machine, as `slomo machine show --yaml` writes it"))
        return
    rows = [(field, str(value)) for field, value in table.items() if field != "schema_version"]
    emit(table, ("field", "value"), rows, as_json=as_json)
