"""Answer questions about a server on which every NF has a core of its own.

Memory is answered at the server's fixed point (`fixed_point`), over cache partitions (`allocated`) or from composed
vectors (`composed`). Then accelerators are added (`accelerated`), offered loads limit the answer, and unprofiled
properties become reasons. `core_share` uses it for servers with shared cores, `question` for all.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from slomo.errors import UnsupportedPredictionError
from slomo.models.applicability import Verdict
from slomo.prediction.accelerated import shares_accelerator, with_accelerator
from slomo.prediction.allocated import NAME as ALLOCATION
from slomo.prediction.allocated import Allocated
from slomo.prediction.composed import composed, interval_mpps
from slomo.prediction.fixed_point import NAME, Solved
from slomo.prediction.options import PredictionOptions
from slomo.prediction.result import Prediction
from slomo.prediction.server_result import ServerPrediction, TenantPrediction
from slomo.prediction.tenants import TenantModel, TenantModels
from slomo.vocabulary.wire import wire_gbps


class Answers:
    """The answers about one server.

    Raises UnsupportedPredictionError where ways, throttles or memory nodes are set and composing was asked for.
    """

    def __init__(self, server: TenantModels, how: PredictionOptions) -> None:
        self.server, self.how = server, how
        parted = server.is_divided
        if parted and how.by_composing:
            raise UnsupportedPredictionError(
                "method 'composed' does not know cache ways, throttles and memory nodes",
                hint="leave out the method and the model",
            )
        if not parted and not how.by_composing:
            parted = any(model.allocation is not None and not model.knows_pressure for model in server.models)
        #: Answers over partitions; None where nothing is divided, unless a model knows nothing else.
        self.allocated = Allocated(server, how) if parted else None

    @cached_property
    def solved(self) -> Solved | None:
        """Fixed point of the server, solved on first use; None if another method is used."""
        if self.allocated is not None or not self.server.tenants or not self.how.jointly(self.server.models):
            return None
        return Solved(self.server, self.how)

    def prediction(self, number: int) -> Prediction:
        """Return the answer about one tenant: memory, accelerator, offered load and verdict."""
        tenant, others = self.server.tenants[number], self.server.beside(number)
        if self.allocated is not None:
            prediction = self.allocated.prediction(number)
        elif self.solved is not None and self.solved.why_not(number) is None:
            prediction = self.solved.prediction(number)
        else:
            prediction = self._composed(number)
        models = [tenant.model, *[other.model for other in others]]
        if shares_accelerator(models):
            offered = [tenant.offered_mpps, *(other.offered_mpps for other in others)]
            here = self.server.by_socket[self.server.sockets[number]]
            possible = [self.possible_mpps(i) for i in (number, *(other for other in here if other != number))]
            prediction = with_accelerator(prediction, models, possible, offered)
        if tenant.offered_mpps is not None:
            prediction = _limited(prediction, tenant.offered_mpps, tenant.through_ports_mpps)
        return self._marked(prediction, number, others)

    def whole(self) -> ServerPrediction:
        """Return the answers for all tenants."""
        tenants = tuple(self._tenant(number) for number in range(len(self.server.tenants)))
        reasons = dict.fromkeys(self._fallback(number) for number in range(len(tenants)))
        return ServerPrediction(
            self.server.machine,
            self.method,
            self.how.coverage,
            tenants,
            {} if self.solved is None else self.solved.convergence(),
            "; ".join(reason for reason in reasons if reason) or None,
        )

    @property
    def method(self) -> str:
        """Name of the method that predicts memory contention."""
        if self.allocated is not None:
            return ALLOCATION
        return "composed" if self.solved is None and self.how.method != "equilibrium" else "equilibrium"

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
        """Return a saturated tenant's throughput, limited by cache and memory alone [Mpps]."""
        if self.allocated is not None:
            return self.allocated.possible_mpps(number)
        if self.solved is not None and self.solved.why_not(number) is None:
            one, place = self.solved.at[number]
            return one.possible_mpps(place)
        return composed(self.server, number, replace(self.how, explain=False)).throughput_mpps

    def _composed(self, number: int) -> Prediction:
        """Return the prediction from composed vectors, with the limitations of that method among its reasons."""
        prediction = composed(self.server, number, self.how)
        reasons, server = list(prediction.reasons), self.server
        if why := self._fallback(number):
            reasons.append(why)
        names = {tenant.workload.nf for tenant in server.tenants if tenant.offered_mpps is not None}
        if names and prediction.competitors:
            reasons.append(f"method 'composed' knows full load only; reduced here: {', '.join(sorted(names))}")
        if len(reasons) == len(prediction.reasons):
            return prediction
        return replace(prediction, reasons=tuple(reasons), verdict=_at_most_extrapolated(prediction.verdict))

    def _fallback(self, number: int) -> str | None:
        """Return why the equilibrium was asked for but does not answer; None if it does, or was not asked for."""
        if self.solved is not None:
            return self.solved.why_not(number)
        if self.allocated is not None or self.how.method != "equilibrium":
            return None
        without = sorted({model.workload.nf for model in self.server.models if model.response is None})
        names = ", ".join(without)
        return f"{names} was profiled without the competition beside it, so there is no equilibrium to solve"

    def _marked(self, prediction: Prediction, number: int, others: Sequence[TenantModel]) -> Prediction:
        """Add unprofiled traffic to the reasons of a prediction.

        For a solo run with such traffic, the answer gets the interval of a prediction instead of a measurement's.
        """
        tenant, server = self.server.tenants[number], self.server
        reasons = list(tenant.adapted)
        reasons += [reason for other in others for reason in other.adapted if reason not in reasons]
        socket = server.sockets[number]
        if socket != server.nic_socket:
            reasons.append(f"profiled on the NIC's socket {server.nic_socket}, asked about socket {socket}")
        if server.setting.port_gbps is not None:
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
        """Reason, if the setting's port is faster than the machine's ports and the NFs need more than these.

        All profiles were measured behind the machine's ports.
        """
        server, stated = self.server, self.server.machine_ports_gbps
        if server.setting.port_gbps is None or server.setting.port_gbps <= stated:
            return ()
        served = [
            self.possible_mpps(number) if tenant.offered_mpps is None else tenant.offered_mpps
            for number, tenant in enumerate(server.tenants)
        ]
        gbps = sum(wire_gbps(*each) for each in zip(server.frames_b, served, strict=True))
        return (f"{gbps:.3g} Gbit/s together, profiled behind ports of {stated:g}",) if gbps > stated else ()

    def _interval_mpps(self, number: int, mpps: float) -> tuple[float, float]:
        subject, coverage = self.server.tenants[number].model, self.how.coverage
        if self.solved is not None and subject.response is not None:
            calibration = subject.response.calibration
            low, high = calibration.interval_mpps(np.array([mpps]), subject.solo_mpps, coverage)
        else:
            low, high = interval_mpps(subject, self.how.model, np.array([mpps]), coverage)
        return float(low[0]), float(high[0])


def _limited(prediction: Prediction, offered_mpps: float, through_ports_mpps: tuple[float, float] | None) -> Prediction:
    """Limit a prediction by the offered load, and widen its interval by the uncertainty of a port share."""
    if prediction.model not in (NAME, ALLOCATION):
        low, high = prediction.interval
        prediction = replace(
            prediction,
            solo_mpps=min(prediction.solo_mpps, offered_mpps),
            throughput_mpps=min(prediction.throughput_mpps, offered_mpps),
            interval=(min(low, offered_mpps), min(high, offered_mpps)),
            explanation=None,
        )
    if through_ports_mpps is None:
        return prediction
    (low, high), (least, most) = prediction.interval, through_ports_mpps
    return replace(prediction, interval=(min(low, least), max(high, most)))


def _at_most_extrapolated(verdict: Verdict) -> Verdict:
    return Verdict.EXTRAPOLATED if verdict is Verdict.SUPPORTED else verdict
