"""Answer a question about a server; every interface of slomo calls this module.

Names are resolved once (`tenants`), shared ports limit the offered loads, and the server answers (`answers`). `latency`
is added if a load was asked about. `slomo.predict`, `Predictor`, evaluation, placement, the command line and the
service all ask here; `batch` does the same for arrays, equal to the last bit.

An NF that its neighbours slow down leaves more of a shared port's line rate to the others, who then press more on it.
The division of the port (`slomo.compose.ports`) starts from solo throughputs and is repeated with throughputs beside
the others until it no longer changes.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

from slomo.compose.ports import port_shares_mpps
from slomo.errors import UnsupportedPredictionError
from slomo.models.applicability import Verdict
from slomo.models.library import ModelLibrary
from slomo.prediction.answers import Answers, answers_of
from slomo.prediction.latency import latency_of
from slomo.prediction.options import OptionFields, PredictionOptions
from slomo.prediction.result import Prediction, label
from slomo.prediction.server_result import ServerPrediction
from slomo.prediction.tenants import Named, TenantModels, server_of
from slomo.vocabulary.server_setting import ServerSetting

#: Largest number of times that ports are divided anew, and the change of a share at which that ends.
_DIVISIONS, _SETTLED = 12, 1e-3


def answer(server: TenantModels, how: PredictionOptions, *, strict: bool = False) -> Prediction:
    """Answer about the first NF of a server with resolved names, shared ports included.

    Throughput is at most the NF's offered load, and `latency` is predicted where it has one. Raises
    UnsupportedPredictionError for a competitor that lacks a metric the model reads; where `strict`, for every answer
    that is not supported.
    """
    narrow = behind_ports(server, how)
    prediction = answers_of(narrow, how).prediction(0)
    if strict:
        require_supported(prediction)
    prediction = _told_of_ports(prediction, server, narrow)
    # latency profiles are of whole cores and an undivided cache
    if server.tenants[0].offered_mpps is not None and not server.is_divided and len(server.on_core[0]) == 1:
        plain = replace(how, explain=False)
        saturated = answers_of(narrow.at_loads({0: None}), plain).prediction(0)
        beside = answers_of(narrow, replace(plain, method="equilibrium")).whole()
        prediction = replace(prediction, latency=latency_of(narrow.tenants[0], saturated, beside))
    return prediction


def solve_server(
    library: ModelLibrary,
    workloads: Sequence[Named],
    machine: str | None = None,
    *,
    setting: ServerSetting | None = None,
    **how: Unpack[OptionFields],
) -> ServerPrediction:
    """Predict all NFs of a server.

    Parameters
    ----------
    library : ModelLibrary
        Trained models.
    workloads : sequence of Workload or str
        One per NF instance, in any order.
    machine : str, optional
        Needed if the library has models of several machines.
    setting : ServerSetting, optional
        Ways, throttles, cores, weights, memory nodes and sockets of all NFs in that order, and a shared port.
    **how
        As in `slomo.prediction.options.PredictionOptions`.

    Returns
    -------
    ServerPrediction
        Without neighbours, exactly what was measured solo.

    Raises
    ------
    UnknownNameError, InvalidValueError, UnsupportedPredictionError
        As `slomo.predict`.

    Examples
    --------
    >>> solve_server(ModelLibrary([]), [], "silver-4110", method="guess")
    Traceback (most recent call last):
    slomo.errors.UnknownNameError: unknown method 'guess'
    hint: Known: auto, composed, equilibrium
    """
    options = PredictionOptions(**how)
    return answers_on(server_of(library, workloads, machine, setting), options).whole()


def answers_on(server: TenantModels, how: PredictionOptions) -> Answers:
    """Return the answers about all NFs of a server with resolved names, shared ports included."""
    return answers_of(behind_ports(server, how), replace(how, explain=False))


def behind_ports(server: TenantModels, how: PredictionOptions) -> TenantModels:
    """Return a server whose offered loads are limited by the shared ports."""
    most_gbps = server.ports_gbps
    if most_gbps == math.inf or sum([tenant.wanted_gbps for tenant in server.tenants]) < (1.0 - 1e-9) * most_gbps:
        return server
    narrow, plain = _divided(server, [tenant.wanted_mpps for tenant in server.tenants]), replace(how, explain=False)
    if narrow is server:
        return server
    for _ in range(_DIVISIONS):
        before = narrow.loads_mpps
        if before == server.loads_mpps:
            return narrow
        answers = answers_of(narrow, plain)
        possible = [answers.possible_mpps(number) for number in range(len(server.tenants))]
        narrow = _divided(server, _served(server, possible))
        if _alike(before, narrow.loads_mpps):
            break
    return _doubted(server, narrow, answers_of(narrow, plain), possible)


def _served(server: TenantModels, possible_mpps: Sequence[float]) -> list[float]:
    """Return the rate of each NF if the port does not limit it: its possible throughput, at most its offered load."""
    pairs = zip(server.loads_mpps, possible_mpps, strict=True)
    return [most if offered is None else min(most, offered) for offered, most in pairs]


def _divided(server: TenantModels, demand_mpps: Sequence[float]) -> TenantModels:
    """Divide the ports max-min: an NF takes at most its demand, and the others share the rest."""
    shares = enumerate(port_shares_mpps(server.frames_b, demand_mpps, server.ports_gbps))
    less = {number: share for number, share in shares if share < demand_mpps[number]}
    return server.at_loads(less) if less else server


def _doubted(server: TenantModels, narrow: TenantModels, answers: Answers, possible: list[float]) -> TenantModels:
    """Return the server with the uncertainty of each NF's port share, from the intervals of the other NFs."""
    free = [here == there for here, there in zip(server.loads_mpps, narrow.loads_mpps, strict=True)]
    ends = [answers.prediction(i).interval if free[i] else (possible[i], possible[i]) for i in range(len(free))]
    most, least = (_divided(server, _served(server, [end[side] for end in ends])) for side in (0, 1))
    tenants = list(narrow.tenants)
    for i in range(len(free)):
        if not free[i]:
            low, high = (each.loads_mpps[i] or possible[i] for each in (least, most))
            tenants[i] = replace(tenants[i], through_ports_mpps=(low, max(low, high)))
    return replace(narrow, tenants=tuple(tenants))


def _alike(before: Sequence[float | None], after: Sequence[float | None]) -> bool:
    """Return whether two divisions of a port limit the same NFs, with nearly equal shares."""
    return all(
        old == new or (old is not None and new is not None and abs(new - old) <= _SETTLED * old)
        for old, new in zip(before, after, strict=True)
    )


def _told_of_ports(prediction: Prediction, server: TenantModels, narrow: TenantModels) -> Prediction:
    """Return a prediction whose slowdown includes the loss from shared ports, with a reason that names them."""
    share, offered = narrow.loads_mpps[0], server.loads_mpps[0]
    if share == offered or share is None:
        return prediction
    alone = server.tenants[0].model.solo_mpps
    ports = "a port" if server.setting.port_gbps is not None else "the machine's ports"
    reason = f"{ports} of {server.ports_gbps:g} Gbit/s for all lets {share:.4g} Mpps through"
    solo = alone if offered is None else min(alone, offered)
    return replace(prediction, solo_mpps=solo, reasons=(reason, *prediction.reasons))


def require_supported(prediction: Prediction) -> None:
    """Raise UnsupportedPredictionError, with the reasons, if the profile does not support the prediction."""
    if not prediction.verdict.is_refused:
        return
    what, hint = "is not supported", "profile the target under stronger pressure"
    if prediction.verdict is Verdict.UNKNOWN:
        what, hint = "cannot be judged", "measure more: runs under pressure, and mixes like those asked about"
    why = "; ".join(prediction.reasons)
    raise UnsupportedPredictionError(f"'{label(prediction.target)}' on {prediction.machine} {what}: {why}", hint=hint)
