"""What happens to a cluster while it runs: servers come, go, fail and are drained; requests and models change.

The words are those of Kubernetes (cordon, drain, priority, surge). Every step is whole or not at all, and each can be
asked about first (``what_if=True``), which leaves everything as it is.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.placement.online.change import AtRisk, ClusterChange
from slomo.placement.online.moves import Move, moved_spot
from slomo.placement.online.persistence import snapshot, transferred
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.decision import Decision
from slomo.placement.problem.request import Request, find_request

if TYPE_CHECKING:
    from slomo.models.library import ModelLibrary
    from slomo.placement.online.admission import Admission
    from slomo.placement.online.settings import PlacerSettings


class Holder(Protocol):
    """Who has the state: a placer."""

    settings: "PlacerSettings"
    _lock: Any
    _core: "Admission"

    def _made(self, library: "ModelLibrary", cluster: Cluster) -> "Admission": ...

    def _check_new(self, requests: Sequence[Request]) -> None: ...


class Lifecycle:
    """Changes of a placer's cluster; get it as :attr:`Placer.lifecycle`.

    Parameters
    ----------
    placer : Placer
        Whose.

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

    def _whole(self, act: "Callable[[Admission], ClusterChange]", *, what_if: bool) -> ClusterChange:
        """Do something under the lock; undo it where it is only asked about, or cannot be done."""
        with self._placer._lock:
            core = self._placer._core
            with core.state.trial() as trial:
                change = act(core)
                if what_if or not change.done:
                    trial.undo()
            return change

    def add_server(self, server: Server, *, what_if: bool = False) -> ClusterChange:
        """Let a server join.

        Raises
        ------
        InvalidValueError
            For a name that is taken.
        ConfigurationError
            For a machine that is not the one the models of that name were measured on.
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
        """Let an empty server leave; with something on it nothing is done, and who is left is said."""

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
        """Put nothing more on a server; what runs there stays."""
        return self._whole(lambda core: _closed(core, server, "cordon"), what_if=what_if)

    def uncordon(self, server: str, *, what_if: bool = False) -> ClusterChange:
        """Use a server again that was cordoned, drained or had failed."""
        return self._whole(lambda core: _closed(core, server, "uncordon"), what_if=what_if)

    def drain(self, server: str, *, max_moves: int | None = None, what_if: bool = False) -> ClusterChange:
        """Cordon a server and move everything off it, or do nothing and say who is left.

        Parameters
        ----------
        server : str
            Which.
        max_moves : int, optional
            Pieces that may move; all by default.
        what_if : bool
            Only say what would be done.
        """

        def act(core: "Admission") -> ClusterChange:
            number = _number(core, server)
            core.state.close(number, "cordoned")
            moves, left = _emptied(core, number, max_moves)
            return ClusterChange(f"drain {server}", not left, moves if not left else (), left=tuple(left))

        return self._whole(act, what_if=what_if)

    def fail(self, server: str, *, what_if: bool = False) -> ClusterChange:
        """Take a failed server out, and place what ran there elsewhere, higher priorities first.

        What finds no place is refused, and no longer placed.
        """

        def act(core: "Admission") -> ClusterChange:
            number = _number(core, server)
            state = core.state
            lost = sorted((state.requests[name] for name in state.tenants_of(number)), key=lambda r: -r.priority)
            state.close(number, "failed")
            before = {request.id: state.forget(request.id) for request in lost}
            homes = {name: [state.servers[state.sockets[n].server].name for n, _ in spots]
                     for name, spots in before.items()}  # fmt: skip
            decisions = [core.admit(request) for request in lost]
            moves = [
                Move(decision.request, server, target)
                for decision in decisions
                for target in decision.servers
                if target not in homes[decision.request]
            ]
            refused = tuple(decision for decision in decisions if not decision.accepted)
            return ClusterChange(f"fail {server}", True, tuple(moves), refused)

        return self._whole(act, what_if=what_if)

    def update(self, request: Request, *, surge: bool = True, what_if: bool = False) -> ClusterChange:
        """Give a placed request a new rate, SLO or version.

        Parameters
        ----------
        request : Request
            What it is to be; its id says which.
        surge : bool
            Old and new may run beside each other for a while: the old one goes when the new one has its place. Without,
            the old one goes first. Where the new one finds no place, the old one stays.
        what_if : bool
            Only say what would be done.

        Raises
        ------
        UnknownNameError
            For an id that is not placed, or a network function nothing is known of.
        """

        def act(core: "Admission") -> ClusterChange:
            find_request("placed request", request.id, core.state.requests)
            if self._placer.settings.fallback == "refuse":
                core.estimates.check_names([request], core.state.cluster.machines)
            before = core.writer.decision(request.id)
            decision = _replaced(core, request, surge=surge)
            if not decision.accepted:
                return ClusterChange(f"update {request.id}", False, refused=(decision,))
            moved = [server for server in decision.servers if server not in before.servers]
            moves = tuple(Move(request.id, before.servers[0], server) for server in moved)
            return ClusterChange(f"update {request.id}", True, moves)

        return self._whole(act, what_if=what_if)

    def preempt(self, request: Request, *, what_if: bool = False) -> ClusterChange:
        """Admit a request; where it has no room, take those of lower priority off a server for it.

        Those are placed elsewhere where there is room. Of all servers the one is taken where the least priority, then
        the fewest requests, have to go.
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

    def use(self, library: "ModelLibrary", *, what_if: bool = False) -> ClusterChange:
        """Go over to other models; nothing moves, and what no longer holds by them is said.

        Raises
        ------
        ConfigurationError
            For models of another machine.
        PredictionError
            Where they lack a network function that runs.
        """
        with self._placer._lock:
            old = self._placer._core
            new = self._placer._made(library, old.state.cluster)
            transferred(snapshot(old), new)
            if not what_if:
                self._placer._core = new
            return ClusterChange("use other models", True, at_risk=_at_risk(new))

    def at_risk(self) -> tuple[AtRisk, ...]:
        """Return the promises that do not hold by the models of now, the worst first."""
        with self._placer._lock:
            return _at_risk(self._placer._core)


def _number(core: "Admission", server: str) -> int:
    number = core.state.number_of(server)
    if number is None:
        raise UnknownNameError("server", server, [each.name for each in core.state.cluster.servers][:200])
    return number


def _closed(core: "Admission", server: str, said: str) -> ClusterChange:
    core.state.close(_number(core, server), "cordoned" if said == "cordon" else None)
    return ClusterChange(f"{said} {server}", True)


def _emptied(core: "Admission", number: int, max_moves: int | None) -> tuple[tuple[Move, ...], list[str]]:
    """Move everything off a server, the most demanding first; return the moves, and who could not be moved."""
    state = core.state
    moves: list[Move] = []
    left: list[str] = []
    names = sorted(state.tenants_of(number), key=lambda name: (-state.requests[name].priority, name))
    for name in names:
        for spot in [each for each in state.spots[name] if state.sockets[each[0]].server == number]:
            budget = max_moves is None or len(moves) < max_moves
            target = moved_spot(state, core.best, name, spot, lambda place: place.server != number) if budget else None
            if target is None:
                left.append(name)
                break
            moves.append(Move(name, *(state.servers[state.sockets[at].server].name for at in (spot[0], target[0]))))
    return tuple(moves), left


def _replaced(core: "Admission", request: Request, *, surge: bool) -> Decision:
    """Place a request's new version, with the old one still there or not; the caller undoes a refusal."""
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
    """Return whom to take off one server so that a request fits there, or None where no server will do."""
    state = core.state
    best: tuple[tuple[int, int, int], list[Request]] | None = None
    for number in range(len(state.servers)):
        if number in state.closed:
            continue
        weaker = [state.requests[name] for name in state.tenants_of(number)]
        weaker = sorted((r for r in weaker if r.priority < request.priority), key=lambda r: (r.priority, r.id))
        gone = _enough(core, request, weaker) if weaker else None
        if gone:
            cost = (max(each.priority for each in gone), len(gone), number)
            best = (cost, gone) if best is None or cost < best[0] else best
    return None if best is None else best[1]


def _enough(core: "Admission", request: Request, weaker: Sequence[Request]) -> list[Request] | None:
    """Return the first of some requests that, taken off, make room."""
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
    decisions = [core.admit(each) for each in sorted(victims, key=lambda r: -r.priority)]
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
