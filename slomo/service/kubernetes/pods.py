"""How pods and nodes say what slomo has to know: annotations and labels.

A pod says its network function and what it was promised, a node its machine type::

    metadata:
      annotations:
        slomo.io/nf: "ip-router"        # or NF@1500B,1000f; the pod takes one core per instance
        slomo.io/min-share: "0.9"       # of its throughput alone; or slomo.io/min-mpps
    ---
    metadata:
      labels:
        slomo.io/machine: silver-4110
      annotations:
        slomo.io/cores-reserved: "1"
"""

import math
from dataclasses import dataclass

from slomo.errors import SlomoError
from slomo.placement.feasibility.mixes import Host, host_of
from slomo.placement.problem.cluster import Server
from slomo.service.kubernetes.wire import KubernetesNode, Pod
from slomo.vocabulary.machine import machine_names
from slomo.vocabulary.workload_text import parse_workload

NF, MIN_SHARE, MIN_MPPS = "slomo.io/nf", "slomo.io/min-share", "slomo.io/min-mpps"
MACHINE, CORES_RESERVED = "slomo.io/machine", "slomo.io/cores-reserved"
_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True)
class PodNeed:
    """What a pod is and was promised.

    Attributes
    ----------
    nf : str
        Network function or workload, as text.
    min_share, min_mpps : float or None
        Least throughput, as a share of that alone or absolute [Mpps].
    """

    nf: str
    min_share: float | None = None
    min_mpps: float | None = None


def need_of(pod: Pod) -> PodNeed | None:
    """Return what a pod needs; None for one that says nothing, or nothing that can be read.

    Examples
    --------
    >>> from slomo.service.kubernetes.wire import Metadata
    >>> need_of(Pod(Metadata(annotations={NF: "lpm", MIN_SHARE: "0.9"})))
    PodNeed(nf='lpm', min_share=0.9, min_mpps=None)
    """
    notes = pod.metadata.annotations or {}
    text = notes.get(NF, "").strip()
    if not text:
        return None
    try:
        parse_workload(text)
    except SlomoError:
        return None
    share, mpps = _number(notes.get(MIN_SHARE)), _number(notes.get(MIN_MPPS))
    return PodNeed(text, share, None if share is not None else mpps)


def is_over(pod: Pod) -> bool:
    """Whether a pod takes no core any more."""
    return pod.status.phase in _OVER


def host_on(node: KubernetesNode) -> Host | None:
    """Return the kind of socket a node has; None where it does not say, or says a machine there is none of."""
    name = (node.metadata.labels or {}).get(MACHINE, "")
    if name not in machine_names():  # names only: a label must never be opened as a file
        return None
    text = (node.metadata.annotations or {}).get(CORES_RESERVED, "0")
    reserved = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    try:
        return host_of(Server(node.metadata.name or "node", name, cores_reserved=reserved))
    except SlomoError:
        return None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0.0 else None
