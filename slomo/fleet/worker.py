"""The process on a host that makes runs; it keeps modules loaded, so that a dead worker is replaced at once.

    python -m slomo.fleet.worker tcp://COORDINATOR:8786 --name rack1 --state FOLDER

A worker is forked from a process that has imported everything, in 0.05 s instead of two of a whole core. If a worker
dies, another one is forked. If its coordinator dies, it waits, as the same command listens at the same address again. A
worker takes the host's lock before it connects.
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

#: Longest absence of a coordinator, and longest time for the host's previous holder to leave [s].
AWAY_S, LEAVING_S = 180.0, 5.0
#: Number of worker deaths after which a host is given up.
MOST_DEATHS = 1000
_LOOK_S = 0.1
#: Exit codes of a worker: told to end; scheduler lost; refused. Any other exit of a connected worker is a death.
ENDED, LOST, REFUSED = 0, 75, 3


class HostWorker(Worker):
    """A Dask worker that remembers why it ended."""

    why_closed = ""

    async def close(self, *arguments: Any, **options: Any) -> str | None:  # type: ignore[override]
        """Close the worker and remember the reason."""
        self.why_closed = self.why_closed or str(options.get("reason", ""))
        return await super().close(*arguments, **options)


def keep_worker(scheduler: str, host: FleetHost) -> int:
    """Fork a worker, and a new one whenever it dies or loses its scheduler; return the last exit code."""
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
    """Wait until a server listens at an address. Raises TestbedError if none does in time."""
    place, until = get_address_host_port(scheduler), time.monotonic() + AWAY_S
    while time.monotonic() < until:
        with suppress(OSError):
            socket.create_connection(place, 5.0).close()
            return
        time.sleep(_LOOK_S)
    raise TestbedError(f"no scheduler answered at {scheduler} for {AWAY_S:g} s")


#: Dask's profiler samples a worker a hundred times a second: 3 % of a core beside the measurement.
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
    """Keep a worker running for the scheduler that the command line names."""
    parser = argparse.ArgumentParser(description="Keep a worker of a fleet's host.")
    parser.add_argument("scheduler", metavar="ADDRESS", help="of the coordinator's Dask scheduler")
    parser.add_argument("--name", required=True, help="of the host in the file of hosts")
    parser.add_argument("--state", default=FleetHost.state, help="folder of its lock, its token and its runs")
    arguments = parser.parse_args()
    return keep_worker(arguments.scheduler, FleetHost(arguments.name, state=arguments.state))


if __name__ == "__main__":
    sys.exit(main())
