"""Names of options: one kind of value in all commands; earlier names still work, with a note."""

from collections import defaultdict
from pathlib import Path

import click
import pytest

from slomo.cli.main import commands, main
from slomo.cli.options import RenamedOption

#: Options whose value is shown as another kind in some commands, and why it means the same.
SAME = {
    "--machine": {"NAME|FILE", "NAME"},  # without a file: the machine of a table measured elsewhere
    "--out": {"FILE", "DIR", "DATASET", "OUT"},  # what the command writes
    "--target": {"NF", "NAME"},  # applications, which are no network functions, of `slomo probes`
    "--with": {"NF[:COUNT]", "NAME"},
}


def options() -> dict[str, dict[str, click.Option]]:
    """Return option -> command -> its definition."""
    listed: dict[str, dict[str, click.Option]] = defaultdict(dict)
    for path, command in commands():
        for each in command.params:
            if isinstance(each, click.Option):
                for name in each.opts:
                    listed[name][path] = each
    return listed


def _kind(type_: click.ParamType) -> str:
    return str(type_) if isinstance(type_, click.Choice) else type_.name.upper()


def test_an_option_takes_one_kind_of_value() -> None:
    """An option that several commands have takes the same kind of value everywhere, and a time in seconds says so."""
    several = {}
    for name, by_command in options().items():
        kinds = {each.metavar or ("flag" if each.is_flag else _kind(each.type)) for each in by_command.values()}
        if len(kinds) > 1 and not kinds <= SAME.get(name, set()):
            several[name] = kinds
        if "S" in kinds:
            assert name.endswith("-s")
    assert several == {}


def renamed() -> dict[tuple[str, str], click.Option]:
    """Return command and earlier name -> option, of all options that were renamed."""
    every = [(path, each) for path, command in commands() for each in command.params]
    return {(path, each.earlier): each for path, each in every if isinstance(each, RenamedOption)}


def test_an_earlier_name_is_gone_from_the_help() -> None:
    """Earlier names belong to one option, and no command shows them."""
    earlier = renamed()
    assert len({(path.split()[1], name) for path, name in earlier}) == 18
    for path, command in commands():
        shown = {
            *command.get_help(click.Context(command, help_option_names=["-h", "--help"])).split(),
            *(name for each in command.params for name in each.opts),
        }
        assert not shown & {name for of, name in earlier if of == path}


@pytest.mark.parametrize("words", [("--node=9",), ("--node", "9"), ("--node", "1", "--nodes", "9")])
def test_an_earlier_name_works_with_a_note(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    """The value is read, and the note has the present name; where both are given, the present name's value counts."""
    assert main(["whatif", "lpm", *words]) == 2
    assert "note: --node is called --nodes now" in (noted := capsys.readouterr().err)
    assert "nodes: 9, but 'e5-2620v4' has 2, counted from 0" in noted


def test_a_value_may_look_like_an_earlier_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Values and words of other commands are not taken for names of options, nor a settings file for a command."""
    settings = tmp_path / "whatif"
    settings.write_text("")
    for words, told in (
        (["whatif", "lpm", "--models", "--node"], "'--node'"),
        (["--config", str(settings), "whatif", "lpm", "--nodes", "--mba"], "--mba"),
        (["profile", "lpm", "--node", "9"], "o such option"),
    ):
        assert main(words) == 2
        noted = capsys.readouterr().err
        assert told in noted
        assert "note: --" not in noted
