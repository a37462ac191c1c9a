"""Predict all NFs of a server whose cache, memory bandwidth or memory nodes are divided among them.

An NF without a profile over ways and throttles is not predicted, since its response to pressure does not show the
effect of fewer ways. `slomo.equilibrium.partition` solves the server; `slomo.models.responses.partition` is the learned
response.
"""

from collections.abc import Sequence

import numpy as np

from slomo.equilibrium.partition import Parted, Partitions, solve_partitions
from slomo.errors import UnsupportedPredictionError
from slomo.models.applicability import Verdict
from slomo.models.responses.memory_traffic import joined
from slomo.models.responses.partition import AllocationModel
from slomo.prediction.options import PredictionOptions
from slomo.prediction.result import Prediction
from slomo.prediction.tenants import TenantModels

#: Name of this method in predictions.
NAME = "allocation"


class Allocated:
    """Predicted throughputs of the NFs of a divided server, socket by socket.

    `server`: tenants with their settings. `how`: options, of which the coverage is used. `loads`: offered load of each
    tenant [Mpps].
    """

    def __init__(self, server: TenantModels, how: PredictionOptions, loads: Sequence[float | None]) -> None:
        self.server, self.how, self.loads = server, how, loads
        self.models = allocation_models(server)
        self.settings: dict[int, Partitions] = {}
        self.parted: dict[int, Parted] = {}
        #: Position of each tenant: (its socket, its index on this socket).
        self.at: dict[int, tuple[int, int]] = {}
        for socket, here in server.by_socket.items():
            memory = joined(self.models[number].memory for number in here)
            self.settings[socket] = self._partitions(here)
            (self.parted[socket],) = solve_partitions(self.settings[socket], memory)
            self.at.update((number, (socket, i)) for i, number in enumerate(here))

    def _partitions(self, here: Sequence[int]) -> Partitions:
        """Return the settings of the tenants of one socket: cache ways, throttles, loads, cores, memory nodes."""
        server, cores = self.server, self.server.setting.cores or (None,) * len(self.models)
        return Partitions(
            [self.models[i].response for i in here],
            np.array([[self._mask(i) for i in here]], dtype=np.int64),
            None,
            np.array([self._percent(i) for i in here]),
            np.array([np.inf if (load := self.loads[i]) is None else load for i in here]),
            np.array([cores[i] if len(server.on_core[i]) > 1 else -1 for i in here]),
            np.array([server.weight(i) for i in here]),
            np.array([self.models[i].remote_ns if self._is_away(i) else 0.0 for i in here]),
            np.array([[server.llcs[i] for i in here]]),
        )

    def _mask(self, number: int) -> int:
        ways = self.server.setting.ways
        return (1 << self.server.llc_ways) - 1 if ways is None else ways[number]

    def _percent(self, number: int) -> float:
        percents = self.server.setting.bandwidth_percent
        return 100.0 if percents is None else percents[number]

    def _is_away(self, number: int) -> bool:
        nodes = self.server.setting.nodes
        return nodes is not None and nodes[number] != self.server.sockets[number]

    def possible_mpps(self, number: int) -> float:
        """Return the throughput that a tenant would reach if it were saturated [Mpps]."""
        socket, here = self.at[number]
        return self.parted[socket].capacity_mpps[here]

    def vector(self, number: int) -> None:
        """Return None, since profiles over cache ways do not contain counters beside other NFs."""

    def shares_ways(self, number: int) -> bool:
        """Return whether a tenant shares at least one cache way with another."""
        socket, here = self.at[number]
        return bool(self.settings[socket].in_common[0, here].sum() > 1)

    def _kind(self, number: int) -> dict[str, bool]:
        return {"shares_ways": self.shares_ways(number), "away": self._is_away(number)}

    def prediction(self, number: int) -> Prediction:
        """Return the predicted throughput of a tenant."""
        tenant, how = self.server.tenants[number], self.how
        socket, here = self.at[number]
        parted, offered = self.parted[socket], self.loads[number]
        mpps, solo, model = parted.throughput_mpps[here], tenant.model.solo_mpps, self.models[number]
        loss = 1.0 - parted.capacity_mpps[here] / model.response.solo_mpps
        half_width = model.half_width(loss, how.coverage, **self._kind(number))
        verdict, reasons = self._judged(number)
        if (share := parted.shares[here]) < 1.0:
            reasons = (*reasons, f"shares its core: {100.0 * share:.0f} % of the core's time")
        return Prediction(
            target=tenant.workload,
            competitors=self.server.competitors(number),
            machine=self.server.machine,
            model=NAME,
            solo_mpps=solo if offered is None else min(solo, offered),
            throughput_mpps=mpps,
            interval=(mpps * (1.0 - half_width), mpps * (1.0 + half_width)),
            coverage=how.coverage,
            verdict=verdict,
            reasons=reasons,
            noise=tenant.model.noise,
        )

    def _judged(self, number: int) -> tuple[Verdict, tuple[str, ...]]:
        """Return the verdict on a tenant's and its neighbours' settings, with reasons; `unknown` without a profile."""
        server = self.server
        never: list[str] = []
        outside: list[str] = []
        socket, here = self.at[number]
        for i in sorted(server.by_socket[socket], key=lambda i: self.models[i].response.workload):
            unknown, beyond = self.models[i].beyond(self._mask(i).bit_count(), self._percent(i), away=self._is_away(i))
            never, outside = [*never, *unknown], [*outside, *beyond]
        if len(server.by_socket) > 1 and any(map(self._is_away, range(len(self.models)))):
            outside.append("a node's memory is used from several sockets; profiled is its use from one")
        if not self.models[number].is_enough(self.how.coverage, **self._kind(number)):
            never.append(f"too few partitions were held out for an interval of {100.0 * self.how.coverage:g} %")
        mask, together = self._mask(number), int(self.settings[socket].in_common[0, here].sum())
        if together > mask.bit_count():
            outside.append(f"{together} NFs fill {mask.bit_count()} ways together; profiled is one beside streams")
        response, company = self.models[number].response, self.settings[socket].in_one_cache[0, here].sum() > 1
        strongest, written = response.throttle[0][0], (mask & response.buffer_mask).bit_count()
        if company and self._percent(number) <= strongest < 100.0 and (together > 1 or response.buffer_mask):
            name = server.tenants[number].workload.nf
            outside.append(f"{name} is throttled to {strongest:g} % beside others; profiled is that beside a stream")
        if written and company and together == 1:
            outside.append(f"cards write packets of other NFs into {written} of its own ways, which was not profiled")
        if not self.parted[socket].settled:
            outside.append(f"ways and cores of socket {socket} did not settle")
        reasons = tuple(dict.fromkeys([*never, *outside]))
        return (Verdict.UNKNOWN if never else Verdict.EXTRAPOLATED if outside else Verdict.SUPPORTED), reasons


def allocation_models(server: TenantModels) -> list[AllocationModel]:
    """Return, for each tenant, the model of its throughput over cache ways, throttles and memory nodes."""
    models = [model.allocation for model in server.models]
    without = [t.workload.key for t, model in zip(server.tenants, models, strict=True) if model is None]
    if without:
        profiled = sorted({m.workload.key for m in server.models if m.allocation is not None})
        raise UnsupportedPredictionError(
            f"'{without[0]}' was not profiled over partitions of '{server.machine}': cache ways, throttle, memory node",
            hint=f"slomo whatif {without[0]} --models MODELS --learn; profiled: {', '.join(profiled) or 'none'}",
        )
    return [model for model in models if model is not None]
