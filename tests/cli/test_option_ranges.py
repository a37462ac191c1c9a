"""Numbers on the command line: finite and within the range of their kind, or exit code 2 before anything is loaded."""

import click
import pytest

import slomo.cli.types as types
from slomo.cli.main import main

KINDS = {name: kind for name, kind in vars(types).items() if isinstance(kind, types.Number)}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e400", "1e20", "-1", "9" * 5000, "", "many", "0x1f"])
def test_what_is_no_number_of_its_kind_is_refused(name: str, text: str) -> None:
    """Neither infinities nor NaN, nor what is far out of range, is a number of any kind."""
    with pytest.raises(click.BadParameter, match="is not a"):
        KINDS[name].convert(text, None, None)


def every_option() -> list[tuple[str, click.Parameter]]:
    """Return every option of every command that takes a bare number."""
    found = []

    def walk(command: click.Command, path: str) -> None:
        found.extend((path, each) for each in command.params if isinstance(each.type, click.types.IntParamType))
        found.extend((path, each) for each in command.params if isinstance(each.type, click.types.FloatParamType))
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                walk(inner, f"{path} {name}")

    from slomo.cli.main import cli

    walk(cli, "slomo")
    return found


def test_no_option_takes_any_number() -> None:
    """Every option that takes a number has a kind with a range."""
    assert [(path, option.name) for path, option in every_option() if not isinstance(option.type, click.IntRange)] == []


@pytest.mark.parametrize(
    "words",
    ["predict --target lpm --window-s nan", "predict --target lpm --offered 1e400", "profile lpm --replicates 1e20"],
)
def test_the_command_line_says_so(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 2, and the message names the option."""
    assert main(words.split()) == 2
    assert "--" + words.split("--")[-1].split()[0] in capsys.readouterr().err
