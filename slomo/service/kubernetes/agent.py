"""Node agent: reports throughput and counters of each network function on a node, and carries out the node's plan.

A pod names two packet counters, for served and dropped packets (`rates`). The increase of served packets between two
readings gives the throughput. It is the function's capacity only if packets were dropped meanwhile, that is, if the
function was saturated; other readings are counted but not sent. Hardware counters are those of the pod's own CPU
(`counting`); if there are none, the report states the reason. The agent changes settings of the node only if it was
started with that right (`enforcing`).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx
import msgspec
from msgspec import Struct

from slomo.enforce.plan import EnforcementPlan
from slomo.errors import SlomoError, TestbedError
from slomo.service.door.bodies import EnforcementReport
from slomo.service.kubernetes.containers import Container, PodGroups, one_core
from slomo.service.kubernetes.counting import Counted, PodCounting
from slomo.service.kubernetes.enforcing import LONGEST, NodeEnforcer
from slomo.service.kubernetes.pods import MACHINE, RATE, is_over, need_of
from slomo.service.kubernetes.rates import DPDK, PacketCount, read_dpdk, reader
from slomo.service.kubernetes.watch import Watch
from slomo.service.kubernetes.wire import KubernetesNode, Pod, PodStatus

_LOG = logging.getLogger("slomo.service")
#: Least ratio of dropped to served packets at which a function counts as saturated.
LEAST_DROPPED = 1e-4


class _ContainerStatus(Struct):
    """Fields of a container's status that the agent reads."""

    container_id: str = msgspec.field(default="", name="containerID")


class _PodStatus(PodStatus):
    """Fields of a pod's status that the agent reads."""

    containers: list[_ContainerStatus] | None = msgspec.field(default=None, name="containerStatuses")


class AgentPod(Pod):
    """A pod as the agent of its node reads it."""

    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    @property
    def name(self) -> str:
        """Namespace and name of the pod."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def containers(self, groups: PodGroups) -> "tuple[Container, ...] | SlomoError":
        """Return the pod's containers, or an error with the reason why they are unknown."""
        ids = [item.container_id.rpartition("/")[2] for item in self.status.containers or ()]
        try:
            return groups.containers(self.metadata.uid, ids)
        except TestbedError as problem:
            return problem


class _PodList(Struct):
    """Pods of a node."""

    items: list[AgentPod] = []


class AgentService(Protocol):
    """Interface by which an agent reaches the service; `slomo.client.AsyncClient` implements it."""

    async def observe(self, observations: list[dict[str, Any]]) -> Any:
        """Send measured throughputs."""
        ...

    async def report(self, node: str, report: Mapping[str, Any]) -> Any:
        """Send the agent's report about its node."""
        ...

    async def plan(self, node: str) -> dict[str, Any] | None:
        """Return the node's plan."""
        ...


class NodeAgent:
    """Measures the pods of one node, and applies the node's plan of settings if allowed.

    Without `counting`, no counters are read; without `enforcer`, no settings are changed. `counts`: number of readings
    by outcome (sent, unsaturated, first, failed, counted, uncounted, refused).
    """

    def __init__(
        self,
        watch: Watch,
        node: str,
        service: AgentService,
        counting: PodCounting | None = None,
        groups: PodGroups | None = None,
        enforcer: NodeEnforcer | None = None,
    ) -> None:
        self._watch, self._node, self._service = watch, node, service
        self._counting = counting or PodCounting.of("off")
        self._groups, self._enforcer = groups or PodGroups(), enforcer
        self._before: dict[str, PacketCount] = {}
        self.counts: Counter[str] = Counter()

    async def look(self) -> None:
        """Do one round: read every pod, apply the node's plan, and report to the service."""
        try:
            labels, pods = await self._listed()
        except (httpx.HTTPError, msgspec.MsgspecError) as error:
            self.counts["failed"] += 1
            _LOG.warning("node %s: %s: %s", self._node, type(error).__name__, error)
            return
        running = {uid: need.nf for uid, pod in pods.items() if not is_over(pod) and (need := need_of(pod)) and need.nf}
        self._before = {uid: count for uid, count in self._before.items() if uid in running}
        containers = await asyncio.to_thread(lambda: {uid: pods[uid].containers(self._groups) for uid in running})
        enforced = await self._enforced({pods[uid].name: group for uid, group in containers.items()})
        where = {uid: one_core(group) for uid, group in containers.items()}
        counted = await asyncio.to_thread(self._counting.count, where)
        observed, tenants = [], []
        for uid, nf in running.items():
            mpps, counters = await self._saturated_mpps(pods[uid], containers[uid]), counted[uid]
            if mpps is not None and MACHINE in labels:
                others = sorted(other for key, other in running.items() if key != uid)
                observed.append({"target": nf, "competitors": others, "throughput_mpps": mpps,
                                 "machine": labels[MACHINE], "server": self._node, **_vectors(counters)})  # fmt: skip
            self.counts["uncounted" if counters.own is None else "counted"] += 1
            counts = {"counters": dict(counters.own)} if counters.own else {"reason": counters.reason[:LONGEST]}
            tenants.append({"tenant": pods[uid].name, "nf": nf, "source": self._counting.source,
                            "throughput_mpps": mpps, **counts})  # fmt: skip
        if observed:
            await self._service.observe(observed)
            self.counts["sent"] += len(observed)
        await self._service.report(self._node, {"tenants": tenants, "enforcement": msgspec.to_builtins(enforced)})

    async def _enforced(self, pods: "dict[str, tuple[Container, ...] | SlomoError]") -> EnforcementReport | None:
        """Apply the plan, unless the service is silent; return what to report, or None if settings are not ours."""
        enforcer = self._enforcer
        if enforcer is None:
            return None
        try:
            document = await self._service.plan(self._node)
            plan = None if document is None else EnforcementPlan.from_dict(document)
            report = await asyncio.to_thread(enforcer.follow, plan, pods)
        except SlomoError as problem:
            report = EnforcementReport("", refusals=[f"the plan is not known: {problem.message}"[:LONGEST]])
        self.counts["refused"] += len(report.refusals)
        return report

    async def end(self) -> None:
        """Undo all settings made on the node."""
        if self._enforcer is not None:
            await asyncio.to_thread(self._enforcer.end)

    async def _listed(self) -> tuple[dict[str, str], dict[str, AgentPod]]:
        """Return the node's labels, and the node's pods by uid."""
        answer = await self._watch.request("GET", f"/api/v1/nodes/{self._node}")
        answer.raise_for_status()
        labels = msgspec.json.decode(answer.content, type=KubernetesNode).metadata.labels or {}
        answer = await self._watch.request("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={self._node}")
        answer.raise_for_status()
        pods = {pod.metadata.uid: pod for pod in msgspec.json.decode(answer.content, type=_PodList).items}
        return labels, pods

    async def _saturated_mpps(self, pod: Pod, containers: "tuple[Container, ...] | SlomoError") -> float | None:
        """Return a pod's throughput since the last reading [Mpps]; None if the pod was not saturated."""
        uid, text = pod.metadata.uid, (pod.metadata.annotations or {}).get(RATE, "")
        if not text or not pod.status.pod_ip:
            return None
        try:
            scheme = urlsplit(text).scheme
            is_dpdk = scheme == DPDK
            now = await (read_dpdk(text, containers) if is_dpdk else reader(scheme)(text, pod.status.pod_ip))
        except (httpx.HTTPError, SlomoError, ValueError) as error:
            self.counts["failed"] += 1
            _LOG.warning("%s/%s: %s", pod.metadata.namespace, pod.metadata.name, error)
            return None
        before, self._before[uid] = self._before.get(uid), now
        if before is None or now.served < before.served or now.dropped < before.dropped or now.at_s <= before.at_s:
            self.counts["first"] += 1  # or the pod's program has restarted
            return None
        served = now.served - before.served
        if now.dropped - before.dropped <= LEAST_DROPPED * served:
            self.counts["unsaturated"] += 1
            return None
        return 1e-6 * served / (now.at_s - before.at_s)


def _vectors(counted: Counted) -> dict[str, dict[str, float]]:
    """Return a pod's counters as fields of a report; unknown counters are left out."""
    parts = {"counters": counted.own, "counters_beside": counted.beside}
    return {name: dict(vector) for name, vector in parts.items() if vector}
