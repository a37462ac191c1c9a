"""`slomo enforce`: apply a plan of settings to this machine; show settings, compare them with a plan, undo changes."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slomo.cli.options import json_option
from slomo.cli.output import emit_json, emit_table, note
from slomo.errors import UsageError

if TYPE_CHECKING:
    from slomo.enforce.plan import EnforcementPlan

_Command = Callable[..., Any]
_backend_option = click.option(
    "--backend",
    metavar="BACKEND",
    default="auto",
    help="resctrl, pqos, cgroup, scheduler, buffers or rdt-class; several are joined by +.",
)
_receipts_option = click.option(
    "--receipts",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder of the journal of changes (default: the machine's own).",
)


def _plan_options(command: _Command) -> _Command:
    @functools.wraps(command)
    def with_plan(plan_file: str, member: str | None, machine: str | None, **rest: Any) -> int | None:
        from slomo.workflow.acting.enforce import read_plan

        code: int | None = command(read_plan(plan_file, server=member, machine=machine), **rest)
        return code

    made = click.option(
        "--machine", metavar="NAME", help="Machine type of the server, if PLAN holds placement decisions."
    )(with_plan)
    made = click.option(
        "--member", metavar="NAME", help="Server whose part to apply, if PLAN holds placement decisions."
    )(made)
    return click.argument("plan_file", metavar="PLAN")(made)


@click.group()
def command() -> None:
    """Set cache ways, memory bandwidth, CPUs, memory node, weights, schedulers or packet buffers on this machine.

    Every change is recorded before it is made; `undo` restores the exact previous value, even after kill -9.
    """


@command.command("apply")
@_plan_options
@_backend_option
@_receipts_option
@json_option
def apply_plan(plan: "EnforcementPlan", backend: str, receipts: Path | None, as_json: bool) -> None:
    """Apply PLAN (a plan, or the output of `slomo place --json`), verify the settings and print the record of changes.

    Example: slomo enforce apply plan.yaml
    """
    from slomo.enforce.backends.registry import load_backend
    from slomo.enforce.executor import apply

    receipt = apply(plan, load_backend(backend), receipts=receipts)
    changes, stacked = receipt.made, receipt.others()
    if as_json:
        summary = {"receipt": receipt.identifier, "file": str(receipt.path), "changes": [vars(c) for c in changes]}
        emit_json({**summary, "stacked": list(stacked)})
        return
    click.echo("\n".join(change.text for change in changes) or "nothing to change")
    if stacked:
        note(f"also set by another receipt, which has it back once this one is undone: {', '.join(stacked)}")
    note(f"applied; take it back with: slomo enforce undo {receipt.identifier}")


@command.command("diff")
@_plan_options
@_backend_option
@json_option
def diff_plan(plan: "EnforcementPlan", backend: str, as_json: bool) -> int:
    """Print the changes that `apply` would make. Exit code 1 if there are any."""
    from slomo.enforce.backends.registry import load_backend
    from slomo.enforce.executor import diff

    changes = diff(plan, load_backend(backend))
    if as_json:
        emit_json({"changes": [vars(change) for change in changes]})
    else:
        click.echo("\n".join(change.text for change in changes) or "as planned")
    return int(bool(changes))


@command.command("show")
@_backend_option
@_receipts_option
@json_option
def show_machine(backend: str, receipts: Path | None, as_json: bool) -> None:
    """Show the settings in force on this machine, and its receipts (records of changes)."""
    from slomo.enforce.backends.registry import load_backend
    from slomo.enforce.executor import show
    from slomo.workflow.acting.enforce import describe_receipts

    knobs, receipt_rows = show(load_backend(backend)), describe_receipts(receipts)
    if as_json:
        emit_json({"knobs": knobs, "receipts": receipt_rows})
        return
    emit_table(("knob", "value"), [(name, "absent" if value is None else value) for name, value in knobs.items()])
    if receipt_rows:
        click.echo()
        emit_table(("receipt", "backend", "state", "changes"), [tuple(row.values()) for row in receipt_rows])


@command.command("undo")
@click.argument("receipt", required=False)
@click.option("--all", "everything", is_flag=True, help="Undo every open receipt, newest first.")
@_receipts_option
@json_option
def undo_receipt(receipt: str | None, everything: bool, receipts: Path | None, as_json: bool) -> int:
    """Undo the changes that RECEIPT records, or with --all all recorded changes. Exit code 3 if a change remains."""
    from slomo.workflow.acting.enforce import undo_receipts

    if (receipt is None) != everything:
        raise UsageError("which receipt?", hint="name one (see `slomo enforce show`), or give --all")
    reports = undo_receipts(receipt, receipts)
    left = [report for report in reports if report.left]
    if as_json:
        emit_json([{**each.to_dict(), "ended": each.ended, "left": each.left} for each in reports])
        return 3 if left else 0
    for report in reports:
        result = report.result
        outcome = f"left open: {report.left}" if report.left else report.ended or f"{len(result.restored)} restored"
        click.echo(f"{report.receipt}: {outcome}")
        for what, names in (
            ("vanished", result.vanished),
            ("changed by another program, left so", result.foreign),
            ("set by a later receipt, left to it", result.covered),
        ):
            click.echo("".join(f"  {what}: {name}\n" for name in names), nl=False)
    if not reports:
        note("no open receipt in this journal; `slomo enforce show` prints what is set on the machine")
    if left:
        note(f"{len(left)} of {len(reports)} receipts are left open")
    return 3 if left else 0
