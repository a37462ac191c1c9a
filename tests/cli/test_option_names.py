"""Names of options: one kind of value in all commands; earlier names still work, with a note."""

from collections import defaultdict

import click
import pytest

from slomo.cli.main import RENAMED, main
from slomo.cli.reference import commands

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


def test_an_option_takes_one_kind_of_value() -> None:
    """An option that several commands have takes the same kind of value everywhere, and a time in seconds says so."""
    several = {}
    for name, by_command in options().items():
        kinds = {each.metavar or ("flag" if each.is_flag else str(each.type)) for each in by_command.values()}
        if len(kinds) > 1 and not kinds <= SAME.get(name, set()):
            several[name] = kinds
        if "S" in kinds:
            assert name.endswith("-s")
    assert several == {}


@pytest.mark.parametrize(("verb", "earlier"), RENAMED)
def test_an_earlier_name_is_gone_from_the_help(verb: str, earlier: str) -> None:
    """The present name is an option of the command, the earlier name of none of its sub-commands."""
    own = {name for name, by_command in options().items() if any(path.split()[1:2] == [verb] for path in by_command)}
    assert RENAMED[verb, earlier] in own
    assert earlier not in own


def test_an_earlier_name_works_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    """The value is read, and the note has the present name; with an equals sign, too."""
    assert main(["whatif", "lpm", "--node=9"]) == 2
    assert "note: --node is called --nodes now" in (noted := capsys.readouterr().err)
    assert "node 9, but 'e5-2620v4' has 2" in noted
