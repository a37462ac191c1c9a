"""Predict every NF of a server at once: each one's contentiousness depends on the pressure from all the others.

Goes beyond SLOMO (SIGCOMM'20) section 6, which composes vectors averaged over past pressure: vectors and throughputs
are read at the fixed point of everybody's answers (`slomo.equilibrium.server` says when it exists and is found). Method
``"slomo"`` stays: it answers where asked for, and where no fixed point can be had, which the verdict then says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slomo.adaptation.adapt import at_traffic
from slomo.compose.composition import Compat
from slomo.equilibrium.server import Joint, joint_vectors, responses_of, solve_joint
from slomo.equilibrium.tables import covered
from slomo.errors import InvalidValueError, UnknownNameError
from slomo.models.applicability import Verdict
from slomo.models.library import ModelLibrary
from slomo.models.nf_model import NFModel
from slomo.prediction.batch import check_cores, check_coverage
from slomo.prediction.members import Named
from slomo.prediction.predictor import Predictor
from slomo.prediction.server_result import Convergence, ServerPrediction, TenantPrediction
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload
from slomo.vocabulary.workload_text import parse_workload

METHODS = ("equilibrium", "slomo")
Floats = NDArray[np.float64]


def solve_server(
    library: ModelLibrary,
    workloads: Sequence[Named],
    machine: str | None = None,
    *,
    sockets: Sequence[int] | None = None,
    nic_socket: int = 0,
    method: str = "equilibrium",
    model: str = "slomo-xgb",
    compat: Compat | None = None,
    coverage: float = 0.9,
    window_s: float | None = None,
    prove: bool = False,
) -> ServerPrediction:
    """Predict all NFs of a server.

    Parameters
    ----------
    library : ModelLibrary
        Trained models.
    workloads : sequence of Workload or str
        One per NF instance, in any order. Traffic that was not profiled is interpolated between profiles, or
        extrapolated from a near one, and the verdict says so (`slomo.adaptation.adapt`). An offered load below what the
        NF can serve beside the others is served whole; the NF's rates then scale with served packets, and what it holds
        of the cache follows from its accesses relative to the others' (`slomo.equilibrium.server`).
    machine : str, optional
        Needed where the library has models of several machines.
    sockets : sequence of int, optional
        Socket of each NF, all on `nic_socket` by default. NFs of different sockets share no cache and no channel.
    nic_socket : int
        Socket of the NIC, where profiles are measured.
    method : {"equilibrium", "slomo"}
        ``"slomo"`` predicts each NF by composing vectors of its neighbours.
    model, compat
        Sensitivity model and rule of method ``"slomo"``.
    coverage : float
        Nominal coverage of the intervals, above 0 and below 1.
    window_s : float, optional
        Length of the measurement that intervals of NFs at reduced load speak of [s]: arrivals vary (Poisson). By
        default that of the calibration mixes at reduced load; endless without such mixes.
    prove : bool
        Prove how near the fixed point is (`slomo.equilibrium.bound`) instead of estimating it from the last two
        steps; about as long again. `Convergence.proven` says which it is.

    Returns
    -------
    ServerPrediction
        Without neighbours, exactly what was measured solo.

    Raises
    ------
    UnknownNameError
        For an NF, machine, method or model there is none of.
    UnsupportedPredictionError
        For traffic that no profile reaches.
    InvalidValueError
        For more NFs than a socket has cores, or sockets that do not belong to the NFs.

    Examples
    --------
    >>> solve_server(ModelLibrary([]), [], "silver-4110", method="guess")
    Traceback (most recent call last):
    slomo.errors.UnknownNameError: unknown method 'guess'
    hint: Known: equilibrium, slomo
    """
    if method not in METHODS:
        raise UnknownNameError("method", method, METHODS)
    check_coverage(coverage)
    server = _server(library, workloads, machine, sockets, nic_socket)
    way = _Published(model, compat)
    if method == "slomo" or not server.tenants:
        return _composed(server, way, coverage, method, None)
    without = sorted({tenant.model.workload.nf for tenant in server.tenants if tenant.model.response is None})
    if without:
        why = (
            f"{', '.join(without)} was profiled without the competition beside it, so there is no equilibrium to solve"
        )
        return _composed(server, way, coverage, method, why)
    return _solved(server, way, _Asked(coverage, window_s, prove))


@dataclass(frozen=True)
class _Tenant:
    workload: Workload
    model: NFModel
    socket: int
    adapted: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Server:
    machine: str
    tenants: tuple[_Tenant, ...]
    nic_socket: int

    def on(self, socket: int) -> list[int]:
        """Return the numbers of the tenants on a socket."""
        return [number for number, tenant in enumerate(self.tenants) if tenant.socket == socket]


@dataclass(frozen=True)
class _Asked:
    """How the fixed point is asked for."""

    coverage: float
    window_s: float | None
    prove: bool


@dataclass(frozen=True)
class _Published:
    """How method "slomo" is asked."""

    model: str
    compat: Compat | None


def _server(
    library: ModelLibrary, workloads: Sequence[Named], machine: str | None, sockets: Sequence[int] | None, nic: int
) -> _Server:
    if isinstance(workloads, str):
        raise InvalidValueError(f"workloads are the text '{workloads}', needed a list", hint=f"write ['{workloads}']")
    machine = library.machines[0] if machine is None and len(library.machines) == 1 else machine
    places = [nic] * len(workloads) if sockets is None else list(sockets)
    if len(places) != len(workloads) or any(place < 0 for place in places):
        raise InvalidValueError(
            f"sockets {places} for {len(workloads)} NFs, needed one socket per NF, counted from 0",
            hint="leave sockets out to put all on the NIC's socket",
        )
    tenants = tuple(_tenant(library, name, machine, socket) for name, socket in zip(workloads, places, strict=True))
    server = _Server(tenants[0].model.machine if tenants else machine or "", tenants, nic)
    for socket in set(places):
        check_cores(tenants[server.on(socket)[0]].model, len(server.on(socket)))
    return server


def _tenant(library: ModelLibrary, name: Named, machine: str | None, socket: int) -> _Tenant:
    """Find the model of an NF, for traffic near what was profiled too; its offered load is no part of a profile."""
    workload = parse_workload(name) if isinstance(name, str) and ("@" in name or "(" in name) else name
    if isinstance(workload, str):
        model = library.find(workload, machine)
        return _Tenant(model.workload, model, socket)
    exact = library.get((machine or "", _saturating(workload).key))
    if exact is not None and exact.response is not None:  # spares a look at every profile
        return _Tenant(workload, exact, socket)
    found = at_traffic(library, workload, machine)
    return _Tenant(workload, found.model, socket, found.reasons)


def _saturating(workload: Workload) -> Workload:
    traffic = workload.traffic
    return workload if traffic.offered_mpps is None else workload.with_traffic(replace(traffic, offered_mpps=None))


def _composed(server: _Server, way: _Published, coverage: float, method: str, why: str | None) -> ServerPrediction:
    """Predict every NF by method "slomo"; `why` says that something else was asked for."""
    tenants = tuple(_published(server, number, way, coverage, why) for number in range(len(server.tenants)))
    return ServerPrediction(server.machine, method, coverage, tenants, {}, why)


def _published(server: _Server, number: int, way: _Published, coverage: float, why: str | None) -> TenantPrediction:
    tenant = server.tenants[number]
    others = [server.tenants[i].model.workload for i in server.on(tenant.socket) if i != number]
    known = ModelLibrary([other.model for other in server.tenants])  # adapted to their traffic
    predictor = Predictor(known, tenant.model.machine, way.model, way.compat)
    found = predictor.predict(tenant.model.workload, others, coverage, explain=False)
    reduced = [label.workload.nf for label in server.tenants if label.workload.traffic.offered_mpps is not None]
    reasons = list(found.reasons) + ([why] if why else [])
    if reduced and others:
        reasons.append(f"method 'slomo' knows full load only; reduced here: {', '.join(sorted(set(reduced)))}")
    offered = tenant.workload.traffic.offered_mpps
    most = np.inf if offered is None else offered
    interval = (min(found.interval[0], most), min(found.interval[1], most))
    return _limited(tenant, found.throughput_mpps, interval, None, (found.verdict, reasons), server, offered)


def _limited(
    tenant: _Tenant,
    possible_mpps: float,
    interval: tuple[float, float],
    vector: MetricVector | None,
    judged: tuple[Verdict, list[str]],
    server: _Server,
    offered: float | None,
) -> TenantPrediction:
    """Cut what is possible off at what is offered, and say what the profile does not cover."""
    verdict, reasons = judged
    most = np.inf if offered is None else offered
    reasons = [*reasons, *tenant.adapted]
    if tenant.socket != server.nic_socket:
        reasons = [*reasons, f"profiled on the NIC's socket {server.nic_socket}, asked about socket {tenant.socket}"]
    if reasons and verdict is Verdict.SUPPORTED:
        verdict = Verdict.EXTRAPOLATED
    return TenantPrediction(
        workload=tenant.workload,
        socket=tenant.socket,
        solo_mpps=float(min(tenant.model.solo_mpps, most)),
        throughput_mpps=float(min(possible_mpps, most)),
        interval=interval,
        load=float(min(1.0, most / possible_mpps)) if possible_mpps > 0.0 else 1.0,
        vector=vector,
        verdict=verdict,
        reasons=tuple(reasons),
    )


def _solved(server: _Server, way: _Published, asked: _Asked) -> ServerPrediction:
    """Solve every socket; one that does not come to rest is answered by method "slomo"."""
    distinct = {id(tenant.model): tenant.model for tenant in server.tenants}.values()
    models = sorted(distinct, key=lambda model: model.workload.key)  # tables are kept by the NFs in order
    at = {id(model): number for number, model in enumerate(models)}
    numbers = sorted({tenant.socket for tenant in server.tenants})
    rows = [server.on(socket) for socket in numbers]
    members = np.full((len(rows), max(map(len, rows))), -1, dtype=np.int64)
    offered = np.full(members.shape, np.nan)
    for row, tenants in enumerate(rows):
        for place, number in enumerate(tenants):
            members[row, place] = at[id(server.tenants[number].model)]
            offered[row, place] = server.tenants[number].workload.traffic.offered_mpps or np.nan
    found = solve_joint(models, members, offered, coverage=asked.coverage, window_s=asked.window_s, prove=asked.prove)
    names = tuple(dict.fromkeys(name for m in models if m.response for name in m.response.profile.metric_names))
    vectors = joint_vectors(models, members, found, names)
    answers: dict[int, TenantPrediction] = {}
    fallen = []
    for row, tenants in enumerate(rows):
        if found.converged[row]:
            answers |= _read(server, tenants, row, found, dict(enumerate(vectors[row])), names)
            continue
        why = (
            f"the equilibrium of socket {numbers[row]} did not converge in {found.rounds[row]} rounds "
            f"(steps still change by {100 * found.ratio[row]:.0f} % from round to round)"
        )
        fallen.append(why)
        answers |= {number: _published(server, number, way, asked.coverage, why) for number in tenants}
    return ServerPrediction(
        server.machine,
        "equilibrium",
        asked.coverage,
        tuple(answers[number] for number in range(len(server.tenants))),
        {socket: _convergence(found, row) for row, socket in enumerate(numbers)},
        "; ".join(fallen) or None,
    )


def _convergence(found: Joint, row: int) -> Convergence:
    return Convergence(
        bool(found.converged[row]),
        int(found.rounds[row]),
        float(found.ratio[row]),
        float(found.bound[row]),
        bool(found.proven[row]),
    )


def _read(
    server: _Server,
    tenants: Sequence[int],
    row: int,
    found: Joint,
    vectors: Mapping[int, Floats],
    names: tuple[str, ...],
) -> dict[int, TenantPrediction]:
    """Read the NFs of one socket at its fixed point."""
    answers = {}
    responses = responses_of([server.tenants[number].model for number in tenants])
    who = np.arange(len(tenants))
    fine = covered(responses, who, found.pressure[row, : len(tenants)]) | (len(tenants) == 1)
    for place, number in enumerate(tenants):
        tenant = server.tenants[number]
        response = responses[place]
        mpps = float(found.throughput_mpps[row, place])
        interval = (float(found.low_mpps[row, place]), float(found.high_mpps[row, place]))
        known = {name: v for name, v in zip(names, vectors[place].tolist(), strict=True) if v == v}
        judged: tuple[Verdict, list[str]] = (Verdict.SUPPORTED, [])
        if not fine[place]:
            verdicts, reasons = response.applicability.check(found.pressure[row, place][np.newaxis])
            judged = (verdicts[0], list(reasons[0]))
        load = float(found.load[row, place])
        possible = mpps / load if load < 1.0 else mpps
        vector = MetricVector(known, scope=Scope.CORE)
        offered = tenant.workload.traffic.offered_mpps
        answers[number] = _limited(tenant, possible, interval, vector, judged, server, offered)
    return answers
