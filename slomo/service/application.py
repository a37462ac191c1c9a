"""The service: its models, state, jobs and metrics, and the ASGI application that answers requests."""

import asyncio
import functools
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from sqlite3 import Connection
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from slomo.models.functions.compilation import never_compiling
from slomo.placement.feasibility.mixes import Host, host_of
from slomo.placement.problem.documents import read_cluster
from slomo.service.agents import Agents
from slomo.service.door.access import Gate, read_tokens
from slomo.service.door.endpoint import Endpoint, NotFound
from slomo.service.door.operation import Answer, Call, Caller, Operation
from slomo.service.history import EVERY_S, History
from slomo.service.host.room import HostRoom
from slomo.service.jobs import Jobs
from slomo.service.knowledge.model_store import ModelStore, give_memory_back
from slomo.service.knowledge.outcomes import Outcomes
from slomo.service.kubernetes.judging import NodeJudge
from slomo.service.kubernetes.pods import PodNeed
from slomo.service.kubernetes.service import KubernetesRoom
from slomo.service.kubernetes.watch import check_address
from slomo.service.lasting import lasting
from slomo.service.metrics import Gauge, Metrics, plain
from slomo.service.one_more import OneMore, one_more
from slomo.service.servers import RunningServer, placed, promises
from slomo.service.settings import ServiceSettings
from slomo.service.state import journal
from slomo.service.state.cluster_store import ClusterStore
from slomo.service.state.store import Store
from slomo.service.tracing import Tracer
from slomo.vocabulary.defaults import DEFAULT_MODEL

Result = TypeVar("Result")
_AUDIT = logging.getLogger("slomo.service.audit")
_LOG = logging.getLogger("slomo.service")
#: Interval between checks of the models' files [s].
LOOK_EVERY_S = 2.0
#: Largest number of metric series per node and network function.
MOST_PLACED_SERIES = 500


class Service:
    """Models, state, jobs and metrics of one service."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self.operations: tuple[Operation, ...] = ()
        self.metrics = Metrics()
        self.agents = Agents()
        self.tracer = Tracer(settings.otlp)
        tokens = () if settings.token_file is None else read_tokens(settings.token_file)
        if settings.kubernetes is not None:
            check_address(settings.kubernetes)
        mutual = settings.client_ca is not None
        self.gate = Gate(tokens, settings.names, certificates=mutual, open_loopback=settings.open_loopback)
        self.model_store = ModelStore(settings.models)
        self.store = Store(settings.state)
        try:
            self.cluster_store = ClusterStore(self.store, self.model_store, settings.policy, settings.confidence)
        except BaseException:
            self.store.close()  # else its thread keeps the state file locked until this process ends
            raise
        if settings.cluster is not None and not self.cluster_store.has_cluster:
            documents = [server.to_dict() for server in read_cluster(settings.cluster).servers]
            self.store.write(lambda connection: self.cluster_store.add_servers(connection, documents)).result()
        self.outcomes = self._replayed()
        self.history = History(self.store)
        self.kubernetes = KubernetesRoom(
            self.model_store, settings.confidence, self.metrics, settings.evict, settings.evict_per_minute, self.tracer
        )
        if settings.correct and not self.outcomes.is_neutral:
            self.cluster_store.exchange_models(self.outcomes.factors())
            self.kubernetes.exchange_models(self.cluster_store.factors)
        self.host = HostRoom.of(settings, lambda: self.model_store.answers.library)
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="slomo-ask")
        self._writers = ThreadPoolExecutor(MOST_WRITERS, thread_name_prefix="slomo-write")
        self._jobs: Jobs | None = None
        self._rendered: tuple[Any, Any] | None = None
        self._servers: list[RunningServer] = []
        self._judging = threading.Lock()
        self._judge: tuple[Any, Any] = (None, None)
        self._placed_kept: tuple[Any, list[RunningServer]] = (None, [])
        self.metrics.source(self._gauges)
        self.metrics.source(self.agents.gauges)

    @property
    def jobs(self) -> Jobs:
        """The service's background jobs."""
        if self._jobs is None:
            works = {item.job.kind: functools.partial(item.job.work, self) for item in self.operations if item.job}
            self._jobs = Jobs(self.store, works)
        return self._jobs

    async def aside(self, run: Callable[[], Result]) -> Result:
        """Run a slow call in a thread, so that other requests are answered meanwhile."""

        def without_compiling() -> Result:
            with never_compiling():
                return run()

        return await asyncio.get_running_loop().run_in_executor(self._pool, without_compiling)

    async def writing(self, run: Callable[[], Result]) -> Result:
        """Wait for a write to disk in a separate pool of threads, so that waiting writes never block reads."""
        return await asyncio.get_running_loop().run_in_executor(self._writers, run)

    async def changed(
        self, call: Call, change: Callable[[Connection], tuple[Any, int]], verb: str, action: str | None = None
    ) -> Answer:
        """Make a change that survives a restart, and count it in the metrics under the name `action`."""
        answer = await self.writing(lambda: self.cluster_store.perform(call, change, verb))
        if action is not None:
            self.metrics.actions.add((action,))
        return answer

    async def servers(self) -> list[RunningServer]:
        """Return the servers and their tenants; with a watched Kubernetes cluster, its nodes and pods."""
        if self.kubernetes.is_on:  # on the event loop, on which events change the view
            self._servers = await self.kubernetes.running.servers()
        elif self.cluster_store.has_cluster:
            self._servers = await self.aside(self._placed)
        else:
            self._servers = []
        return self._servers

    def _placed(self) -> list[RunningServer]:
        placer = self.cluster_store.placer
        key = (self.cluster_store.revision, self.model_store.answers.fingerprint, id(placer))
        if self._placed_kept[0] != key:
            self._placed_kept = (key, placed(placer))
        return self._placed_kept[1]

    def hosts(self) -> dict[str, Host]:
        """Return the kind of socket of every server whose machine type is known."""
        if self.kubernetes.is_on:
            nodes = self.kubernetes.view.nodes.items()
            return {name: node.host for name, node in nodes if node.host is not None}
        servers = self.cluster_store.placer.cluster.servers if self.cluster_store.has_cluster else ()
        return {item.name: host_of(item) for item in servers}

    def one_more(self, need: PodNeed, server: RunningServer, servers: list[RunningServer]) -> OneMore:
        """Predict a server with one more network function, in a way that does not delay the Kubernetes scheduler."""
        key = (self.model_store.answers, self.cluster_store.factors)
        with self._judging:
            if self._judge[0] != key:
                judge = NodeJudge(
                    self.model_store.answers.library, self.settings.confidence, self.cluster_store.factors
                )
                self._judge = (key, judge)
            return one_more(self._judge[1], need, server, servers, self.hosts())

    def rendered(self, key: Any, render: Callable[[], Result]) -> Result:
        """Return the rendered page of a value; render it again only if the value has changed."""
        if self._rendered is None or self._rendered[0] != key:
            self._rendered = (key, render())
        return self._rendered[1]

    def audit(self, method: str, path: str, actual: str, caller: Caller, request_id: str, status: int) -> None:
        """Log every change and attempted change with its caller, and every refused token."""
        asks = method in ("GET", "HEAD") or path.startswith(("/v1/predict", "/scheduler", "/v1/whatif"))
        if not asks or status in (401, 403):
            _AUDIT.info("%s %s %r by %r: %d", request_id, method, actual[:200], caller.name, status)

    async def watch_models(self) -> None:
        """Reload the models whenever their files change."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if await self.look_at_models():
                await asyncio.sleep(2.0 * LOOK_EVERY_S)  # until questions to the replaced models are answered
                await self.aside(give_memory_back)

    async def learn_mixes(self) -> None:
        """While the service is idle, predict likely mixes in advance; only this task compiles code."""
        learned = ""
        while True:
            answers = self.model_store.answers
            if answers.fingerprint != learned:
                for ahead in answers.ahead():
                    begun = time.monotonic()
                    await asyncio.get_running_loop().run_in_executor(self._pool, ahead)
                    await asyncio.sleep(3.0 * (time.monotonic() - begun))
                    if self.model_store.answers is not answers:
                        break
                learned = answers.fingerprint
            del answers  # else replaced models stay in memory until the next check
            await asyncio.sleep(LOOK_EVERY_S)

    async def keep_history(self) -> None:
        """Store a point of the cluster's history at regular intervals."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                servers = await self.servers()
                if servers:
                    counts = dict(self.metrics.decisions.values)
                    await self.writing(functools.partial(self.history.take, servers, counts))
            except Exception as error:  # for instance a full disk: storing the next point may succeed
                _LOG.warning("no point of the history: %s", error)

    async def look_at_models(self) -> bool:
        """Reload the models if their files have changed; return whether they were reloaded."""
        fault = self.model_store.fault
        if not await self.aside(self.model_store.refresh):
            if self.model_store.fault and self.model_store.fault != fault:
                self.metrics.reloads.add(("failed",))
            return False
        self.metrics.reloads.add(("done",))
        self.outcomes = await self.aside(self._replayed)
        factors = self.outcomes.factors() if self.settings.correct else {}
        await self.writing(lambda: self.cluster_store.exchange_models(factors))
        self.kubernetes.exchange_models(factors)
        with self._judging:
            self._judge = (None, None)
        return True

    def _replayed(self) -> Outcomes:
        """Return comparisons of stored measurements with the present models' predictions."""
        outcomes = Outcomes(self.model_store.answers.library)
        outcomes.replay(self.store.read(lambda connection: journal.observations(connection, 20_000)))
        return outcomes

    async def learn_from_outcomes(self) -> None:
        """Update the factors that correct predictions if at least one has changed by one percent."""
        factors = self.outcomes.factors() if self.settings.correct else {}
        if not _moved(factors, self.cluster_store.factors):
            return
        await self.writing(lambda: self.cluster_store.exchange_models(factors))
        self.kubernetes.exchange_models(factors)

    async def close(self) -> None:
        """Stop jobs and watches, then close the state file."""
        if self._jobs is not None:
            await self._jobs.close()
        await self.kubernetes.close()
        await self.aside(self.host.close)
        await self.aside(self.tracer.close)
        self._writers.shutdown(wait=True)
        self._pool.shutdown(wait=True)
        self.store.close()

    def _gauges(self) -> Iterable[Gauge]:
        answers = self.model_store.answers
        yield plain("slomo_up", "1 while the service answers.", 1.0)
        yield plain("slomo_ready", "1 while the service could answer everything.", not self.faults())
        age = time.time() - self.model_store.loaded_at_s
        yield plain("slomo_model_age_seconds", "Since the models in force were loaded.", max(age, 0.0))
        yield plain("slomo_models_loaded", "Models in force.", len(answers.library))
        yield plain("slomo_predictions_batched", "Questions answered together.", answers.question_count)
        yield plain("slomo_cluster_revision", "Changes of the cluster so far.", self.cluster_store.revision)
        opened = self.store.read(journal.open_receipts)
        yield plain("slomo_receipts_open", "Changes that could still be undone.", opened)
        errors = self.outcomes.errors()
        ratios = {key: ratio for key, (ratio, _) in list(errors.items())[:MOST_PLACED_SERIES]}
        text = "Observed over predicted throughput, running mean."
        yield "slomo_prediction_error_ratio", text, ("machine", "nf"), ratios
        drift = {key: abs(math.log(ratio)) if ratio > 0 else 10.0 for key, ratio in ratios.items()}
        yield "slomo_drift", "Absolute logarithm of observed over predicted.", ("machine", "nf"), drift
        yield from self._validation(answers.library)
        if self.cluster_store.has_cluster or self.kubernetes.is_on:
            yield from _running(self._servers)
        yield from self.kubernetes.gauges()

    def _validation(self, library: Any) -> Iterable[Gauge]:
        values = {}
        for key in list(library)[:MOST_PLACED_SERIES]:
            validation = library[key].manifest.get("cross_validation", {})
            named = library[key].named(DEFAULT_MODEL)
            error = validation.get(named, {}).get("mape_percent") if isinstance(validation, dict) else None
            if isinstance(error, (int, float)):
                values[key] = float(error) / 100.0
        yield "slomo_model_validation_mape_ratio", "Error at training.", ("machine", "nf"), values

    def faults(self) -> list[str]:
        """Return the reasons why the service cannot answer some questions; empty if it can answer all."""
        faults = [] if self.model_store.fault is None else [f"models: {self.model_store.fault}"]
        return [*faults, *self.kubernetes.faults()]


def _moved(after: Mapping[str, Mapping[str, float]], before: Mapping[str, Mapping[str, float]]) -> bool:
    """Return whether any correction factor differs by a percent or more."""
    return any(
        abs(factor - before.get(machine, {}).get(target, 1.0)) > LEAST_MOVE
        for machine, own in after.items()
        for target, factor in own.items()
    )


#: Relative change of a correction factor below which placement is not updated.
LEAST_MOVE = 0.01
#: Largest number of writes that wait for the disk at the same time; they share transactions.
MOST_WRITERS = 64


def _running(servers: list[RunningServer]) -> Iterable[Gauge]:
    """Yield the predictions for running network functions as Prometheus gauges."""
    throughput: dict[tuple[str, ...], float] = {}
    slowdown: dict[tuple[str, ...], float] = {}
    left_out = 0
    for server in servers:
        for item in server.tenants:
            if item.predicted_mpps is None:
                continue
            key = (server.name, item.workload.split("@")[0])
            if key not in throughput and len(throughput) >= MOST_PLACED_SERIES:
                left_out += 1
                continue
            throughput[key] = throughput.get(key, 0.0) + 1e6 * item.predicted_mpps
            if item.solo_mpps:
                slowdown[key] = max(slowdown.get(key, -1.0), 1.0 - item.predicted_mpps / item.solo_mpps)
    names, states = ("node", "nf"), promises(servers)
    yield "slomo_predicted_throughput_pps", "Predicted throughput of what runs.", names, throughput
    yield "slomo_predicted_slowdown_ratio", "Worst predicted slowdown of what runs.", names, slowdown
    text = "Promises of what runs, by whether they hold: kept, broken, unjudged."
    yield "slomo_promises", text, ("state",), {(state,): float(count) for state, count in states.items()}
    text = "Running network functions whose promise may break."
    yield plain("slomo_slo_violation_predicted", text, states["broken"])
    yield plain("slomo_series_left_out", "Running network functions beyond the bound on series.", left_out)
    counts = [len(server.tenants) for server in servers]
    yield plain("slomo_servers_used", "Servers on which something runs.", sum(map(bool, counts)))
    yield plain("slomo_servers", "Servers there are.", len(counts))
    yield plain("slomo_network_functions_running", "Network functions that run.", sum(counts))


def make_app(service: Service, operations: Iterable[Operation]) -> "FrontDoor":
    """Return the ASGI application of a service."""
    by_path: dict[str, list[Operation]] = {}
    service.operations = tuple(operations)
    for item in service.operations:
        by_path.setdefault(item.path, []).append(item)
    routes = [Route(path, Endpoint(service, tuple(items))) for path, items in by_path.items()]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.jobs  # noqa: B018 - finds jobs that were interrupted
        works = {"watching models": service.watch_models, "learning mixes": service.learn_mixes,
                 "keeping history": service.keep_history}  # fmt: skip
        tasks = [asyncio.create_task(lasting(what, work)) for what, work in works.items()]
        await service.kubernetes.start(service.settings.kubernetes)
        try:
            with never_compiling():
                yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await service.close()

    app = Starlette(routes=routes, lifespan=lifespan)
    app.router.default = NotFound(service)
    app.router.redirect_slashes = False
    return FrontDoor(app, {route.path: route.endpoint for route in routes if "{" not in route.path})


class FrontDoor:
    """The ASGI application: finds the endpoint of a path without parameters itself, all others by `app`."""

    def __init__(self, app: Starlette, endpoints: Mapping[str, Any]) -> None:
        self._app, self._endpoints = app, endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or handle the ASGI lifespan of the service."""
        if scope["type"] == "http":
            endpoint = self._endpoints.get(scope["path"])
            if endpoint is not None:
                await endpoint(scope, receive, send)
                return
        await self._app(scope, receive, send)
