"""Read slomo's annotations and labels of pods and nodes.

A pod states its network function and its promise, a node its machine type::

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

An unreadable annotation never counts as "no promise": the value describes the fault, and such a pod is refused.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

from slomo.errors import SlomoError
from slomo.placement.feasibility.mixes import Host, host_of
from slomo.placement.problem.cluster import Server
from slomo.service.kubernetes.wire import KubernetesNode, Metadata, Pod
from slomo.vocabulary.machine import machine_names
from slomo.vocabulary.numbers import digits
from slomo.vocabulary.workload_text import parse_workload

NF, MIN_SHARE, MIN_MPPS = "slomo.io/nf", "slomo.io/min-share", "slomo.io/min-mpps"
MACHINE, CORES_RESERVED = "slomo.io/machine", "slomo.io/cores-reserved"
#: Annotation with the counters of a pod's network function, for the node agent.
RATE = "slomo.io/rate"
_KEYS = (NF, MIN_SHARE, MIN_MPPS, MACHINE, CORES_RESERVED, RATE)
#: slomo's annotations that are also recognised without prefix; `nf` is not, since it may belong to other programs.
_BARE = ("min-share", "min-mpps")
_OVER = ("Succeeded", "Failed")
_NUMBER = re.compile(r"(\d{1,9}(\.\d{0,18})?|\.\d{1,18})([eE][-+]?\d{1,2})?", re.ASCII)
#: Largest length of a network function's text.
_LONGEST = 300
#: Least similarity (0 to 1) at which an unknown key counts as a misspelt slomo key.
_SIMILAR = 0.8


@dataclass(frozen=True)
class PodNeed:
    """A pod's network function and promised throughput."""

    #: Network function or workload, as text; empty if unreadable.
    nf: str
    #: Promised throughput, as a share of solo throughput or absolute [Mpps].
    min_share: float | None = None
    min_mpps: float | None = None
    #: Fault of the annotations; empty without a fault.
    fault: str = ""

    @property
    def has_promise(self) -> bool:
        """Whether the pod has a promise, or may have one that is unreadable."""
        return bool(self.fault) or self.min_share is not None or self.min_mpps is not None


def need_of(pod: Pod, policy_share: float | None = None) -> PodNeed | None:
    """Return a pod's function and promise, or the fault of its annotations; None for a pod without slomo's annotations.

    A policy's promise (`policy_share`) applies if the annotations contain none.

    >>> need_of(Pod(Metadata(annotations={NF: "lpm", MIN_SHARE: "0.9"})))
    PodNeed(nf='lpm', min_share=0.9, min_mpps=None, fault='')
    >>> need_of(Pod(Metadata(annotations={NF: "lpm", MIN_SHARE: "90%"}))).fault
    'slomo.io/min-share is no share above 0 and up to 1, such as 0.9'
    """
    notes = pod.metadata.annotations or {}
    if policy_share is not None and MIN_SHARE not in notes and MIN_MPPS not in notes:
        notes = {**notes, MIN_SHARE: f"{policy_share:.9f}"}
    text = notes.get(NF, "").strip()
    fault = _mistyped(pod.metadata, (NF, MIN_SHARE, MIN_MPPS, RATE), ())
    if not fault and not any(key in notes for key in (NF, MIN_SHARE, MIN_MPPS, RATE)):
        return None
    if not text and not fault:
        fault = f"{NF} is missing or empty"
    if not fault:
        fault = _unreadable(text)
    share, mpps = _number(notes.get(MIN_SHARE)), _number(notes.get(MIN_MPPS))
    if not fault and MIN_SHARE in notes and MIN_MPPS in notes:
        fault = f"{MIN_SHARE} and {MIN_MPPS} are both given"
    if not fault and MIN_SHARE in notes and (share is None or not 0.0 < share <= 1.0):
        fault = f"{MIN_SHARE} is no share above 0 and up to 1, such as 0.9"
    if not fault and MIN_MPPS in notes and (mpps is None or mpps <= 0.0):
        fault = f"{MIN_MPPS} is no number of Mpps above 0, such as 2.5"
    return PodNeed("", fault=fault) if fault else PodNeed(text, share, mpps)


def is_over(pod: Pod) -> bool:
    """Whether a pod has ended and no longer uses a core."""
    return pod.status.phase in _OVER


def host_on(node: KubernetesNode) -> Host | str:
    """Return a node's kind of socket, or the reason why the node cannot be judged."""
    fault = _mistyped(node.metadata, (CORES_RESERVED,), (MACHINE,))
    if fault:
        return f"node: {fault}"
    name = (node.metadata.labels or {}).get(MACHINE, "")
    if not name:
        return NO_MACHINE
    if name not in machine_names():  # only names, since a label must never be opened as a file
        return f"label {MACHINE} of the node names no machine type"
    reserved = digits((node.metadata.annotations or {}).get(CORES_RESERVED, "0"), 99_999)
    if reserved is None:
        return f"{CORES_RESERVED} of the node is no number of cores"
    try:
        return host_of(Server(node.metadata.name or "node", name, cores_reserved=reserved))
    except SlomoError:
        return f"{CORES_RESERVED} of the node leaves no core"


#: Reason why a node without a label is not judged.
NO_MACHINE = f"node has no label {MACHINE}"


def _unreadable(text: str) -> str:
    """Return why a text is not the name of a network function; empty if it is one."""
    try:
        if len(text) <= _LONGEST:
            parse_workload(text)
            return ""
    except SlomoError:
        pass
    return f"{NF} names no network function, such as lpm or lpm@1500B"


def _mistyped(metadata: Metadata, annotations: Iterable[str], labels: Iterable[str]) -> str:
    """Return an error about an annotation that resembles one of slomo's; empty if there is none."""
    for kind, present, known in (
        ("annotation", metadata.annotations, annotations),
        ("label", metadata.labels, labels),
    ):
        for key in present or ():
            if key in known or not (meant := _meant(key)) or (kind == "label" and key in _BARE):
                continue
            other = "a label" if kind == "annotation" else "an annotation"
            wrong = f"is written as {other}" if meant == key else f"is not known, {meant} may be meant"
            return f"{kind} {key[:80]} {wrong}"
    return ""


@lru_cache(maxsize=4096)
def _meant(key: str) -> str:
    """Return the slomo annotation that a similar key probably means; empty if none is similar."""
    nearest = max(_KEYS, key=lambda ours: SequenceMatcher(None, key[:100], ours).ratio())
    if key.startswith("slomo") or key in _BARE:
        return nearest
    return nearest if SequenceMatcher(None, key[:100], nearest).ratio() >= _SIMILAR else ""


def _number(text: str | None) -> float | None:
    text = (text or "").strip()
    return float(text) if _NUMBER.fullmatch(text) else None
