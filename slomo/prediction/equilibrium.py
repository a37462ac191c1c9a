"""All NFs of a server at once: each one's contentiousness depends on the pressure from all the others.

Goes beyond SLOMO (SIGCOMM'20) section 6, which composes vectors averaged over past pressure: vectors and throughputs
are read at the fixed point of everybody's answers (`slomo.equilibrium.server` says when it exists and is found). The
loss is explained as method ``"composed"`` explains it, from the pressure that an NF feels at that point.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from slomo.compose.composition import Composition
from slomo.compose.operators import rule_of
from slomo.compose.saturation import at_limit
from slomo.equilibrium.server import Joint, joint_vectors, responses_of, solve_joint
from slomo.equilibrium.tables import covered
from slomo.models.applicability import Verdict
from slomo.models.nf_model import NFModel
from slomo.prediction.explanation import Explanation, explain
from slomo.prediction.manner import Manner
from slomo.prediction.result import Prediction, label
from slomo.prediction.server_result import Convergence
from slomo.prediction.tenants import TenantModels
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

Floats = NDArray[np.float64]
#: What answers, where a prediction names its model.
NAME = "equilibrium"


class Solved:
    """The fixed points of a server, one per socket.

    Parameters
    ----------
    server : Server
        Who runs there; every model has a `response`.
    manner : Manner
        Coverage, length of the measurement, and whether to prove and explain.
    """

    def __init__(self, server: TenantModels, manner: Manner) -> None:
        self.server, self.manner = server, manner
        self.sockets = sorted(set(server.sockets))
        rows = [server.on(socket) for socket in self.sockets]
        #: Where each tenant is: (row of its socket, place there).
        self.at = {number: (row, place) for row, here in enumerate(rows) for place, number in enumerate(here)}
        distinct = {id(model): model for model in server.models}.values()
        self.models = sorted(distinct, key=lambda model: model.workload.key)  # tables are kept by the NFs in order
        index = {id(model): number for number, model in enumerate(self.models)}
        self.members = np.full((len(rows), max(map(len, rows))), -1, dtype=np.int64)
        offered = np.full(self.members.shape, np.nan)
        for number, (row, place) in self.at.items():
            self.members[row, place] = index[id(server.tenants[number].model)]
            offered[row, place] = server.tenants[number].offered_mpps or np.nan
        self.joint: Joint = solve_joint(
            self.models,
            self.members,
            offered,
            coverage=manner.coverage,
            window_s=manner.window_s,
            prove=manner.prove,
        )

    @cached_property
    def _vectors(self) -> tuple[tuple[str, ...], Floats]:
        """Every NF's vector at its fixed point, and the names of its metrics."""
        responses = [model.response for model in self.models]
        names = tuple(dict.fromkeys(name for found in responses if found for name in found.profile.metric_names))
        return names, joint_vectors(self.models, self.members, self.joint, names)

    def vector(self, number: int) -> MetricVector:
        """Return the core-level vector of a tenant."""
        names, vectors = self._vectors
        values = vectors[self.at[number]].tolist()
        return MetricVector({n: v for n, v in zip(names, values, strict=True) if v == v}, scope=Scope.CORE)

    def load(self, number: int) -> float:
        """Return the served share of what a tenant could serve."""
        return float(self.joint.load[self.at[number]])

    def possible_mpps(self, number: int) -> float:
        """Return what a tenant could serve there, whatever it is offered [Mpps]."""
        mpps, load = float(self.joint.throughput_mpps[self.at[number]]), self.load(number)
        return mpps / load if load < 1.0 else mpps

    def why_not(self, number: int) -> str | None:
        """Say why there is no answer for a tenant; None where there is."""
        row = self.at[number][0]
        if self.joint.converged[row]:
            return None
        return (
            f"the equilibrium of socket {self.sockets[row]} did not converge in {self.joint.rounds[row]} rounds "
            f"(steps still change by {100 * self.joint.ratio[row]:.0f} % from round to round)"
        )

    def convergence(self) -> dict[int, Convergence]:
        """Return how each socket's fixed point was found."""
        found = self.joint
        return {
            socket: Convergence(
                bool(found.converged[row]),
                int(found.rounds[row]),
                float(found.ratio[row]),
                float(found.bound[row]),
                bool(found.proven[row]),
            )
            for row, socket in enumerate(self.sockets)
        }

    def prediction(self, number: int) -> Prediction:
        """Return what a tenant serves at the fixed point, as far as memory is concerned."""
        tenant, at, joint = self.server.tenants[number], self.at[number], self.joint
        verdict, reasons = self._judged(number)
        others = self.server.beside(number)
        subject, offered = tenant.model, tenant.offered_mpps
        shown = self.manner.explain and self.load(number) >= 1.0
        return Prediction(
            target=tenant.workload,
            competitors=tuple(other.workload for other in others),
            machine=self.server.machine,
            model=NAME,
            solo_mpps=subject.solo_mpps if offered is None else min(subject.solo_mpps, offered),
            throughput_mpps=float(joint.throughput_mpps[at]),
            interval=(float(joint.low_mpps[at]), float(joint.high_mpps[at])),
            coverage=self.manner.coverage,
            verdict=verdict,
            reasons=reasons,
            explanation=self._explanation(number, subject) if shown else None,
            composition=self._pressure(number, subject) if shown else None,
        )

    def _judged(self, number: int) -> tuple[Verdict, tuple[str, ...]]:
        row, place = self.at[number]
        if (self.members[row] >= 0).sum() == 1:
            return Verdict.SUPPORTED, ()
        (response,) = responses_of([self.server.tenants[number].model])
        pressure = self.joint.pressure[row, place][np.newaxis]
        if covered((response,), np.zeros(1, dtype=np.int64), pressure)[0]:
            return Verdict.SUPPORTED, ()
        verdicts, reasons = response.applicability.check(pressure)
        return verdicts[0], reasons[0]

    def _pressure(self, number: int, subject: NFModel) -> Composition:
        """Return what the tenant feels from the others, as a value for people."""
        assert subject.response is not None
        names = subject.response.pressure_names
        vector = MetricVector(dict(zip(names, self.joint.pressure[self.at[number]].tolist(), strict=True)))
        return Composition(vector, {name: rule_of(name) for name in vector}, at_limit(vector, subject.capacities))

    def _explanation(self, number: int, subject: NFModel) -> Explanation:
        """Divide the loss over the metrics of the pressure, and over the neighbours behind it."""
        assert subject.response is not None
        others = self.server.beside(number)
        if not others:
            return Explanation(0.0, {}, 0.0)
        family = subject.response.sensitivity
        felt = self.joint.pressure[self.at[number]]
        return explain(family.predict_mpps, family.feature_names, felt, subject.solo_mpps, self._own_values(number))

    def _own_values(self, number: int) -> dict[str, Floats]:
        """Return what each kind of neighbour contributes to the pressure, all its instances together."""
        response = self.server.tenants[number].model.response
        assert response is not None
        names, vectors = self._vectors
        columns = [names.index(name) for name in response.pressure_names]
        shares: dict[str, Floats] = {}
        for other in self._neighbours(number):
            values = np.nan_to_num(vectors[self.at[other]][columns])
            key = label(self.server.tenants[other].workload)
            shares[key] = shares.get(key, np.zeros(len(columns))) + values
        return shares

    def _neighbours(self, number: int) -> Sequence[int]:
        return [other for other in self.server.on(self.server.sockets[number]) if other != number]
