"""Predict the throughput of a network function beside others.

SLOMO (SIGCOMM'20) section 4.2.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from slomo.errors import InvalidValueError
from slomo.vocabulary.defaults import DEFAULT_METHOD, DEFAULT_MODEL, Compat, Method
from slomo.vocabulary.numbers import positive_number
from slomo.vocabulary.server_setting import ServerSetting
from slomo.vocabulary.workload import Workload
from slomo.workflow.names import named, sequence_of, target_named

if TYPE_CHECKING:
    from slomo.models.library import ModelLibrary
    from slomo.prediction.result import Prediction, PredictionBatch
    from slomo.vocabulary.machine import Machine


def predict(
    target: Workload | str,
    competitors: Iterable[Workload | str] | Mapping[str, int] | Workload | str,
    library: "ModelLibrary | str | Path",
    *,
    machine: "str | Machine | None" = None,
    strict: bool = False,
    offered_mpps: float | None = None,
    shares_core_with: Iterable[Workload | str] | Workload | str = (),
    port_gbps: float | None = None,
    setting: ServerSetting | None = None,
    method: Method = DEFAULT_METHOD,
    model: str = DEFAULT_MODEL,
    compat: Compat | None = None,
    coverage: float = 0.9,
    explain: bool = True,
    window_s: float | None = None,
) -> "Prediction":
    """Predict the throughput of a network function beside others.

    Parameters
    ----------
    target : Workload or str
        The network function asked about: a workload, its key, or a name.
    competitors : workload, str, iterable of them, or mapping of str to int
        One entry per instance; a text may carry a count, ``"stats:3"``, and so does a mapping, ``{"stats": 3}``.
    library : ModelLibrary or path
        Trained models, or the directory they were saved in.
    machine : str or Machine, optional
        Needed where the library has models of several machines. By value it must be the one that they were measured
        on, whatever both are called.
    strict : bool
        Raise instead of returning a verdict of ``unsupported``.
    offered_mpps : float, optional
        What arrives at the target [Mpps]; the same as in its name, ``"lpm@64B,100000f,2.1Mpps"``. Throughput is at most
        that, and the answer has the field `latency` (`slomo.prediction.latency`).
    shares_core_with : workload, str, or iterable of them
        Network functions on the target's own core, one entry per instance or with a count; the others have a core each.
        The core's time is divided as a fair scheduler does (`slomo.prediction.answers`).
    port_gbps : float, optional
        Line rate of the one NIC port that all network functions of the server, on any socket, share max-min fair
        [Gbit/s]; by default they share the machine's ports.
    setting : ServerSetting, optional
        Cache ways, throttles, weights, memory nodes and sockets: one value each for the target, those on its core, then
        the competitors. Ways, throttles and nodes need models that were profiled over them (`slomo whatif --learn`).
    method : {"auto", "equilibrium", "composed"}
        ``"equilibrium"`` solves the whole server, ``"composed"`` composes the competitors' vectors as SLOMO does;
        ``"auto"`` takes the first where all models know it and neither another `model` nor `compat` is named.
    model : str
        Name of the sensitivity model of method ``"composed"``.
    compat : {"published"}, optional
        Compose by the rule of SLOMO's scripts.
    coverage : float
        Nominal coverage of the interval, above 0 and below 1.
    explain : bool
        Divide the loss over metrics and competitors.
    window_s : float, optional
        Length of the measurement that intervals of network functions at reduced load speak of [s].

    Raises
    ------
    UnknownNameError
        For a name there is none of, with the nearest.
    ConfigurationError
        For another machine than the models were measured on, with both fingerprints.
    InvalidValueError
        For a mix larger than the machine, a coverage or load out of range, and options that contradict each other.
    UnsupportedPredictionError
        Where no prediction can be made; with `strict`, where none is supported.
    """
    from slomo.models.library import opened
    from slomo.prediction.options import PredictionOptions
    from slomo.prediction.question import answer
    from slomo.prediction.tenants import server_of

    if offered_mpps is not None:
        positive_number("offered_mpps", offered_mpps, "Mpps")
    if port_gbps is not None:
        positive_number("port_gbps", port_gbps, "Gbit/s")
    if setting is not None and not isinstance(setting, ServerSetting):
        raise InvalidValueError(f"setting is {setting!r}, needed a ServerSetting", hint="ServerSetting(ways=(3, 12))")
    partners, others = named(shares_core_with), named(competitors)
    mix = (target_named(target), *partners, *others)
    if partners or port_gbps is not None:
        setting = setting or ServerSetting()
        if partners and setting.cores is not None:
            raise InvalidValueError(
                "shares_core_with and cores of the setting were given", hint="leave one of them out"
            )
        if port_gbps is not None and setting.port_gbps is not None:
            raise InvalidValueError("port_gbps and port_gbps of the setting were given", hint="leave one of them out")
        cores = (0,) * (1 + len(partners)) + (None,) * len(others) if partners else setting.cores
        setting = replace(setting, cores=cores, port_gbps=setting.port_gbps if port_gbps is None else port_gbps)
    models = opened(library)
    machine = models.name_of(machine)
    options = PredictionOptions(method, model, compat, coverage, explain, window_s)
    server = server_of(models, mix, machine, setting)
    if offered_mpps is not None:
        server = server.with_load(0, offered_mpps)
    return answer(server, options, strict=strict)


def predict_batch(
    targets: Iterable[Workload | str] | Workload | str,
    mixes: Iterable[Iterable[Workload | str] | Mapping[str, int] | str],
    library: "ModelLibrary | str | Path",
    *,
    machine: "str | Machine | None" = None,
    method: Method = DEFAULT_METHOD,
    model: str = DEFAULT_MODEL,
    compat: Compat | None = None,
    coverage: float = 0.9,
    window_s: float | None = None,
) -> "PredictionBatch":
    """Predict many mixes in one call and return arrays; each prediction equals that of :func:`predict`.

    All further arguments are those of :func:`predict`.

    Parameters
    ----------
    targets : workload, str, or iterable of them
        The network function asked about in each mix; a single one is asked about in every mix.
    mixes : iterable
        The competitors of each mix, as for :func:`predict`.

    Raises
    ------
    UnknownNameError, ConfigurationError, InvalidValueError
        As for :func:`predict`; InvalidValueError also if there are not as many targets as mixes.
    """
    from slomo.prediction.predictor import Predictor

    predictor = Predictor(library, machine, model, compat, method=method, window_s=window_s)
    lists = [mix if isinstance(mix, (list, tuple)) else named(mix) for mix in sequence_of(mixes)]  # type: ignore[arg-type]
    asked = [targets] * len(lists) if isinstance(targets, (str, Workload)) else sequence_of(targets)
    return predictor.predict_batch(asked, lists, coverage)
