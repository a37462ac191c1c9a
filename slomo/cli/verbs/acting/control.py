"""`slomo control`: run a control loop that keeps tenants' promises, and show its state."""

from typing import TYPE_CHECKING

import click

from slomo.cli.options import json_option
from slomo.cli.output import emit, note
from slomo.units import plural

if TYPE_CHECKING:
    from slomo.control.loop import Step


@click.group()
def command() -> None:
    """Keep promised throughputs while loads change: observe, decide, apply; restore the machine at the end."""


@command.command("run")
@click.argument("configuration", metavar="CONFIG")
@json_option
def run_loop(configuration: str, as_json: bool) -> int:
    """Run the control loop that CONFIG describes, on a simulated machine or on this host (`machine: host`).

    SIGTERM and Ctrl-C end the loop and restore the machine. A killed loop leaves a receipt; `slomo enforce undo --all`
    then restores the machine. Exit code 1 if a promise was broken in the last round.
    """
    from slomo.workflow.acting.control import run_control
    from slomo.workflow.acting.control_file import read_control_file

    read = read_control_file(configuration)
    last: list[bool] = []
    escalated: list[tuple[str, ...]] = [()]

    def told(step: "Step") -> None:
        broken = step.observation.broken if step.observation is not None else ()
        last[:] = [bool(broken)]
        fresh = step.decision.escalated if step.decision.escalated != escalated[-1] else ()
        escalated.append(step.decision.escalated)
        if step.changes or step.fault or fresh:
            when = f"{step.observation.time_s:g} s" if step.observation is not None else "-"
            reasons = [*step.decision.reasons, *(f"{name} is to be moved or scaled out" for name in fresh)]
            note(f"{when}: {step.fault or '; '.join(reasons)} ({plural(step.changes, 'knob')})")

    summary = run_control(read, told)
    rows = [(name.replace("_", " "), str(value)) for name, value in summary.items()]
    emit(summary, ("what", "value"), rows, as_json=as_json)
    return int(any(last))


@command.command("status")
@json_option
def show_status(as_json: bool) -> None:
    """Show this user's control loops, and the receipts (records of changes) that were not undone."""
    from slomo.workflow.acting.control import control_status

    status = control_status()
    rows = [
        (
            s["name"],
            s["controller"],
            "runs" if s["alive"] else "was killed",
            s["rounds"],
            s["changes"],
            str(s["broken"]),
        )
        for s in status["loops"]
    ]
    emit(status, ("loop", "controller", "state", "rounds", "changes", "broken"), rows, as_json=as_json)
    for receipt in () if as_json else status["open_receipts"]:
        click.echo(f"open receipt {receipt}: slomo enforce undo {receipt}")
