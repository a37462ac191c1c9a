"""The process of a host that receives runs. It stays warm, so that a worker that dies is replaced at once.

    python -m slomo.fleet.worker tcp://COORDINATOR:8786 --name rack1 --state FOLDER

A worker is forked from a process that has imported everything: 0.05 s instead of two, of a whole core. When a worker
dies another one is forked; when its coordinator dies it is waited for, since the same command listens at the same place
again. A worker takes the host's lock before it connects.
"""

import argparse
import asyncio
import multiprocessing
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

import dask
from distributed import Worker
from distributed.comm.addressing import get_address_host_port

from slomo.errors import SlomoError, TestbedError
from slomo.fleet.hosts import FleetHost
from slomo.fleet.measuring import RESOURCE, hold, own_resource
from slomo.fleet.spread import end_with

#: How long a coordinator may be away, and how long the host's previous holder may take to leave it [s].
AWAY_S, LEAVING_S = 180.0, 5.0
#: How often a host's worker may die before it is given up.
MOST_DEATHS = 1000
_LOOK_S = 0.1
#: A worker's exit codes: told to end; its scheduler went away. Any other of a worker that connected is a death.
ENDED, LOST, REFUSED = 0, 75, 3


class HostWorker(Worker):
    """A Dask worker that remembers why it was closed."""

    why_closed = ""

    async def close(self, *arguments: Any, **options: Any) -> str | None:  # type: ignore[override]
        """Close it."""
        self.why_closed = self.why_closed or str(options.get("reason", ""))
        return await super().close(*arguments, **options)


def keep_worker(scheduler: str, host: FleetHost) -> int:
    """Fork a worker, and another one when it dies or loses its scheduler; return the exit code of the last."""
    fork = multiprocessing.get_context("fork")  # nothing else runs in this process: no thread, no loop
    for _ in range(MOST_DEATHS):
        process = fork.Process(target=_work, args=(scheduler, host, os.getpid()))
        process.start()
        process.join()
        if process.exitcode in (ENDED, REFUSED):
            break
    return int(process.exitcode or 0)


def _work(scheduler: str, host: FleetHost, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the coordinator, which lets runs end
    end_with(parent)
    try:
        _await(scheduler)
        hold(host, LEAVING_S)
    except SlomoError as error:
        sys.stderr.write(f"{error.message}\n")
        sys.exit(REFUSED)
    sys.exit(asyncio.run(_serve(scheduler, host)))


def _await(scheduler: str) -> None:
    """Wait until somebody listens there; TestbedError where nobody does."""
    place, until = get_address_host_port(scheduler), time.monotonic() + AWAY_S
    while time.monotonic() < until:
        with suppress(OSError):
            socket.create_connection(place, 5.0).close()
            return
        time.sleep(_LOOK_S)
    raise TestbedError(f"no scheduler answered at {scheduler} for {AWAY_S:g} s")


#: Dask looks at what a worker does a hundred times a second: 3 % of a core beside whatever is measured.
_QUIET = {"distributed.worker.profile.enabled": False, "distributed.admin.system-monitor.interval": "10 s"}


async def _serve(scheduler: str, host: FleetHost) -> int:
    dask.config.set(_QUIET)
    resources = {RESOURCE: 1.0, own_resource(host.name): 1.0}
    worker = HostWorker(
        scheduler, name=host.name, nthreads=1, resources=resources, memory_limit=0, death_timeout=AWAY_S
    )
    try:
        await worker
    except (OSError, ValueError, TimeoutError):  # gone again, or a worker of this name is not yet known to be dead
        time.sleep(_LOOK_S)
        return LOST
    await worker.finished()  # type: ignore[no-untyped-call]
    return LOST if "broken" in worker.why_closed else ENDED


def main() -> int:
    """Keep a worker for the scheduler that the command line names."""
    parser = argparse.ArgumentParser(description="Keep a worker of a fleet's host.")
    parser.add_argument("scheduler", metavar="ADDRESS", help="of the coordinator's Dask scheduler")
    parser.add_argument("--name", required=True, help="of the host in the file of hosts")
    parser.add_argument("--state", default=FleetHost.state, help="folder of its lock, its token and its runs")
    given = parser.parse_args()
    return keep_worker(given.scheduler, FleetHost(given.name, state=given.state))


if __name__ == "__main__":
    sys.exit(main())
