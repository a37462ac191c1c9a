"""Answer a question about a server; every interface of slomo calls this module.

Names are resolved once (`tenants`), shared ports limit the offered loads, and the server answers: `answers` if every NF
has a core of its own, else `core_share`. `latency` is added if a load was asked about. `slomo.predict`, `Predictor`,
evaluation, placement, the command line and the service all ask here; `batch` does the same for arrays, equal to the
last bit.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

from slomo.errors import UnsupportedPredictionError
from slomo.models.applicability import Verdict
from slomo.models.library import ModelLibrary
from slomo.prediction.answers import Answers, by_allocation
from slomo.prediction.core_share import SharedCores
from slomo.prediction.latency import latency_of
from slomo.prediction.options import OptionFields, PredictionOptions
from slomo.prediction.result import Prediction, label
from slomo.prediction.server_result import ServerPrediction
from slomo.prediction.tenants import Named, TenantModels, server_of, tenants_of
from slomo.vocabulary.server_setting import ServerSetting

#: Largest number of times that ports are divided anew, and the change of a share at which that ends.
_DIVISIONS, _SETTLED = 12, 1e-3


def answer(
    library: ModelLibrary,
    workloads: Sequence[Named],
    machine: str | None = None,
    *,
    setting: ServerSetting | None = None,
    offered_mpps: float | None = None,
    strict: bool = False,
    **how: Unpack[OptionFields],
) -> Prediction:
    """Predict the first NF of a server.

    Parameters
    ----------
    library : ModelLibrary
        Trained models.
    workloads : sequence of Workload or str
        The NF asked about, then its neighbours. Unprofiled traffic is interpolated between profiles or extrapolated
        from a near one, and the verdict says so (`slomo.adaptation.adapt`). A load below what an NF can serve is served
        whole, and the NF then presses less on the others.
    machine : str, optional
        Needed if the library has models of several machines.
    setting : ServerSetting, optional
        Ways, throttles, cores, weights, memory nodes and sockets of all NFs in that order, and a shared port.
    offered_mpps : float, optional
        Load of the NF asked about [Mpps], if its traffic does not state one.
    strict : bool
        Raise an error if the profile does not support the answer.
    **how
        As in `slomo.prediction.options.PredictionOptions`.

    Returns
    -------
    Prediction
        With the field `latency` where less than saturation is offered to the NF asked about.

    Raises
    ------
    UnknownNameError
        For an NF, machine or model there is none of, with the nearest.
    InvalidValueError
        For more NFs than a socket has cores, or a setting that does not belong to the NFs.
    UnsupportedPredictionError
        For traffic that no profile reaches, or a competitor that lacks a metric the model reads; where `strict`, for
        every answer that is not supported.

    Examples
    --------
    >>> answer(ModelLibrary([]), ["lpm", "nat"], "silver-4110")
    Traceback (most recent call last):
    slomo.errors.UnknownNameError: unknown machine with models 'silver-4110'
    hint: there are models for none; profile and train on 'silver-4110' first
    """
    options = PredictionOptions(**how)  # type: ignore[arg-type]
    server = server_of(tenants_of(library, workloads, machine), machine, setting)
    if offered_mpps is not None:
        server = server.with_load(0, offered_mpps)
    return answer_on(server, options, strict=strict)


def answer_on(server: TenantModels, how: PredictionOptions, *, strict: bool = False) -> Prediction:
    """Answer about the first NF of a server with resolved names, shared ports included."""
    narrow = behind_ports(server, how)
    prediction = _answers(narrow, how).prediction(0)
    if strict:
        require_supported(prediction)
    first = narrow.tenants[0]
    # latency profiles are of whole cores and an undivided cache
    if first.offered_mpps is not None and not server.is_divided and len(server.sharing_core(0)) == 1:
        plain = replace(how, explain=False)
        saturated = _answers(narrow.at_load(0, None), plain).prediction(0)
        beside = _answers(narrow, replace(plain, method="equilibrium")).whole()
        prediction = replace(prediction, latency=latency_of(first, saturated, beside))
    return prediction if narrow is server else _told_of_ports(prediction, server, narrow)


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
    machine, setting, **how
        As for :func:`answer`.

    Returns
    -------
    ServerPrediction
        Without neighbours, exactly what was measured solo.

    Raises
    ------
    UnknownNameError, InvalidValueError, UnsupportedPredictionError
        As :func:`answer`.

    Examples
    --------
    >>> solve_server(ModelLibrary([]), [], "silver-4110", method="guess")
    Traceback (most recent call last):
    slomo.errors.UnknownNameError: unknown method 'guess'
    hint: Known: auto, composed, equilibrium
    """
    options = PredictionOptions(**how)  # type: ignore[arg-type]
    return answers_on(server_of(tenants_of(library, workloads, machine), machine, setting), options).whole()


def answers_on(server: TenantModels, how: PredictionOptions) -> Answers:
    """Return the answers about all NFs of a server with resolved names, shared ports included."""
    return _answers(behind_ports(server, how), replace(how, explain=False))


def _answers(server: TenantModels, how: PredictionOptions) -> Answers:
    shared = server.shared_cores and not by_allocation(server, how)
    return SharedCores(server, how) if shared else Answers(server, how)


def behind_ports(server: TenantModels, how: PredictionOptions) -> TenantModels:
    """Return a server whose offered loads are limited by the shared ports.

    An NF that its neighbours slow down leaves more of the port's line rate to the others, who then press more on it.
    The division starts from solo throughputs and is repeated with throughputs beside the others until it no longer
    changes.
    """
    narrow = server.behind_ports()
    if narrow is server:
        return server  # the ports carry all demand
    plain = replace(how, explain=False)
    for _ in range(_DIVISIONS):
        before = [tenant.offered_mpps for tenant in narrow.tenants]
        if before == [tenant.offered_mpps for tenant in server.tenants]:
            return narrow
        answers = _answers(narrow, plain)
        possible = [answers.possible_mpps(number) for number in range(len(server.tenants))]
        narrow = server.behind_ports(possible)
        if _alike(before, [tenant.offered_mpps for tenant in narrow.tenants]):
            break
    return _doubted(server, narrow, _answers(narrow, plain), possible)


def _doubted(server: TenantModels, narrow: TenantModels, answers: Answers, possible: list[float]) -> TenantModels:
    """Return a server behind ports that carries each NF's uncertainty of its port share, from the others' intervals."""
    free = [here.offered_mpps == there.offered_mpps for here, there in zip(server.tenants, narrow.tenants, strict=True)]
    ends = [answers.prediction(i).interval if free[i] else (possible[i], possible[i]) for i in range(len(free))]
    most, least = (server.behind_ports([end[side] for end in ends]) for side in (0, 1))
    tenants = list(narrow.tenants)
    for i in range(len(free)):
        if not free[i]:
            low, high = (each.tenants[i].offered_mpps or possible[i] for each in (least, most))
            tenants[i] = replace(tenants[i], through_ports_mpps=(low, max(low, high)))
    return replace(narrow, tenants=tuple(tenants))


def _alike(before: Sequence[float | None], after: Sequence[float | None]) -> bool:
    """Return whether two divisions of a port limit the same NFs, with nearly equal shares."""
    return all(
        old == new or (old is not None and new is not None and abs(new - old) <= _SETTLED * old)
        for old, new in zip(before, after, strict=True)
    )


def _told_of_ports(prediction: Prediction, server: TenantModels, narrow: TenantModels) -> Prediction:
    """Return a prediction whose slowdown includes the cost of shared ports, with a reason that says so."""
    share, offered = narrow.tenants[0].offered_mpps, server.tenants[0].offered_mpps
    if share == offered or share is None:
        return prediction
    alone = server.tenants[0].model.solo_mpps
    ports = "a port" if server.setting.port_gbps is not None else "the machine's ports"
    reason = f"{ports} of {server.ports_gbps:g} Gbit/s for all lets {share:.4g} Mpps through"
    latency = prediction.latency if offered is not None else None
    solo = alone if offered is None else min(alone, offered)
    return replace(prediction, solo_mpps=solo, latency=latency, reasons=(reason, *prediction.reasons))


def require_supported(prediction: Prediction) -> None:
    """Raise UnsupportedPredictionError, with the reasons, if the profile does not support the prediction."""
    if not prediction.verdict.is_refused:
        return
    what, hint = "is not supported", "profile the target under stronger pressure"
    if prediction.verdict is Verdict.UNKNOWN:
        what, hint = "cannot be judged", "measure more: runs under pressure, and mixes like those asked about"
    why = "; ".join(prediction.reasons)
    raise UnsupportedPredictionError(f"'{label(prediction.target)}' on {prediction.machine} {what}: {why}", hint=hint)
