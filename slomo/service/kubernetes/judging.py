"""Which nodes keep every SLO with one pod more: one vectorised prediction over all candidates.

Nodes alike (same machine, same mix) are one question, and verdicts are remembered by mix: from one pod to the next only
the node that took the last one is new. A network function without a model counts as the worst neighbour of the library
(`slomo.placement.feasibility.worst_case`). A promise to it is refused, because no prediction supports it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slomo.errors import PredictionError, SlomoError
from slomo.models.library import ModelLibrary
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.feasibility.mixes import Host, Piece, Pieces, Signature
from slomo.placement.feasibility.oracle import MixVerdict, Oracle
from slomo.placement.feasibility.worst_case import STRANGER
from slomo.service.kubernetes.pods import PodNeed
from slomo.service.kubernetes.view import ClusterView, NodeView

#: Reasons of nodes that do not pass: few and without numbers, for the scheduler groups them by text.
BREAKS, FULL = "slomo: an SLO would break here", "slomo: no core left for a network function"
#: Nothing is known of the pod's network function there, and something was promised to it.
NO_MODEL = "slomo: no model of this network function on this machine type, its promise cannot be judged"
#: Nothing at all is known of the machine type.
NO_MODELS = "slomo: no models of this machine type"
#: Why a node passes without being judged.
NOTHING_PROMISED = "nothing is promised, neither to the pod nor there"
TOO_MUCH = "slomo: more is promised than the network function does alone"
#: Judgements that are remembered, at most.
MOST_JUDGED = 200_000
#: Mixes judged at a time; between two such batches the clock is looked at.
TOGETHER = 256
#: How long one pod may be judged [s]; what was judged is remembered, so that asking again gets further.
LONGEST_S = 1.0


class JudgesTooLong(PredictionError):  # noqa: N818 - says what happens
    """More mixes were to be judged than the scheduler waits for."""


@dataclass(frozen=True)
class Judged:
    """What was found for one node."""

    #: Whether the pod may go there.
    ok: bool
    #: Reason, where it may not or was not judged.
    why: str = ""
    #: Whether a prediction stands behind it.
    is_judged: bool = False
    #: The kind of socket.
    host: Host | None = None
    #: What would run there.
    mix: Signature = ()
    #: Higher is better.
    rank: tuple[float, float] = (0.0, 0.0)


@dataclass
class _Mixed:
    """The mix of a node as of one version of its view; who runs there without a model."""

    version: int
    signature: Signature
    strangers: tuple[str, ...]


class NodeJudge:
    """Judges candidates by the models of one library.

    Parameters
    ----------
    library : ModelLibrary
        Trained models.
    confidence : float
        Probability with which all SLOs of a socket must hold.
    factors : mapping of str to mapping of str to float
        Machine type -> workload -> what predictions are multiplied by.
    clock : callable
        Returns the time [s].
    """

    def __init__(
        self,
        library: ModelLibrary,
        confidence: float,
        factors: Mapping[str, Mapping[str, float]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.library, self._clock = library, clock
        self.estimates = ThroughputEstimates(library, confidence=confidence)
        self.estimates.takes_strangers = True
        self.estimates.factors = factors or {}
        self.pieces = Pieces()
        self.oracle = Oracle(self.pieces, self.estimates, predicts=True)
        self._numbers: dict[tuple[PodNeed, str], int] = {}
        self._mixes: dict[str, _Mixed] = {}
        self._known: dict[PodNeed, dict[tuple[Host, Signature], Judged]] = {}
        self._needs: dict[str, list[PodNeed]] = {}
        self._learned: dict[str, int] = {}

    def judge(self, need: PodNeed, uid: str, names: list[str], view: ClusterView) -> dict[str, Judged]:
        """Judge all candidates for a pod.

        Raises JudgesTooLong where that takes longer than `LONGEST_S`; what was judged until then is remembered.
        """
        judged: dict[str, Judged] = {}
        new: dict[Host, dict[Signature, list[str]]] = {}
        remembered, begun = self._known_of(need), self._clock()
        for name in names:
            node = view.nodes.get(name, _UNKNOWN)
            host = node.host
            if host is None or host.machine not in self.library.machines:
                judged[name] = _unjudged(need, node)
                continue
            base = self._mix(name, node, host, without=uid)
            answer = remembered.get((host, base))
            if answer is None:
                new.setdefault(host, {}).setdefault(base, []).append(name)
            else:
                judged[name] = answer
        for host, bases in new.items():
            order = list(bases)
            for first in range(0, len(order), TOGETHER):
                if self._clock() - begun > LONGEST_S:
                    raise JudgesTooLong("judging takes too long, ask again")
                part = order[first : first + TOGETHER]
                for base, answer in zip(part, self._judged(need, host, part), strict=True):
                    remembered[host, base] = answer
                    judged.update(dict.fromkeys(bases[base], answer))
        return judged

    def ahead(self, view: ClusterView) -> bool:
        """Judge every network function on one node that has changed, before a pod asks; say whether there was one."""
        for name, node in view.nodes.items():
            if node.host is None or self._learned.get(name) == node.version:
                continue
            self._learned[name] = node.version
            host = node.host
            if host.machine in self.library.machines:
                base = self._mix(name, node, host, without="")
                numbers = [self.number(need, host.machine) for need in self._usual(host.machine)]
                self.oracle.verdicts(host, [self.pieces.grown(base, number) for number in numbers])
            return True
        self._learned = {name: version for name, version in self._learned.items() if name in view.nodes}
        return False

    def _usual(self, machine: str) -> list[PodNeed]:
        """Return one need per network function; rates of a mix do not depend on how much was promised."""
        if machine not in self._needs:
            keys = [key for where, key in self.library if where == machine]
            self._needs[machine] = [PodNeed(self.library[machine, key].workload.nf, 0.5) for key in keys]
        return self._needs[machine]

    def _known_of(self, need: PodNeed) -> dict[tuple[Host, Signature], Judged]:
        """Return what was judged for a need before, forgetting all where it has become too much."""
        if sum(map(len, self._known.values())) > MOST_JUDGED:
            self._known.clear()
        return self._known.setdefault(need, {})

    def _judged(self, need: PodNeed, host: Host, bases: list[Signature]) -> list[Judged]:
        """Judge mixes with one pod more, those not seen before in one batch."""
        number = self.number(need, host.machine)
        piece = self.pieces[number]
        refusal = NO_MODEL if piece.workloads == (STRANGER,) and need.has_promise else ""
        solo = self.estimates.solo_mpps(host.machine, piece.workloads[0])
        if solo is not None and piece.needed_mpps > solo:
            refusal = TOO_MUCH
        if refusal:
            return [Judged(False, refusal, host=host)] * len(bases)
        grown = [self.pieces.grown(base, number) for base in bases]
        verdicts = self.oracle.verdicts(host, grown)
        return [self._answer(host, mix, verdict) for mix, verdict in zip(grown, verdicts, strict=True)]

    def strangers(self, name: str, view: ClusterView) -> tuple[str, ...]:
        """Return the tenants of a node that have no model and weigh as the worst known neighbour."""
        node = view.nodes.get(name)
        if node is None or node.host is None or node.host.machine not in self.library.machines:
            return ()
        self._mix(name, node, node.host, without="")
        return self._mixes[name].strangers

    def verdict(self, host: Host, mix: Signature) -> MixVerdict:
        """Return the numbers behind a judgement."""
        return self.oracle.verdict(host, mix)

    def _answer(self, host: Host, signature: Signature, verdict: MixVerdict) -> Judged:
        if verdict.breach is not None:
            why = FULL if verdict.breach.what == "cores" else BREAKS
            return Judged(False, why, is_judged=True, host=host, mix=signature)
        mark = (self.oracle.pieces.cores(signature), -verdict.headroom)
        return Judged(True, "", is_judged=True, host=host, mix=signature, rank=mark)

    def _mix(self, name: str, node: NodeView, host: Host, without: str) -> Signature:
        """Return what runs on a node, remembered until it changes; a pod never counts beside itself."""
        kept = self._mixes.get(name)
        own = without and (without in node.held or without in node.tenants)
        if kept is not None and kept.version == node.version and not own:
            return kept.signature
        needs = [need for uid, need in (*node.tenants.items(), *node.held.items()) if uid != without]
        signature = tuple(sorted(self.number(need, host.machine) for need in needs))
        if not own:
            strangers = tuple(need.nf or need.fault for need in needs if self.is_stranger(need, host.machine))
            self._mixes[name] = _Mixed(node.version, signature, strangers)
        return signature

    def is_stranger(self, need: PodNeed, machine: str) -> bool:
        """Say whether a pod weighs as the worst known neighbour on a machine, for it has no model."""
        return self.pieces[self.number(need, machine)].workloads == (STRANGER,)

    def number(self, need: PodNeed, machine: str) -> int:
        """Return the number of the piece a pod is on a machine of which there are models."""
        key = (need, machine)
        if key not in self._numbers:
            self._numbers[key] = self._numbered(need, machine)
        return self._numbers[key]

    def _numbered(self, need: PodNeed, machine: str) -> int:
        try:
            workload = self.library.find(need.nf, machine).workload.key
            solo = self.estimates.solo_mpps(machine, workload)
            is_known = solo is not None and self.estimates.predictable(machine, workload)
        except SlomoError:
            is_known = False
        if not is_known or solo is None:
            self.estimates.worst(machine)
            return self.pieces.number(Piece((STRANGER,)))
        needed = need.min_share * solo if need.min_share is not None else need.min_mpps or 0.0
        return self.pieces.number(Piece((workload,), needed))


_UNKNOWN = NodeView()


def _unjudged(need: PodNeed, node: NodeView) -> Judged:
    """Refuse a node of which nothing is known; a pod without a promise may go where nothing was promised either."""
    if node.exists and not any(each.has_promise for each in (need, *node.tenants.values(), *node.held.values())):
        return Judged(True, NOTHING_PROMISED)
    return Judged(False, f"slomo: {node.fault}" if node.fault else NO_MODELS)
