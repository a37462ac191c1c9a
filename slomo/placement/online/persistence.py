"""Write what is placed into a document, and read it back.

A snapshot names servers, sockets and cores, so that an orchestrator that restarts finds its cluster as it left it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from slomo.errors import ConfigurationError
from slomo.placement.feasibility.mixes import Piece, Pieces
from slomo.placement.online.state import Spot, State
from slomo.placement.problem.checks import check_version
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import Request

SCHEMA_VERSION = 1


def snapshot(state: State, policy: str) -> dict[str, Any]:
    """Return everything placed as a JSON-ready document."""
    entries = [entry(state, name) for name in state.requests]
    return {"schema_version": SCHEMA_VERSION, "policy": policy, "cluster": state.cluster.to_dict(), "placed": entries}


def entry(state: State, request: str) -> dict[str, Any]:
    """Return one placed request as a snapshot holds it."""
    used: set[tuple[int, int]] = set()
    pieces = [_spot_to_dict(state, request, spot, used) for spot in state.spots[request]]
    return {"request": state.requests[request].to_dict(), "pieces": pieces}


def _spot_to_dict(state: State, name: str, spot: Spot, used: set[tuple[int, int]]) -> dict[str, Any]:
    number, piece = spot
    place, cut = state.sockets[number], state.pieces[piece]
    mine = [core for core, (owner, kind, _) in sorted(place.cores.items()) if owner == name and kind == piece]
    cores = [core for core in mine if (number, core) not in used][: len(cut.workloads)]
    used |= {(number, core) for core in cores}
    return {
        "server": state.cluster.servers[place.server].name,
        "socket": place.socket,
        "cores": cores,
        "workloads": list(cut.workloads),
        "needed_mpps": cut.needed_mpps,
        "ways": list(cut.ways),
        "exclusive": cut.exclusive,
        "instances": cut.instances,
        "replicas": cut.replicas,
    }


def restored(document: Mapping[str, Any], cluster: Cluster, pieces: Pieces) -> State:
    """Return the state a snapshot holds.

    Raises
    ------
    ConfigurationError
        For another schema version, another cluster, or a document that is no snapshot.
    """
    if not isinstance(document, Mapping):
        raise ConfigurationError(
            f"a snapshot of a placement is a mapping, got {type(document).__name__}",
            hint="take one with Placer.snapshot",
        )
    check_version("snapshot", document)
    try:
        if Cluster.from_dict(document["cluster"]) != cluster:
            raise ConfigurationError(
                "the snapshot is of another cluster", hint="restore it into a placer of the cluster it was taken of"
            )
        return _filled(State(cluster, pieces), document["placed"])
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise ConfigurationError(
            f"this is no snapshot of a placement: {problem!r}", hint="take one with Placer.snapshot"
        ) from None


def _filled(state: State, entries: Sequence[Mapping[str, Any]]) -> State:
    places = {(state.cluster.servers[place.server].name, place.socket): i for i, place in enumerate(state.sockets)}
    for entry in entries:
        request, spots = Request.from_dict(entry["request"]), []
        for item in entry["pieces"]:
            spot = (places[item["server"], item["socket"]], state.pieces.number(_piece(item)))
            place, cores = state.sockets[spot[0]], list(item["cores"])
            free = [core for core in dict.fromkeys(cores) if 0 <= core < place.host.cores and core not in place.cores]
            if len(free) != len(item["workloads"]):
                raise ConfigurationError(
                    f"the snapshot puts '{request.id}' on cores {cores} of server '{item['server']}', "
                    f"needed {len(item['workloads'])} free ones from 0 to {place.host.cores - 1}"
                )
            state.put(request.id, spot, free)
            spots.append(spot)
        state.keep(request, spots)
    return state


def _piece(item: Mapping[str, Any]) -> Piece:
    instances, replicas = int(item.get("instances", 1)), int(item.get("replicas", 1))
    cut = (tuple(item["workloads"]), float(item["needed_mpps"]), tuple(item["ways"]), bool(item["exclusive"]))
    return Piece(*cut, instances, replicas)
