"""`slomo nf`: the network functions there are, and what the simulator knows of them."""

import json

import click

from slomo.cli.options import complete_network_functions, json_option, yaml_option
from slomo.cli.output import emit_json, emit_table, emit_text


@click.group()
def command() -> None:
    """List and show network functions."""


@command.command("list")
@json_option
def list_network_functions(as_json: bool) -> None:
    """List the network functions slomo ships."""
    from slomo.vocabulary.network_function import load_network_function, network_function_names

    functions = [load_network_function(name) for name in network_function_names()]
    if as_json:
        emit_json([{"name": function.name, "description": function.description} for function in functions])
    else:
        emit_table(("name", "description"), [(function.name, function.description) for function in functions])


@command.command("show")
@click.argument("name", metavar="NAME|FILE", shell_complete=complete_network_functions)
@yaml_option
@json_option
def show_network_function(name: str, as_json: bool, as_yaml: bool) -> None:
    """Show one network function: what it does per packet and where the numbers come from."""
    from slomo.vocabulary.documents import to_yaml
    from slomo.vocabulary.network_function import load_network_function

    table = load_network_function(name).to_dict()
    if as_json:
        emit_json(table)
    elif as_yaml:
        emit_text(to_yaml(table, "a network function, as `slomo nf show --yaml` writes it"))
    else:
        rows = [(field, _text(value)) for field, value in _flat(table) if field != "schema_version"]
        emit_table(("field", "value"), rows)


def _flat(table: dict[str, object], prefix: str = "") -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for field, value in table.items():
        rows.extend(_flat(value, f"{prefix}{field}.") if isinstance(value, dict) else [(prefix + field, value)])
    return rows


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
