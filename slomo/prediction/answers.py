"""Predict the NFs of a server, also if they share cores and ports; `question` adds latency.

Competition for cache and memory is predicted by the server's fixed point (`fixed_point`), over cache partitions
(`allocated`) or from composed vectors (`composed`). Then the effect of accelerators is added (`accelerated`), offered
loads limit the throughput, and unprofiled properties become reasons of the verdict.

An NF that is slowed down leaves more of a shared port's line rate to its neighbours, whose pressure on it then rises.
The division of the port (`slomo.compose.ports`) therefore starts from solo throughputs and is repeated with the
predicted throughputs until it no longer changes.

A fair scheduler divides a shared core max-min by weight (`slomo.compose.cores.core_shares`). An NF with a share of a
core puts the same pressure on others as an NF whose offered load is the rate that it then serves. Rates and pressures
are therefore found together in a few rounds. While an NF waits for its turn, the others run and evict its cached lines.
The content of a cache depends on the order of accesses, not on their speed: between two of its own accesses, an NF that
runs a third of the time sees three times as many accesses of the others. It therefore performs as on a core of its own
beside neighbours whose rates are divided by its share. Their occupancy is not a rate and is not divided (stack
distances: Mattson et al., IBM Systems Journal 9(2), 1970).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from slomo.compose.cores import CoreUser, cut_turns, shared_core_mpps
from slomo.compose.ports import port_shares_mpps
from slomo.equilibrium.rounds import LEAST_LOAD
from slomo.equilibrium.tables import flows_and_polled
from slomo.errors import UnsupportedPredictionError
from slomo.models.applicability import Verdict, worst
from slomo.models.base import Floats
from slomo.models.interval_ends import at_most
from slomo.models.responses.arrivals import BUSIEST, arrival_half_width_mpps
from slomo.prediction.accelerated import shares_accelerator, with_accelerator
from slomo.prediction.allocated import NAME as ALLOCATION
from slomo.prediction.allocated import Allocated
from slomo.prediction.composed import NAME as COMPOSED
from slomo.prediction.composed import Composed, calibration_of
from slomo.prediction.fixed_point import NAME, Solved
from slomo.prediction.options import PredictionOptions
from slomo.prediction.result import Prediction, label
from slomo.prediction.server_result import ServerPrediction, TenantPrediction
from slomo.prediction.tenants import TenantModels
from slomo.vocabulary.wire import wire_gbps

#: Offered load of each NF [Mpps]; None saturates it.
Loads = Sequence[float | None]
_UNLIMITED: Mapping[int, tuple[float, float]] = {}
#: Largest number of divisions of the ports, and relative change of a share below which they end.
_DIVISIONS, _SETTLED = 12, 1e-3
#: Number of rounds after which rates on a shared core change by less than a thousandth.
ROUNDS = 6
#: Additional relative error of an NF on a shared core, which widens its interval; measured against simulation
#: (benchmarks/shared_cores.py). It arises because time slices are longer than the reuse that they interrupt.
SHARE_ERROR = 0.03


class Answers:
    """Predictions for the NFs of one server, on which every NF has a core of its own.

    `loads`: load that reaches each NF, which ports may limit below its offered load. `through_ports_mpps`: lowest and
    highest port share of each NF that ports limit.
    """

    def __init__(
        self,
        server: TenantModels,
        how: PredictionOptions,
        loads: Loads,
        through_ports_mpps: Mapping[int, tuple[float, float]] = _UNLIMITED,
    ) -> None:
        self.server, self.how, self.loads, self.through_ports_mpps = server, how, loads, through_ports_mpps

    @cached_property
    def allocated(self) -> Allocated | None:
        """Predictions over partitions; None if nothing is divided, unless a model has only a profile over partitions.

        Raises UnsupportedPredictionError if ways, throttles or memory nodes are set and the options require composing.
        """
        composing = self.how.by_composing
        if not self.server.is_divided:
            if composing or all(model.allocation is None or model.knows_pressure for model in self.server.models):
                return None
        elif composing:
            raise UnsupportedPredictionError(
                "method 'composed' does not know cache ways, throttles and memory nodes",
                hint="leave out the method and the model",
            )
        return Allocated(self.server, self.how, self.loads)

    @cached_property
    def solved(self) -> Solved | None:
        """Equilibrium of the server, computed on first use; None if another method predicts."""
        if self.allocated is not None or not self.server.tenants or not self.how.jointly(self.server.models):
            return None
        return Solved(self.server, self.how, self.loads)

    @cached_property
    def _composed(self) -> Composed:
        return Composed(self.server, self.how, self.loads, self._fallback)

    def solver(self, number: int) -> Allocated | Solved | Composed:
        """Return the object that predicts a tenant's throughput under contention for cache and memory."""
        if self.allocated is not None:
            return self.allocated
        return self._composed if self.solved is None or self.solved.why_not(number) else self.solved

    def prediction(self, number: int) -> Prediction:
        """Return one tenant's prediction; a loss from shared ports is part of its slowdown and named as a reason."""
        prediction = self._behind_ports(number)
        if number not in self.through_ports_mpps:
            return prediction
        server, tenant = self.server, self.server.tenants[number]
        ports = "a port" if server.setting.port_gbps is not None else "the machine's ports"
        reason = f"{ports} of {server.ports_gbps:g} Gbit/s for all lets {self.loads[number]:.4g} Mpps through"
        solo = min(tenant.model.solo_mpps, tenant.demand_mpps)
        return replace(prediction, solo_mpps=solo, reasons=(reason, *prediction.reasons))

    def _behind_ports(self, number: int) -> Prediction:
        """Return one tenant's prediction at its load, without the reason for a limit by the ports."""
        prediction, load = self.solver(number).prediction(number), self.loads[number]
        order = [number, *self.server.beside(number)]
        models = [self.server.tenants[i].model for i in order]
        if shares_accelerator(models):
            possible, loads = [self.possible_mpps(i) for i in order], [self.loads[i] for i in order]
            prediction = with_accelerator(prediction, models, possible, loads)
        if load is not None:
            prediction = _limited(prediction, load, self.through_ports_mpps.get(number))
        return self._marked(prediction, number)

    def whole(self) -> ServerPrediction:
        """Return the predictions for all tenants."""
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
        """Name of the method that predicts contention for cache and memory."""
        if self.allocated is not None:
            return ALLOCATION
        return COMPOSED if self.solved is None and self.how.method != NAME else NAME

    def _tenant(self, number: int) -> TenantPrediction:
        prediction = self.prediction(number)
        load, possible = self.loads[number], self.possible_mpps(number)
        return TenantPrediction(
            workload=prediction.target,
            socket=self.server.sockets[number],
            solo_mpps=prediction.solo_mpps,
            throughput_mpps=prediction.throughput_mpps,
            interval=prediction.interval,
            load=1.0 if load is None or possible <= 0.0 else min(1.0, load / possible),
            vector=self.solver(number).vector(number),
            verdict=prediction.verdict,
            reasons=prediction.reasons,
            noise=prediction.noise,
        )

    def possible_mpps(self, number: int) -> float:
        """Return a saturated tenant's throughput, limited by cache and memory alone [Mpps]."""
        return self.solver(number).possible_mpps(number)

    def _fallback(self, number: int) -> str | None:
        """Return why the equilibrium was requested but cannot predict; None if it can, or was not requested."""
        if self.solved is not None:
            return self.solved.why_not(number)
        if self.allocated is not None or self.how.method != NAME:
            return None
        without = sorted({model.workload.nf for model in self.server.models if model.response is None})
        names = ", ".join(without)
        return f"{names} was profiled without the competition beside it, so there is no equilibrium to solve"

    def _marked(self, prediction: Prediction, number: int) -> Prediction:
        """Return the prediction, with a reason and a prediction's interval if the traffic was not profiled."""
        tenant, server = self.server.tenants[number], self.server
        reasons = list(tenant.adapted)
        for other in server.beside(number):
            reasons += [reason for reason in server.tenants[other].adapted if reason not in tenant.adapted]
        socket = server.sockets[number]
        if socket != server.nic_socket:
            reasons.append(f"profiled on the NIC's socket {server.nic_socket}, asked about socket {socket}")
        if server.setting.port_gbps is not None:
            reasons += self._beyond_ports
        if not reasons:
            return prediction
        interval = prediction.interval
        if tenant.adapted and not prediction.competitors and self.loads[number] is None:
            interval = self._interval_mpps(number, prediction.throughput_mpps)
        verdict = worst((prediction.verdict, Verdict.EXTRAPOLATED))
        return replace(prediction, verdict=verdict, reasons=(*reasons, *prediction.reasons), interval=interval)

    @cached_property
    def _beyond_ports(self) -> tuple[str, ...]:
        """Reason, if the NFs need more than the machine's ports carry, behind which all profiles were measured."""
        server, stated = self.server, self.server.machine_ports_gbps
        if server.setting.port_gbps is None or server.setting.port_gbps <= stated:
            return ()
        served = [self.possible_mpps(i) if load is None else load for i, load in enumerate(self.loads)]
        gbps = sum(wire_gbps(*each) for each in zip(server.frames_b, served, strict=True))
        return (f"{gbps:.3g} Gbit/s together, profiled behind ports of {stated:g}",) if gbps > stated else ()

    def _interval_mpps(self, number: int, mpps: float) -> tuple[float, float]:
        subject, how = self.server.tenants[number].model, self.how
        response = None if self.solved is None else subject.response
        calibration = calibration_of(subject, how.model) if response is None else response.calibration
        low, high = calibration.interval_mpps(np.array([mpps]), subject.solo_mpps, how.coverage)
        return float(low[0]), float(high[0])


class SharedCores(Answers):
    """Predictions for a server on which NFs share cores; they have no explanation of the loss."""

    def __init__(
        self, server: TenantModels, how: PredictionOptions, loads: Loads, ports: Mapping[int, tuple[float, float]]
    ) -> None:
        super().__init__(server, replace(how, explain=False), loads, ports)
        self.solved = None  # each round has its own solution
        sharing = [number for group in server.shared_cores for number in group]
        self._possible = {number: server.tenants[number].model.solo_mpps for number in sharing}
        rates = self._divided(self._possible)
        for _ in range(ROUNDS):
            self.answers = Answers(server, self.how, self._loads_at(rates), ports)
            self._shares = {number: rates[number] / max(self._possible[number], 1e-9) for number in sharing}
            self._possible = {number: self._whole_core_mpps(number) for number in sharing}
            rates = self._divided(self._possible)
        self.rates = rates

    def _loads_at(self, rates: Mapping[int, float | None]) -> Loads:
        """Return the loads of all NFs if the NFs that share a core are offered these `rates`."""
        return [rates.get(number, load) for number, load in enumerate(self.loads)]

    @property
    def method(self) -> str:
        """Name of the method that predicts contention for cache and memory."""
        return self.answers.method

    def solver(self, number: int) -> Allocated | Solved | Composed:
        """Return the last solution, in which an NF on a shared core is offered what it serves with its share."""
        return self.answers.solver(number)

    def _fallback(self, number: int) -> None:
        """Return None, since the predictions with whole cores state why the equilibrium cannot predict."""

    def _divided(self, possible: Mapping[int, float], saturated: int | None = None) -> dict[int, float]:
        """Divide the time of each shared core; return the rates of the tenants on shared cores [Mpps].

        `possible`: throughputs of all tenants with a whole core. `saturated`: a tenant that is treated as saturated.
        The result does not depend on the tenants' order.
        """
        rates: dict[int, float] = {}
        for group in self.server.shared_cores:
            loads = {i: None if i == saturated else self.loads[i] for i in group}
            users = {i: CoreUser(1e3 / max(possible[i], 1e-9), loads[i], self.server.weight(i)) for i in group}
            order = sorted(group, key=lambda i: (users[i].time_ns, users[i].demand, users[i].weight))
            rates |= zip(order, shared_core_mpps([users[i] for i in order]), strict=True)
        return rates

    def possible_mpps(self, number: int) -> float:
        """Return the throughput that a tenant would reach if it were saturated [Mpps]."""
        if number not in self.rates:
            return self.answers.possible_mpps(number)
        return self._divided(self._possible, number)[number]

    def _behind_ports(self, number: int) -> Prediction:
        """Return one tenant's prediction at its load.

        For a tenant on a shared core, `solo_mpps` refers to a whole core, so that the slowdown includes the effect of
        the share. The interval is for the CPU time that the tenant gets, or for a count over `how.window_s` if given.
        """
        if number not in self.rates:
            return self.answers._behind_ports(number)
        mpps, possible, group = self.rates[number], self._possible[number], self.server.on_core[number]
        whole = Answers(self.server, self.how, self._loads_at({**self.rates, number: None})).prediction(number)
        verdict, reasons, ends = whole.verdict, whole.reasons, whole.interval
        pressure, response = self._pressure_on(number), self.server.tenants[number].model.response
        if pressure is not None and response is not None:
            ends = self.answers._interval_mpps(number, possible)
            if verdict is Verdict.SUPPORTED:
                verdicts, why = response.applicability.check(pressure[np.newaxis])
                verdict, reasons = verdicts[0], (*reasons, *why[0])
        low, high = (self._divided({**self._possible, number: max(end, 1e-9)})[number] for end in ends)
        part = mpps / possible if possible > 0.0 else 0.0
        window_s = self.how.window_s
        width = SHARE_ERROR if window_s is None else np.hypot(SHARE_ERROR, cut_turns(part, len(group), window_s))
        names = ", ".join(label(self.server.tenants[other].workload) for other in group if other != number)
        return replace(
            whole,
            throughput_mpps=mpps,
            interval=((1.0 - width) * low, min((1.0 + width) * high, ends[1])),
            verdict=verdict,
            reasons=(*reasons, f"shares its core with {names}: {100.0 * part:.0f} % of the core's time"),
            explanation=None,
            latency=None,
        )

    def _whole_core_mpps(self, number: int) -> float:
        """Return the throughput with all of the core's time, and the cache content of its share [Mpps]."""
        pressure, response = self._pressure_on(number), self.server.tenants[number].model.response
        if pressure is None or response is None:
            return self.answers.possible_mpps(number)
        neighbours = np.full(1, float(len(self.server.beside(number))))
        return float(response.rows_mpps(pressure[np.newaxis], neighbours)[0])

    def _pressure_on(self, number: int) -> Floats | None:
        """Return the pressure on an NF per unit of its CPU time; None without an equilibrium."""
        solver, response = self.solver(number), self.server.tenants[number].model.response
        if response is None or not isinstance(solver, Solved):
            return None
        rates, _ = flows_and_polled(response.pressure_names)
        share = min(max(self._shares[number], LEAST_LOAD), 1.0)
        one, here = solver.at[number]
        return one.pressure_on(here) * np.where(rates, 1.0 / share, 1.0)


def answers_of(
    server: TenantModels,
    how: PredictionOptions,
    loads: Loads,
    through_ports_mpps: Mapping[int, tuple[float, float]] = _UNLIMITED,
) -> Answers:
    """Return the predictions for a server at the loads that reach its NFs; `allocated` divides its own shared cores."""
    answers = Answers(server, how, loads, through_ports_mpps)
    if not server.shared_cores or answers.allocated is not None:
        return answers
    return SharedCores(server, how, loads, through_ports_mpps)


def answers_on(server: TenantModels, how: PredictionOptions) -> Answers:
    """Return the predictions for a server, whose shared ports may limit the loads that reach its NFs."""
    offered, most_gbps = server.loads_mpps, server.ports_gbps
    if most_gbps == math.inf or sum([tenant.demand_gbps for tenant in server.tenants]) < (1.0 - 1e-9) * most_gbps:
        return answers_of(server, how, offered)
    loads, plain = _divided(server, [tenant.demand_mpps for tenant in server.tenants]), replace(how, explain=False)
    for _ in range(_DIVISIONS):
        if loads == offered:
            return answers_of(server, how, offered)
        before, answers = loads, answers_of(server, plain, loads)
        possible = [answers.possible_mpps(number) for number in range(len(offered))]
        loads = _divided(server, _served(offered, possible))
        if _alike(before, loads):
            break
    ends = _doubted(answers_of(server, plain, loads), possible)
    return answers_of(server, how, loads, ends)


def _served(loads: Loads, possible_mpps: Sequence[float]) -> list[float]:
    """Return each NF's rate without limits by ports: its possible throughput, at most its offered load."""
    return [most if load is None else min(most, load) for load, most in zip(loads, possible_mpps, strict=True)]


def _divided(server: TenantModels, demand_mpps: Sequence[float]) -> list[float | None]:
    """Divide the ports max-min: an NF takes at most its demand, and the others share the rest."""
    shares = port_shares_mpps(server.frames_b, demand_mpps, server.ports_gbps)
    each = zip(server.loads_mpps, shares, demand_mpps, strict=True)
    return [share if share < demand else offered for offered, share, demand in each]


def _doubted(answers: Answers, possible: Sequence[float]) -> dict[int, tuple[float, float]]:
    """Return the lowest and highest port share [Mpps] of each NF that NIC ports limit, given the others' intervals.

    The queue before a full port scatters a measurement as that before the busiest core does
    (`slomo.models.responses.arrivals`); that of a saturating sender never empties.
    """
    server, loads, how = answers.server, answers.loads, answers.how
    offered, shares = server.loads_mpps, dict[int, tuple[float, float]]()
    limited = [number for number in range(len(loads)) if loads[number] != offered[number]]
    ends = [(most, most) if i in limited else answers.prediction(i).interval for i, most in enumerate(possible)]
    least, most = (_divided(server, _served(offered, [each[side] for each in ends])) for side in (1, 0))
    for i in limited:
        response, load = server.tenants[i].model.response, 0.0 if offered[i] is None else BUSIEST
        low, share, spread = least[i] or possible[i], np.array(loads[i]), 0.0
        if response is not None:
            spread = float(arrival_half_width_mpps(share, load, response.arrivals, how.coverage, how.window_s))
        shares[i] = max(low - spread, 0.0), max(low, most[i] or possible[i]) + spread
    return shares


def _alike(before: Loads, after: Loads) -> bool:
    """Return whether two divisions of the ports limit the same NFs, with nearly equal shares."""
    return all(
        old == new or (old is not None and new is not None and abs(new - old) <= _SETTLED * old)
        for old, new in zip(before, after, strict=True)
    )


def _limited(prediction: Prediction, offered_mpps: float, through_ports_mpps: tuple[float, float] | None) -> Prediction:
    """Limit a prediction by the offered load, and widen its interval by the uncertainty of a port share."""
    if prediction.model not in (NAME, ALLOCATION):
        ends = np.array(prediction.interval)
        served, (lower, upper) = at_most(np.array(prediction.throughput_mpps), (ends[0], ends[1]), offered_mpps)
        prediction = replace(
            prediction,
            solo_mpps=min(prediction.solo_mpps, offered_mpps),
            throughput_mpps=float(served),
            interval=(float(lower), float(upper)),
            explanation=None,
        )
    if through_ports_mpps is None:
        return prediction
    (low, high), (least, most) = prediction.interval, through_ports_mpps
    return replace(prediction, interval=(min(low, least), max(high, most)))
