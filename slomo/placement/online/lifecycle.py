"""Change a running cluster: add, remove, drain servers, handle failures, change requests and models.

The terms are those of Kubernetes (cordon, drain, priority, surge). Every change is applied completely or not at all,
and can be previewed (``what_if=True``) without effect.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.models.library import ModelLibrary
from slomo.placement.online.change import ClusterChange
from slomo.placement.online.checker import Before, worsened
from slomo.placement.online.constraints import check_neighbours, check_possible
from slomo.placement.online.emptying import emptied, failed, without
from slomo.placement.online.moves import Move
from slomo.placement.online.persistence import snapshot, transferred
from slomo.placement.online.replacing import fewest_victims, in_place, preempted, replaced
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.decision import AtRisk
from slomo.placement.problem.request import Request, require_placed
from slomo.placement.problem.whereabouts import untolerated

if TYPE_CHECKING:
    from slomo.placement.online.admission import Admission
    from slomo.placement.online.settings import PlacerSettings

#: Undoes a change, or completes it, and returns what came of it.
End = Callable[[ClusterChange], ClusterChange]

#: Changes that :meth:`Lifecycle.act` makes, with their options beside `what_if`.
CHANGES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("add_server", "remove_server", "cordon", "uncordon", "fail", "preempt", "use"), ()),
    "drain": ("max_moves",),
    "fail_domain": ("value",),
    "taint": ("taints",),
    "update": ("surge",),
}
#: Values of options that change nothing.
_DEFAULTS: dict[str, Any] = {
    "max_moves": None, "taints": (), "surge": True, "value": None, "threshold": 0.1, "cost_per_move": 0.0
}  # fmt: skip


class Holder(Protocol):
    """The object whose cluster is changed: a placer."""

    settings: "PlacerSettings"
    _lock: Any
    _core: "Admission"

    def _made(self, library: ModelLibrary, cluster: Cluster) -> "Admission": ...

    def _check_new(self, requests: Sequence[Request]) -> None: ...


def taken_options(
    action: str, takes: Sequence[str], options: Mapping[str, Any], named: Callable[[str], str] = str
) -> dict[str, Any]:
    """Return the options that an action takes; others are ignored if they have their default values.

    Raises InvalidValueError, with the option as `named`, for an option that the action does not take.
    """
    for name, value in options.items():
        if name not in takes and (name not in _DEFAULTS or value != _DEFAULTS[name]):
            hint = f"it takes {' and '.join(map(named, takes)) or 'none'}"
            raise InvalidValueError(f"change '{action}' takes no option {named(name)}", hint=hint)
    return {name: options[name] for name in takes if name in options}


class Lifecycle:
    """Changes to a placer's cluster, available as :attr:`Placer.lifecycle`.

    >>> from slomo.models.library import ModelLibrary
    >>> from slomo.placement.online.placer import Placer
    >>> placer = Placer(ModelLibrary([]), Cluster.uniform("e5-2620v4", 2), "first-fit")
    >>> placer.lifecycle.drain("e5-2620v4-1").text
    'drain e5-2620v4-1: done'
    """

    def __init__(self, placer: Holder) -> None:
        self._placer = placer

    @contextmanager
    def _changing(
        self, what_if: bool, *, guarded: bool = True, owner: str | None = None
    ) -> "Iterator[tuple[Admission, End]]":
        """Yield the placer's core and the end of a change, which undoes a preview and what violates a constraint."""
        with self._placer._lock:
            core = self._placer._core
            before = Before(dict(core.state.requests), dict(core.state.spots))
            with core.state.trial() as trial:

                def ended(change: ClusterChange) -> ClusterChange:
                    broken = worsened(core, before, owner) if change.done and guarded else []
                    if broken:
                        why = tuple(f"{item.constraint} of '{item.request}': {item.problem}" for item in broken)
                        left = tuple(dict.fromkeys(item.request for item in broken))
                        change = ClusterChange(change.what, False, left=left, why=why)
                    if what_if or not change.done:
                        trial.undo()
                    return change

                yield core, ended

    def act(self, action: str, subject: Any, *, what_if: bool = False, **options: Any) -> ClusterChange:
        """Make the change of this name, a method of this class; options with their default values are ignored."""
        if action not in CHANGES:
            raise UnknownNameError("change", action, list(CHANGES))
        taken = taken_options(action, CHANGES[action], options)
        change: ClusterChange = getattr(self, action)(subject, what_if=what_if, **taken)
        return change

    def add_server(self, server: Server, *, what_if: bool = False) -> ClusterChange:
        """Add a server to the cluster."""
        with self._changing(what_if) as (core, ended):
            if core.state.number_of(server.name) is not None:
                raise InvalidValueError(f"there is a server '{server.name}' already", hint="give it another name")
            Cluster((*core.state.cluster.servers, server))  # two machine types of one name are refused
            core.estimates.check_machines({server.machine_type.name: server.machine_type})
            core.state.add_server(server)
            return ended(ClusterChange(f"add {server.name}", True))

    def remove_server(self, server: str, *, what_if: bool = False) -> ClusterChange:
        """Remove an empty server; if requests run on it, change nothing and return them."""
        with self._changing(what_if) as (core, ended):
            number = _number(core, server)
            left = core.state.tenants_of(number)
            if len(core.state.cluster.servers) == 1:
                raise InvalidValueError(f"'{server}' is the last server", hint="add another first")
            if not left:
                core.state.close(number, "removed")
            return ended(ClusterChange(f"remove {server}", not left, left=left))

    def cordon(self, server: str, *, what_if: bool = False) -> ClusterChange:
        """Close a server to new requests; requests that run on it stay."""
        with self._changing(what_if) as (core, ended):
            core.state.close(_number(core, server), "cordoned")
            return ended(ClusterChange(f"cordon {server}", True))

    def uncordon(self, server: str, *, what_if: bool = False) -> ClusterChange:
        """Reopen a server that was cordoned or drained, or that had failed."""
        with self._changing(what_if) as (core, ended):
            core.state.close(_number(core, server), None)
            return ended(ClusterChange(f"uncordon {server}", True))

    def drain(self, server: str, *, max_moves: int | None = None, what_if: bool = False) -> ClusterChange:
        """Close a server to new requests and move all its instances away; if some cannot move, change nothing.

        `server`: name of the server. `max_moves`: pieces that may move; all by default. `what_if`: only report what
        would be done.
        """
        with self._changing(what_if) as (core, ended):
            number = _number(core, server)
            core.state.close(number, "cordoned")
            moves, left = emptied(core, number, max_moves)
            return ended(ClusterChange(f"drain {server}", not left, moves if not left else (), left=tuple(left)))

    def fail(self, server: str, *, what_if: bool = False) -> ClusterChange:
        """Close a failed server and place what ran on it elsewhere, higher priorities first.

        Instances elsewhere stay. Requests without a new place are refused and removed, unless they survive the failure
        with their other instances.
        """
        with self._changing(what_if, guarded=False) as (core, ended):
            return ended(failed(core, [_number(core, server)], f"fail {server}"))

    def fail_domain(self, label: str, value: str, *, what_if: bool = False) -> ClusterChange:
        """Handle the failure of all servers with one value of a label, such as a rack, as :meth:`fail` does."""
        with self._changing(what_if, guarded=False) as (core, ended):
            values = core.state.cluster.label_values
            for what, name, there in (("label", label, values), (f"value of {label}", value, values.get(label, ()))):
                if name not in there:
                    raise UnknownNameError(what, name, list(there)[:200])
            here = [n for n in range(len(core.state.servers)) if core.state.servers[n].domain(label) == value]
            alive = [number for number in here if core.state.closed.get(number) != "removed"]
            return ended(failed(core, alive, f"fail {label} {value}"))

    def taint(self, server: str, taints: Sequence[str], *, what_if: bool = False) -> ClusterChange:
        """Set a server's taints; requests that do not tolerate a ``NoExecute`` taint are moved, or refused."""
        with self._changing(what_if, guarded=False) as (core, ended):
            number = _number(core, server)
            core.state.mark(number, tuple(taints))
            placed = [core.state.requests[name] for name in core.state.tenants_of(number)]
            driven = [r for r in placed if untolerated(taints, r.tolerations, ("NoExecute",))]
            return ended(without(core, driven, [number], f"taint {server}"))

    def update(self, request: Request, *, surge: bool = True, what_if: bool = False) -> ClusterChange:
        """Change a placed request's rate, SLO or version; it moves only if the changed request no longer fits.

        `request`: what it is to be; its id says which. `surge`: old and new may run beside each other for a while: the
        old one goes when the new one has its place. Without, the old one goes first. Where the new one finds no place,
        the old one stays. `what_if`: only report what would be done.
        """
        with self._changing(what_if, owner=request.id) as (core, ended):
            require_placed(request.id, core.state.requests)
            old = core.state.requests[request.id]  # whom it names may have left since
            gone = [name for name in (*old.affinity, *old.anti_affinity) if isinstance(name, str)]
            check_neighbours([request], [*core.state.requests, *gone])
            check_possible([request], core.state.cluster)
            if self._placer.settings.fallback == "refuse":
                core.estimates.check_names([request], core.state.cluster.machines)
            before = core.writer.decision(request.id)
            if (old.chain == request.chain or not surge) and in_place(core, request):
                return ended(ClusterChange(f"update {request.id}", True))
            decision = replaced(core, request, surge=surge)
            if not decision.accepted:
                return ended(ClusterChange(f"update {request.id}", False, refused=(decision,)))
            moved = [server for server in decision.servers if server not in before.servers]
            moves = tuple(Move(request.id, before.servers[0], server) for server in moved)
            return ended(ClusterChange(f"update {request.id}", True, moves))

    def preempt(self, request: Request, *, what_if: bool = False) -> ClusterChange:
        """Admit a request; if there is no room, remove requests of lower priority from one server.

        Those are placed elsewhere if there is room. The server is chosen where the victims' highest priority is lowest,
        then where the victims are fewest.
        """
        with self._changing(what_if) as (core, ended):
            self._placer._check_new([request])
            what = f"preempt for {request.id}"
            decision = core.admit(request)
            if decision.accepted:
                return ended(ClusterChange(what, True))
            victims = fewest_victims(core, request)
            if victims is None:
                return ended(ClusterChange(what, False, refused=(decision,)))
            return ended(preempted(core, request, victims, what))

    def use(self, library: ModelLibrary, *, what_if: bool = False) -> ClusterChange:
        """Use other models from now on; move nothing, and return the promises that they predict to break."""
        with self._placer._lock:
            old = self._placer._core
            new = self._placer._made(library, old.state.cluster)
            transferred(snapshot(old), new)
            if not what_if:
                self._placer._core = new
            return ClusterChange("use other models", True, at_risk=new.at_risk())

    def at_risk(self) -> tuple[AtRisk, ...]:
        """Return the promises that the models predict to break, worst first, then those that they cannot judge."""
        with self._placer._lock:
            return self._placer._core.at_risk()


def _number(core: "Admission", server: str) -> int:
    number = core.state.number_of(server)
    if number is None:
        raise UnknownNameError("server", server, [each.name for each in core.state.cluster.servers][:200])
    return number
