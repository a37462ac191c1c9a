"""Make room for a pod of high priority: evict the fewest pods of lower priority after which every promise holds.

kube-scheduler's own preemption considers only its own filters, so it finds no victims on a node that an extender
rejects. If promises prevent a placement, the extender therefore chooses and evicts the victims. If cores are missing,
the scheduler asks the extender (verb preempt) and evicts the victims itself.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from slomo.placement.feasibility.mixes import Host, Signature, without
from slomo.service.kubernetes.evicting import Eviction, evict
from slomo.service.kubernetes.judging import LONGEST_S, TOGETHER, NodeJudge
from slomo.service.kubernetes.pods import PodNeed
from slomo.service.kubernetes.view import ClusterView
from slomo.service.kubernetes.watch import Watch
from slomo.service.kubernetes.wire import Pod
from slomo.service.metrics import Counter

_LOG = logging.getLogger("slomo.service.audit")
#: Largest number of victims for one pod, and of sets of victims examined per size.
MOST_VICTIMS, MOST_SETS = 4, 20_000
#: Time that victims get to end before others are chosen [s].
ENDS_S = 60.0


@dataclass(frozen=True)
class Preemption:
    """A node, and the pods on it whose eviction makes room."""

    node: str
    victims: tuple[str, ...]


def fewest(
    need: PodNeed, uid: str, priority: int, nodes: Iterable[tuple[str, frozenset[str]]], view: ClusterView,
    judge: NodeJudge,
) -> Preemption | None:  # fmt: skip
    """Return the node that needs the fewest victims, and these victims; None if no node can make room.

    Of equally many victims, those of lower priority are preferred, then those with fewer promises.

    `nodes`: candidates, each with the pods that must leave in any case.
    """
    begun, nodes = time.monotonic(), [item for item in nodes if judge.known_host(view.nodes.get(item[0]))]
    most = MOST_VICTIMS + max((len(must) for _, must in nodes), default=0)
    for count in range(most + 1):
        sets = []
        for name, must in nodes:
            here, ranks = view.nodes[name].tenants, view.ranks
            may = [each for each in here if ranks[each][0] < priority and each != uid and each not in must]
            if count < max(len(must), 1) or count > len(must) + MOST_VICTIMS:
                continue
            for more in combinations(may, count - len(must)):
                gone = (*must, *more)
                ours = [each for each in gone if each in here]
                order = sorted((ranks[each][0] for each in ours), reverse=True)
                sets.append((order, sum(here[each].has_promise for each in ours), name, gone))
        sets.sort(key=lambda item: item[:3])
        for first in range(0, min(len(sets), MOST_SETS), TOGETHER):
            part = sets[first : first + TOGETHER]
            for (_, _, name, gone), is_enough in zip(part, _enough(need, uid, part, view, judge), strict=True):
                if is_enough:
                    return Preemption(name, gone)
            if time.monotonic() - begun > LONGEST_S:
                return None
    return None


def _enough(
    need: PodNeed, uid: str, sets: Sequence[tuple[object, object, str, tuple[str, ...]]], view: ClusterView,
    judge: NodeJudge,
) -> list[bool]:  # fmt: skip
    """Return, for each set of victims, whether every promise would be kept with the new pod in their place."""
    answers = [False] * len(sets)
    asked: dict[Host, list[tuple[int, Signature]]] = {}
    for index, (_, _, name, gone) in enumerate(sets):
        node = view.nodes[name]
        host = node.host
        assert host is not None
        number = judge.number(need, host.machine)
        if need.has_promise and judge.is_stranger(need, host.machine):
            continue
        mix = judge.mix(host, node.needs(uid))
        for key in node.tenants.keys() & set(gone):
            mix = without(mix, judge.number(node.tenants[key], host.machine))
        asked.setdefault(host, []).append((index, judge.pieces.grown(mix, number)))
    for host, items in asked.items():
        verdicts = judge.oracle.verdicts(host, [mix for _, mix in items])
        for (index, _), verdict in zip(items, verdicts, strict=True):
            answers[index] = verdict.ok
    return answers


class Preemptor:
    """Makes room for pods of high priority by evicting others; in mode "dry-run" the API server only checks that."""

    def __init__(self, watch: Watch, view: ClusterView, mode: Eviction, counted: Counter) -> None:
        self._watch, self._view, self._mode, self._counted = watch, view, mode, counted
        self._waiting: dict[str, tuple[Preemption, float]] = {}
        self._spared: dict[str, float] = {}

    def is_waiting(self, uid: str) -> bool:
        """Whether a pod waits for room, since victims evicted for it have not ended yet."""
        now_s = time.monotonic()
        self._waiting = {
            key: (room, until_s)
            for key, (room, until_s) in self._waiting.items()
            if until_s > now_s and any(victim in self._view.pods for victim in room.victims)
        }
        return uid in self._waiting

    def choose(self, pod: Pod, need: PodNeed, names: Sequence[str], judge: NodeJudge) -> Preemption | None:
        """Return the pods to evict for a pod that fits on no node; None if no eviction helps."""
        uid, now_s = pod.metadata.uid, time.monotonic()
        if self._mode == "off" or not uid or not pod.may_preempt or self.is_waiting(uid):
            return None
        self._spared = {key: until_s for key, until_s in self._spared.items() if until_s > now_s}
        nodes = [(name, frozenset[str]()) for name in names if name in self._view.nodes]
        free = [item for item in nodes if not self._spared.keys() & self._view.nodes[item[0]].tenants.keys()]
        room = fewest(need, uid, pod.spec.priority or 0, free, self._view, judge)
        if room is not None and self._mode == "on":
            self._waiting[uid] = room, now_s + ENDS_S
        return room

    async def make(self, pod: Pod, room: Preemption, hold: Callable[[], Awaitable[bool]]) -> None:
        """Reserve the place, then evict the victims; pods protected by a budget are not chosen again for a while."""
        uid, who = pod.metadata.uid, f"{pod.metadata.namespace}/{pod.metadata.name}"
        if self._mode == "on" and not await hold():
            self._waiting.pop(uid, None)
            return
        for victim in room.victims:
            outcome = await evict(self._watch, self._view, victim, self._mode)
            self._counted.add((self._mode, outcome))
            _LOG.info("preemption (%s) of %s on %s for %s: %s", self._mode, self._view.names.get(victim, victim),
                      room.node, who, outcome)  # fmt: skip
            if outcome != "done":
                self._waiting.pop(uid, None)
                self._spared[victim] = time.monotonic() + ENDS_S
                return

    def narrowed(
        self, pod: Pod, need: PodNeed, victims: dict[str, list[str]], judge: NodeJudge
    ) -> dict[str, list[str]]:
        """Return the one of the scheduler's candidate nodes that needs the fewest victims, and these victims."""
        if self.is_waiting(pod.metadata.uid):
            return {}
        nodes = [(name, frozenset(uids)) for name, uids in victims.items()]
        room = fewest(need, pod.metadata.uid, pod.spec.priority or 0, nodes, self._view, judge)
        return {} if room is None else {room.node: list(room.victims)}
