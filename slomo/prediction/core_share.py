"""Predict NFs that share a core: memory's answer for each, then the core's time divided among them.

A fair scheduler divides a core max-min by weight (`slomo.compose.cores.core_shares`). An NF with a share of a core
presses on others like an NF offered the rate it then serves (`slomo.prediction.fixed_point`). Rates and pressures are
therefore found together in a few rounds.

While an NF waits for its turn, the others run and evict its cached lines. The content of a cache depends on the order
of accesses, not on their speed: between two of its own accesses, an NF that runs a third of the time sees three times
as many accesses of the others. So it performs as on a core of its own beside others whose rates are divided by its
share. Their occupancy is no rate and is not divided (stack distances: Mattson et al., IBM Systems Journal 9(2), 1970).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from slomo.compose.cores import CoreUser, cut_turns, shared_core_mpps
from slomo.equilibrium.rounds import LEAST_LOAD
from slomo.equilibrium.tables import flows_and_polled
from slomo.models.applicability import Verdict
from slomo.models.base import Floats
from slomo.prediction.fixed_point import Solved
from slomo.prediction.options import PredictionOptions
from slomo.prediction.result import Prediction, label
from slomo.prediction.server_result import ServerAnswers
from slomo.prediction.tenants import TenantModels

#: Rounds until rates on a shared core change by less than a thousandth.
ROUNDS = 6
#: Additional relative error of an NF on a shared core, against the simulation (benchmarks/shared_cores.py): time slices
#: are longer than the reuse that they interrupt. It widens the interval.
SHARE_ERROR = 0.03


class Memory(ServerAnswers, Protocol):
    """The method that answers as if every NF had its own core, and its fixed point."""

    @property
    def solved(self) -> Solved | None:
        """The fixed point; None if vectors are composed."""


@dataclass(frozen=True)
class _WholeCore:
    """An NF's throughput with all of a core's time but the cache that its share leaves it; interval and verdict."""

    mpps: float
    interval: tuple[float, float]
    verdict: Verdict
    reasons: tuple[str, ...]


class SharedCores:
    """Answers about a server with shared cores.

    Parameters
    ----------
    server : TenantModels
        Who runs there, and on which cores.
    how : PredictionOptions
        How answers are to be made; they are not explained.
    ask : callable
        Answers about a server where every NF has a core of its own.
    """

    def __init__(
        self, server: TenantModels, how: PredictionOptions, ask: Callable[[TenantModels, PredictionOptions], Memory]
    ) -> None:
        self.server, self.how, self._ask = server, replace(how, explain=False), ask
        sharing = [number for group in server.shared_cores for number in group]
        self._own = {number: server.tenants[number].offered_mpps for number in sharing}
        self._possible = {number: server.tenants[number].model.solo_mpps for number in sharing}
        self._bare = replace(server, setting=replace(server.setting, cores=None))
        rates = self._rates()
        for _ in range(ROUNDS):
            loaded = self._bare
            for number in sharing:
                loaded = loaded.at_load(number, rates[number])
            self.answers = ask(loaded, self.how)
            self._shares = {number: rates[number] / max(self._possible[number], 1e-9) for number in sharing}
            self._possible = {n: _possible_mpps(self.answers, n, self._shares[n]) for n in sharing}
            rates = self._rates()
        self.rates = rates

    def _rates(self) -> dict[int, float]:
        rates: dict[int, float] = {}
        for group in self.server.shared_cores:
            rates |= self._group_rates(group, self._possible)
        return rates

    def _group_rates(
        self, group: tuple[int, ...], possible: Mapping[int, float], saturated: int | None = None
    ) -> dict[int, float]:
        """Divide one core as if one of its tenants were saturated; the result does not depend on the tenants' order."""
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
        return self._group_rates(self.server.sharing_core(number), self._possible, number)[number]

    def prediction(self, number: int) -> Prediction:
        """Return the answer about one tenant.

        On a shared core its `solo_mpps` is that of a whole core, so that the slowdown contains the share. The interval
        is for the CPU time that it gets, or for a count over `how.window_s` if that is given.
        """
        if number not in self.rates:
            return self.answers.prediction(number)
        group, mpps = self.server.sharing_core(number), self.rates[number]
        beside = self._bare.at_load(number, None)
        for other in self.rates:
            beside = beside if other == number else beside.at_load(other, self.rates[other])
        alone, possible = self._ask(beside, self.how).prediction(number), self._possible[number]
        whole = _whole_core(self.answers, alone, number, possible, self._shares[number])
        ends = [self._group_rates(group, {**self._possible, number: max(end, 1e-9)})[number] for end in whole.interval]
        names = ", ".join(label(self.server.tenants[other].workload) for other in group if other != number)
        part = mpps / possible if possible > 0.0 else 0.0
        window_s = self.how.window_s
        width = SHARE_ERROR if window_s is None else np.hypot(SHARE_ERROR, cut_turns(part, len(group), window_s))
        return replace(
            alone,
            throughput_mpps=mpps,
            interval=((1.0 - width) * ends[0], min((1.0 + width) * ends[1], whole.interval[1])),
            verdict=whole.verdict,
            reasons=(*whole.reasons, f"shares its core with {names}: {100.0 * part:.0f} % of the core's time"),
            explanation=None,
            latency=None,
        )


def _possible_mpps(answers: Memory, number: int, share: float) -> float:
    """Return the throughput of an NF with all of a core's time but the cache that its share leaves it [Mpps]."""
    felt = _felt(answers, number, share)
    if felt is None:
        return answers.possible_mpps(number)
    assert answers.solved is not None
    rest, _ = answers.solved.at[number]
    response = answers.solved.server.tenants[number].model.response
    assert response is not None
    return float(response.rows_mpps(felt[np.newaxis], np.full(1, len(rest.models) - 1.0))[0])


def _felt(answers: Memory, number: int, share: float) -> Floats | None:
    """Return the pressure on an NF per unit of its own CPU time: rates over its share; None without a fixed point."""
    solved = answers.solved
    if solved is None or solved.why_not(number) is not None:
        return None
    rest, here = solved.at[number]
    response = solved.server.tenants[number].model.response
    assert response is not None
    rates, _ = flows_and_polled(response.pressure_names)
    felt: Floats = rest.felt(here) * np.where(rates, 1.0 / min(max(share, LEAST_LOAD), 1.0), 1.0)
    return felt


def _whole_core(answers: Memory, alone: Prediction, number: int, mpps: float, share: float) -> _WholeCore:
    felt = _felt(answers, number, share)
    if felt is None:
        return _WholeCore(mpps, alone.interval, alone.verdict, alone.reasons)
    assert answers.solved is not None
    model = answers.solved.server.tenants[number].model
    assert model.response is not None
    low, high = model.response.calibration.interval_mpps(np.array([mpps]), model.solo_mpps, alone.coverage)
    verdict, reasons = alone.verdict, alone.reasons
    if alone.verdict is Verdict.SUPPORTED:
        verdicts, more = model.response.applicability.check(felt[np.newaxis])
        verdict, reasons = verdicts[0], (*reasons, *more[0])
    return _WholeCore(mpps, (float(low[0]), float(high[0])), verdict, reasons)
