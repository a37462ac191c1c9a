"""The `slomo` command: find the sub-command, run it, convert errors to messages and exit codes.

The library raises errors; only `main` prints them and returns the code. Sub-commands are imported on first use, so that
`slomo --help` and shell completion are fast.
"""

import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from slomo.cli import faults
from slomo.errors import UnknownNameError
from slomo.extras import translated

#: Sub-command -> its line in `slomo --help`; its file is in verbs/, verbs/inventory/ or verbs/acting/.
COMMANDS = {
    "profile": "Measure network functions alone, under pressure and in mixes.",
    "fleet": "Measure on many hosts at once.",
    "train": "Fit one sensitivity model per network function of a dataset.",
    "predict": "Predict the throughput that a network function loses beside others.",
    "rows": "Predict every row of an imported table, and compare with measurements.",
    "evaluate": "Compare every model with mixes that it was never trained on.",
    "place": "Place network functions on a cluster so that they keep their SLOs.",
    "whatif": "Predict every tenant under cache ways and throttles, and advise settings.",
    "noisy-neighbour": "Find the throughput of tenants beside a noisy neighbour, under policies.",
    "control": "Keep promises while loads change: a control loop on a machine.",
    "enforce": "Apply a plan of settings to this machine; show, compare and undo settings.",
    "chain": "Run service chains whose stages may share cores.",
    "models": "Share models: push, pull, list, verify, compare and prune a common library.",
    "serve": "Serve predictions and placement over HTTP, for orchestrators and for people.",
    "agent": "Observe the network functions of one Kubernetes node, and report to the service.",
    "drift": "Compare live measurements with models, and update models.",
    "probes": "Predict applications' speed from run times beside probes, without counters.",
    "dataset": "Import, show, list, export and merge datasets.",
    "nf": "List and show network functions.",
    "machine": "List and show machines.",
    "plugin": "List what other packages add: models, policies, counter readers, testbeds.",
    "schema": "Print the JSON Schema of a document, for editors and other programs.",
    "doctor": "Show what this host can measure, and what would disturb measurements.",
    "demo": "Profile, train, predict and check, on the simulator, with a report.",
    "completion": "Print the script that completes names in a shell.",
}

#: Key of a context's metadata for the sub-command.
_VERB = "slomo.verb"
#: Sub-commands whose files are in verbs/inventory.
INVENTORY = frozenset(("dataset", "models", "nf", "machine", "plugin", "schema", "doctor", "completion"))
#: Sub-commands whose files are in verbs/acting.
ACTING = frozenset({"control", "enforce", "noisy-neighbour", "whatif"})


def load_command(name: str) -> click.Command:
    """Import and return the command `name`."""
    room = "slomo.cli.verbs.inventory" if name in INVENTORY else "slomo.cli.verbs"
    room = "slomo.cli.verbs.acting" if name in ACTING else room
    command = importlib.import_module(f"{room}.{name.replace('-', '_')}").command
    assert isinstance(command, click.Command)
    return command


class LazyGroup(click.Group):
    """A group of commands that imports a command's code only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of commands in the order in which they are used, not alphabetically."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return the command `cmd_name`."""
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the words name. Raises UnknownNameError, with the nearest name, if there is none."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise UnknownNameError("command", args[0], COMMANDS)
        ctx.meta[_VERB] = next(iter(args), None)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; where a package is missing, name the extra that covers all needs of the command."""
        try:
            return super().invoke(ctx)
        except ImportError as error:
            raise translated(error, ctx.meta.get(_VERB)) or error from None
        except BrokenPipeError:
            # the reader of the pipe has ended (`slomo nf list | head -1`); click would end with 1, as failed checks do
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(faults.BROKEN_PIPE)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the table of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


#: Settings of every command's context.
CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


@click.group(cls=LazyGroup, context_settings=CONTEXT)
@click.option(
    "--config", metavar="FILE", help="Settings file (default: ./slomo.toml, then ~/.config/slomo/slomo.toml)."
)
@click.version_option(package_name="slomo", message="slomo %(version)s", help="Print the version and exit.")
def cli(config: str | None) -> None:
    """Predict how much a network function slows down when it shares a server.

    An example of the whole workflow that needs no hardware: `slomo demo --out demo-output`.

    Settings come from the command line, then SLOMO_<NAME> in the environment, then the settings file, then defaults.
    Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 a check failed, 2 usage or configuration,
    3 testbed, 4 measurement, 5 prediction unsupported, 70 internal fault, 130 interrupted.
    """
    if config is not None:  # refused here, since not every command reads settings; read again by options.settings
        from slomo.config import load_settings

        load_settings(file=config)


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command with the words that call it, groups before their members."""
    yield "slomo", cli
    for name in COMMANDS:
        command = load_command(name)
        yield f"slomo {name}", command
        if isinstance(command, click.Group):
            yield from ((f"slomo {name} {inner}", member) for inner, member in command.commands.items())


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Print warnings as one line, `note: ...`, until the command ends."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"note: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    `arguments`: arguments without the program's name; by default the process's own.

    Examples
    --------
    >>> main(["completion", "bash"]) == 0
    _slomo_completion() {
    ...
    True
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with _warnings_as_notes():
            result: Any = cli.main(args=words, prog_name="slomo", standalone_mode=False)
    except BaseException as error:
        return faults.report(error, as_json="--json" in words)
    return result if isinstance(result, int) else 0
