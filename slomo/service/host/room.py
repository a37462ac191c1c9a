"""Access of the service to its own machine: the backend, the receipts of changes, and RMD's pools.

Only settings at start can allow actions on this machine; a request cannot. Without the settings `enforce`, `control` or
`pools`, the operations answer 403.

A control loop's rounds are sent to all listeners and stored at intervals. A resumed loop starts from the beginning,
since its machine was restored when it stopped.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slomo.control.loop import Step
from slomo.control.pools.configuration import read_rmd_toml
from slomo.control.pools.foresight import PoolForesight
from slomo.control.pools.manager import PoolManager
from slomo.enforce.backends.registry import load_backend
from slomo.enforce.change import Backend
from slomo.enforce.executor import apply, diff, show
from slomo.enforce.plan import EnforcementPlan
from slomo.errors import SlomoError, UnknownNameError
from slomo.host.journal import receipts_directory
from slomo.models.library import ModelLibrary
from slomo.service.door.problems import Problem
from slomo.service.jobs import JobProgress
from slomo.service.settings import ServiceSettings
from slomo.vocabulary.machine import load_machine, machine_names
from slomo.vocabulary.network_function import network_function_names
from slomo.vocabulary.workload_text import parse_workload
from slomo.workflow.acting.control import run_control
from slomo.workflow.acting.control_file import ControlConfiguration, control_from
from slomo.workflow.acting.enforce import describe_receipts, undo_receipts


class HostRoom:
    """Changes settings of the machine on which the service runs, if it has a backend and pools for that."""

    def __init__(self, backend: Backend | None, receipts: Path, pools: PoolManager | None = None) -> None:
        self._backend, self._receipts, self._pools = backend, receipts, pools
        self._lock = threading.Lock()

    @classmethod
    def of(cls, settings: ServiceSettings, library: Callable[[], ModelLibrary]) -> "HostRoom":
        """Return the access that the settings allow; the pools predict hospitality with the present `library`."""
        backend = None if settings.enforce is None else load_backend(settings.enforce)
        receipts = settings.receipts or receipts_directory()
        if settings.pools is None:
            return cls(backend, receipts)
        assert settings.host_machine is not None
        machine = load_machine(settings.host_machine)
        way_mib, ways = machine.llc_mib / machine.llc_ways, machine.llc_ways
        configuration = read_rmd_toml(settings.pools, settings.policies, way_mib=way_mib, cache_ways=ways)
        foresight = PoolForesight(library, machine)
        caches = tuple(range(machine.sockets))
        # a machine's description does not count a core's second hyper-thread, the system does
        cores = range(max(machine.cores, os.sysconf("SC_NPROCESSORS_CONF")))
        pools = PoolManager(
            configuration,
            ways,
            caches=caches,
            backend=backend,
            receipts=receipts,
            estimator=foresight,
            cores=cores,
        )
        return cls(backend, receipts, pools)

    @property
    def enforcing(self) -> Backend:
        """The backend that applies plans."""
        if self._backend is None:
            raise Problem(403, "this service may not act on its host", hint="slomo serve --enforce BACKEND")
        return self._backend

    @property
    def pools(self) -> PoolManager:
        """RMD's pools; Problem 403 if the service has none."""
        if self._pools is None:
            raise Problem(403, "this service keeps no pools", hint="slomo serve --pools rmd.toml --host-machine TYPE")
        return self._pools

    def describe(self) -> dict[str, Any]:
        """Return the settings in force, and the receipts (records of changes)."""
        backend = self.enforcing
        return {
            "backend": backend.name,
            "knobs": dict(show(backend)),
            "receipts": describe_receipts(self._receipts),
        }

    def enforce(self, plan: EnforcementPlan, *, what_if: bool) -> dict[str, Any]:
        """Apply a plan to the machine, or only return the changes that it would make."""
        backend = self.enforcing
        if what_if:
            return {"receipt": None, "changes": [vars(change) for change in diff(plan, backend)], "stacked": []}
        with self._lock:
            receipt = apply(plan, backend, receipts=self._receipts)
        return {
            "receipt": receipt.identifier,
            "changes": [vars(change) for change in receipt.made],
            "stacked": list(receipt.others()),
        }

    def undo(self, identifier: str) -> dict[str, Any]:
        """Undo the changes of a receipt of this host, which the caller names by its identifier, never by a file."""
        backend = self.enforcing
        if identifier not in {row["receipt"] for row in describe_receipts(self._receipts)}:
            raise Problem(404, "there is no such receipt", hint="list /v1/enforce")
        with self._lock:
            (report,) = undo_receipts(identifier, self._receipts, backend)
        return report.to_dict()

    def close(self) -> None:
        """Undo the pools' changes; settings made by requests stay in force, with their receipts."""
        if self._pools is not None:
            self._pools.close()


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
