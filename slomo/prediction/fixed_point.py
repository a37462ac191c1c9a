"""Predict all NFs of a server together, since the pressure of each NF depends on the pressure of all others.

This goes beyond SLOMO (SIGCOMM'20) section 6, which composes vectors averaged over past pressure. Vectors and
throughputs are those at the fixed point (`slomo.equilibrium.server` describes when it exists and is found). The loss is
explained as with method ``"composed"``, from the pressure on an NF at the fixed point.
"""

from collections.abc import Sequence

import numpy as np

from slomo.compose.composition import Composition
from slomo.compose.operators import rule_of
from slomo.compose.saturation import at_limit
from slomo.equilibrium.judgement import FULL, NAME, doubted, held_out_errors, judged, moved_beside
from slomo.equilibrium.one_server import OneServer
from slomo.models.applicability import Verdict
from slomo.models.evidence import COVERAGE, TRANSFER, Evidence, evidence_of
from slomo.models.nf_model import NFModel
from slomo.prediction.explanation import Explanation, explain
from slomo.prediction.options import PredictionOptions
from slomo.prediction.result import Prediction, label
from slomo.prediction.server_result import Convergence
from slomo.prediction.tenants import TenantModels
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import Floats, MetricVector

__all__ = ["NAME", "Solved"]


class Solved:
    """The equilibrium of a server, computed socket by socket.

    `server`: tenants, whose models must all have a `response`. `options`: coverage, length of the measurement, and
    whether to explain. `loads`: offered load of each tenant [Mpps]; None saturates it.
    """

    def __init__(self, server: TenantModels, options: PredictionOptions, loads: Sequence[float | None]) -> None:
        self.server, self.options, self.loads = server, options, loads
        self.sockets: dict[int, OneServer] = {}
        #: Position of each tenant: (its socket, its index on this socket).
        self.at: dict[int, tuple[OneServer, int]] = {}
        for socket, numbers in sorted(server.by_socket.items()):
            one = OneServer([server.tenants[number].model for number in numbers], [loads[number] for number in numbers])
            self.sockets[socket] = one
            for i, number in enumerate(numbers):
                self.at[number] = (one, one.place[i])

    def vector(self, number: int) -> MetricVector:
        """Return a tenant's own counters (those of its core) in the equilibrium."""
        one, here = self.at[number]
        names, vectors = one.vectors
        values = vectors[here].tolist()
        return MetricVector({n: v for n, v in zip(names, values, strict=True) if v == v}, scope=Scope.CORE)

    def possible_mpps(self, number: int) -> float:
        """Return the throughput that a tenant would reach if it were saturated [Mpps]."""
        one, here = self.at[number]
        return one.possible_mpps(here)

    def why_not(self, number: int) -> str | None:
        """Return why a tenant cannot be predicted; None if it can."""
        one = self.at[number][0]
        if one.converged:
            return None
        state = one.state
        return (
            f"the equilibrium of socket {self.server.sockets[number]} did not converge in {state.rounds[0]} rounds "
            f"(steps still change by {100 * state.ratio[0]:.0f} % from round to round)"
        )

    def convergence(self) -> dict[int, Convergence]:
        """Return the convergence of the iteration on each socket."""
        convergences = {}
        for socket, one in self.sockets.items():
            rounds, ratio, bound = one.state.rounds[0], one.state.ratio[0], one.state.bound[0]
            convergences[socket] = Convergence(one.converged, int(rounds), float(ratio), float(bound))
        return convergences

    def prediction(self, number: int) -> Prediction:
        """Return a tenant's predicted throughput in the equilibrium, with only cache and memory shared."""
        tenant, options = self.server.tenants[number], self.options
        one, here = self.at[number]
        verdict, reasons = self._judged(number)
        subject, offered = tenant.model, self.loads[number]
        shown = options.explain and one.load_of(here) >= 1.0
        return Prediction(
            target=tenant.workload,
            competitors=self.server.competitors(number),
            machine=self.server.machine,
            model=NAME,
            solo_mpps=subject.solo_mpps if offered is None else min(subject.solo_mpps, offered),
            throughput_mpps=one.throughput_mpps(here),
            interval=one.interval_mpps(here, options.coverage, options.window_s),
            coverage=options.coverage,
            verdict=verdict,
            reasons=reasons,
            explanation=self._explanation(number, subject) if shown else None,
            composition=self._pressure(number, subject) if shown else None,
            noise=subject.noise,
            unit=subject.throughput_unit,
            evidence=self._evidence(number) if options.explain else None,
        )

    def _evidence(self, number: int) -> Evidence:
        one, here = self.at[number]
        subject = self.server.tenants[number].model
        assert subject.response is not None
        if len(one.models) == 1 and not subject.solo_is_carried:
            return Evidence("solo run", "measured")
        loss = max(1.0 - one.possible_mpps(here) / subject.solo_mpps, 0.0)
        covered = subject.response.applicability, one.pressure_on(here)
        return evidence_of(NAME, subject.response.calibration, one.kinds[here], loss, covered)

    def _judged(self, number: int) -> tuple[Verdict, tuple[str, ...]]:
        one, here = self.at[number]
        subject = self.server.tenants[number].model
        assert subject.response is not None
        why = doubted(subject, self.options.coverage)
        if len(one.models) == 1:
            carried = subject.solo_is_carried and why is not None
            return (Verdict.UNKNOWN, (str(why),)) if carried else (Verdict.SUPPORTED, ())
        inputs, ends = one.verdict_inputs(here), one.possible_ends_mpps(here, COVERAGE)
        held_out = held_out_errors(subject, inputs.near, one.possible_mpps(here), one.kinds[here], ends)
        moved = moved_beside(one.moved, here)[0].tolist() if inputs.may_move_more else ()
        verdict, reasons = judged(subject.response, one.pressure_on(here), inputs, moved, held_out, one.models)
        if verdict is Verdict.EXTRAPOLATED and inputs.channel <= FULL and self._is_spared(number):
            verdict, reasons = Verdict.SUPPORTED, ()
        return (verdict, reasons) if why is None else (Verdict.UNKNOWN, (why, *reasons))

    def _is_spared(self, number: int) -> bool:
        """Return whether a tenant's load is so small that it is served even if the interval were twice as wide."""
        one, here = self.at[number]
        subject, offered = self.server.tenants[number].model, self.loads[number]
        if offered is None or subject.response is None:
            return False
        possible, least = one.possible_mpps(here), one.possible_ends_mpps(here, self.options.coverage)[0]
        return subject.response.calibration.source != TRANSFER and possible - 2.0 * (possible - least) >= offered

    def _pressure(self, number: int, subject: NFModel) -> Composition:
        """Return the pressure of the others on the tenant, for display."""
        assert subject.response is not None
        one, here = self.at[number]
        vector = MetricVector(dict(zip(subject.response.pressure_names, one.pressure_on(here).tolist(), strict=True)))
        return Composition(vector, {name: rule_of(name) for name in vector}, at_limit(vector, subject.capacities))

    def _explanation(self, number: int, subject: NFModel) -> Explanation:
        """Divide a tenant's loss among the metrics of the pressure and the neighbours that cause it."""
        assert subject.response is not None
        one, here = self.at[number]
        if len(one.models) == 1:
            return Explanation(0.0, {}, 0.0)
        family = subject.response.sensitivity
        response, pressure = subject.response, one.pressure_on(here)[np.newaxis]
        row = response.inputs(pressure, np.full(1, len(one.models) - 1.0))[0]
        return explain(family.predict_mpps, family.feature_names, row, subject.solo_mpps, self._own_values(number))

    def _own_values(self, number: int) -> dict[str, Floats]:
        """Return each workload's contribution to the pressure, summed over its instances."""
        response = self.server.tenants[number].model.response
        assert response is not None
        names, vectors = self.at[number][0].vectors
        columns = [names.index(name) for name in response.pressure_names]
        others = self.server.beside(number)
        pressure = np.nan_to_num(vectors[[self.at[other][1] for other in others]][:, columns])
        shares: dict[str, Floats] = {}
        for other, values in zip(others, response.inputs(pressure, np.ones(len(others))), strict=True):
            key = label(self.server.tenants[other].workload)
            shares[key] = shares.get(key, np.zeros(len(values))) + values
        return shares
