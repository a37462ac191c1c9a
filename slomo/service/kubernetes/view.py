"""The service's view of the cluster: nodes, pods, and pods about to be bound.

Between score and bind, the scheduler continues with the next pod. A reservation therefore holds the place until the
binding is seen, the pod is deleted, or a time limit (by a monotonic clock) has passed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from slomo.placement.feasibility.mixes import Host
from slomo.service.kubernetes.pods import PodNeed, host_on, is_over, need_of
from slomo.service.kubernetes.wire import KubernetesNode, Pod, SLOPolicy

#: Time for which a place is reserved for a scored pod [s].
HOLD_S = 30.0
#: Time without news from the API server after which the view is stale [s]; watches end every 6 s.
STALE_S = 10.0
#: Time without connection to the API server after which the view is stale [s].
LOST_S = 10.0


@dataclass
class NodeView:
    """One node: its kind of server (or the reason why it cannot be judged), and its pods."""

    host: Host | None = None
    fault: str = "node is not known"
    exists: bool = False
    uid: str = ""
    tenants: dict[str, PodNeed] = field(default_factory=dict)
    held: dict[str, PodNeed] = field(default_factory=dict)
    #: Version of the tenants, never reused; results that depend on the tenants are cached under it.
    version: int = 0

    def needs(self, without: str = "", *, held: bool = True) -> list[PodNeed]:
        """Return the needs of the node's pods; with `held`, also of pods with reserved places."""
        pods = (*self.tenants.items(), *self.held.items()) if held else self.tenants.items()
        return [need for uid, need in pods if uid != without]


@dataclass(frozen=True)
class Hold:
    """A place reserved for a pod."""

    node: str
    until_s: float


class ClusterView:
    """Nodes and pods of the cluster, updated by events of the API server; `clock` returns a monotonic time [s]."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        #: By name.
        self.nodes: dict[str, NodeView] = {}
        #: Pod uid -> its node; its ``namespace/name``; its priority and whether a controller creates it again.
        self.pods: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.ranks: dict[str, tuple[int, bool]] = {}
        #: Pod uid -> status of its condition ``slomo.io/PromiseKept``.
        self.told: dict[str, str] = {}
        #: Pod uid -> ``namespace/name`` and fault of the annotations, for pods without a node.
        self.refused: dict[str, tuple[str, str]] = {}
        #: By ``namespace/name``.
        self.policies: dict[str, SLOPolicy] = {}
        self.holds: dict[str, Hold] = {}
        #: Kinds of objects to list again after their watch ends.
        self.again: set[str] = set()
        #: Kinds of objects that are required for judging.
        self.needed = {"nodes", "pods"}
        self.heard_at_s: dict[str, float] = {}
        self.lost_at_s: dict[str, float] = {}
        #: Number of changes of all nodes.
        self.changes = 0
        self._clock = clock

    @property
    def is_fresh(self) -> bool:
        """Whether all kinds of objects were listed and are still watched, with recent messages from the API server."""
        now = self._clock()
        heard = all(now - self.heard_at_s.get(kind, -STALE_S) < STALE_S for kind in self.needed)
        return heard and all(now - self.lost_at_s.get(kind, now) < LOST_S for kind in self.needed)

    @property
    def is_listed(self) -> bool:
        """Whether all required kinds of objects were listed once."""
        return self.needed <= self.heard_at_s.keys()

    def heard(self, kind: str) -> None:
        """Record that the API server has sent a message about a kind of object."""
        self.heard_at_s[kind] = self._clock()
        self.lost_at_s.pop(kind, None)

    def lost(self, kind: str) -> None:
        """Record that a kind of object cannot be watched now."""
        self.lost_at_s.setdefault(kind, self._clock())

    def node_seen(self, node: KubernetesNode) -> None:
        """Update the view for an added or changed node."""
        view = self.nodes.setdefault(node.metadata.name, NodeView())
        host_or_fault, view.uid = host_on(node), node.metadata.uid
        host, fault = (None, host_or_fault) if isinstance(host_or_fault, str) else (host_or_fault, "")
        if (view.host, view.fault) != (host, fault) or not view.exists:
            view.host, view.fault, view.exists = host, fault, True
            self._changed(view)

    def node_gone(self, name: str) -> None:
        """Remove a node; the node's pods are removed by their own events."""
        view = self.nodes.get(name)
        if view is not None:
            view.host, view.fault, view.exists = None, NodeView.fault, False
            self._changed(view)
            self._forget(name)

    def pod_seen(self, pod: Pod) -> None:
        """Update the view for an added or changed pod."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        need = self.need(pod)
        if need is None or is_over(pod):
            self.pod_gone(uid)
            return
        self.refused.pop(uid, None)
        self.told[uid] = pod.status.promise_kept
        if not node:
            if need.fault:
                self.refused[uid] = f"{pod.metadata.namespace}/{pod.metadata.name}", need.fault
            return
        self.release(uid)
        self.ranks[uid] = (pod.spec.priority or 0, pod.metadata.has_controller)
        before = self.pods.get(uid)
        view = self.nodes.setdefault(node, NodeView())
        if before == node and view.tenants.get(uid) == need:
            return
        if before is not None:
            self._leave(uid, before)
        view.tenants[uid] = need
        self._changed(view)
        self.pods[uid], self.names[uid] = node, f"{pod.metadata.namespace}/{pod.metadata.name}"

    def pod_gone(self, uid: str) -> None:
        """Remove a pod that no longer exists."""
        self.release(uid)
        self.refused.pop(uid, None)
        node = self.pods.pop(uid, None)
        self.names.pop(uid, None)
        self.told.pop(uid, None)
        self.ranks.pop(uid, None)
        if node is not None:
            self._leave(uid, node)

    def _leave(self, uid: str, node: str) -> None:
        view = self.nodes[node]
        if view.tenants.pop(uid, None) is not None:
            self._changed(view)
        self._forget(node)

    def _forget(self, name: str) -> None:
        """Remove a deleted node once its last pod is gone."""
        view = self.nodes[name]
        if not view.exists and not view.tenants and not view.held:
            del self.nodes[name]

    def replace_nodes(self, nodes: list[KubernetesNode]) -> None:
        """Replace all nodes by those of a list; nodes not listed are removed."""
        names = {node.metadata.name for node in nodes}
        for name in [name for name, view in self.nodes.items() if view.exists and name not in names]:
            self.node_gone(name)
        for node in nodes:
            self.node_seen(node)

    def replace_pods(self, pods: list[Pod]) -> None:
        """Replace all pods by those of a list; pods not listed are removed."""
        uids = {pod.metadata.uid for pod in pods}
        for uid in [uid for uid in (*self.pods, *self.refused) if uid not in uids]:
            self.pod_gone(uid)
        for pod in pods:
            self.pod_seen(pod)

    def need(self, pod: Pod) -> PodNeed | None:
        """Return a pod's need, from its annotations or else from its namespace's policies."""
        labels, namespace = pod.metadata.labels or {}, pod.metadata.namespace
        shares = [
            policy.spec.min_share
            for policy in self.policies.values()
            if policy.metadata.namespace == namespace
            and policy.spec.selector.match_labels.items() <= labels.items()
            and policy.spec.selector.match_labels
        ]
        return need_of(pod, max(shares, default=None))

    def replace_policies(self, policies: list[SLOPolicy]) -> None:
        """Replace all policies by a list."""
        self.policies = {_name(item): item for item in policies}
        self.again.add("pods")

    def policy_seen(self, policy: SLOPolicy) -> None:
        """Update the view for an added or changed policy."""
        self.policies[_name(policy)] = policy
        self.again.add("pods")

    def policy_gone(self, policy: SLOPolicy) -> None:
        """Remove a policy that no longer exists."""
        self.policies.pop(_name(policy), None)
        self.again.add("pods")

    def hold(self, uid: str, need: PodNeed, node: str) -> None:
        """Reserve a place for a pod."""
        view = self.nodes.get(node)
        if not uid or view is None or uid in self.pods:
            return
        self.release(uid)
        view.held[uid] = need
        self._changed(view)
        self.holds[uid] = Hold(node, self._clock() + HOLD_S)

    def release(self, uid: str) -> None:
        """Release the place that was reserved for a pod."""
        hold = self.holds.pop(uid, None)
        if hold is None:
            return
        view = self.nodes[hold.node]
        if view.held.pop(uid, None) is not None:
            self._changed(view)
        self._forget(hold.node)

    def _changed(self, view: NodeView) -> None:
        self.changes += 1
        view.version = self.changes

    def node_of(self, uid: str) -> str:
        """Return the node on which a pod runs or has a reserved place; empty if there is none."""
        hold = self.holds.get(uid)
        return self.pods.get(uid, "") if hold is None else hold.node

    def expire(self) -> None:
        """Release reserved places whose time limit has passed."""
        now = self._clock()
        for uid in [uid for uid, hold in self.holds.items() if hold.until_s <= now]:
            self.release(uid)


def _name(item: SLOPolicy) -> str:
    return f"{item.metadata.namespace}/{item.metadata.name}"
