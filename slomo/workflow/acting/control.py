"""Run a control loop from a configuration file, and report its state."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from slomo.control.loop import ControlLoop, Step
from slomo.errors import SlomoError, StoreError
from slomo.files.documents import convert, parse
from slomo.files.durable import write_durably
from slomo.files.opening import read_text
from slomo.files.ranges import ProcessId
from slomo.host.journal import open_receipts
from slomo.host.places import cache_directory
from slomo.plugins import imported
from slomo.testbed.host.run import Run
from slomo.workflow.acting.control_file import ControlConfiguration
from slomo.workflow.acting.host_loops import host_loop


def run_control(
    configuration: ControlConfiguration, told: Callable[[Step], None] | None = None, *, receipts: Path | None = None
) -> dict[str, Any]:
    """Run a control loop, on the simulator or on this host, and return a summary.

    Raises any SlomoError of the loop, after the machine's settings are restored.

    `told`: called after each round. `receipts`: folder of receipts.
    """
    steps: list[Step] = []
    with control_loop(configuration, receipts) as (loop, targets):

        def note(step: Step) -> None:
            steps.append(step)
            _write_status(configuration, steps, loop)
            if told is not None:
                told(step)

        try:
            loop.run(configuration.file.steps, note)
        finally:
            _status_file(configuration.name).unlink(missing_ok=True)
    broken = sum(bool(step.observation.broken) for step in steps if step.observation is not None)
    return {
        "name": configuration.name,
        "controller": configuration.controller,
        "rounds": len(steps),
        "rounds_with_a_broken_promise": broken,
        "changes": sum(bool(step.changes) for step in steps),
        "alarms": loop.alarms,
        "blind_rounds": loop.blind_rounds,
        "escalated": sorted({name for step in steps for name in step.decision.escalated}),
        "targets_mpps": dict(targets),
    }


@contextlib.contextmanager
def control_loop(
    configuration: ControlConfiguration, receipts: Path | None = None
) -> Iterator[tuple[ControlLoop, Mapping[str, float]]]:
    """Yield the loop that a configuration describes, and the promised throughputs.

    This host's network functions run only inside the context.
    """
    with contextlib.ExitStack() as context:
        if configuration.machine is None:
            plant, controller, targets = host_loop(configuration, context.enter_context(Run()))
        else:  # imports the simulator, which a host does not need
            make = imported(f"slomo.workflow.acting.simulated_loops:{configuration.controller}")
            plant, controller, targets = make(configuration)
        yield ControlLoop(plant, controller, configuration.settings, receipts=receipts), targets


def _status_file(name: str) -> Path:
    return cache_directory() / "control" / f"{name.replace(os.sep, '-')[:60]}.json"


def _write_status(configuration: ControlConfiguration, steps: Sequence[Step], loop: ControlLoop) -> None:
    last = steps[-1]
    observation = last.observation
    status = {
        "name": configuration.name,
        "controller": configuration.controller,
        "process": os.getpid(),
        "at": time.time(),
        "rounds": len(steps),
        "changes": sum(bool(step.changes) for step in steps),
        "broken": list(observation.broken) if observation else [],
        "throughput_mpps": {name: r.throughput_mpps for name, r in observation.tenants.items()} if observation else {},
        "reasons": list(last.decision.reasons),
        "fault": last.fault,
        "alarm": last.alarm,
        "alarms": loop.alarms,
        "blind_rounds": loop.blind_rounds,
        "receipt": None if loop.receipt is None else loop.receipt.identifier,
        "plan": None if loop.plan is None else loop.plan.to_dict(),
        "settings": asdict(configuration.settings),
    }
    with contextlib.suppress(StoreError):  # a full disk does not end a loop that keeps promises
        write_durably(_status_file(configuration.name), json.dumps(status))


def control_status() -> dict[str, Any]:
    """Return the loops that run or were killed, and the receipts (records of changes) not yet undone."""
    loops = []
    for path in sorted((cache_directory() / "control").glob("*.json")):
        with contextlib.suppress(SlomoError):
            loops.append(read_status(path))
    return {"loops": loops, "open_receipts": [receipt.identifier for receipt in open_receipts()]}


def read_status(path: Path) -> dict[str, Any]:
    """Return the status that a loop last wrote, and whether its process still lives."""
    status = parse(read_text(path), str(path)).table()
    process = convert(status.get("process"), ProcessId, str(path))
    return {**status, "alive": Path(f"/proc/{process}").is_dir()}
