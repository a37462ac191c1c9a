"""Change a running cluster: add, remove, drain servers, handle failures, change requests and models.

The terms are those of Kubernetes (cordon, drain, priority, surge). Every change is applied completely or not at all,
and can be previewed (``what_if=True``) without effect.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.models.library import ModelLibrary
from slomo.placement.online.change import AtRisk, ClusterChange
from slomo.placement.online.checker import Before, broken_constraints, keeps_promise, worsened
from slomo.placement.online.constraints import check_neighbours, check_possible, is_must, means
from slomo.placement.online.moves import Move, moved_spot
from slomo.placement.online.persistence import snapshot, transferred
from slomo.placement.online.sockets import Spot
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.decision import Decision
from slomo.placement.problem.request import Request, require_placed
from slomo.placement.problem.whereabouts import untolerated

if TYPE_CHECKING:
    from slomo.placement.online.admission import Admission
    from slomo.placement.online.settings import PlacerSettings


class Holder(Protocol):
    """The object that has the cluster's state: a placer."""

    settings: "PlacerSettings"
    _lock: Any
    _core: "Admission"

    def _made(self, library: ModelLibrary, cluster: Cluster) -> "Admission": ...

    def _check_new(self, requests: Sequence[Request]) -> None: ...


class Lifecycle:
    """Changes to a placer's cluster, available as :attr:`Placer.lifecycle`.

    Examples
    --------
    >>> from slomo.models.library import ModelLibrary
    >>> from slomo.placement.online.placer import Placer
    >>> placer = Placer(ModelLibrary([]), Cluster.uniform("e5-2620v4", 2), "first-fit")
    >>> placer.lifecycle.drain("e5-2620v4-1").text
    'drain e5-2620v4-1: done'
    """

    def __init__(self, placer: Holder) -> None:
        self._placer = placer

    def _whole(
        self,
        act: "Callable[[Admission], ClusterChange]",
        *,
        what_if: bool,
        guarded: bool = True,
        owner: str | None = None,
    ) -> ClusterChange:
        """Apply a change under the lock; undo it if it is a preview, is impossible, or violates a constraint."""
        with self._placer._lock:
            core = self._placer._core
            before = Before(dict(core.state.requests), dict(core.state.spots))
            with core.state.trial() as trial:
                change = act(core)
                if change.done and guarded:
                    change = _checked(core, change, before, owner)
                if what_if or not change.done:
                    trial.undo()
            return change

    def add_server(self, server: Server, *, what_if: bool = False) -> ClusterChange:
        """Add a server to the cluster.

        Raises InvalidValueError for a name in use; ConfigurationError if the machine differs from the one of that name
        on which the models were measured.
        """

        def act(core: "Admission") -> ClusterChange:
            if core.state.number_of(server.name) is not None:
                raise InvalidValueError(f"there is a server '{server.name}' already", hint="give it another name")
            Cluster((*core.state.cluster.servers, server))  # two machine types of one name are refused
            core.estimates.check_machines({server.machine_type.name: server.machine_type})
            core.state.add_server(server)
            return ClusterChange(f"add {server.name}", True)

        return self._whole(act, what_if=what_if)

    def remove_server(self, server: str, *, what_if: bool = False) -> ClusterChange:
        """Remove an empty server; if requests run on it, change nothing and return them."""

        def act(core: "Admission") -> ClusterChange:
            number = _number(core, server)
            left = core.state.tenants_of(number)
            if len(core.state.cluster.servers) == 1:
                raise InvalidValueError(f"'{server}' is the last server", hint="add another first")
            if not left:
                core.state.close(number, "removed")
            return ClusterChange(f"remove {server}", not left, left=left)

        return self._whole(act, what_if=what_if)

    def cordon(self, server: str, *, what_if: bool = False) -> ClusterChange:
        """Close a server to new requests; requests that run on it stay."""
        return self._whole(lambda core: _closed(core, server, "cordon"), what_if=what_if)

    def uncordon(self, server: str, *, what_if: bool = False) -> ClusterChange:
        """Reopen a server that was cordoned or drained, or that had failed."""
        return self._whole(lambda core: _closed(core, server, "uncordon"), what_if=what_if)

    def drain(self, server: str, *, max_moves: int | None = None, what_if: bool = False) -> ClusterChange:
        """Cordon a server and move all its pieces away; if some requests cannot move, change nothing and return them.

        Parameters
        ----------
        server : str
            Name of the server.
        max_moves : int, optional
            Pieces that may move; all by default.
        what_if : bool
            Only report what would be done.
        """

        def act(core: "Admission") -> ClusterChange:
            number = _number(core, server)
            core.state.close(number, "cordoned")
            moves, left = _emptied(core, number, max_moves)
            return ClusterChange(f"drain {server}", not left, moves if not left else (), left=tuple(left))

        return self._whole(act, what_if=what_if)

    def fail(self, server: str, *, what_if: bool = False) -> ClusterChange:
        """Close a failed server and place its pieces on others, higher priorities first.

        Instances elsewhere stay. Requests without a new place are refused and removed, unless they survive the failure
        with their other instances.
        """

        def act(core: "Admission") -> ClusterChange:
            return _failed(core, [_number(core, server)], f"fail {server}")

        return self._whole(act, what_if=what_if, guarded=False)

    def fail_domain(self, label: str, value: str, *, what_if: bool = False) -> ClusterChange:
        """Handle the failure of all servers with one value of a label, such as a rack, as :meth:`fail` does.

        Raises UnknownNameError for a label or value that no server has.
        """

        def act(core: "Admission") -> ClusterChange:
            values = core.state.cluster.label_values
            for what, name, there in (("label", label, values), (f"value of {label}", value, values.get(label, ()))):
                if name not in there:
                    raise UnknownNameError(what, name, list(there)[:200])
            here = [n for n in range(len(core.state.servers)) if core.state.servers[n].domain(label) == value]
            alive = [number for number in here if core.state.closed.get(number) != "removed"]
            return _failed(core, alive, f"fail {label} {value}")

        return self._whole(act, what_if=what_if, guarded=False)

    def taint(self, server: str, taints: Sequence[str], *, what_if: bool = False) -> ClusterChange:
        """Set a server's taints; requests that do not tolerate a ``NoExecute`` taint are moved, or refused."""

        def act(core: "Admission") -> ClusterChange:
            number = _number(core, server)
            core.state.mark(number, tuple(taints))
            placed = [core.state.requests[name] for name in core.state.tenants_of(number)]
            driven = [r for r in placed if untolerated(taints, r.tolerations, ("NoExecute",))]
            return _without(core, driven, [number], f"taint {server}")

        return self._whole(act, what_if=what_if, guarded=False)

    def update(self, request: Request, *, surge: bool = True, what_if: bool = False) -> ClusterChange:
        """Change a placed request's rate, SLO or version; nothing moves if the changed request fits where it is.

        Raises UnknownNameError for an id that is not placed, or a network function without model or profile.

        Parameters
        ----------
        request : Request
            What it is to be; its id says which.
        surge : bool
            Old and new may run beside each other for a while: the old one goes when the new one has its place. Without,
            the old one goes first. Where the new one finds no place, the old one stays.
        what_if : bool
            Only report what would be done.
        """

        def act(core: "Admission") -> ClusterChange:
            require_placed(request.id, core.state.requests)
            old = core.state.requests[request.id]
            gone = [
                name for name in (*old.affinity, *old.anti_affinity) if isinstance(name, str)
            ]  # named once, may have left
            check_neighbours([request], [*core.state.requests, *gone])
            check_possible([request], core.state.cluster)
            if self._placer.settings.fallback == "refuse":
                core.estimates.check_names([request], core.state.cluster.machines)
            before = core.writer.decision(request.id)
            if (old.chain == request.chain or not surge) and _in_place(core, request):
                return ClusterChange(f"update {request.id}", True)
            decision = _replaced(core, request, surge=surge)
            if not decision.accepted:
                return ClusterChange(f"update {request.id}", False, refused=(decision,))
            moved = [server for server in decision.servers if server not in before.servers]
            moves = tuple(Move(request.id, before.servers[0], server) for server in moved)
            return ClusterChange(f"update {request.id}", True, moves)

        return self._whole(act, what_if=what_if, owner=request.id)

    def preempt(self, request: Request, *, what_if: bool = False) -> ClusterChange:
        """Admit a request; if there is no room, remove requests of lower priority from one server.

        Those are placed elsewhere if there is room. The server is chosen where the victims' highest priority is lowest,
        then where the victims are fewest.
        """

        def act(core: "Admission") -> ClusterChange:
            self._placer._check_new([request])
            said = f"preempt for {request.id}"
            decision = core.admit(request)
            if decision.accepted:
                return ClusterChange(said, True)
            victims = _fewest_victims(core, request)
            if victims is None:
                return ClusterChange(said, False, refused=(decision,))
            return _preempted(core, request, victims, said)

        return self._whole(act, what_if=what_if)

    def use(self, library: ModelLibrary, *, what_if: bool = False) -> ClusterChange:
        """Use other models from now on; nothing moves, and promises that are then predicted to break are returned.

        Raises ConfigurationError for models of another machine; PredictionError if they lack a running network
        function.
        """
        with self._placer._lock:
            old = self._placer._core
            new = self._placer._made(library, old.state.cluster)
            transferred(snapshot(old), new)
            if not what_if:
                self._placer._core = new
            return ClusterChange("use other models", True, at_risk=_at_risk(new))

    def at_risk(self) -> tuple[AtRisk, ...]:
        """Return the promises that the present models predict to break, worst first."""
        with self._placer._lock:
            return _at_risk(self._placer._core)


def _checked(core: "Admission", change: ClusterChange, before: Before, owner: str | None) -> ClusterChange:
    """Return a change if it is allowed, else the constraint or disruption budget that forbids it."""
    broken = worsened(core, before, owner)
    if not broken:
        return change
    why = tuple(f"{item.constraint} of '{item.request}': {item.problem}" for item in broken)
    return ClusterChange(change.what, False, left=tuple(dict.fromkeys(item.request for item in broken)), why=why)


def _failed(core: "Admission", numbers: Sequence[int], said: str) -> ClusterChange:
    state = core.state
    lost = dict.fromkeys(name for number in numbers for name in state.tenants_of(number))
    for number in numbers:
        state.close(number, "failed")
    return _without(core, [state.requests[name] for name in lost], numbers, said)


def _without(core: "Admission", lost: Sequence[Request], numbers: Sequence[int], said: str) -> ClusterChange:
    """Remove requests from some servers and place them elsewhere, higher priorities first."""
    state, gone = core.state, set(numbers)
    before = {r.id: state.spots[r.id] for r in lost}
    homes = {name: [state.servers[at].name for at in state.homes(spots)] for name, spots in before.items()}
    ranked = _named_first(lost)
    whole: list[Request] = []
    for request in ranked:  # lost requests are removed first, so that all find the room they leave
        staying = [spot for spot in before[request.id] if state.sockets[spot[0]].server not in gone]
        if not staying:
            state.forget(request.id)
            whole.append(request)
            continue
        for spot in before[request.id]:
            if spot not in staying:
                state.take(request, spot)
        state.settle(request.id, staying)
    degraded, refused = [], []
    for request in ranked:
        if request not in whole and not _completed(core, request, before[request.id]):
            if request.survives is not None and keeps_promise(core, request):
                degraded.append(request.id)
                continue
            state.forget(request.id)
            whole.append(request)
        if request in whole:
            decision = core.admitted(request)
            refused += [] if decision.accepted else [decision]
    then = Before({r.id: r for r in lost}, before)
    for request in [r for r in ranked if r.id in state.spots]:  # of two that want each other near one came first
        if any(item.constraint == "affinity" for item in broken_constraints(core, [request.id], then)):
            state.forget(request.id)
            decision = core.admitted(request)
            refused += [] if decision.accepted else [decision]
    moves = []
    for name, spots in before.items():
        now = [state.servers[at].name for at in state.homes(state.spots.get(name, ()))]
        source = next(state.servers[state.sockets[n].server].name for n, _ in spots if state.sockets[n].server in gone)
        moves += [Move(name, source, target) for target in dict.fromkeys(now) if target not in homes[name]]
    return ClusterChange(said, True, tuple(moves), tuple(refused), degraded=tuple(degraded))


def _named_first(lost: Sequence[Request]) -> list[Request]:
    """Return requests by priority, but each after the requests that its affinity names."""
    order: dict[str, Request] = {}

    def add(request: Request, above: frozenset[str]) -> None:
        wanted = [item for item in request.affinity if is_must(item)]
        for other in lost if wanted else ():
            if other.id not in order and other.id not in above and any(means(item, other) for item in wanted):
                add(other, above | {other.id})
        order.setdefault(request.id, request)

    for request in sorted(lost, key=lambda request: -request.priority):
        add(request, frozenset({request.id}))
    return list(order.values())


def _completed(core: "Admission", request: Request, whole: Sequence[Spot]) -> bool:
    """Place all lost pieces of a request elsewhere, or none."""
    state = core.state
    missing = Counter(piece for _, piece in whole) - Counter(piece for _, piece in state.spots[request.id])
    with state.trial() as trial:
        for piece in missing.elements():
            spots = state.spots[request.id]
            near, rather = state.allowed(request, spots), state.score(request, spots)
            spot = core.best(request, dict.fromkeys(state.hosts, piece), near, rather)
            if spot is None:
                trial.undo()
                return False
            state.put(request, spot)
            state.settle(request.id, [*spots, spot])
        before = Before({request.id: request}, {request.id: tuple(whole)})
        if broken_constraints(core, [request.id], before):
            trial.undo()
            return False
    return True


def _in_place(core: "Admission", request: Request) -> bool:
    """Replace a request by its new version on the same cores; return False, and change nothing, if it does not fit."""
    state = core.state
    old, spots = state.requests[request.id], state.spots[request.id]
    before = Before({request.id: old}, {request.id: spots})
    cores = [_cores_of(core, request.id, spot, spots[:at]) for at, spot in enumerate(spots)]
    needs_same = (old.chain, old.slo) == (request.chain, request.slo)
    options: list[tuple[int, ...]] = [tuple(piece for _, piece in spots)] if needs_same else []
    hosts = {state.sockets[number].host for number, _ in spots}
    for cut in core.cuts(request, []):
        if hosts <= set(cut) and all(len(cut[host]) == len(spots) for host in hosts):
            ranked = {host: sorted(cut[host], key=lambda piece: -piece.instances) for host in hosts}
            order = sorted(range(len(spots)), key=lambda at: -state.pieces[spots[at][1]].instances)
            pieces = {at: ranked[state.sockets[spots[at][0]].host][rank] for rank, at in enumerate(order)}
            options.append(tuple(state.pieces.number(pieces[at]) for at in range(len(spots))))
    for pieces_there in dict.fromkeys(options):
        with state.trial() as trial:
            seats = tuple(zip(spots, pieces_there, cores, strict=True))
            if _reseated(core, request, seats) and not broken_constraints(core, [request.id], before):
                return True
            trial.undo()
    return False


def _cores_of(core: "Admission", name: str, spot: Spot, earlier: Sequence[Spot]) -> tuple[int, ...]:
    """Return the cores of one piece of a request; among equal pieces, the first has the lowest cores."""
    number, piece = spot
    mine = sorted(
        c for c, (owner, kind, _) in core.state.sockets[number].cores.items() if (owner, kind) == (name, piece)
    )
    stages = len(core.state.pieces[piece].workloads)
    first = stages * list(earlier).count(spot)
    return tuple(mine[first : first + stages])


def _reseated(core: "Admission", request: Request, seats: Sequence[tuple[Spot, int, tuple[int, ...]]]) -> bool:
    """Put the pieces of a request's new version where the old ones were; return whether the cores suffice."""
    state = core.state
    state.forget(request.id)
    spots: list[Spot] = []
    for (number, _), piece, cores in seats:
        place, stages = state.sockets[number], len(state.pieces[piece].workloads)
        free = [c for c in range(place.host.places) if c not in place.cores and c not in cores]
        wanted = [*cores, *free][:stages]
        if len(wanted) < stages or any(core_ in place.cores for core_ in wanted):
            return False
        state.put(request, (number, piece), wanted)
        spots.append((number, piece))
    state.keep(request, spots)
    return True


def _number(core: "Admission", server: str) -> int:
    number = core.state.number_of(server)
    if number is None:
        raise UnknownNameError("server", server, [each.name for each in core.state.cluster.servers][:200])
    return number


def _closed(core: "Admission", server: str, said: str) -> ClusterChange:
    core.state.close(_number(core, server), "cordoned" if said == "cordon" else None)
    return ClusterChange(f"{said} {server}", True)


def _emptied(core: "Admission", number: int, max_moves: int | None) -> tuple[tuple[Move, ...], list[str]]:
    """Move all pieces off a server, most demanding first; return the moves and the requests that cannot move."""
    state = core.state
    moves: list[Move] = []
    left: list[str] = []
    names = sorted(state.tenants_of(number), key=lambda name: (-state.requests[name].priority, name))
    for name in names:
        here = [each for each in state.spots[name] if state.sockets[each[0]].server == number]
        most = state.requests[name].max_disrupted
        if most is not None and len(state.homes(here)) > most:
            left.append(name)
            continue
        for spot in here:
            budget = max_moves is None or len(moves) < max_moves
            target = moved_spot(state, core.best, name, spot, lambda place: place.server != number) if budget else None
            if target is None:
                left.append(name)
                break
            moves.append(Move(name, *(state.servers[state.sockets[at].server].name for at in (spot[0], target[0]))))
    return tuple(moves), left


def _replaced(core: "Admission", request: Request, *, surge: bool) -> Decision:
    """Place a request's new version, with the old one still there or without; the caller undoes a refusal."""
    state = core.state
    if not surge:
        state.forget(request.id)
        return core.admit(request)
    old = f"{request.id} (before)"
    state.renamed(request.id, old)
    decision = core.admit(request)
    if decision.accepted:
        state.forget(old)
    return core.writer.decision(request.id) if decision.accepted else decision


def _fewest_victims(core: "Admission", request: Request) -> list[Request] | None:
    """Return the fewest requests to remove from one server so that a request fits; None if no server works."""
    state = core.state
    best: tuple[tuple[int, int, int], list[Request]] | None = None
    for number in range(len(state.servers)):
        if number in state.closed:
            continue
        weaker = [state.requests[name] for name in state.tenants_of(number)]
        weaker = [r for r in weaker if r.gang is None and _may_go(core, r)]
        weaker = sorted((r for r in weaker if r.priority < request.priority), key=lambda r: (r.priority, r.id))
        gone = _enough(core, request, weaker) if weaker else None
        if gone:
            cost = (max(each.priority for each in gone), len(gone), number)
            best = (cost, gone) if best is None or cost < best[0] else best
    return None if best is None else best[1]


def _may_go(core: "Admission", request: Request) -> bool:
    """Return whether a request's disruption budget allows removing the whole request."""
    most = request.max_disrupted
    return most is None or len(core.state.homes(core.state.spots[request.id])) <= most


def _enough(core: "Admission", request: Request, weaker: Sequence[Request]) -> list[Request] | None:
    """Return the first few of some requests, as many as must be removed to make room."""
    with core.state.trial() as trial:
        trial.undo()
        for count, each in enumerate(weaker, 1):
            core.state.forget(each.id)
            if core.admit(request).accepted:
                return list(weaker[:count])
    return None


def _preempted(core: "Admission", request: Request, victims: Sequence[Request], said: str) -> ClusterChange:
    homes: Mapping[str, tuple[str, ...]] = {each.id: core.writer.decision(each.id).servers for each in victims}
    for each in victims:
        core.state.forget(each.id)
    placed = core.admit(request)
    assert placed.accepted, "BUG: the victims were found to make room"
    decisions = [core.admitted(each) for each in sorted(victims, key=lambda r: -r.priority)]
    moves = tuple(Move(d.request, homes[d.request][0], target) for d in decisions for target in d.servers)
    return ClusterChange(said, True, moves, tuple(d for d in decisions if not d.accepted))


def _at_risk(core: "Admission") -> tuple[AtRisk, ...]:
    state = core.state
    rows = []
    for name, breach in core.broken().items():
        number = next(iter(sorted(state.servers_of(name))))
        server = state.servers[number].name
        rows.append(AtRisk(name, breach.workload, server, breach.what, breach.needed, breach.possible))
    return tuple(sorted(rows, key=lambda item: (item.possible / item.needed if item.needed else 0.0, item.request)))
