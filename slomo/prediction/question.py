"""Predict the NFs of a server; every interface of slomo (Python, command line, HTTP) calls this module.

Names are resolved once (`tenants`); then the server is predicted (`answers`), shared ports and cores included.
`latency` is added if the NF has an offered load. `slomo.predict`, `Predictor`, evaluation, placement, the command line
and the service all use this module; `batch` gives the same results for arrays, to the last bit.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

from slomo.errors import UnsupportedPredictionError
from slomo.models.applicability import Verdict
from slomo.models.library import ModelLibrary
from slomo.prediction.answers import answers_of, answers_on
from slomo.prediction.latency import latency_of
from slomo.prediction.options import OptionFields, PredictionOptions
from slomo.prediction.result import Prediction, label
from slomo.prediction.server_result import ServerPrediction
from slomo.prediction.tenants import Named, TenantModels, server_of
from slomo.vocabulary.defaults import DEFAULT_MODEL, EQUILIBRIUM
from slomo.vocabulary.server_setting import ServerSetting


def answer(server: TenantModels, how: PredictionOptions, *, strict: bool = False) -> Prediction:
    """Predict the first NF of a server whose names are already resolved to models.

    Throughput is at most the NF's offered load; if it has one, `latency` is predicted, too. Raises
    UnsupportedPredictionError if a competitor lacks a metric that the model needs; with `strict`, for every prediction
    that is not supported.
    """
    answers = answers_on(server, how)
    prediction, load = answers.prediction(0), answers.loads[0]
    if strict:
        require_supported(prediction)
    if load is None or server.tenants[0].offered_mpps is None:
        return prediction
    if server.is_divided or len(server.on_core[0]) > 1:  # latency was profiled on whole cores with an undivided cache
        return prediction
    plain = replace(how, explain=False)
    saturated = answers_of(server, plain, [None, *answers.loads[1:]]).prediction(0)
    jointly = replace(plain, method=EQUILIBRIUM, model=DEFAULT_MODEL, compat=None)
    beside = answers_of(server, jointly, answers.loads).whole()
    return replace(prediction, latency=latency_of(server.tenants[0], load, saturated, beside))


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
        Ways, throttles, cores, weights, memory nodes and sockets of all NFs, in the order of `workloads`, and a shared
        port.
    **how
        As in `slomo.prediction.options.PredictionOptions`.

    Returns
    -------
    ServerPrediction
        For an NF without neighbours, the measured solo throughput.

    Raises
    ------
    UnknownNameError, InvalidValueError, UnsupportedPredictionError
        The errors of `slomo.predict`.

    Examples
    --------
    >>> solve_server(ModelLibrary([]), [], "silver-4110", method="guess")
    Traceback (most recent call last):
    slomo.errors.UnknownNameError: unknown method 'guess'
    hint: Known: auto, composed, equilibrium
    """
    options = PredictionOptions(**how)
    return answers_on(server_of(library, workloads, machine, setting), replace(options, explain=False)).whole()


def require_supported(prediction: Prediction) -> None:
    """Raise UnsupportedPredictionError, with the reasons, if the profile does not support the prediction."""
    if not prediction.verdict.is_refused:
        return
    what, hint = "is not supported", "profile the target under stronger pressure"
    if prediction.verdict is Verdict.UNKNOWN:
        what, hint = "cannot be judged", "measure more: runs under pressure, and mixes like those asked about"
    why = "; ".join(prediction.reasons)
    raise UnsupportedPredictionError(f"'{label(prediction.target)}' on {prediction.machine} {what}: {why}", hint=hint)
