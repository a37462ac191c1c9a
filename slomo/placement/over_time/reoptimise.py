"""Make a new plan for all requests in the background; move requests only if enough servers are saved.

ResQ (NSDI'18) section 5.3.1: admission is greedy and never moves anything; a near-optimal schedule is computed
periodically, and network functions migrate to it only if it saves more servers than a threshold, as migrations are
expensive and disruptive. With a budget of moves, the change is carried out that saves most for them; newcomers may be
planned together with it.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from slomo.errors import InvalidValueError
from slomo.files.stored import Stored
from slomo.placement.online.admission import Admission
from slomo.placement.online.moves import Move, consolidate
from slomo.placement.online.persistence import snapshot
from slomo.placement.online.placer import Placer
from slomo.placement.online.state import ClusterState
from slomo.placement.over_time.repack import MoveBudget, emptiest, pieces_on, repacked, steps
from slomo.placement.over_time.together import planned_together
from slomo.placement.policies.base import Policy
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.decision import Decision
from slomo.placement.problem.request import Request, unique_requests
from slomo.units import plural

#: One piece of a request on a server: socket, request, workloads.
_Part = tuple[int, str, tuple[str, ...]]
#: Placing anew leaves about half of the pieces in place; parts with more than this multiple of the budget are not
#: tried.
_STAY = 2


@dataclass(frozen=True)
class Reoptimisation(Stored, derived=("gap",)):
    """Result of planning anew, and whether requests were migrated."""

    #: Servers in use, with newcomers placed where nothing moves.
    servers_before: int
    #: Servers of the new plan; None if it could not place everything.
    servers_planned: int | None
    #: Relative saving of servers from which on migrating pays.
    threshold: float
    #: Whether the plan was carried out.
    migrated: bool = False
    #: Pieces that were moved or restarted elsewhere.
    moves: tuple[Move, ...] = ()
    #: Servers in use afterwards; None if nothing moved. More than planned if moves were limited.
    servers_after: int | None = None
    #: No plan with so many moves takes fewer servers, for mixes of which every part holds and while requests that a
    #: constraint binds, and their neighbours, stay; None if that was not computed.
    lower_bound: int | None = None
    #: Decisions about newcomers, in the order given.
    decisions: tuple[Decision, ...] = ()

    @property
    def gap(self) -> float:
        """Servers in use beyond those that the plan needs, as a share of the plan's; 0 if no plan is better."""
        if not self.servers_planned:
            return 0.0
        return max(self.servers_before / self.servers_planned - 1.0, 0.0)

    @property
    def text(self) -> str:
        """One line that describes the result, for display.

        >>> Reoptimisation(10, 9, 0.2).text
        '10 servers, a fresh plan takes 9: gap 11.1 %, not above 20 %, nothing moved'
        """
        before = plural(self.servers_before, "server")
        if self.servers_planned is None:
            return f"{before}, a fresh plan does not place everything: nothing moved"
        head = f"{before}, a fresh plan takes {self.servers_planned}: gap {100 * self.gap:.1f} %, "
        if self.migrated:
            after = self.servers_planned if self.servers_after is None else self.servers_after
            saved = f"{len(self.moves)} moved for {plural(self.servers_before - after, 'server')} less, {after} now"
            return f"{head}above {100 * self.threshold:g} %, {saved}"
        if self.gap > self.threshold:
            return f"{head}above {100 * self.threshold:g} %, but not worth its moves: nothing moved"
        return f"{head}not above {100 * self.threshold:g} %, nothing moved"


def reoptimise(
    placer: Placer,
    threshold: float = 0.1,
    planner: str | type[Policy] | None = None,
    *,
    max_moves: int | None = None,
    cost_per_move: float = 0.0,
    max_share: float = 0.05,
    arriving: Iterable[Request] = (),
) -> Reoptimisation:
    """Make a new plan for all requests; migrate to it if that saves more than the share `threshold` of servers.

    Servers of the plan are matched with servers in use so that few pieces move, and unmoved pieces keep their cores. A
    plan that misses a request or saves too little changes nothing. Others may admit and remove during planning; the
    plan is then made again. If moves are limited or have a cost, plans are made that empty only the least filled
    servers. The plan with the highest value is carried out: servers saved less moves times their cost. Requests'
    disruption budgets are kept.

    `planner`: policy that plans, for instance ``"resq-milp"`` behind ``"resq-greedy"``; the placer's own by default.
    `max_moves`: pieces that may move; the share `max_share` of all by default, 1 for all. `cost_per_move`: in servers.
    `arriving`: newcomers, placed in the same plan; who is refused where nothing moves stays refused. Raises
    InvalidValueError for a threshold that is no number from 0, a negative budget or cost, or a newcomer that is placed
    already; UnknownNameError for a policy there is none of, or an unknown request in a newcomer's affinity.

    Examples
    --------
    >>> from slomo.models.library import ModelLibrary
    >>> reoptimise(Placer(ModelLibrary([]), Cluster.uniform("e5-2620v4", 2), "first-fit")).migrated
    False
    """
    if not (math.isfinite(threshold) and threshold >= 0.0):
        raise InvalidValueError(
            f"threshold of re-optimisation is {threshold}, needed a number from 0", hint="0.1: migrate to save 10 %"
        )
    budget, batch = MoveBudget(max_moves, cost_per_move, max_share=max_share), unique_requests(arriving)
    for hold in (nullcontext(), nullcontext(), placer._lock):  # what changes meanwhile is planned again, at last alone
        with hold:
            reoptimisation = _planned(placer, threshold, planner, budget, batch)
        if reoptimisation is not None:
            return reoptimisation
    raise AssertionError("BUG: the state changed under its own lock")


@dataclass(frozen=True)
class _Option:
    """A new plan to which the cluster could migrate."""

    servers: int
    document: dict[str, Any]
    moves: tuple[Move, ...]

    @classmethod
    def of(cls, core: Admission, before: Mapping[str, Any]) -> "_Option":
        """Return a planned placement as an option for the cluster whose snapshot is `before`."""
        return cls(core.state.servers_used, *aligned(before, snapshot(core), core.state.cluster))


def _planned(
    placer: Placer,
    threshold: float,
    planner: str | type[Policy] | None,
    budget: MoveBudget,
    arriving: Sequence[Request],
) -> Reoptimisation | None:
    """Plan without holding the lock (this may take minutes), then migrate; None if the state changed meanwhile."""
    with placer._lock:
        placer._check_new(arriving)
        now, core = placer.snapshot(), placer._core
        running = core.with_state(core.state.copy())
    unmoved = core.with_state(running.state.copy())
    decisions = placer._placed(unmoved, arriving)
    placed = [request for request, decision in zip(arriving, decisions, strict=True) if decision.accepted]
    before, state = snapshot(unmoved) if placed else now, unmoved.state
    requests, used = tuple(state.requests.values()), state.servers_used
    budget = replace(budget, max_moves=budget.most(sum(map(len, state.spots.values()))))
    plan = _afresh(placer, planner)
    whole = all(decision.accepted for decision in plan.placed_again(requests))
    reoptimisation = Reoptimisation(used, plan.servers_used if whole else None, threshold, decisions=decisions)
    options: list[_Option] = []
    if reoptimisation.gap > threshold:
        options.append(_Option.of(plan._core, before))
        if budget.limited:
            options += _parts_anew(core, state, before, budget)
            joint = planned_together(running, placed, budget)
            if joint is not None:
                options.append(_Option.of(joint.core, now))
                reoptimisation = replace(reoptimisation, lower_bound=joint.lower_bound)
    best = _best([each for each in options if _keeps_budgets(requests, each.moves)], used, budget)
    with placer._lock:
        if placer.snapshot() != now:
            return None
        if best is not None:
            placer.restore(best.document, keep_at_risk=True)
            reoptimisation = replace(reoptimisation, migrated=True, moves=best.moves, servers_after=best.servers)
        elif placed:
            placer._core = unmoved
        final = tuple(placer.decision(each.request) if each.accepted else each for each in decisions)
        return replace(reoptimisation, decisions=final)


def _best(options: Sequence[_Option], used: int, budget: MoveBudget) -> _Option | None:
    """Return the plan of highest value, among equal ones the one with fewest moves; None if none is worth its moves."""
    worth = [budget.worth(used - option.servers, len(option.moves)) or 0.0 for option in options]
    good = [(value, -len(options[at].moves), at) for at, value in enumerate(worth) if value > 0.0]
    return options[max(good)[2]] if good else None


def _keeps_budgets(requests: Sequence[Request], moves: Sequence[Move]) -> bool:
    """Return whether a plan moves every request within its `max_disrupted`."""
    moved = Counter(move.request for move in moves)
    most = {request.id: request.max_disrupted for request in requests if request.max_disrupted is not None}
    return all(moved[name] <= count for name, count in most.items())


def _parts_anew(
    core: Admission, state: ClusterState, before: Mapping[str, Any], budget: MoveBudget
) -> Iterator[_Option]:
    """Yield plans that empty only the least filled servers."""
    guarded = {name for name, each in state.requests.items() if each.max_disrupted is not None}
    order = [n for n in emptiest(core.with_state(state)) if not guarded.intersection(state.tenants_of(n))]
    if budget.max_moves is not None:
        emptied = core.with_state(state.copy())
        with emptied.state.trial():
            if consolidate(emptied, budget.max_moves):
                yield _Option.of(emptied, before)
    for count in steps(len(order)):
        chosen = order[:count]
        if budget.max_moves is not None and pieces_on(state, chosen) > _STAY * budget.max_moves + count:
            return
        for fills_gaps in (True, False):
            made = repacked(core, state, chosen, fills_gaps=fills_gaps)
            if made is not None and made.state.servers_used < state.servers_used:
                yield _Option.of(made, before)


def _afresh(placer: Placer, planner: str | type[Policy] | None) -> Placer:
    """Return an empty placer with the same cluster, policy and settings."""
    kind = type(placer.policy) if planner is None else planner
    planned = Placer(placer.estimates.library, placer.cluster, kind, **vars(placer.settings))
    if planner is None:  # what is known of mixes is shared
        planned._core = placer._core.with_state(ClusterState(placer.cluster, placer._core.pieces))
    for name in placer.snapshot()["closed"]:
        planned.lifecycle.cordon(name)
    return planned


def aligned(
    now: Mapping[str, Any], plan: Mapping[str, Any], cluster: Cluster
) -> tuple[dict[str, Any], tuple[Move, ...]]:
    """Return a plan's snapshot, with each of its servers named as the running server most like it, and the moves.

    `now`, `plan`: snapshots of one cluster; requests of the plan alone are newcomers, which come last and move nothing.
    Unmoved pieces keep their cores. A server that is closed now takes no other server's part of the plan.
    """
    names = _matched(_parts(now), _parts(plan), cluster, now.get("closed", ()))
    order = {entry["request"]["id"]: number for number, entry in enumerate(now["placed"])}
    entries = [
        {**entry, "pieces": [{**piece, "server": names[piece["server"]]} for piece in entry["pieces"]]}
        for entry in sorted(plan["placed"], key=lambda entry: order.get(entry["request"]["id"], len(order)))
    ]
    _seat(entries, now, {server.name: server.cores for server in cluster.servers})
    same = {name: now[name] for name in ("policy", "closed") if name in now}
    return {**plan, **same, "placed": entries}, _moves(now, entries)


def _listed(placed: Iterable[Mapping[str, Any]]) -> Iterator[tuple[_Part, dict[str, Any]]]:
    """Yield every piece of the requests of a snapshot."""
    for entry in placed:
        for piece in entry["pieces"]:
            yield (piece["socket"], entry["request"]["id"], tuple(piece["workloads"])), piece


def _parts(document: Mapping[str, Any]) -> dict[str, Counter[_Part]]:
    """Return what each server of a snapshot runs."""
    parts_by_server = defaultdict[str, Counter[_Part]](Counter)
    for part, piece in _listed(document["placed"]):
        parts_by_server[piece["server"]][part] += 1
    return parts_by_server


def _matched(
    now: Mapping[str, Counter[_Part]], plan: Mapping[str, Counter[_Part]], cluster: Cluster, closed: Container[str]
) -> dict[str, str]:
    """Return a running server for each server of the plan, so that little must move."""
    kinds = {server.name: replace(server, name="any") for server in cluster.servers}

    def may_be(planned: str, name: str) -> bool:
        return kinds[name] == kinds[planned] and (name == planned or name not in closed)

    runs = defaultdict[_Part, list[str]](list)
    for name, parts in now.items():
        for part in parts:
            runs[part].append(name)
    common: Counter[tuple[str, str]] = Counter()
    for planned, parts in plan.items():
        for part, count in parts.items():
            for name in runs.get(part, ()):
                if may_be(planned, name):
                    common[planned, name] += min(count, now[name][part])
    names: dict[str, str] = {}
    taken: set[str] = set()
    for (planned, name), _ in sorted(common.items(), key=lambda item: (-item[1], item[0])):
        if planned not in names and name not in taken:
            names[planned] = name
            taken.add(name)
    for planned in plan:
        if planned not in names:
            names[planned] = next(name for name in kinds if name not in taken and may_be(planned, name))
            taken.add(names[planned])
    return names


def _seat(entries: Sequence[dict[str, Any]], now: Mapping[str, Any], cores: Mapping[str, int]) -> None:
    """Give what does not move its old cores, and everything else the lowest free cores."""
    held = defaultdict[tuple[str, _Part], list[list[int]]](list)
    for part, piece in _listed(now["placed"]):
        held[piece["server"], part].append(list(piece["cores"]))
    used, waiting = defaultdict[tuple[str, int], set[int]](set), []
    for part, piece in _listed(entries):
        taken, mine = used[piece["server"], piece["socket"]], held[piece["server"], part]
        if mine:
            piece["cores"] = mine.pop(0)
            taken.update(piece["cores"])
        else:
            waiting.append((taken, piece))
    for taken, piece in waiting:
        free = [core for core in range(cores[piece["server"]]) if core not in taken]
        piece["cores"] = free[: len(piece["workloads"])]
        taken.update(piece["cores"])


def _moves(now: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> tuple[Move, ...]:
    before = {entry["request"]["id"]: _places(entry) for entry in now["placed"]}
    moves: list[Move] = []
    for entry in entries:
        name = entry["request"]["id"]
        if name not in before:
            continue
        was, is_now = before[name], _places(entry)
        left = [server for server, _ in (was - is_now).elements()]
        come = [server for server, _ in (is_now - was).elements()]
        first = next(iter(was))[0]
        moves += [Move(name, left[i] if i < len(left) else first, server) for i, server in enumerate(come)]
    return tuple(moves)


def _places(entry: Mapping[str, Any]) -> Counter[tuple[str, int]]:
    return Counter((piece["server"], piece["socket"]) for piece in entry["pieces"])
