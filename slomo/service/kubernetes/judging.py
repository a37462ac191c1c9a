"""Find the nodes on which every promise is kept with one more pod, by one prediction for all candidate nodes.

Equal nodes (same machine, same mix) need only one prediction, and verdicts are cached by mix, so that after a placement
only the node that took the pod needs a new one. A network function without a model counts as the worst neighbour of the
library (`slomo.placement.feasibility.worst_case`). A promise to such a function is refused, since no prediction
supports it.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from slomo.errors import PredictionError, SlomoError
from slomo.models.library import ModelLibrary
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.feasibility.mixes import Host, Piece, Pieces, Signature
from slomo.placement.feasibility.oracle import MixVerdict
from slomo.placement.feasibility.worst_case import STRANGER
from slomo.placement.policies.predicted import PredictedBestFit
from slomo.service.kubernetes.pods import PodNeed
from slomo.service.kubernetes.view import ClusterView, NodeView
from slomo.service.servers import RunningNF, promise

#: Reasons for rejecting nodes: few texts without numbers, since the scheduler groups nodes by text.
BREAKS, NO_CORE = "slomo: an SLO would break here", "slomo: no core left for a network function"
#: The pod has a promise, but its network function has no model for the node's machine type.
NO_MODEL = "slomo: no model of this network function on this machine type, its promise cannot be judged"
#: The machine type has no models.
NO_MODELS = "slomo: no models of this machine type"
#: Reason why a node passes without a prediction.
NOTHING_PROMISED = "nothing is promised, neither to the pod nor there"
TOO_MUCH = "slomo: more is promised than the network function does alone"
#: Largest number of cached judgements.
MOST_JUDGED = 200_000
#: Number of mixes judged together; the time limit is checked between batches.
TOGETHER = 256
#: Time limit for judging one pod [s]; finished judgements are cached, so that a repeated question gets further.
LONGEST_S = 1.0


@dataclass(frozen=True)
class Judged:
    """Whether one node keeps every promise with the pod, with the reason if not."""

    #: Whether the pod may run on the node.
    ok: bool
    #: Reason, if the pod may not or the node was not judged.
    why: str = ""
    #: Whether the judgement is based on a prediction.
    is_judged: bool = False
    #: Kind of socket of the node.
    host: Host | None = None
    #: Mix that would run on the node.
    mix: Signature = ()
    #: Rank among suitable nodes; higher is better.
    rank: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class _Mixed:
    """A node's mix with its number, and the node's pods that have no model."""

    version: int
    kind: int
    host: Host
    mix: Signature
    strangers: tuple[str, ...]


class NodeJudge:
    """Predicts, by the models of one library and factors that correct them, which nodes keep every promise."""

    def __init__(
        self,
        library: ModelLibrary,
        confidence: float,
        factors: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        self.library = library
        self.estimates = ThroughputEstimates(library, confidence=confidence)
        self.estimates.takes_strangers = True
        self.estimates.factors = factors or {}
        self.pieces = Pieces()
        self._policy = PredictedBestFit(self.estimates, self.pieces)
        self.oracle = self._policy.oracle
        self._numbers: dict[tuple[PodNeed, str], int] = {}
        self._mixes: dict[str, _Mixed] = {}
        #: Number of each mix on each kind of host, used as key since numbers hash faster.
        self._kinds: dict[tuple[Host, Signature], int] = {}
        #: Cached judgements by the pod's need and the number of the node's mix.
        self._known: dict[PodNeed, dict[int, Judged]] = {}
        self._needs: dict[str, list[PodNeed]] = {}
        self._learned: dict[str, int] = {}

    def judge(self, need: PodNeed, uid: str, names: list[str], view: ClusterView) -> dict[str, Judged]:
        """Predict all candidate nodes with one more pod."""
        judged: dict[str, Judged] = {}
        new: dict[Host, dict[int, tuple[Signature, list[str]]]] = {}
        if sum(map(len, self._known.values())) > MOST_JUDGED:
            self._known.clear()
            self._kinds.clear()
            self._mixes.clear()
        remembered, begun = self._known.setdefault(need, {}), time.monotonic()
        nodes, mixes, own = view.nodes, self._mixes, view.node_of(uid)
        for name in names:
            node, mixed = nodes.get(name, _UNKNOWN), mixes.get(name)
            if mixed is None or mixed.version != node.version or name == own:
                mixed = self._mixed(name, node, without=uid)
                if mixed is None:
                    judged[name] = _unjudged(need, node)
                    continue
            answer = remembered.get(mixed.kind)
            if answer is None:
                new.setdefault(mixed.host, {}).setdefault(mixed.kind, (mixed.mix, []))[1].append(name)
            else:
                judged[name] = answer
        for host, bases in new.items():
            order = list(bases.items())
            for first in range(0, len(order), TOGETHER):
                if time.monotonic() - begun > LONGEST_S:
                    raise PredictionError("judging takes too long, ask again")
                part = order[first : first + TOGETHER]
                answers = self._judged(need, host, [mix for _, (mix, _) in part])
                for (kind, (_, alike)), answer in zip(part, answers, strict=True):
                    remembered[kind] = answer
                    judged.update(dict.fromkeys(alike, answer))
        return judged

    def fits_without_held(self, need: PodNeed, uid: str, names: list[str], view: ClusterView) -> bool:
        """Return whether a pod would fit on a node if the places reserved there for other pods were free."""
        held = {hold.node for each, hold in view.holds.items() if each != uid}
        for name in held.intersection(names):
            node = view.nodes[name]
            host = self.known_host(node)
            if host is not None and self._judged(need, host, [self.mix(host, node.needs(uid, held=False))])[0].ok:
                return True
        return False

    def ahead(self, view: ClusterView) -> bool:
        """Predict in advance one changed node with each network function added; return False if no node has changed."""
        for name, node in view.nodes.items():
            if node.host is None or self._learned.get(name) == node.version:
                continue
            self._learned[name] = node.version
            host = node.host
            if host.machine in self.library.machines:
                base = self.mix(host, node.needs())
                numbers = [self.number(need, host.machine) for need in self._usual(host.machine)]
                self.oracle.verdicts(host, [self.pieces.grown(base, number) for number in numbers])
            return True
        self._learned = {name: version for name, version in self._learned.items() if name in view.nodes}
        return False

    def _usual(self, machine: str) -> list[PodNeed]:
        """Return a typical pod of each network function, for predictions in advance."""
        if machine not in self._needs:
            keys = [key for where, key in self.library if where == machine]
            self._needs[machine] = [PodNeed(self.library[machine, key].workload.nf, 0.5) for key in keys]
        return self._needs[machine]

    def _judged(self, need: PodNeed, host: Host, bases: list[Signature]) -> list[Judged]:
        """Predict mixes with one more pod; mixes not seen before are predicted in one batch."""
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
        return [self._answer(host, mix, number, verdict) for mix, verdict in zip(grown, verdicts, strict=True)]

    def strangers(self, name: str, view: ClusterView) -> tuple[str, ...]:
        """Return the pods on a node that have no model; each counts as the worst known neighbour."""
        node = view.nodes.get(name)
        mixed = None if node is None else self._mixed(name, node, without="")
        return () if mixed is None else mixed.strangers

    def known_host(self, node: NodeView | None) -> Host | None:
        """Return the kind of socket of a node whose machine type has models; None for other nodes."""
        host = None if node is None else node.host
        return host if host is not None and host.machine in self.library.machines else None

    def mix(self, host: Host, needs: Iterable[PodNeed]) -> Signature:
        """Return the mix that some pods form on a kind of server."""
        return tuple(sorted(self.number(need, host.machine) for need in needs))

    def predicted(self, machine: str, item: RunningNF, piece: Piece, verdict: MixVerdict) -> RunningNF:
        """Return a function whose workload a verdict has predicted, with its rates and the state of its promise."""
        mpps, low, high = verdict.rates[item.workload]
        state, why = promise(item.needed_mpps, self.oracle.breach(machine, piece, item.workload, verdict))
        return replace(item, predicted_mpps=mpps, low_mpps=low, high_mpps=high, state=state, why=why)

    def _answer(self, host: Host, signature: Signature, number: int, verdict: MixVerdict) -> Judged:
        """Return the judgement of a node; of empty nodes, those rank first of which the pod takes the least share."""
        if verdict.breach is not None:
            why = NO_CORE if verdict.breach.what == "cores" else BREAKS
            return Judged(False, why, is_judged=True, host=host, mix=signature)
        last = -verdict.headroom if len(signature) > 1 else -self._policy.weight(host, number) * host.cost
        mark = (self.pieces.cores(signature), last)
        return Judged(True, "", is_judged=True, host=host, mix=signature, rank=mark)

    def _mixed(self, name: str, node: NodeView, without: str) -> _Mixed | None:
        """Return the mix of the pods on a node; None if the node's machine has no models."""
        host = self.known_host(node)
        if host is None:
            return None
        needs = node.needs(without)
        strangers = tuple(need.nf or need.fault for need in needs if self.is_stranger(need, host.machine))
        mix = self.mix(host, needs)
        kind = self._kinds.setdefault((host, mix), len(self._kinds))
        mixed = _Mixed(node.version, kind, host, mix, strangers)
        if len(needs) == len(node.tenants) + len(node.held):  # a pod never counts as its own neighbour
            self._mixes[name] = mixed
        return mixed

    def is_stranger(self, need: PodNeed, machine: str) -> bool:
        """Return whether a pod has no model on a machine and therefore counts as the worst known neighbour."""
        return self.pieces[self.number(need, machine)].workloads == (STRANGER,)

    def number(self, need: PodNeed, machine: str) -> int:
        """Return the number that stands for a pod's function and promise on a machine with models."""
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
    """Return the judgement of a node that cannot be predicted: only pods without a promise may run on it."""
    if node.exists and not any(each.has_promise for each in (need, *node.needs())):
        return Judged(True, NOTHING_PROMISED)
    return Judged(False, f"slomo: {node.fault}" if node.fault else NO_MODELS)
