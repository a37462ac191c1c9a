"""`slomo completion`: the script that completes commands, options and names in a shell (click's own mechanism)."""

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.option("--json", "as_json", is_flag=True, help="Print the script as a JSON object.")
def command(shell: str, as_json: bool) -> None:
    """Print the script that completes names in a shell.

    \b
    bash:  eval "$(slomo completion bash)"
    zsh:   eval "$(slomo completion zsh)"
    fish:  slomo completion fish | source
    """  # noqa: D301 - the escape is click's sign to keep the lines
    from slomo.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, "slomo", "_SLOMO_COMPLETE").source()
    if as_json:
        from slomo.cli.output import emit_json

        emit_json({"shell": shell, "script": script})
    else:
        click.echo(script)
