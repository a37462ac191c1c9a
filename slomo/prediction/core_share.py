"""NFs that share a core: memory's answer for each, then the core's time divided among them.

A fair scheduler divides a core max-min by weight (`slomo.compose.cores.core_shares`); an NF that has a share of a
core presses on others as one that is offered what it then serves (`slomo.prediction.equilibrium` knows such loads), so
rates and pressures are found together in a few rounds.
"""

from dataclasses import replace

from slomo.compose.cores import CoreUser, shared_core_mpps
from slomo.prediction.manner import Manner
from slomo.prediction.result import Prediction, label
from slomo.prediction.server_result import Ask
from slomo.prediction.tenants import TenantModels

#: Rounds after which rates on a shared core no longer move by a thousandth.
ROUNDS = 4
#: Relative error of a share of a core, against its simulation (benchmarks/shared_cores.py); widens the interval.
SHARE_ERROR = 0.03


def on_shared_core(server: TenantModels, partners: int, how: Manner, ask: Ask) -> Prediction:
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
        Its `solo_mpps` is that of a whole core, so that the slowdown contains the share.
    """
    asked, group, plain = server, range(partners + 1), replace(how, explain=False)
    own = [server.tenants[number].offered_mpps for number in group]
    possible = [server.tenants[number].model.solo_mpps for number in group]
    rates = _rates(possible, own)
    for _ in range(ROUNDS):
        loaded = server
        for number in group:
            loaded = loaded.with_load(number, rates[number])
        answers = ask(loaded, plain)
        possible = [answers.possible_mpps(number) for number in group]
        rates = _rates(possible, own)
    for number in group[1:]:
        server = server.with_load(number, rates[number])
    alone = ask(server.with_load(0, None), plain).prediction(0)
    low, high = alone.interval
    shares = [
        _rates([mpps, *possible[1:]], own)[0] for mpps in (max(low, 1e-9), alone.throughput_mpps, max(high, 1e-9))
    ]
    names = ", ".join(label(asked.tenants[number].workload) for number in group[1:])
    part = 100.0 * shares[1] / alone.throughput_mpps if alone.throughput_mpps > 0.0 else 0.0
    reason = f"shares its core with {names}: {part:.0f} % of the core's time"
    return replace(
        alone,
        target=asked.tenants[0].workload,
        competitors=tuple(tenant.workload for tenant in asked.beside(0)),
        throughput_mpps=shares[1],
        interval=((1.0 - SHARE_ERROR) * shares[0], min((1.0 + SHARE_ERROR) * shares[2], high)),
        reasons=(*alone.reasons, reason),
        explanation=None,
        latency=None,
    )


def _rates(possible_mpps: list[float], offered_mpps: list[float | None]) -> tuple[float, ...]:
    users = [
        CoreUser(1e3 / max(mpps, 1e-9), offered) for mpps, offered in zip(possible_mpps, offered_mpps, strict=True)
    ]
    return shared_core_mpps(users)
