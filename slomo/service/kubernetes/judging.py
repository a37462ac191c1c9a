"""Which nodes keep every SLO with one pod more: one vectorised prediction over all candidates.

Nodes alike (same machine, same mix) are one question, and verdicts are remembered by mix: from one pod to the next only
the node that took the last one is new.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from slomo.errors import SlomoError
from slomo.models.library import ModelLibrary
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.feasibility.mixes import Host, Piece, Pieces, Signature
from slomo.placement.feasibility.oracle import MixVerdict, Oracle
from slomo.service.kubernetes.pods import PodNeed
from slomo.service.kubernetes.view import ClusterView, NodeView

#: Reasons of nodes that do not pass: few and without numbers, for the scheduler groups them by text.
BREAKS, FULL = "slomo: an SLO would break here", "slomo: no core left for a network function"
#: Judgements that are remembered, at most.
MOST_JUDGED = 200_000
#: Why a node passes without being judged.
NO_MACHINE, NO_MODEL, STALE = "node names no machine", "no model on this machine", "view is stale"


@dataclass(frozen=True)
class Judged:
    """What was found for one node.

    Attributes
    ----------
    ok : bool
        Whether the pod may go there.
    why : str
        Reason, where it may not or was not judged.
    is_judged : bool
        Whether a prediction stands behind it.
    host : Host or None
        The kind of socket.
    mix : Signature
        What would run there.
    rank : tuple of float
        Higher is better.
    """

    ok: bool
    why: str = ""
    is_judged: bool = False
    host: Host | None = None
    mix: Signature = ()
    rank: tuple[float, float] = (0.0, 0.0)


@dataclass
class _Mixed:
    """The mix of a node as of one version of its view."""

    version: int
    signature: Signature
    strangers: int


@dataclass
class _Tenancy:
    """Numbers of pieces by need and machine; None where nothing can be predicted."""

    numbers: dict[tuple[PodNeed, str], int | None] = field(default_factory=dict)


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
    """

    def __init__(
        self, library: ModelLibrary, confidence: float, factors: Mapping[str, Mapping[str, float]] | None = None
    ) -> None:
        self.library = library
        self.estimates = ThroughputEstimates(library, confidence=confidence)
        self.estimates.factors = factors or {}
        self.pieces = Pieces()
        self.oracle = Oracle(self.pieces, self.estimates, predicts=True)
        self._tenancy = _Tenancy()
        self._mixes: dict[str, _Mixed] = {}
        self._known: dict[PodNeed, dict[tuple[Host, Signature], Judged]] = {}
        self._needs: dict[str, list[PodNeed]] = {}
        self._learned: dict[str, int] = {}

    def knows(self, need: PodNeed) -> bool:
        """Whether any machine has a model of what a pod runs."""
        return any(self._number(need, machine) is not None for machine in self.library.machines)

    def judge(self, need: PodNeed, uid: str, names: list[str], view: ClusterView) -> dict[str, Judged]:
        """Judge all candidates for a pod."""
        judged: dict[str, Judged] = {}
        new: dict[Host, dict[Signature, list[str]]] = {}
        nodes, remembered = view.nodes, self._known_of(need)
        for name in names:
            node = nodes.get(name)
            host = None if node is None else node.host
            if node is None or host is None:
                judged[name] = Judged(True, NO_MACHINE)
                continue
            base = self._mix(name, node, host, without=uid)
            answer = remembered.get((host, base))
            if answer is None:
                new.setdefault(host, {}).setdefault(base, []).append(name)
            else:
                judged[name] = answer
        for host, bases in new.items():
            for base, answer in zip(bases, self._judged(need, host, list(bases)), strict=True):
                remembered[host, base] = answer
                judged.update(dict.fromkeys(bases[base], answer))
        return judged

    def ahead(self, view: ClusterView) -> bool:
        """Judge every network function on one node that has changed, before a pod asks; say whether there was one."""
        for name, node in view.nodes.items():
            if node.host is None or self._learned.get(name) == node.version:
                continue
            self._learned[name] = node.version
            host, base = node.host, self._mix(name, node, node.host, without="")
            numbers = [self._number(need, host.machine) for need in self._usual(host.machine)]
            mixes = [self.pieces.grown(base, number) for number in numbers if number is not None]
            self.oracle.verdicts(host, mixes)
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
        number = self._number(need, host.machine)
        if number is None:
            return [Judged(True, NO_MODEL, host=host)] * len(bases)
        grown = [self.pieces.grown(base, number) for base in bases]
        verdicts = self.oracle.verdicts(host, grown)
        return [self._answer(host, mix, verdict) for mix, verdict in zip(grown, verdicts, strict=True)]

    def strangers(self, name: str, view: ClusterView) -> int:
        """Return how many tenants of a node nothing is known of."""
        node = view.nodes.get(name)
        if node is None or node.host is None:
            return 0
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
        numbers = [self._number(need, host.machine) for need in needs]
        signature = tuple(sorted(number for number in numbers if number is not None))
        if not own:
            self._mixes[name] = _Mixed(node.version, signature, numbers.count(None))
        return signature

    def _number(self, need: PodNeed, machine: str) -> int | None:
        """Return the number of the piece a pod is on a machine; None where nothing can be predicted for it."""
        key = (need, machine)
        numbers = self._tenancy.numbers
        if key not in numbers:
            numbers[key] = self._numbered(need, machine)
        return numbers[key]

    def _numbered(self, need: PodNeed, machine: str) -> int | None:
        if machine not in self.library.machines:
            return None
        try:
            workload = self.library.find(need.nf, machine).workload.key
        except SlomoError:
            return None
        solo = self.estimates.solo_mpps(machine, workload)
        if solo is None or not self.estimates.predictable(machine, workload):
            return None
        needed = need.min_share * solo if need.min_share is not None else need.min_mpps or 0.0
        return self.pieces.number(Piece((workload,), needed))
