"""Reach the hosts of a campaign: their workers, calls of functions on all of them, and excluded hosts."""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from distributed import Client, Future

from slomo.errors import SlomoError, StoreError, TestbedError
from slomo.fleet.functions import FunctionFolder
from slomo.fleet.hosts import Fleet, FleetHost
from slomo.fleet.measuring import RESOURCE, grouped, has_functions, on_worker, own_resource, take_functions
from slomo.fleet.spread import connected
from slomo.fleet.starting import START_S, Starter, free_port
from slomo.fleet.worker import MOST_DEATHS
from slomo.profiling.campaign.store import CampaignStore, StaleTokenError

#: Silence of a worker after which its run is given to another one [s].
SILENT_S = 60.0
#: Interval of checks whether a host with a pending request still exists [s].
_LOOK_S = 1.0


class ReachedHosts:
    """The hosts that take part in a campaign, each with a Dask worker.

    `client`: of the scheduler. `hosts`: all of the fleet by name. `left_out`: those that take no part, and why.
    `skip_missing`: whether a host that cannot be used is left out; else it ends the campaign.
    """

    def __init__(
        self, client: Client, hosts: Mapping[str, FleetHost], left_out: Mapping[str, str], *, skip_missing: bool
    ) -> None:
        self.client, self.left_out, self._skip_missing = client, dict(left_out), skip_missing
        self.names = {name: host for name, host in hosts.items() if name not in left_out}

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Continue the campaign without some hosts."""
        self.left_out |= reasons
        self.names = {name: host for name, host in self.names.items() if name not in reasons}

    def ask(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        of: Iterable[str] | None = None,
        needed: bool = False,
    ) -> dict[str, Any]:
        """Call a function on each host and return the results by host name.

        `function` is called on each host with its `FleetHost` and the arguments. `of`: hosts to ask; all that take part
        by default. `needed`: raise a host's error even where unusable hosts are skipped.
        """
        names = [*(self.names if of is None else of)]
        with lost_scheduler_told():
            asked = {
                name: self.client.submit(
                    on_worker,
                    function,
                    grouped({name: self.names[name]}),
                    *arguments,
                    pure=False,
                    resources={RESOURCE: 1, own_resource(name): 1},
                )
                for name in names
            }
            answers, reasons = {}, {}
            for name, future in asked.items():
                try:
                    answers[name] = _answer(self.client, name, future)
                except SlomoError as error:
                    if needed or not self._skip_missing or isinstance(error, StaleTokenError):
                        raise
                    reasons[name], refused = error.message, error
            if reasons and not answers:
                raise refused
        self.leave_out(reasons)
        return answers

    def send(self, functions: FunctionFolder) -> None:
        """Send native network functions to hosts that lack them, one host at a time to limit the scheduler's memory."""
        for name, there in self.ask(has_functions, functions.digest).items():
            if not there:
                try:
                    self.ask(take_functions, functions, of=[name], needed=True)
                except (StoreError, TestbedError) as error:
                    if not self._skip_missing:
                        raise
                    self.leave_out({name: error.message})


@contextmanager
def reached(fleet: Fleet, scheduler: str | None, skip_missing: bool, store: CampaignStore) -> Iterator[ReachedHosts]:
    """Yield the hosts of a fleet; start their workers unless the caller names a running scheduler."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slomo-fleet-")))
        starter = Starter(fleet, folder, returning=token_of(store) > 0)
        stack.callback(starter.end)
        address = scheduler or stack.enter_context(_listening(fleet, store))
        client = stack.enter_context(connected(address))
        present = partial(_present, client)
        left_out = starter.start(address, present) if scheduler is None else _awaited(present, fleet)
        if left_out and (not skip_missing or len(left_out) == len(fleet.hosts)):
            host, why = next(iter(left_out.items()))
            raise TestbedError(
                f"{len(left_out)} of {len(fleet.hosts)} hosts cannot be used; '{host}': {why}",
                hint="mend it, or leave such hosts out with --skip-missing",
            )
        if scheduler is None:
            stack.enter_context(starter.keeping_up(client))
        yield ReachedHosts(client, fleet.names, left_out, skip_missing=skip_missing)


@contextmanager
def _listening(fleet: Fleet, store: CampaignStore) -> Iterator[str]:
    """Start a scheduler at the address that this store's last scheduler had, so that its workers reconnect."""
    import dask
    from distributed import LocalCluster

    settings = {
        # a run that kills its worker is tried on another one; the testbed reports what is wrong with it
        "distributed.scheduler.allowed-failures": MOST_DEATHS,
        "distributed.scheduler.worker-ttl": f"{SILENT_S:g} s",
        "distributed.comm.timeouts.tcp": "300 s",  # on a machine that is very busy
        "distributed.comm.timeouts.connect": "60 s",
    }
    made: Any = LocalCluster
    port = free_port(fleet.listen, int(store.settings().get("port", 0)))
    with (
        dask.config.set(settings),
        made(
            n_workers=0, host=fleet.listen, scheduler_port=port, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as cluster,
    ):
        store.note("port", int(cluster.scheduler_address.rsplit(":", 1)[1]))
        yield str(cluster.scheduler_address)


def _awaited(present: Callable[[], set[str]], fleet: Fleet) -> dict[str, str]:
    """Wait for workers that others start; return the hosts whose workers did not come."""
    deadline = time.monotonic() + START_S
    while (missing := fleet.names.keys() - present()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return dict.fromkeys(sorted(missing), f"its worker did not come within {START_S:g} s")


def _answer(client: Client, host: str, future: Future[Any]) -> Any:
    """Return a host's result. Raises TestbedError if the host's worker is lost and does not return."""
    seen = time.monotonic()
    while True:
        with suppress(TimeoutError):
            return future.result(timeout=_LOOK_S)
        if host in _present(client):
            seen = time.monotonic()
        elif time.monotonic() > seen + START_S:
            raise TestbedError(
                f"host '{host}' is gone: its worker did not come back within {START_S:g} s",
                hint="mend it, or leave such hosts out with --skip-missing",
            )


def _present(client: Client) -> set[str]:
    """Return the hosts whose workers are connected."""
    return {str(each["name"]) for each in client.scheduler_info(n_workers=-1)["workers"].values()}


@contextmanager
def lost_scheduler_told() -> Iterator[None]:
    """Turn Dask's errors about a lost scheduler or lost workers into a TestbedError."""
    from distributed import CancelledError as DaskCancelled
    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    try:
        yield
    except (CancelledError, DaskCancelled, KilledWorker, CommClosedError) as error:
        raise TestbedError(
            f"scheduler or workers of the fleet are gone ({type(error).__name__}: {error})",
            hint="the same command again collects what the hosts have finished, and goes on",
        ) from None


def token_of(store: CampaignStore) -> int:
    """Return the token (a number that grows) of a store's last coordinator; 0 if there was none."""
    return int(store.settings().get("token", 0))
