"""`slomo machine`: the machines there are, and what their cores share."""

import click

from slomo.cli.options import complete_machines, json_option, yaml_option
from slomo.cli.output import emit_json, emit_table, emit_text


@click.group()
def command() -> None:
    """List and show machines."""


@command.command("list")
@json_option
def list_machines(as_json: bool) -> None:
    """List the machines slomo ships."""
    from slomo.vocabulary.machine import load_machine, machine_names

    machines = [load_machine(name) for name in machine_names()]
    if as_json:
        emit_json([{"name": machine.name, "description": machine.description} for machine in machines])
        return
    rows = [(m.name, m.sockets, m.cores_per_socket, m.llc_mib, m.memory_peak_gb_s, m.description) for m in machines]
    emit_table(("name", "sockets", "cores per socket", "LLC [MiB]", "memory [GB/s]", "description"), rows)


@command.command("show")
@click.argument("name", metavar="NAME|FILE", shell_complete=complete_machines)
@yaml_option
@json_option
def show_machine(name: str, as_json: bool, as_yaml: bool) -> None:
    """Show everything known about one machine, with its source."""
    from slomo.vocabulary.documents import to_yaml
    from slomo.vocabulary.machine import load_machine

    table = load_machine(name).to_dict()
    if as_json:
        emit_json(table)
    elif as_yaml:
        emit_text(to_yaml(table, "a machine, as `slomo machine show --yaml` writes it"))
    else:
        emit_table(
            ("field", "value"), [(field, str(value)) for field, value in table.items() if field != "schema_version"]
        )
