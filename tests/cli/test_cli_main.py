"""The frame of the command line: help, errors, exit codes, completion."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import click
import pytest

from slomo import errors
from slomo.cli import faults
from slomo.cli.main import COMMANDS, load_command, main
from slomo.cli.output import note_reasons
from slomo.errors import SlomoError

HEAVY = ("numpy", "pandas", "rich", "numba", "sklearn", "xgboost", "scipy", "matplotlib", "yaml")


def imported_by(*arguments: str) -> set[str]:
    """Run the command line in a fresh interpreter; return the top-level modules it imported."""
    program = "import sys; from slomo.cli.main import main; main(sys.argv[1:]); "
    program += "print(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_help_imports_nothing_heavy() -> None:
    """`slomo --help` needs neither numpy nor a table of anything."""
    assert not imported_by("--help") & set(HEAVY)


def test_every_command_is_what_help_says() -> None:
    """Each name in the table leads to a click command with a help text of its own."""
    for name in COMMANDS:
        command = load_command(name)
        assert isinstance(command, click.Command)
        assert command.help


def test_every_leaf_command_speaks_json() -> None:
    """There is no command without --json."""
    for name in COMMANDS:
        command = load_command(name)
        leaves = command.commands.values() if isinstance(command, click.Group) else [command]
        assert all(any("--json" in option.opts for option in leaf.params) for leaf in leaves), name


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`slomo --help` shows the commands and ends with 0."""
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


def test_unknown_command_offers_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt command is answered with the nearest one and exit code 2."""
    assert main(["predit"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "did you mean 'predict'" in said.err


def test_no_command_shows_help_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """`slomo` alone explains itself and ends with 2."""
    assert main([]) == 2
    assert "Commands:" in capsys.readouterr().err


def test_usage_errors_have_the_one_json_shape(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json, an error is one JSON object on stderr and nothing on stdout."""
    assert main(["machine", "show", "e5-2620v5", "--json"]) == 2
    said = capsys.readouterr()
    error = json.loads(said.err)["error"]
    assert said.out == ""
    assert set(error) == {"type", "message", "hint", "exit_code"}
    assert error["type"] == "UnknownNameError"
    assert "e5-2620v4" in error["hint"]


@pytest.mark.parametrize(
    "kind", [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, SlomoError)]
)
def test_exit_code_is_the_error_class_s(kind: type[SlomoError], capsys: pytest.CaptureFixture[str]) -> None:
    """Every error of the tree ends the command line with its own code, message and hint."""
    error = kind.__new__(kind)
    SlomoError.__init__(error, "what is wrong", hint="what to do")

    assert faults.report(error) == kind.exit_code
    assert capsys.readouterr().err == f"{kind.__name__}: what is wrong\nhint: what to do\n"


def test_interrupt_ends_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C is no fault and has its own code; what it says is passed on."""
    assert faults.report(KeyboardInterrupt("3 of 9 runs are kept")) == 130
    assert "3 of 9 runs are kept" in capsys.readouterr().err


def test_unexpected_fault_is_called_a_bug(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An internal fault says BUG, ends with 70 and shows no traceback."""
    monkeypatch.delenv("SLOMO_DEBUG", raising=False)
    assert faults.report(ZeroDivisionError("division by zero")) == 70
    said = capsys.readouterr().err
    assert "BUG: ZeroDivisionError" in said
    assert "Traceback" not in said


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """SLOMO_DEBUG=1 lets the error through."""
    monkeypatch.setenv("SLOMO_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        faults.report(ZeroDivisionError("division by zero"))


@pytest.mark.parametrize(("number", "code"), [(1, 2), (13, 2), (28, 3), (30, 3)])
def test_file_system_faults_name_their_path(number: int, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing right is a matter of usage; a full disk or a read-only place is not, as for stores and datasets."""
    assert faults.report(OSError(number, "reason", "place/out.csv")) == code
    assert "'place/out.csv': reason" in capsys.readouterr().err


def test_settings_file_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--config names the settings file, and its faults are told with its path."""
    file = tmp_path / "own.toml"
    file.write_text("machin = 'x'\n", encoding="utf-8")

    assert main(["--config", str(file), "predict", "--target", "lpm"]) == 2
    assert "own.toml" in capsys.readouterr().err


def test_warnings_look_as_before_after_a_command() -> None:
    """A program that calls `main` keeps its own form of warnings."""
    before = warnings.formatwarning

    assert main(["nf", "list"]) == 0
    assert warnings.formatwarning is before


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_for_this_program(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The script asks `slomo` for what may follow."""
    assert main(["completion", shell]) == 0
    assert "_SLOMO_COMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("slomo pred", "predict"),
        ("slomo machine show e5-26", "e5-2620v4"),
        ("slomo predict --target st", "stats"),
        ("slomo predict --model slomo-", "slomo-xgb"),
        ("slomo predict --with sno", "snort"),
        ("slomo predict --vector L3O", "L3OCC="),
    ],
)
def test_names_complete(line: str, expected: str) -> None:
    """Commands, machines, network functions, models and metrics complete in a shell."""
    from click.shell_completion import BashComplete

    from slomo.cli.main import cli

    words = line.split()
    completions = BashComplete(cli, {}, "slomo", "_SLOMO_COMPLETE").get_completions(words[1:-1], words[-1])
    assert expected in [item.value for item in completions]


def test_tenants_with_equal_reasons_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Of 64 tenants of two kinds two lines are printed; who has no reasons is not named."""
    note_reasons(
        [("0:a", "unknown", ["x"]), ("1:b", "unknown", ["y"]), ("2:a", "unknown", ["x"]), ("3:c", "supported", [])]
    )
    assert capsys.readouterr().err == "0:a, 2:a: unknown; x\n1:b: unknown; y\n"
