"""Answer a question about a server; every interface of slomo calls this module.

Names are resolved once (`tenants`). Memory is answered at the server's fixed point (`equilibrium`) or from composed
vectors (`composed`), then accelerators are added (`accelerated`). Offered loads and unprofiled traffic are handled
here, and `latency` answers if a load was asked about. `slomo.predict`, `Predictor`, evaluation, placement, the command
line and the service all ask here; `batch` does the same for arrays, equal to the last bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Unpack

import numpy as np

from slomo.errors import UnsupportedPredictionError
from slomo.models.applicability import Verdict
from slomo.models.library import ModelLibrary
from slomo.prediction.accelerated import shares_accelerator, with_accelerator
from slomo.prediction.allocated import NAME as ALLOCATION
from slomo.prediction.allocated import Allocated
from slomo.prediction.composed import composed, interval_mpps
from slomo.prediction.core_share import SharedCores
from slomo.prediction.fixed_point import NAME, Solved
from slomo.prediction.latency import latency_of
from slomo.prediction.options import OptionFields, PredictionOptions, options_of
from slomo.prediction.result import Prediction, label
from slomo.prediction.server_result import ServerPrediction, TenantPrediction
from slomo.prediction.tenants import Named, TenantModels, server_of, tenant_of
from slomo.vocabulary.server_setting import ServerSetting
from slomo.vocabulary.wire import wire_gbps

#: Largest number of times that ports are divided anew, and the change of a share at which that ends.
_DIVISIONS, _SETTLED = 12, 1e-3


@dataclass(frozen=True)
class Question:
    """A question about one NF of a server."""

    #: The NF asked about, then its neighbours. Unprofiled traffic is interpolated between profiles or extrapolated from
    #: a near one, and the verdict says so (`slomo.adaptation.adapt`). A load below what an NF can serve is served
    #: whole, and the NF then presses less on the others.
    workloads: tuple[Named, ...]
    #: Needed if the library has models of several machines.
    machine: str | None = None
    #: Ways, throttles, cores, weights, memory nodes and sockets of all NFs in that order, and a shared port.
    setting: ServerSetting | None = None
    #: Socket of the NIC, on which profiles are measured.
    nic_socket: int = 0
    #: Load of the NF asked about [Mpps], if its traffic does not state one.
    offered_mpps: float | None = None
    #: Raise an error if the profile does not support the answer.
    strict: bool = False
    #: How the answer is to be made.
    options: PredictionOptions = field(default_factory=PredictionOptions)


def answer(library: ModelLibrary, question: Question) -> Prediction:
    """Answer a question.

    Parameters
    ----------
    library : ModelLibrary
        Trained models.
    question : Question
        Who is asked about, beside whom, and how.

    Returns
    -------
    Prediction
        With the field `latency` where less than saturation is offered to the NF asked about.

    Raises
    ------
    UnknownNameError
        For an NF, machine or model there is none of, with the nearest.
    InvalidValueError
        For more NFs than a socket has cores.
    UnsupportedPredictionError
        For traffic that no profile reaches, or a competitor that lacks a metric the model reads; where `strict`, for
        every answer that is not supported.

    Examples
    --------
    >>> answer(ModelLibrary([]), Question(("lpm", "nat"), "silver-4110"))
    Traceback (most recent call last):
    slomo.errors.UnknownNameError: unknown machine with models 'silver-4110'
    hint: there are models for none; profile and train on 'silver-4110' first
    """
    server = server_of(
        lambda name: tenant_of(library, name, question.machine),
        question.workloads,
        question.machine,
        question.setting,
        question.nic_socket,
    )
    if question.offered_mpps is not None:
        server = server.with_load(0, question.offered_mpps)
    return answer_on(server, question.options, strict=question.strict)


def answer_on(server: TenantModels, how: PredictionOptions, *, strict: bool = False) -> Prediction:
    """Answer about the first NF of a server with resolved names, shared ports included."""
    narrow = behind_ports(server, how)
    prediction = Answers(narrow, how).prediction(0)
    if strict:
        require_supported(prediction)
    # latency profiles are of whole cores and an undivided cache
    if narrow.tenants[0].offered_mpps is not None and not server.is_divided and len(server.sharing_core(0)) == 1:
        prediction = replace(prediction, latency=latency_of(narrow, how, Answers))
    return _told_of_ports(prediction, server, narrow)


def solve_server(
    library: ModelLibrary,
    workloads: Sequence[Named],
    machine: str | None = None,
    *,
    setting: ServerSetting | None = None,
    nic_socket: int = 0,
    **how: Unpack[OptionFields],
) -> ServerPrediction:
    """Predict all NFs of a server.

    Parameters
    ----------
    library : ModelLibrary
        Trained models.
    workloads : sequence of Workload or str
        One per NF instance, in any order.
    machine, setting, nic_socket
        As in :class:`Question`.
    **how
        As in `slomo.prediction.options.PredictionOptions`.

    Returns
    -------
    ServerPrediction
        Without neighbours, exactly what was measured solo.

    Raises
    ------
    UnknownNameError, UnsupportedPredictionError
        As :func:`answer`.
    InvalidValueError
        For more NFs than a socket has cores, or a setting that does not belong to the NFs.

    Examples
    --------
    >>> solve_server(ModelLibrary([]), [], "silver-4110", method="guess")
    Traceback (most recent call last):
    slomo.errors.UnknownNameError: unknown method 'guess'
    hint: Known: auto, composed, equilibrium
    """
    wanted = options_of(how)
    server = server_of(lambda name: tenant_of(library, name, machine), workloads, machine, setting, nic_socket)
    return answers_on(server, wanted).whole()


def answers_on(server: TenantModels, how: PredictionOptions) -> "Answers":
    """Return the answers about all NFs of a server with resolved names, shared ports included."""
    return Answers(behind_ports(server, how), replace(how, explain=False))


def behind_ports(server: TenantModels, how: PredictionOptions) -> TenantModels:
    """Return a server whose offered loads are limited by the shared ports.

    An NF that its neighbours slow down leaves more of the port's line rate to the others, who then press more on it.
    The division starts from solo throughputs and is repeated with throughputs beside the others until it no longer
    changes.
    """
    narrow, plain = server.behind_ports(), replace(how, explain=False)
    for _ in range(_DIVISIONS):
        before = [tenant.offered_mpps for tenant in narrow.tenants]
        if before == [tenant.offered_mpps for tenant in server.tenants]:
            return narrow  # nobody wants more than there is
        answers = Answers(narrow, plain)
        possible = [answers.possible_mpps(number) for number in range(len(server.tenants))]
        narrow = server.behind_ports(possible)
        if _alike(before, [tenant.offered_mpps for tenant in narrow.tenants]):
            break
    return _doubted(server, narrow, Answers(narrow, plain), possible)


def _doubted(server: TenantModels, narrow: TenantModels, answers: "Answers", possible: list[float]) -> TenantModels:
    """Return a server behind ports that carries each NF's uncertainty of its port share, from the others' intervals."""
    free = [here.offered_mpps == there.offered_mpps for here, there in zip(server.tenants, narrow.tenants, strict=True)]
    ends = [answers.prediction(i).interval if free[i] else (possible[i], possible[i]) for i in range(len(free))]
    most, least = (server.behind_ports([end[side] for end in ends]) for side in (0, 1))
    tenants = list(narrow.tenants)
    for i in range(len(free)):
        if not free[i]:
            low, high = (each.tenants[i].offered_mpps or possible[i] for each in (least, most))
            tenants[i] = replace(tenants[i], through_ports_mpps=(low, max(low, high)))
    return replace(narrow, tenants=tuple(tenants))


def _alike(before: Sequence[float | None], after: Sequence[float | None]) -> bool:
    """Return whether two divisions of a port limit the same NFs, with nearly equal shares."""
    return all(
        old == new or (old is not None and new is not None and abs(new - old) <= _SETTLED * old)
        for old, new in zip(before, after, strict=True)
    )


class Answers:
    """The answers about one server."""

    def __init__(self, server: TenantModels, how: PredictionOptions) -> None:
        self.server, self.how = server, how
        self.solved: Solved | None = None
        self._allocated: Allocated | None = None
        self._shared: SharedCores | None = None
        if _by_allocation(server, how):
            self._allocated = Allocated(server, how)
        elif server.shared_cores:
            self._shared = SharedCores(server, how, Answers)
        elif server.tenants and how.jointly(server.models):
            self.solved = Solved(server, how)

    def prediction(self, number: int) -> Prediction:
        """Return the answer about one tenant: memory, accelerator, offered load and verdict."""
        if self._shared is not None:
            return self._shared.prediction(number)
        prediction = self._memory(number)
        tenant, others = self.server.tenants[number], self.server.beside(number)
        models = [tenant.model, *(other.model for other in others)]
        if shares_accelerator(models):
            offered = [tenant.offered_mpps, *(other.offered_mpps for other in others)]
            prediction = with_accelerator(prediction, models, self._possible(number), offered)
        return self._marked(self._widened_by_ports(self._limited(prediction, number), number), number)

    def whole(self) -> ServerPrediction:
        """Return the answers about everybody."""
        tenants = tuple(self._tenant(number) for number in range(len(self.server.tenants)))
        reasons = dict.fromkeys(self._fallback(number) for number in range(len(tenants)))
        return ServerPrediction(
            self.server.machine,
            self._method,
            self.how.coverage,
            tenants,
            {} if self.solved is None else self.solved.convergence(),
            "; ".join(reason for reason in reasons if reason) or None,
        )

    @property
    def _method(self) -> str:
        if self._allocated is not None:
            return ALLOCATION
        jointly = self.solved if self._shared is None else self._shared.answers.solved
        return "composed" if jointly is None and self.how.method != "equilibrium" else "equilibrium"

    def _tenant(self, number: int) -> TenantPrediction:
        prediction, solved = self.prediction(number), self.solved
        at_rest = solved is not None and solved.why_not(number) is None
        offered, possible = self.server.tenants[number].offered_mpps, self.possible_mpps(number)
        return TenantPrediction(
            workload=prediction.target,
            socket=self.server.sockets[number],
            solo_mpps=prediction.solo_mpps,
            throughput_mpps=prediction.throughput_mpps,
            interval=prediction.interval,
            load=1.0 if offered is None or possible <= 0.0 else min(1.0, offered / possible),
            vector=solved.vector(number) if solved is not None and at_rest else None,
            verdict=prediction.verdict,
            reasons=prediction.reasons,
            noise=prediction.noise,
        )

    def possible_mpps(self, number: int) -> float:
        """Return the throughput that a tenant would serve if saturated, for memory only [Mpps]."""
        if self._allocated is not None or self._shared is not None:
            return (self._allocated or self._shared).possible_mpps(number)  # type: ignore[union-attr]
        if self.solved is not None and self.solved.why_not(number) is None:
            return self.solved.possible_mpps(number)
        return composed(self.server, number, replace(self.how, explain=False)).throughput_mpps

    def _possible(self, number: int) -> list[float]:
        """Return the same for a tenant and its neighbours, in that order."""
        here = self.server.on(self.server.sockets[number])
        return [self.possible_mpps(i) for i in (number, *(other for other in here if other != number))]

    def _memory(self, number: int) -> Prediction:
        if self._allocated is not None:
            return self._allocated.prediction(number)
        if self.solved is not None and self.solved.why_not(number) is None:
            return self.solved.prediction(number)
        prediction = composed(self.server, number, self.how)
        reasons, server = list(prediction.reasons), self.server
        if why := self._fallback(number):
            reasons.append(why)
        names = sorted({tenant.workload.nf for tenant in server.tenants if tenant.offered_mpps is not None})
        if names and prediction.competitors:
            reasons.append(f"method 'composed' knows full load only; reduced here: {', '.join(names)}")
        beside = tuple(other.workload for other in server.beside(number))
        verdict = (
            prediction.verdict if tuple(reasons) == prediction.reasons else _at_most_extrapolated(prediction.verdict)
        )
        target = server.tenants[number].workload
        return replace(prediction, target=target, competitors=beside, reasons=tuple(reasons), verdict=verdict)

    def _fallback(self, number: int) -> str | None:
        """Return why the equilibrium was asked for but does not answer; None if it does or was not asked for."""
        if self.solved is not None:
            return self.solved.why_not(number)
        if self._allocated is not None or self._shared is not None:
            return None
        if self.how.method != "equilibrium":
            return None
        without = sorted({model.workload.nf for model in self.server.models if model.response is None})
        names = ", ".join(without)
        return f"{names} was profiled without the competition beside it, so there is no equilibrium to solve"

    def _limited(self, prediction: Prediction, number: int) -> Prediction:
        """Limit the possible throughput to the offered load."""
        offered = self.server.tenants[number].offered_mpps
        if offered is None or prediction.model in (NAME, ALLOCATION):
            return prediction
        low, high = prediction.interval
        return replace(
            prediction,
            solo_mpps=min(prediction.solo_mpps, offered),
            throughput_mpps=min(prediction.throughput_mpps, offered),
            interval=(min(low, offered), min(high, offered)),
            explanation=None,
        )

    def _widened_by_ports(self, prediction: Prediction, number: int) -> Prediction:
        """Widen the interval by the uncertainty of the share of shared ports."""
        through = self.server.tenants[number].through_ports_mpps
        if through is None:
            return prediction
        (low, high), (least, most) = prediction.interval, through
        return replace(prediction, interval=(min(low, least), max(high, most)))

    def _marked(self, prediction: Prediction, number: int) -> Prediction:
        """Add unprofiled traffic to the reasons; a solo answer is then a prediction, not a measurement."""
        tenant, server = self.server.tenants[number], self.server
        reasons = list(tenant.adapted)
        reasons += [reason for other in server.beside(number) for reason in other.adapted if reason not in reasons]
        socket = server.sockets[number]
        if socket != server.nic_socket:
            reasons.append(f"profiled on the NIC's socket {server.nic_socket}, asked about socket {socket}")
        reasons += self._beyond_ports
        if not reasons:
            return prediction
        interval = prediction.interval
        if tenant.adapted and not prediction.competitors and tenant.offered_mpps is None:
            interval = self._interval_mpps(number, prediction.throughput_mpps)
        verdict = _at_most_extrapolated(prediction.verdict)
        return replace(prediction, verdict=verdict, reasons=(*reasons, *prediction.reasons), interval=interval)

    @cached_property
    def _beyond_ports(self) -> tuple[str, ...]:
        """Add a reason if a port is faster than the machine's ports, behind which all profiles were measured."""
        server, stated = self.server, self.server.machine_ports_gbps
        if server.setting.port_gbps is None or server.setting.port_gbps <= stated:
            return ()
        served = [
            self.possible_mpps(number) if tenant.offered_mpps is None else tenant.offered_mpps
            for number, tenant in enumerate(server.tenants)
        ]
        frames_b = [tenant.workload.traffic.packet_size_b for tenant in server.tenants]
        gbps = sum(wire_gbps(*each) for each in zip(frames_b, served, strict=True))
        return (f"{gbps:.3g} Gbit/s together, profiled behind ports of {stated:g}",) if gbps > stated else ()

    def _interval_mpps(self, number: int, mpps: float) -> tuple[float, float]:
        subject, coverage = self.server.tenants[number].model, self.how.coverage
        if self.solved is not None and subject.response is not None:
            calibration = subject.response.calibration
            low, high = calibration.interval_mpps(np.array([mpps]), subject.solo_mpps, coverage)
        else:
            low, high = interval_mpps(subject, self.how.model, np.array([mpps]), coverage)
        return float(low[0]), float(high[0])


def _by_allocation(server: TenantModels, how: PredictionOptions) -> bool:
    """Return whether ways, throttles or memory nodes are set, or all models are over these only.

    Raises UnsupportedPredictionError if they are set and composing was asked for.
    """
    if not server.is_divided:
        profiled_apart = [model.allocation is not None and not model.knows_pressure for model in server.models]
        return any(profiled_apart) and not how.by_composing and not how.jointly(server.models)
    if how.by_composing:
        raise UnsupportedPredictionError(
            "composed vectors know no cache ways, throttles and memory nodes", hint="leave out the method and the model"
        )
    return True


def _told_of_ports(prediction: Prediction, server: TenantModels, narrow: TenantModels) -> Prediction:
    """Return a prediction whose slowdown includes the cost of shared ports, with a reason that says so."""
    share, offered = narrow.tenants[0].offered_mpps, server.tenants[0].offered_mpps
    if share == offered or share is None:
        return prediction
    alone = server.tenants[0].model.solo_mpps
    ports = "a port" if server.setting.port_gbps is not None else "the machine's ports"
    reason = f"{ports} of {server.ports_gbps:g} Gbit/s for all lets {share:.4g} Mpps through"
    latency = prediction.latency if offered is not None else None
    solo = alone if offered is None else min(alone, offered)
    return replace(prediction, solo_mpps=solo, latency=latency, reasons=(reason, *prediction.reasons))


def _at_most_extrapolated(verdict: Verdict) -> Verdict:
    return Verdict.EXTRAPOLATED if verdict is Verdict.SUPPORTED else verdict


def require_supported(prediction: Prediction) -> None:
    """Raise UnsupportedPredictionError, with the reasons, if the profile does not support the prediction."""
    if not prediction.verdict.is_refused:
        return
    what, hint = "is not supported", "profile the target under stronger pressure"
    if prediction.verdict is Verdict.UNKNOWN:
        what, hint = "cannot be judged", "measure more: runs under pressure, and mixes like those asked about"
    why = "; ".join(prediction.reasons)
    raise UnsupportedPredictionError(f"'{label(prediction.target)}' on {prediction.machine} {what}: {why}", hint=hint)
