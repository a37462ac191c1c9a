"""Servers and their tenants: slomo's own cluster, or the nodes of a Kubernetes cluster."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from slomo.placement.feasibility.oracle import Breach
from slomo.placement.online.placer import Placer
from slomo.placement.problem.decision import AtRisk

#: State of a promise; ``"none"`` without a promise.
State = Literal["kept", "broken", "unjudged", "none"]
#: Relative headroom below which a server counts as tight.
TIGHT = 0.1


@dataclass(frozen=True)
class RunningNF:
    """One network function on one core."""

    #: Id of the request, or ``namespace/pod``.
    owner: str
    #: Workload key, or the given name if the function has no model.
    workload: str
    #: Socket of the function's core.
    socket: int = 0
    #: Core within the socket; empty if unknown.
    seat: str = ""
    #: Promised throughput [Mpps]; 0 without a promise or if unknown.
    needed_mpps: float = 0.0
    #: Predicted throughput with interval, and solo throughput [Mpps]; None without a model.
    predicted_mpps: float | None = None
    low_mpps: float | None = None
    high_mpps: float | None = None
    solo_mpps: float | None = None
    #: State of the promise by the present models.
    state: State = "none"
    #: Reason why the promise is broken or cannot be judged.
    why: str = ""
    #: Uid of the pod; empty if the function is no pod.
    uid: str = ""


@dataclass(frozen=True)
class RunningServer:
    """A server and the network functions that run on it."""

    #: Name and machine type of the server.
    name: str
    machine: str
    #: Number of network functions that fit on the server.
    cores: int
    #: Network functions that run on the server.
    tenants: tuple[RunningNF, ...] = ()

    @property
    def headroom(self) -> float:
        """Smallest relative headroom of any function above its promise; infinite without promises."""
        spare = [(item.low_mpps or 0.0) / item.needed_mpps - 1.0 for item in self.tenants if item.needed_mpps > 0.0]
        return min(spare, default=math.inf)

    @property
    def kind(self) -> str:
        """State in one word: ``empty``, ``free`` (no promise), ``ample``, ``tight``, ``broken`` or ``unjudged``."""
        if not self.tenants:
            return "empty"
        states = {item.state for item in self.tenants}
        if "broken" in states:
            return "broken"
        if "unjudged" in states:
            return "unjudged"
        if math.isinf(self.headroom):
            return "free"
        return "tight" if self.headroom < TIGHT else "ample"


def placed(placer: Placer) -> list[RunningServer]:
    """Return the servers of slomo's own cluster, with what runs on them; only promises at risk name their requests."""
    layout, solo = placer.layout(), placer.estimates.solo_mpps
    at_risk = {(risk.server, risk.socket, risk.core): risk for risk in placer.lifecycle.at_risk()}
    sizes: dict[tuple[object, ...], tuple[str, int]] = {}
    rows = []
    for server in placer.cluster.servers:
        key = (server.machine, server.cores_reserved, server.nic_sockets, server.sockets)
        if key not in sizes:
            sizes[key] = (server.machine_type.name, server.cores * len(server.nics))
        machine, cores = sizes[key]
        tenants = []
        for item in layout.get(server.name, ()):
            risk = at_risk.get((server.name, item.socket, item.core + item.thread * server.cores))
            state, why = promise(item.needed_mpps, risk)
            if state == "kept" and item.predicted_mpps is None:
                state, why = "none", "the policy predicts nothing"
            rates = item.predicted_mpps, item.low_mpps, item.high_mpps, solo(machine, item.workload)
            place = item.workload, item.socket, item.seat, item.needed_mpps
            tenants.append(RunningNF(risk.request if risk else "", *place, *rates, state=state, why=why))
        rows.append(RunningServer(server.name, machine, cores, tuple(tenants)))
    return rows


def owned(placer: Placer, server: RunningServer) -> RunningServer:
    """Return a server of slomo's own cluster, with the requests to which its functions belong."""
    at: dict[tuple[int, int], str] = {}
    for request in placer.requests:
        for piece in placer.entry(request.id)["pieces"]:
            if piece["server"] == server.name:
                at |= {(piece["socket"], core): request.id for core in piece["cores"]}
    cores = next(each.cores for each in placer.cluster.servers if each.name == server.name)
    layout = placer.layout().get(server.name, ())
    if len(layout) != len(server.tenants):  # the server has changed meanwhile
        return server
    names = [at.get((item.socket, item.core + item.thread * cores), "?") for item in layout]
    tenants = (replace(item, owner=name) for item, name in zip(server.tenants, names, strict=True))
    return replace(server, tenants=tuple(tenants))


def promise(needed_mpps: float, short: Breach | AtRisk | None) -> tuple[State, str]:
    """Return the state of a promise, and the reason why it is broken or cannot be judged; `short`: what it lacks."""
    if needed_mpps <= 0.0:
        return "none", ""
    return ("kept", "") if short is None else (short.state, short.why)


def promises(servers: Iterable[RunningServer]) -> dict[str, int]:
    """Count the promised throughputs that are kept, broken and not judged yet."""
    counts: dict[str, int] = {"kept": 0, "broken": 0, "unjudged": 0}
    for server in servers:
        for item in server.tenants:
            if item.state != "none":
                counts[item.state] += 1
    return counts
