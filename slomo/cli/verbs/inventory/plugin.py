"""`slomo plugin`: list the plug-ins of installed packages."""

import click

from slomo.cli.options import json_option
from slomo.cli.output import emit_json, emit_table, note
from slomo.errors import ConfigurationError


@click.group()
def command() -> None:
    """List the plug-ins of other packages."""


@command.command("list")
@json_option
def list_plugins(as_json: bool) -> None:
    """List models, policies, counter readers and testbeds of other packages, and whether each can be imported."""
    rows = _rows()
    if as_json:
        emit_json(rows)
    elif not rows:
        note("no package here adds anything to slomo; docs/guides/plug-ins.md says how one does")
    else:
        emit_table(("group", "name", "package", "object", "state"), [tuple(row.values()) for row in rows])


def _rows() -> list[dict[str, str]]:
    from slomo.plugins import GROUPS, plugins

    return [
        {
            "group": group,
            "name": name,
            "package": f"{point.dist.name} {point.dist.version}" if point.dist is not None else "",
            "object": point.value,
            "state": _state(group, name),
        }
        for group in GROUPS
        for name, point in plugins(group).items()
    ]


def _state(group: str, name: str) -> str:
    from slomo.plugins import load_plugin

    try:
        load_plugin(group, name)
    except ConfigurationError as error:
        return error.message
    return "ok"
