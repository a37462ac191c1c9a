"""NFs that share a core: memory's answer for each, then the core's time divided among them.

A fair scheduler divides a core max-min by weight (`slomo.compose.cores.core_shares`); an NF that has a share of a
core presses on others as one that is offered what it then serves (`slomo.prediction.equilibrium` knows such loads), so
rates and pressures are found together in a few rounds.

While an NF waits for its turn the others go on, and evict what it had cached. What a cache holds depends on the order
of accesses, not on their speed: between two of its own accesses, an NF that runs a third of the time meets three times
as many of everybody else's. So it fares as on a core of its own beside others whose rates are divided by its share;
what they hold is no rate and stays (stack distances: Mattson et al., IBM Systems Journal 9(2), 1970).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from slomo.compose.cores import CoreUser, cut_turns, shared_core_mpps
from slomo.equilibrium.rounds import LEAST_LOAD
from slomo.equilibrium.tables import kinds
from slomo.models.applicability import Verdict
from slomo.models.base import Floats
from slomo.prediction.equilibrium import Solved
from slomo.prediction.manner import Manner
from slomo.prediction.result import Prediction, label
from slomo.prediction.server_result import ServerAnswers
from slomo.prediction.tenants import TenantModels

#: Rounds after which rates on a shared core no longer move by a thousandth.
ROUNDS = 6
#: Relative error of an NF on a shared core beyond its model's, against the simulation (benchmarks/shared_cores.py):
#: turns are longer than the reuse they interrupt; widens the interval.
SHARE_ERROR = 0.03


class Memory(ServerAnswers, Protocol):
    """What answers about a server where every NF has a core, and the fixed point behind it."""

    @property
    def solved(self) -> Solved | None:
        """The fixed point; None where vectors are composed."""


@dataclass(frozen=True)
class _WholeCore:
    """What an NF does with all of a core's time, caches as its share leaves them; ends of the interval, verdict."""

    mpps: float
    interval: tuple[float, float]
    verdict: Verdict
    reasons: tuple[str, ...]


def on_shared_core(
    server: TenantModels, partners: int, how: Manner, ask: Callable[[TenantModels, Manner], Memory]
) -> Prediction:
    """Return the prediction for the first NF of a server, which shares its core with the `partners` after it.

    Parameters
    ----------
    server : TenantModels
        The target, the NFs on its core, then everybody with a core of their own.
    partners : int
        How many NFs share the target's core, at least 1.
    how : Manner
        How the answer is to be made; it is not explained.
    ask : callable
        Answers about a server where every NF has a core of its own.

    Returns
    -------
    Prediction
        Its `solo_mpps` is that of a whole core, so that the slowdown contains the share. Its interval speaks of the
        core's time that the NF gets; of what is counted in a window of `how.window_s`, where that is given.
    """
    group, plain = range(partners + 1), replace(how, explain=False)
    own = [server.tenants[number].offered_mpps for number in group]
    possible = [server.tenants[number].model.solo_mpps for number in group]
    rates = _rates(possible, own)
    for _ in range(ROUNDS):
        loaded = server
        for number in group:
            loaded = loaded.at_load(number, rates[number])
        answers = ask(loaded, plain)
        shares = [rate / max(mpps, 1e-9) for rate, mpps in zip(rates, possible, strict=True)]
        possible = [_possible_mpps(answers, number, shares[number]) for number in group]
        rates = _rates(possible, own)
    beside = server.at_load(0, None)
    for number in group[1:]:
        beside = beside.at_load(number, rates[number])
    alone = ask(beside, plain).prediction(0)
    whole = _whole_core(answers, alone, possible[0], shares[0])
    ends = [_rates([max(mpps, 1e-9), *possible[1:]], own)[0] for mpps in whole.interval]
    names = ", ".join(label(workload) for workload in alone.competitors[:partners])
    part = rates[0] / possible[0] if possible[0] > 0.0 else 0.0
    width = SHARE_ERROR if how.window_s is None else np.hypot(SHARE_ERROR, cut_turns(part, len(group), how.window_s))
    return replace(
        alone,
        throughput_mpps=rates[0],
        interval=((1.0 - width) * ends[0], min((1.0 + width) * ends[1], whole.interval[1])),
        verdict=whole.verdict,
        reasons=(*whole.reasons, f"shares its core with {names}: {100.0 * part:.0f} % of the core's time"),
        explanation=None,
        latency=None,
    )


def _possible_mpps(answers: Memory, number: int, share: float) -> float:
    """Return what an NF would serve with all of a core's time if it kept of the caches what its share leaves [Mpps]."""
    felt = _felt(answers, number, share)
    if felt is None:
        return answers.possible_mpps(number)
    assert answers.solved is not None
    rest, _ = answers.solved.at[number]
    response = answers.solved.server.tenants[number].model.response
    assert response is not None
    return float(response.rows_mpps(felt[np.newaxis], np.full(1, len(rest.models) - 1.0))[0])


def _felt(answers: Memory, number: int, share: float) -> Floats | None:
    """Return what an NF feels per time of its own: rates over its share; None where there is no fixed point."""
    solved = answers.solved
    if solved is None or solved.why_not(number) is not None:
        return None
    rest, here = solved.at[number]
    response = solved.server.tenants[number].model.response
    assert response is not None
    rates, _ = kinds(response.pressure_names)
    felt: Floats = rest.felt(here) * np.where(rates, 1.0 / min(max(share, LEAST_LOAD), 1.0), 1.0)
    return felt


def _whole_core(answers: Memory, alone: Prediction, mpps: float, share: float) -> _WholeCore:
    felt = _felt(answers, 0, share)
    if felt is None:
        return _WholeCore(mpps, alone.interval, alone.verdict, alone.reasons)
    assert answers.solved is not None
    model = answers.solved.server.tenants[0].model
    assert model.response is not None
    low, high = model.response.calibration.interval_mpps(np.array([mpps]), model.solo_mpps, alone.coverage)
    verdict, reasons = alone.verdict, alone.reasons
    if alone.verdict is Verdict.SUPPORTED:
        verdicts, more = model.response.applicability.check(felt[np.newaxis])
        verdict, reasons = verdicts[0], (*reasons, *more[0])
    return _WholeCore(mpps, (float(low[0]), float(high[0])), verdict, reasons)


def _rates(possible_mpps: list[float], offered_mpps: list[float | None]) -> tuple[float, ...]:
    users = [
        CoreUser(1e3 / max(mpps, 1e-9), offered) for mpps, offered in zip(possible_mpps, offered_mpps, strict=True)
    ]
    return shared_core_mpps(users)
