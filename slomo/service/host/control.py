"""Control loops as jobs: each runs in a thread, reports its rounds, and ends with the service.

Rounds are sent to all listeners and stored at intervals. A resumed loop starts from the beginning, since its machine
was restored when it stopped.
"""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

from slomo.control.loop import Step
from slomo.errors import SlomoError, UnknownNameError
from slomo.service.jobs import JobProgress
from slomo.vocabulary.machine import machine_names
from slomo.vocabulary.network_function import network_function_names
from slomo.vocabulary.workload_text import parse_workload
from slomo.workflow.acting.control import run_control
from slomo.workflow.acting.control_file import ControlConfiguration, control_from

#: Interval at which a loop's rounds are stored [s].
KEEP_EVERY_S = 1.0


class _StoppedError(SlomoError):
    """Ends a control loop when the service stops; the loop then restores its machine."""


def configuration_of(document: dict[str, Any]) -> ControlConfiguration:
    """Return the control loop that a request describes; machines and network functions must be names, not files."""
    machine = document.get("machine", "e5-2620v4")
    if machine not in machine_names():
        raise UnknownNameError("machine", machine, machine_names())
    for tenant in document["tenants"]:
        function = parse_workload(tenant["workload"]).nf
        if function not in network_function_names():
            raise UnknownNameError("network function", function[:100], network_function_names())
    return control_from(document, document.get("name", "service"))


async def run_loop(receipts: Path | None, document: dict[str, Any], progress: JobProgress) -> dict[str, Any]:
    """Run a control loop; the folder `receipts` holds the receipts by which its changes can be undone."""
    configuration, loop = configuration_of(document), asyncio.get_running_loop()
    ends, rounds, kept_at_s = threading.Event(), 0, time.monotonic()

    def tell(number: int, text: str) -> None:
        nonlocal kept_at_s
        progress.tell(number / configuration.file.steps, f"round {number}: {text}"[:300], {"rounds": number})
        if time.monotonic() - kept_at_s > KEEP_EVERY_S:
            kept_at_s = time.monotonic()
            progress.keep()

    def told(step: Step) -> None:
        nonlocal rounds
        rounds += 1
        if ends.is_set():
            raise _StoppedError("the service stopped")
        loop.call_soon_threadsafe(tell, rounds, step.fault or "; ".join(step.decision.reasons))

    try:
        return await asyncio.to_thread(run_control, configuration, told, receipts=receipts)
    finally:
        ends.set()
