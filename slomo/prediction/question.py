"""Answer a question about a server; every interface of slomo calls this module.

Names are resolved once (`tenants`), shared ports limit the offered loads (`ports`), and the server answers: `answers`
if every NF has a core of its own, else `core_share`. `latency` is added if a load was asked about. `slomo.predict`,
`Predictor`, evaluation, placement, the command line and the service all ask here; `batch` does the same for arrays,
equal to the last bit.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

from slomo.errors import UnsupportedPredictionError
from slomo.models.applicability import Verdict
from slomo.models.library import ModelLibrary
from slomo.prediction.answers import Answers
from slomo.prediction.core_share import answers_of
from slomo.prediction.latency import latency_of
from slomo.prediction.options import OptionFields, PredictionOptions
from slomo.prediction.ports import behind_ports, told_of_ports
from slomo.prediction.result import Prediction, label
from slomo.prediction.server_result import ServerPrediction
from slomo.prediction.tenants import Named, TenantModels, server_of
from slomo.vocabulary.server_setting import ServerSetting


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
    prediction = told_of_ports(prediction, server, narrow)
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
    options = PredictionOptions(**how)  # type: ignore[arg-type]
    return answers_on(server_of(library, workloads, machine, setting), options).whole()


def answers_on(server: TenantModels, how: PredictionOptions) -> Answers:
    """Return the answers about all NFs of a server with resolved names, shared ports included."""
    return answers_of(behind_ports(server, how), replace(how, explain=False))


def require_supported(prediction: Prediction) -> None:
    """Raise UnsupportedPredictionError, with the reasons, if the profile does not support the prediction."""
    if not prediction.verdict.is_refused:
        return
    what, hint = "is not supported", "profile the target under stronger pressure"
    if prediction.verdict is Verdict.UNKNOWN:
        what, hint = "cannot be judged", "measure more: runs under pressure, and mixes like those asked about"
    why = "; ".join(prediction.reasons)
    raise UnsupportedPredictionError(f"'{label(prediction.target)}' on {prediction.machine} {what}: {why}", hint=hint)
