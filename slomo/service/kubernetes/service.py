"""The Kubernetes part of the service: it watches the cluster and answers the scheduler."""

import asyncio
import functools
import logging
import math
import os
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import httpx
import msgspec

from slomo.errors import PredictionError, SlomoError
from slomo.service.knowledge.model_store import ModelStore
from slomo.service.kubernetes.contention import ContentionWriter
from slomo.service.kubernetes.evicting import PER_MINUTE, Eviction, Evictor
from slomo.service.kubernetes.explaining import Explanations
from slomo.service.kubernetes.holds import SharedHolds, TakenMeanwhile
from slomo.service.kubernetes.judging import Judged, NodeJudge
from slomo.service.kubernetes.leading import Leader
from slomo.service.kubernetes.pods import PodNeed
from slomo.service.kubernetes.preempting import Preemptor
from slomo.service.kubernetes.running import Running
from slomo.service.kubernetes.telling import Teller
from slomo.service.kubernetes.view import ClusterView
from slomo.service.kubernetes.watch import WRITERS, Watch
from slomo.service.kubernetes.wire import BindingArgs, Pod
from slomo.service.lasting import lasting
from slomo.service.metrics import Gauge, Metrics, plain
from slomo.service.servers import RunningNF, RunningServer
from slomo.service.tracing import Tracer

T = TypeVar("T")
_LOG = logging.getLogger("slomo.service")
#: Largest score that `prioritise` returns.
MOST_SCORE = 10
#: Largest number of attempts to choose a node for a pod while other replicas take places.
ATTEMPTS = 8
#: Longest time for which `bind` waits for a pod's reservation [s]; the scheduler waits 2 s.
BIND_S = 1.5
#: Largest number of pods whose reservations or bindings are being written; with a slow API server, more would all be
#: late and be tried again together. Longest time for which the scheduler's next pod waits for this [s].
UNDER_WAY, FILTER_S = 2 * WRITERS, 1.5
#: Kinds of objects, each with the kind that must be listed before it.
_ORDER = (("nodes", ""), ("slopolicies", "nodes"), ("leases", "slopolicies"), ("pods", "leases"))
#: Reason why a pod is not bound at present.
SLOW = "the API server does not answer in time, ask again"
#: A pod without slomo's annotations.
NOT_OURS = "pod names no network function"


class NotSynced(PredictionError):  # noqa: N818 - says what is so
    """slomo does not know the cluster's present state and therefore cannot judge any node."""


class NotBound(PredictionError):  # noqa: N818 - says what happened
    """A pod cannot be bound, because its place can no longer be reserved or the API server refuses."""


class PlacesHeld(PredictionError):  # noqa: N818 - says what is so
    """A pod does not fit only because places are reserved for other pods; the scheduler should ask again."""


class KubernetesRoom:
    """Answers the requests of the Kubernetes scheduler, and evicts at most `per_minute` pods per minute."""

    def __init__(
        self,
        model_store: ModelStore,
        confidence: float,
        metrics: Metrics,
        evict: Eviction = "dry-run",
        per_minute: int = PER_MINUTE,
        tracer: Tracer | None = None,
    ) -> None:
        self._model_store, self._confidence, self._metrics = model_store, confidence, metrics
        self._evict, self._per_minute, self._tracer = evict, per_minute, tracer or Tracer()
        self.view = ClusterView()
        self.judge = NodeJudge(model_store.answers.library, confidence)
        self.running = Running(self.view, self.judge)
        self.watch: Watch | None = None
        self.holds: SharedHolds | None = None
        self.leader: Leader | None = None
        self.preemptor: Preemptor | None = None
        self._tasks: list[asyncio.Task[None]] = []
        #: Places chosen for pods that will be bound, by uid: the pod's need, the node, and the task that writes to the
        #: API.
        self._chosen: dict[str, tuple[PodNeed, str, asyncio.Task[bool]]] = {}
        self._writes: set[asyncio.Task[Any]] = set()
        self._latest: tuple[str, int, dict[str, Judged]] = ("", -1, {})
        #: Latest decisions about pods, for explanations.
        self.explanations = Explanations()

    def exchange_models(self, factors: Mapping[str, Mapping[str, float]] | None = None) -> None:
        """Use new models from now on, with the given correction factors."""
        self._latest = ("", -1, {})
        self.judge = NodeJudge(self._model_store.answers.library, self._confidence, factors)
        self.running = Running(self.view, self.judge)

    async def start(self, address: str | None) -> None:
        """Begin to watch an API server."""
        if address is None:
            return
        self.watch = Watch(address, self.view)
        self.holds = SharedHolds(self.watch, self.view)
        identity = f"{socket.gethostname()}-{os.getpid()}"
        self.leader = Leader(self.watch, identity, models=lambda: self._model_store.answers.fingerprint)
        self.preemptor = Preemptor(self.watch, self.view, self._evict, self._metrics.evictions)
        self.view.needed |= {"leases", "slopolicies"}
        # held places are listed before pods, so that a place released in between appears as a bound pod
        work = [
            *(
                lasting(f"following {kind}", functools.partial(self.watch.follow, kind, after))
                for kind, after in _ORDER
            ),
            lasting("judging ahead", self._think),
            lasting("telling and evicting", functools.partial(self._act, self.watch, self.leader)),
            lasting("leading", self.leader.lead),
        ]
        self._tasks = [asyncio.create_task(item) for item in work]

    async def _think(self) -> None:
        """Predict changed nodes in advance, for at most half of the time."""
        while True:
            begun = time.perf_counter()
            try:
                has_more = self.view.is_fresh and (self.running.refresh() or self.judge.ahead(self.view))
            except SlomoError as error:  # reported when a pod is judged
                _LOG.warning("cannot judge ahead: %s", error)
                has_more = False
            took_s = time.perf_counter() - begun
            await asyncio.sleep(took_s if has_more else 0.05)

    async def _act(self, watch: Watch, leader: Leader) -> None:
        """While this replica leads, update the pods' conditions every second, and evict pods if promises are broken."""
        teller = Teller(watch, self.view, self._metrics.told)
        evictor = Evictor(watch, self.view, self._evict, self._metrics.evictions, self._per_minute)
        writer = ContentionWriter(watch)
        while True:
            await asyncio.sleep(1.0)
            if self.view.is_fresh and leader.is_leading:
                servers = await self.running.servers()
                await teller.tell([*servers, self._refused()])
                await evictor.look(servers, self.judge)
                await writer.write(servers, self.judge.library)
            else:
                writer.forget()

    def _refused(self) -> RunningServer:
        """Return the pods without a node whose annotations cannot be read, in the format of a server."""
        items = self.view.refused.items()
        return RunningServer("", "", 0, tuple(
            RunningNF(name, "?", state="unjudged", why=fault, uid=uid) for uid, (name, fault) in items
        ))  # fmt: skip

    async def close(self) -> None:
        """Stop watching the Kubernetes cluster."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.leader is not None:
            await self.leader.step_down()
        if self.watch is not None:
            await self.watch.close()

    @property
    def is_on(self) -> bool:
        """Whether a Kubernetes cluster is watched."""
        return self.watch is not None or bool(self.view.nodes)

    def faults(self) -> list[str]:
        """Return the reasons why pods cannot be judged at present; empty if they can or no API server is watched."""
        if self.watch is None or self.view.is_fresh:
            return []
        return [f"kubernetes: {self._not_synced()}; pods wait ({self.watch.trouble or 'not listed yet'})"]

    def _not_synced(self) -> str:
        if not self.view.is_listed:
            return "slomo is not synced with the API server yet"
        return "slomo has lost the API server"

    def gauges(self) -> Iterable[Gauge]:
        """Yield metrics of the watched cluster."""
        if not self.is_on:
            return
        view, holds, leader = self.view, self.holds, self.leader
        yield plain("slomo_kubernetes_nodes", "Nodes in view.", len(view.nodes))
        yield plain("slomo_kubernetes_pods", "Pods in view that slomo judges.", len(view.pods))
        yield plain("slomo_kubernetes_holds", "Places held between score and bind.", len(view.holds))
        yield plain("slomo_kubernetes_view_fresh", "1 while the view is fresh.", view.is_fresh)
        is_shared = holds is not None and holds.is_shared
        yield plain("slomo_kubernetes_holds_shared", "1 while other replicas see held places.", is_shared)
        is_leading = leader is not None and leader.is_leading
        yield plain("slomo_kubernetes_leading", "1 on the replica that tells pods and evicts.", is_leading)
        differ = leader is not None and leader.models_differ
        yield plain("slomo_kubernetes_models_differ", "1 while another replica leads by other models.", differ)

    async def filter(
        self, pod: Pod, names: list[str], *, binds: bool = False
    ) -> tuple[list[str], dict[str, str], dict[str, str]]:
        """Return the nodes on which every promise is kept with the pod, and the reasons for rejecting the others.

        With a watched API server, only the best node passes, since the pod's place is reserved there at once. If the
        scheduler `binds` pods by `bind`, the place is written to the API until then.
        """
        need = self._ready(pod)
        if need is None:
            return names, {}, {}
        if need.fault:
            return [], {}, dict.fromkeys(names, f"slomo: {need.fault}")
        uid = pod.metadata.uid
        if binds:
            await self._few_under_way()
        for _ in range(ATTEMPTS):
            with self._tracer.span("judge", pod=uid, nodes=len(names)):
                judged = self.judge.judge(need, uid, names, self.view)
            self.explanations.add(pod, need, judged, self.judge)
            self._latest = (uid, self.view.changes, judged)
            ranks = _ranks(judged)
            if self.holds is None or not ranks:
                passed = [name for name in names if judged[name].ok]
            if self.holds is not None and ranks:
                passed = [_best(ranks)]
                held = self._hold(uid, need, passed[0], self.holds)
                if binds:
                    held.add_done_callback(_retrieve)
                    self._chosen = {key: item for key, item in self._chosen.items() if key in self.view.holds}
                    self._chosen[uid] = need, passed[0], held
                elif not await held:
                    continue
            elif not passed:
                self._make_room(pod, need, names)
                # does the pod not fit only because of reserved places?
                is_making_room = self.preemptor is not None and self.preemptor.is_waiting(uid)
                if not is_making_room and self.judge.fits_without_held(need, uid, names, self.view):
                    raise PlacesHeld("places are held for pods that are being bound, ask again")
            elif len(passed) == 1:  # the scheduler then never calls prioritise
                self.view.hold(uid, need, passed[0])
            self._metrics.decisions.add(("accepted" if passed else "refused",))
            return passed, {name: judgement.why for name, judgement in judged.items() if not judgement.ok}, {}
        raise TakenMeanwhile("other schedulers take the places, ask again")

    def _hold(self, uid: str, need: PodNeed, node: str, holds: SharedHolds) -> asyncio.Task[bool]:
        """Reserve a place in this replica at once, and in the API by the returned task."""
        taken = holds.take(uid, need, node)

        async def shared() -> bool:
            with self._tracer.span("hold", pod=uid, node=node):
                return await taken

        return self._writing(asyncio.create_task(shared()))

    def _writing(self, task: "asyncio.Task[T]") -> "asyncio.Task[T]":
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return task

    async def _few_under_way(self) -> None:
        """Wait until only few reservations and bindings are being written; the scheduler starts one pod at a time."""
        try:
            async with asyncio.timeout(FILTER_S):
                while len(self._writes) >= UNDER_WAY:
                    await asyncio.wait(self._writes, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError as error:
            raise NotBound(SLOW) from error

    async def bind(self, order: BindingArgs) -> None:
        """Bind a pod once its place is reserved in the API; judge again if another replica took places on the node."""
        watch, uid, node = self.watch, order.PodUID, order.Node
        if watch is None or self.holds is None:
            raise NotBound("no API server is watched", hint="start slomo with --kubernetes")
        path = f"/api/v1/namespaces/{order.PodNamespace}/pods/{order.PodName}"
        holding = asyncio.create_task(self._hold_for(order, path, watch, self.holds))
        holding.add_done_callback(_retrieve)
        try:
            await asyncio.wait({holding}, timeout=BIND_S)  # never cancelled: httpx would lose a connection
            if not holding.done():
                raise NotBound(SLOW)
            holding.result()
        except PredictionError:
            self._give_up(uid, node)
            raise
        except (httpx.HTTPError, msgspec.MsgspecError) as error:
            self._give_up(uid, node)
            raise NotBound(SLOW) from error
        try:
            with self._tracer.span("bind", pod=uid, node=node):
                target = {"apiVersion": "v1", "kind": "Node", "name": node}
                meta = {"name": order.PodName, "namespace": order.PodNamespace, "uid": uid}
                body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
                answer = await self._writing(asyncio.create_task(watch.request("POST", f"{path}/binding", body)))
        except httpx.HTTPError as error:  # the pod may have been bound, so its place stays reserved
            raise NotBound(SLOW) from error
        if answer.status_code >= 300:
            self._give_up(uid, node)
            raise NotBound(f"the API server refuses the binding ({answer.status_code}): {answer.text[:300]}")

    def _give_up(self, uid: str, node: str) -> None:
        """Release the place of a pod that was not bound, and let waiting pods be tried again."""
        if self.view.node_of(uid) == node:
            self.view.release(uid)

    async def _hold_for(self, order: BindingArgs, path: str, watch: Watch, holds: SharedHolds) -> None:
        """Reserve a pod's place on its node: await the reservation that `filter` began, or else predict and reserve."""
        uid, node, is_held = order.PodUID, order.Node, False
        need, chosen, held = self._chosen.pop(uid, (None, "", None))
        if held is not None and chosen == node:
            is_held = await held
        else:  # a pod without a network function, or one that was filtered before slomo restarted
            answer = await watch.request("GET", path)
            if answer.status_code >= 300:
                raise NotBound(f"the API server does not show the pod ({answer.status_code})")
            need = self._ready(msgspec.json.decode(answer.content, type=Pod))
        for _ in range(ATTEMPTS):
            if is_held or need is None:
                return
            if need.fault or not self.judge.judge(need, uid, [node], self.view)[node].ok:
                raise NotBound("the place has been taken meanwhile, ask again")
            is_held = await self._hold(uid, need, node, holds)
        raise TakenMeanwhile("other schedulers take the places, ask again")

    def _make_room(self, pod: Pod, need: PodNeed, names: list[str]) -> None:
        """Evict pods of lower priority if that makes room for a pod; the scheduler asks again afterwards."""
        preemptor, uid = self.preemptor, pod.metadata.uid
        if preemptor is None or self.holds is None:
            return
        room = preemptor.choose(pod, need, names, self.judge)
        if room is not None:
            hold = functools.partial(self.holds.take, uid, need, room.node)
            task = asyncio.create_task(preemptor.make(pod, room, hold))
            self._tasks.append(task)
            task.add_done_callback(self._tasks.remove)

    def preempt(self, pod: Pod, victims: dict[str, list[str]]) -> dict[str, list[str]]:
        """Return the node on which pods should be evicted for this pod, and those pods."""
        need = self._ready(pod)
        if need is None or self.preemptor is None:
            return victims
        return {} if need.fault else self.preemptor.narrowed(pod, need, victims, self.judge)

    def prioritise(self, pod: Pod, names: list[str]) -> list[dict[str, Any]]:
        """Score nodes; if there is only one, reserve the pod's place there."""
        need = self._ready(pod)
        if need is None or need.fault:
            return [{"Host": name, "Score": 0} for name in names]
        uid, changes, judged = self._latest  # of `filter`, if it was asked about this pod and nothing has changed
        if not uid or uid != pod.metadata.uid or changes != self.view.changes or not judged.keys() >= set(names):
            judged = self.judge.judge(need, pod.metadata.uid, names, self.view)
        ranks = _ranks({name: judged[name] for name in names})
        if not ranks:
            return [{"Host": name, "Score": 0} for name in names]
        best = _best(ranks)
        self.view.hold(pod.metadata.uid, need, best)
        order = {value: place for place, value in enumerate(sorted(set(ranks.values())))}
        steps = max(len(order) - 1, 1)
        scores = {name: math.floor(1 + 8 * order[value] / steps) for name, value in ranks.items()}
        scores[best] = MOST_SCORE
        return [{"Host": name, "Score": scores.get(name, 0)} for name in names]

    def _ready(self, pod: Pod) -> PodNeed | None:
        """Return a pod's need; None if slomo does not judge the pod."""
        self.view.expire()
        need = self.view.need(pod)
        if need is None:
            self._unjudged(pod, need, "passed", NOT_OURS)
        elif need.fault:
            self._unjudged(pod, need, "refused", "annotation cannot be read", need.fault)
        elif not self.view.is_fresh:
            self._unjudged(pod, need, "deferred", self._not_synced())
            raise NotSynced(self._not_synced(), hint="see /readyz; start with --kubernetes")
        return need

    def _unjudged(self, pod: Pod, need: PodNeed | None, outcome: str, reason: str, detail: str = "") -> None:
        self._metrics.unjudged.add((outcome, reason))
        self.explanations.add(pod, need, {}, self.judge, outcome, detail or reason)


def _retrieve(task: "asyncio.Task[Any]") -> None:
    """Read the exception of a finished task, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


def _ranks(judged: Mapping[str, Judged]) -> dict[str, tuple[float, float]]:
    """Return the ranks of the nodes that a prediction has found suitable."""
    return {name: judgement.rank for name, judgement in judged.items() if judgement.is_judged and judgement.ok}


def _best(ranks: Mapping[str, tuple[float, float]]) -> str:
    """Return the node with the highest rank; among equal ones, the last by name."""
    highest = max(ranks.values())
    return max(name for name, rank in ranks.items() if rank == highest)
