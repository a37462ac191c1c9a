"""Predict NFs that share a core: memory's answer for each, then the core's time divided among them.

A fair scheduler divides a core max-min by weight (`slomo.compose.cores.core_shares`). An NF with a share of a core
presses on others like an NF offered the rate it then serves (`slomo.prediction.fixed_point`). Rates and pressures are
therefore found together in a few rounds.

While an NF waits for its turn, the others run and evict its cached lines. The content of a cache depends on the order
of accesses, not on their speed: between two of its own accesses, an NF that runs a third of the time sees three times
as many accesses of the others. So it performs as on a core of its own beside others whose rates are divided by its
share. Their occupancy is no rate and is not divided (stack distances: Mattson et al., IBM Systems Journal 9(2), 1970).
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from slomo.compose.cores import CoreUser, cut_turns, shared_core_mpps
from slomo.equilibrium.rounds import LEAST_LOAD
from slomo.equilibrium.tables import flows_and_polled
from slomo.models.applicability import Verdict
from slomo.models.base import Floats
from slomo.prediction.answers import Answers
from slomo.prediction.options import PredictionOptions
from slomo.prediction.result import Prediction, label
from slomo.prediction.tenants import TenantModels

#: Rounds until rates on a shared core change by less than a thousandth.
ROUNDS = 6
#: Additional relative error of an NF on a shared core, against the simulation (benchmarks/shared_cores.py): time slices
#: are longer than the reuse that they interrupt. It widens the interval.
SHARE_ERROR = 0.03


def answers_of(server: TenantModels, how: PredictionOptions) -> Answers:
    """Return the answers about a server without the limits of its ports.

    With a partitioned server, `allocated` also divides shared cores.
    """
    answers = Answers(server, how)
    return SharedCores(server, how) if server.shared_cores and answers.allocated is None else answers


class SharedCores(Answers):
    """Answers about a server with shared cores.

    `server`: running tenants, and their cores. `how`: how answers are to be made; they are not explained.
    """

    def __init__(self, server: TenantModels, how: PredictionOptions) -> None:
        super().__init__(server, replace(how, explain=False))
        self.solved = None  # there is one per round
        sharing = [number for group in server.shared_cores for number in group]
        self._own = {number: server.tenants[number].offered_mpps for number in sharing}
        self._possible = {number: server.tenants[number].model.solo_mpps for number in sharing}
        self._bare = replace(server, setting=replace(server.setting, cores=None))
        rates = self._rates()
        for _ in range(ROUNDS):
            self.answers = Answers(self._bare.at_loads(rates), self.how)
            self._shares = {number: rates[number] / max(self._possible[number], 1e-9) for number in sharing}
            self._possible = {number: self._whole_core_mpps(number) for number in sharing}
            rates = self._rates()
        self.rates = rates

    @property
    def method(self) -> str:
        """Name of the method that predicts memory contention."""
        return self.answers.method

    def _fallback(self, number: int) -> None:
        """Return None: the predictions for whole cores already contain these reasons."""

    def _rates(self) -> dict[int, float]:
        rates: dict[int, float] = {}
        for group in self.server.shared_cores:
            rates |= self._group_rates(group, self._possible)
        return rates

    def _group_rates(
        self, group: tuple[int, ...], possible: Mapping[int, float], saturated: int | None = None
    ) -> dict[int, float]:
        """Divide one core's time; return the rate of each tenant on this core [Mpps].

        `saturated`: a tenant that is treated as saturated. The result does not depend on the tenants' order.
        """
        users = {
            i: CoreUser(1e3 / max(possible[i], 1e-9), None if i == saturated else self._own[i], self.server.weight(i))
            for i in group
        }
        order = sorted(group, key=lambda i: (users[i].time_ns, users[i].demand, users[i].weight))
        return dict(zip(order, shared_core_mpps([users[i] for i in order]), strict=True))

    def possible_mpps(self, number: int) -> float:
        """Return the throughput that a tenant would serve if saturated [Mpps]."""
        if number not in self.rates:
            return self.answers.possible_mpps(number)
        return self._group_rates(self.server.on_core[number], self._possible, number)[number]

    def prediction(self, number: int) -> Prediction:
        """Return the answer about one tenant.

        On a shared core its `solo_mpps` is that of a whole core, so that the slowdown contains the share. The interval
        is for the CPU time that it gets, or for a count over `how.window_s` if that is given.
        """
        if number not in self.rates:
            return self.answers.prediction(number)
        group, mpps = self.server.on_core[number], self.rates[number]
        beside = self._bare.at_loads({**self.rates, number: None})
        whole, possible = self._whole_core(Answers(beside, self.how).prediction(number), number), self._possible[number]
        ends = [self._group_rates(group, {**self._possible, number: max(end, 1e-9)})[number] for end in whole.interval]
        part = mpps / possible if possible > 0.0 else 0.0
        window_s = self.how.window_s
        width = SHARE_ERROR if window_s is None else np.hypot(SHARE_ERROR, cut_turns(part, len(group), window_s))
        names = ", ".join(label(self.server.tenants[other].workload) for other in group if other != number)
        return replace(
            whole,
            throughput_mpps=mpps,
            interval=((1.0 - width) * ends[0], min((1.0 + width) * ends[1], whole.interval[1])),
            reasons=(*whole.reasons, f"shares its core with {names}: {100.0 * part:.0f} % of the core's time"),
            explanation=None,
            latency=None,
        )

    def _whole_core_mpps(self, number: int) -> float:
        """Return the throughput that an NF would have with all of its core's time [Mpps].

        The cache content stays what the NF has at its share of the core.
        """
        felt, response = self._felt(number), self.server.tenants[number].model.response
        if felt is None or response is None:
            return self.answers.possible_mpps(number)
        neighbours = len(self.server.by_socket[self.server.sockets[number]]) - 1.0
        return float(response.rows_mpps(felt[np.newaxis], np.full(1, neighbours))[0])

    def _whole_core(self, alone: Prediction, number: int) -> Prediction:
        """Return the prediction for all of a core's time (:meth:`_whole_core_mpps`).

        `alone`: the prediction of the NF on a core of its own.
        """
        mpps, felt, model = self._possible[number], self._felt(number), self.server.tenants[number].model
        if felt is None or model.response is None:
            return replace(alone, throughput_mpps=mpps)
        low, high = model.response.calibration.interval_mpps(np.array([mpps]), model.solo_mpps, alone.coverage)
        verdict, reasons = alone.verdict, alone.reasons
        if alone.verdict is Verdict.SUPPORTED:
            verdicts, more = model.response.applicability.check(felt[np.newaxis])
            verdict, reasons = verdicts[0], (*reasons, *more[0])
        interval = float(low[0]), float(high[0])
        return replace(alone, throughput_mpps=mpps, interval=interval, verdict=verdict, reasons=reasons)

    def _felt(self, number: int) -> Floats | None:
        """Return the pressure on an NF per unit of its CPU time; None without a fixed point.

        Rates among the pressures are divided by the NF's share of the core.
        """
        solved, response = self.answers.solved, self.server.tenants[number].model.response
        if solved is None or response is None or solved.why_not(number) is not None:
            return None
        one, here = solved.at[number]
        rates, _ = flows_and_polled(response.pressure_names)
        share = min(max(self._shares[number], LEAST_LOAD), 1.0)
        felt: Floats = one.felt(here) * np.where(rates, 1.0 / share, 1.0)
        return felt
