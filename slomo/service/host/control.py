"""Control loops as jobs: each runs in a thread, tells its rounds, and ends with the service."""

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from slomo.errors import SlomoError, UnknownNameError
from slomo.vocabulary.machine import machine_names
from slomo.vocabulary.network_function import network_function_names
from slomo.vocabulary.workload_text import parse_workload
from slomo.workflow.acting.control import ControlConfiguration, control_from, control_status, run_control

if TYPE_CHECKING:
    from pathlib import Path

    from slomo.control.loop import Step
    from slomo.service.jobs import Job, Jobs, Tell


class _StoppedError(SlomoError):
    """The service ends; the loop gives its machine back."""


def configuration_of(document: dict[str, Any]) -> ControlConfiguration:
    """Return the loop that a request describes; it names machines and network functions, never files.

    Raises
    ------
    SlomoError
        For what is none.

    Examples
    --------
    >>> configuration_of({"tenants": [{"workload": "lpm", "slo": 0.9}], "name": "a"}).tenants[0][0]
    '0:lpm'
    """
    machine = document.get("machine", "e5-2620v4")
    if machine not in machine_names():
        raise UnknownNameError("machine", machine, machine_names())
    for tenant in document["tenants"]:
        function = parse_workload(tenant["workload"]).nf
        if function not in network_function_names():
            raise UnknownNameError("network function", function[:100], network_function_names())
    return control_from(document, document.get("name", "service"))


async def run_as_job(jobs: "Jobs", receipts: "Path | None", document: dict[str, Any], key: str | None = None) -> "Job":
    """Accept a control loop as a job; what it changes on this host is written to the folder `receipts`."""
    configuration = configuration_of(document)
    ends = threading.Event()

    async def work(tell: "Tell") -> dict[str, Any]:
        loop, rounds = asyncio.get_running_loop(), [0]

        def told(step: "Step") -> None:
            rounds[0] += 1
            if ends.is_set():
                raise _StoppedError("the service stopped")
            said = step.fault or "; ".join(step.decision.reasons)
            loop.call_soon_threadsafe(tell, rounds[0] / configuration.steps, f"round {rounds[0]}: {said}"[:300])

        try:
            return await asyncio.to_thread(run_control, configuration, told, receipts=receipts)
        finally:
            ends.set()

    return await jobs.accept("control", work, key)


def status() -> dict[str, Any]:
    """Return the loops that run (or were killed), and the receipts that are open."""
    return control_status()
