"""Save what runs where as a document, and restore it; all promises are checked again.

A snapshot names servers, sockets and cores, so that an orchestrator finds its cluster unchanged after a restart. It
also records the models, confidence and machines of its decisions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from slomo.errors import ConfigurationError
from slomo.files.documents import check_version, convert
from slomo.files.ranges import Count, Index, Name, PositiveCount, Rate
from slomo.placement.feasibility.kinds import without_load
from slomo.placement.feasibility.latency import each_mpps, promises_latency
from slomo.placement.feasibility.mixes import Piece, host_of
from slomo.placement.feasibility.worst_case import STRANGER
from slomo.placement.online.checker import broken_constraints
from slomo.placement.online.moves import Move
from slomo.placement.online.sockets import Socket, Spot
from slomo.placement.online.state import ClusterState
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.decision import Decision
from slomo.placement.problem.entries import ClusterFile, PlacementEntry
from slomo.placement.problem.request import Request, unique_requests

if TYPE_CHECKING:
    from slomo.placement.online.admission import Admission

#: 2: with fingerprints of models and machines, confidence, method, and closed servers.
SCHEMA_VERSION = 2


class _PieceBody(Struct):
    """One piece (unit of placement) of a request in the document, and where it runs."""

    server: Name
    socket: Index
    cores: list[Index]
    workloads: list[Name]
    needed_mpps: Rate
    ways: list[Count]
    exclusive: bool
    instances: PositiveCount = 1
    replicas: PositiveCount = 1


class _PlacedBody(Struct):
    """One placed request in the document."""

    request: PlacementEntry
    pieces: Annotated[list[_PieceBody], Meta(min_length=1)]


class SnapshotBody(Struct):
    """The document that describes what runs where on a cluster."""

    policy: Name
    model: Name
    method: Name
    confidence: Annotated[float, Meta(ge=0.5, lt=1.0)]
    models: str
    machines: dict[Name, str]
    cluster: ClusterFile
    closed: dict[Name, str]
    placed: list[_PlacedBody]
    fallback: str = "refuse"


@dataclass(frozen=True)
class Restored:
    """What happened when a snapshot was restored: moves, refusals, promises at risk."""

    #: Pieces moved because their servers no longer exist.
    moves: tuple[Move, ...] = ()
    #: Refusals of requests that no longer fit.
    left: tuple[Decision, ...] = ()
    #: Requests whose promise does not hold in their place, judged by the present models.
    at_risk: tuple[str, ...] = ()


def snapshot(core: "Admission") -> dict[str, Any]:
    """Return all that is placed as a JSON-ready document."""
    state, estimates = core.state, core.estimates
    entries = [entry(state, name) for name in state.requests]
    types = state.cluster.machine_types
    return {
        "schema_version": SCHEMA_VERSION,
        "policy": core.policy.name,
        "model": estimates.model,
        "method": estimates.method,
        "confidence": estimates.confidence,
        "fallback": core.fallback,
        "models": estimates.fingerprint(state.cluster.machines),
        "machines": {name: machine.fingerprint for name, machine in types.items()},
        "cluster": state.cluster.to_dict(),
        "closed": {state.servers[number].name: why for number, why in state.closed.items() if why != "removed"},
        "at_risk": sorted({risk.request for risk in core.at_risk()}),
        "placed": entries,
    }


def entry(state: ClusterState, request: str) -> dict[str, Any]:
    """Return one placed request as the document has it."""
    return {"request": state.requests[request].to_dict(), "pieces": pieces(state, request)}


def pieces(state: ClusterState, request: str) -> list[dict[str, Any]]:
    """Return where a placed request runs, as the document has it."""
    used: set[tuple[int, int]] = set()
    return [_spot_to_dict(state, request, spot, used) for spot in state.spots[request]]


def _spot_to_dict(state: ClusterState, name: str, spot: Spot, used: set[tuple[int, int]]) -> dict[str, Any]:
    number, piece = spot
    place, cut = state.sockets[number], state.pieces[piece]
    mine = [core for core, (owner, kind, _) in sorted(place.cores.items()) if owner == name and kind == piece]
    cores = [core for core in mine if (number, core) not in used][: len(cut.workloads)]
    used |= {(number, core) for core in cores}
    return {
        "server": state.servers[place.server].name,
        "socket": place.socket,
        "cores": cores,
        **vars(cut),
        "workloads": list(cut.workloads),
        "ways": list(cut.ways),
    }


def restored(document: Mapping[str, Any], core: "Admission", *, keep_at_risk: bool) -> Restored:
    """Place the requests of a document where they ran; every mix is checked again.

    Raises ConfigurationError for another schema version, other models or machines, a mix that does not hold, or a
    document that is no snapshot.
    """
    if not isinstance(document, Mapping):
        raise ConfigurationError(
            f"a snapshot of a placement is a mapping, got {type(document).__name__}",
            hint="take one with Placer.snapshot",
        )
    again = "place the requests again with this version of slomo"
    check_version("snapshot", document.get("schema_version"), SCHEMA_VERSION, again)
    convert(document, SnapshotBody, "the snapshot", hint="take one with Placer.snapshot")
    try:
        _check_origin(document, core)
        if core.policy.predicts:
            _require_known(document, core)
        homeless = _filled(document, core)
        if not keep_at_risk:
            _judge(core)
        at_risk = tuple(dict.fromkeys(risk.request for risk in core.at_risk()))
        _close(document, core.state)
        return replace(_housed(core, homeless), at_risk=at_risk)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as problem:
        raise ConfigurationError(
            f"this is no snapshot of a placement: {problem!r}", hint="take one with Placer.snapshot"
        ) from None


def _check_origin(document: Mapping[str, Any], core: "Admission") -> None:
    """Raise an error for a snapshot made with other models, or on other machines of the same names."""
    for name, machine in core.state.cluster.machine_types.items():
        if document["machines"].get(name, machine.fingerprint) != machine.fingerprint:
            raise ConfigurationError(
                f"the snapshot is of another machine '{name}' than this cluster's",
                hint="its file changed: place the requests again",
            )
    policy = document["policy"]
    if core.policy.name != policy:
        raise ConfigurationError(
            f"the snapshot was placed by policy '{policy}', this placer's is '{core.policy.name}'",
            hint=f"make the placer with policy '{policy}'",
        )
    mine = core.estimates.fingerprint(tuple(document["machines"]))
    if (core.policy.predicts or core.policy.needs_profiles) and document["models"] != mine:
        raise ConfigurationError(
            f"the snapshot was decided by other models ({document['models'][:8]}, these are {mine[:8]})",
            hint="restore with the models it was taken with, then go over to new ones with lifecycle.use(library)",
        )


def transferred(document: Mapping[str, Any], core: "Admission") -> None:
    """Put the running requests on the same servers under other models, even if promises may then break."""
    _require_known(document, core)
    _filled(document, core)
    _close(document, core.state)


def _require_known(document: Mapping[str, Any], core: "Admission") -> None:
    """Raise the error of the first running request whose function has no model; those alone on a socket need none."""
    shared = [item for item in document["placed"] if not any(piece["exclusive"] for piece in item["pieces"])]
    core.estimates.check_names([Request.from_dict(item["request"]) for item in shared], core.state.cluster.machines)


def _close(document: Mapping[str, Any], state: ClusterState) -> None:
    for name, why in document["closed"].items():
        number = state.number_of(name)
        if number is not None and why in ("cordoned", "failed"):
            state.close(number, why)


def _filled(document: Mapping[str, Any], core: "Admission") -> list[tuple[Request, str]]:
    """Restore what ran on servers that still exist; return the other requests, with their old places."""
    state = core.state
    unique_requests(Request.from_dict(item["request"]) for item in document["placed"])
    places = {(state.servers[place.server].name, place.socket): i for i, place in enumerate(state.sockets)}
    former = {server.name: server for server in Cluster.from_dict(document["cluster"]).servers}
    homeless: list[tuple[Request, str]] = []
    for item in document["placed"]:
        request, pieces = Request.from_dict(item["request"]), item["pieces"]
        where = [places.get((piece["server"], piece["socket"])) for piece in pieces]
        servers = [former[piece["server"]] for piece in pieces]
        if all(
            number is not None and state.sockets[number].host == host_of(server)
            for number, server in zip(where, servers, strict=True)
        ):
            _seat(core, request, pieces, [number for number in where if number is not None])
        else:
            homeless.append((request, pieces[0]["server"]))
    return homeless


def _seat(core: "Admission", request: Request, pieces: Sequence[Mapping[str, Any]], where: Sequence[int]) -> None:
    """Put a request where it ran, each piece (instances placed together) with its share of the promise."""
    state, spots = core.state, []
    listed = [_piece(item) for item in pieces]
    host = state.sockets[where[0]].host
    needed = core.writer.capacity_rounded(request, host) or 0.0
    total = sum(piece.needed_mpps * piece.instances for piece in listed)
    instances = sum(piece.instances for piece in listed)
    for piece, item, number in zip(listed, pieces, where, strict=True):
        share = piece.needed_mpps / total if total else 1.0 / instances
        each = needed * share
        if request.survives is not None:  # all but one suffice; where one has failed, these were
            spared = [needed / max(working, 1) for working in (instances - 1, instances)]
            each = min(spared, key=lambda mpps: abs(mpps - piece.needed_mpps))
        if promises_latency(request) and not piece.ways:  # ways carry the capacity that latency asks for
            each = max(each, each_mpps(core.estimates, request, host.machine, needed, instances) or 0.0)
        _check_chain(piece, request)
        # loads are rounded to a grid of solo throughputs, which differ slightly between models
        workloads = core.estimates.keys(host.machine, request) * piece.instances
        fixed = Piece(workloads, each, piece.ways, piece.exclusive, piece.instances, piece.replicas)
        if piece.exclusive:
            fixed = piece
        spot = (number, state.pieces.number(fixed))
        _check_cores(state.sockets[number], request, item)
        state.put(request, spot, item["cores"])
        spots.append(spot)
    state.keep(request, spots)


def _check_chain(piece: Piece, request: Request) -> None:
    """Raise an error if the workloads of an entry are not those of the request's chain."""
    chain = [without_load(workload.key) for workload in request.chain] * piece.instances
    runs = [without_load(workload) for workload in piece.workloads]
    if len(runs) != len(chain) or any(here not in (own, STRANGER) for here, own in zip(runs, chain, strict=True)):
        raise ConfigurationError(
            f"the snapshot runs {list(piece.workloads)} for '{request.id}', whose chain is {request.label}"
        )


def _check_cores(place: Socket, request: Request, item: Mapping[str, Any]) -> None:
    cores = list(item["cores"])
    free = [core for core in dict.fromkeys(cores) if 0 <= core < place.host.places and core not in place.cores]
    if len(free) != len(item["workloads"]) or len(cores) != len(free):
        raise ConfigurationError(
            f"the snapshot puts '{request.id}' on cores {cores} of server '{item['server']}', "
            f"needed {len(item['workloads'])} free ones from 0 to {place.host.places - 1}"
        )


def _judge(core: "Admission") -> None:
    """Raise an error if a mix breaks a promise or a request's constraint is violated."""
    for risk in core.at_risk():
        raise ConfigurationError(
            f"in the snapshot '{risk.request}' does not hold: {risk.what} of {risk.workload}, needed "
            f"{risk.needed:.4g}, possible {risk.possible:.4g}: {risk.why}",
            hint="it was taken at another confidence, with other models, or changed by hand: place the requests again; "
            "what runs so already is kept with restore(document, keep_at_risk=True)",
        )
    for item in filter(lambda broken: broken.lasts, broken_constraints(core)):
        raise ConfigurationError(
            f"in the snapshot '{item.request}' does not keep {item.constraint}: {item.problem}",
            hint="it was changed by hand: place the requests again, or restore(document, keep_at_risk=True)",
        )


def _housed(core: "Admission", homeless: Sequence[tuple[Request, str]]) -> Restored:
    """Place requests whose servers no longer exist elsewhere, higher priorities first."""
    moves: list[Move] = []
    left: list[Decision] = []
    for request, source in sorted(homeless, key=lambda item: -item[0].priority):
        decision = core.admit(request)
        if decision.accepted:
            moves += [Move(request.id, source, server) for server in decision.servers]
        else:
            left.append(decision)
    return Restored(tuple(moves), tuple(left))


def _piece(item: Mapping[str, Any]) -> Piece:
    instances, replicas = int(item.get("instances", 1)), int(item.get("replicas", 1))
    cut = (tuple(item["workloads"]), float(item["needed_mpps"]), tuple(item["ways"]), bool(item["exclusive"]))
    return Piece(*cut, instances, replicas)
