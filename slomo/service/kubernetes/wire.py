"""Types of the scheduler extender's JSON, as in Kubernetes' `pkg/scheduler/extender.go`.

The Go structures have no tags, so JSON keys are Go's field names, and the unused one of ``Nodes`` and ``NodeNames`` is
null. Go's decoder ignores case, so lower-case keys are accepted too. Unneeded fields are skipped without decoding.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct


class Metadata(Struct):
    """Fields of an object's metadata that slomo reads."""

    name: str = ""
    namespace: str = "default"
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    owner_references: list[dict[str, Any]] | None = msgspec.field(default=None, name="ownerReferences")

    @property
    def has_controller(self) -> bool:
        """Whether a controller creates the object again after it was deleted."""
        return any(owner.get("controller") for owner in self.owner_references or ())


class PodSpec(Struct):
    """Fields of a pod's specification that slomo reads."""

    node_name: str = msgspec.field(default="", name="nodeName")
    priority: int | None = None
    preemption_policy: str | None = msgspec.field(default=None, name="preemptionPolicy")


#: Condition of a pod: whether its promise is kept.
PROMISE_KEPT = "slomo.io/PromiseKept"


class Condition(Struct):
    """One condition of a pod."""

    type: str = ""
    status: str = ""


class PodStatus(Struct):
    """Fields of a pod's status that slomo reads."""

    phase: str = ""
    conditions: list[Condition] | None = None
    pod_ip: str = msgspec.field(default="", name="podIP")

    @property
    def promise_kept(self) -> str:
        """Status of the condition ``slomo.io/PromiseKept``: True, False, Unknown, or empty without the condition."""
        return next((item.status for item in self.conditions or () if item.type == PROMISE_KEPT), "")


class Pod(Struct):
    """Fields of a pod that slomo reads."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def may_preempt(self) -> bool:
        """Whether the pod may preempt pods of lower priority."""
        return self.spec.preemption_policy != "Never"


class KubernetesNode(Struct):
    """Fields of a node that slomo reads."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)


class LeaseSpec(Struct):
    """Fields of a lease's specification that slomo reads."""

    holder_identity: str | None = msgspec.field(default=None, name="holderIdentity")
    lease_duration: int | None = msgspec.field(default=None, name="leaseDurationSeconds")
    acquire_time: str | None = msgspec.field(default=None, name="acquireTime")
    transitions: int | None = msgspec.field(default=None, name="leaseTransitions")


class Lease(Struct):
    """A Kubernetes Lease object."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class Selector(Struct):
    """Labels by which a policy selects pods."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict, name="matchLabels")


class PolicySpec(Struct):
    """A policy's promise, and the labels of the pods to which it applies."""

    selector: Selector = msgspec.field(default_factory=Selector)
    min_share: float = msgspec.field(default=1.0, name="minShare")


class SLOPolicy(Struct):
    """A promise to those pods of a namespace that have some labels."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: PolicySpec = msgspec.field(default_factory=PolicySpec)


class NodeList(Struct):
    """Nodes, not decoded since they are returned unchanged."""

    items: list[Raw] | None = None


KubernetesPod = Pod


class ExtenderArgs(Struct):
    """The scheduler's request to filter or score, in both modes and both spellings of fields."""

    Pod: "KubernetesPod | None" = None
    Nodes: NodeList | None = None
    NodeNames: list[str] | None = None
    pod: "KubernetesPod | None" = None
    nodes: NodeList | None = None
    nodenames: list[str] | None = None
    nodeNames: list[str] | None = None  # noqa: N815 - Go's decoder takes any case


def candidates(args: ExtenderArgs) -> tuple[Pod, list[str], dict[str, Raw] | None]:
    """Return the pod, the nodes' names in order and, in ``Nodes`` mode, the undecoded nodes."""
    pod = args.Pod or args.pod or Pod()
    names = next((item for item in (args.NodeNames, args.nodenames, args.nodeNames) if item is not None), None)
    if names is not None:
        return pod, names, None
    nodes = (args.Nodes or args.nodes or NodeList()).items or []
    order = [_decode_node(item).metadata.name for item in nodes]
    return pod, order, dict(zip(order, nodes, strict=True))


class Victims(Struct):
    """Pods to evict from a node, given by uid or as whole objects."""

    Pods: list[dict[str, Any]] | None = None
    NumPDBViolations: int = 0

    @property
    def uids(self) -> list[str]:
        """Identifiers (uids) of the pods to evict."""
        return [str(pod.get("UID") or (pod.get("metadata") or {}).get("uid", "")) for pod in self.Pods or ()]


class PreemptionArgs(Struct):
    """The scheduler's request before it evicts pods."""

    Pod: KubernetesPod = msgspec.field(default_factory=KubernetesPod)
    NodeNameToVictims: dict[str, Victims] | None = None
    NodeNameToMetaVictims: dict[str, Victims] | None = None


#: Name of an object that is safe in a URL's path.
ObjectName = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9.-]*\Z", max_length=253)]


class BindingArgs(Struct):
    """The scheduler's request to bind a pod to a node."""

    PodName: ObjectName
    PodNamespace: ObjectName
    PodUID: Annotated[str, Meta(max_length=253)]
    Node: ObjectName


def filter_answer(
    passed: list[str],
    failed: dict[str, str],
    hopeless: dict[str, str],
    raw: dict[str, Raw] | None,
    error: str = "",
) -> dict[str, Any]:
    """Return the answer to ``filter`` in the mode of the request; an `error` makes the scheduler ask again."""
    nodes = None if raw is None else {"metadata": {}, "items": [raw[name] for name in passed]}
    return {
        "Nodes": nodes,
        "NodeNames": passed if raw is None else None,
        "FailedNodes": failed,
        "FailedAndUnresolvableNodes": hopeless,
        "Error": error,
    }


_decode_node = msgspec.json.Decoder(KubernetesNode).decode
