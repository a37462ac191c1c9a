"""The main job as four verbs: profile, train, predict, evaluate; each a thin line over the room that does the work.

SLOMO (SIGCOMM'20) section 4: profile offline against a synthetic competitor, train a sensitivity model per network
function, compose contentiousness and predict online. The command line calls nothing that a notebook cannot call here.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from slomo.errors import ConfigurationError, InvalidValueError, UnknownNameError, UsageError
from slomo.vocabulary.workload import Workload
from slomo.vocabulary.workload_text import parse_instances, parse_workload

if TYPE_CHECKING:
    from slomo.models.library import ModelLibrary
    from slomo.prediction.evaluation import Evaluation
    from slomo.prediction.result import Prediction
    from slomo.profiling.designs import Design
    from slomo.profiling.plan import ExperimentPlan
    from slomo.profiling.plans import Stream
    from slomo.profiling.progress import Progress
    from slomo.records.profile import ProfileDataset
    from slomo.testbed.base import Testbed
    from slomo.vocabulary.machine import Machine
    from slomo.vocabulary.network_function import NetworkFunction

PLANS = ("all", "pressure", "solo", "mixes")
DEFAULT_MACHINE = "e5-2620v4"
DEFAULT_MODEL = "slomo-xgb"
#: Mixes that set the width of intervals; with fewer, the promised coverage is met less exactly (split conformal).
CALIBRATION_MIXES = 200
_SYNTHETIC = "synthetic"


def plan_experiments(
    network_functions: Sequence[Workload | str] | Workload | str,
    *,
    machine: "str | Machine" = DEFAULT_MACHINE,
    plan: str = "all",
    design: "str | Design" = "grid",
    runs: int | None = None,
    mixes: int | None = None,
    stream: "Stream | None" = None,
    replicates: int = 1,
    seed: int = 0,
) -> "ExperimentPlan":
    """Return what :func:`profile` would run.

    Parameters
    ----------
    network_functions : workload, name or sequence of them
        Targets; in mixes also the competitors.
    machine : str or Machine
        Name, YAML file, or the machine itself.
    plan : {"all", "pressure", "solo", "mixes"}
        ``pressure`` is solo runs and runs beside the synthetic competitor; ``all`` is that and, with two or more
        network functions, mixes that set the width of intervals.
    design : str or Design
        ``grid``, ``slomo-grid`` or ``sobol``.
    runs : int, optional
        Points of the design per network function; the design's own number by default.
    mixes : int, optional
        Mixes to run; by default up to 200.
    stream : {"calibration", "test"}, optional
        Which half of all mixes to draw from: calibration in plan ``all``, else test.
    replicates : int
        Runs of every experiment.
    seed : int
        Seed of everything random.

    Raises
    ------
    UnknownNameError, InvalidValueError
        For a name there is none of, or a number that makes no sense.

    Examples
    --------
    >>> len(plan_experiments(["lpm", "stats"], plan="pressure", runs=20))
    42
    """
    from slomo.profiling.plan import combine
    from slomo.profiling.plans import pressure_plan, solo_plan

    if plan not in PLANS:
        raise UnknownNameError("plan", plan, PLANS)
    workloads, host = _workloads(network_functions), _machine(machine)
    rest: dict[str, Any] = {"replicates": replicates, "seed": seed}
    if plan == "solo":
        return solo_plan(workloads, host, **rest)
    if plan == "mixes":
        return _mixes(workloads, host, mixes, stream or "test", **rest)
    pressure = pressure_plan(workloads, host, design, runs=runs, **rest)
    if plan == "pressure" or len(workloads) < 2 or mixes == 0:
        return pressure
    return combine("all", [pressure, _mixes(workloads, host, mixes, stream or "calibration", **rest)])


def profile(
    network_functions: Sequence[Workload | str] | Workload | str,
    *,
    machine: "str | Machine" = DEFAULT_MACHINE,
    plan: str = "all",
    design: "str | Design" = "grid",
    runs: int | None = None,
    mixes: int | None = None,
    stream: "Stream | None" = None,
    replicates: int = 1,
    seed: int = 0,
    testbed: "str | Testbed" = "simulated",
    own: Iterable["NetworkFunction"] = (),
    store: str | Path | None = None,
    jobs: int | None = None,
    progress: "Progress | None" = None,
) -> "ProfileDataset":
    """Measure network functions alone, beside the synthetic competitor, and in mixes.

    Parameters
    ----------
    network_functions, machine, plan, design, runs, mixes, stream, replicates, seed
        As in :func:`plan_experiments`.
    testbed : str or Testbed
        Where the experiments run; the simulator by default.
    own : iterable of NetworkFunction
        Network functions of one's own, for the simulator.
    store : path, optional
        File that keeps every finished run; the same call again goes on where the last one ended.
    jobs : int, optional
        Runs at a time; every core by default.
    progress : Progress, optional
        Hears how far the campaign is.

    Raises
    ------
    StoreError
        If the store is in use, corrupt or cannot be written.
    IncompatibleMeasurementsError
        If the store belongs to another plan or environment.
    TestbedError
        If some runs failed; all others are kept.

    Examples
    --------
    >>> dataset = profile("l2fwd", plan="solo", seed=1)
    >>> dataset.targets
    ('l2fwd@64B,100000f',)
    """
    from slomo.profiling.campaign import run_campaign
    from slomo.testbed.registry import machine_of, make_testbed

    host = machine_of(testbed, machine, DEFAULT_MACHINE)
    planned = plan_experiments(
        network_functions,
        machine=host,
        plan=plan,
        design=design,
        runs=runs,
        mixes=mixes,
        stream=stream,
        replicates=replicates,
        seed=seed,
    )
    return run_campaign(planned, make_testbed(testbed, host, own), store, jobs, progress)


def train(
    dataset: "ProfileDataset",
    *,
    models: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    seed: int = 0,
) -> "ModelLibrary":
    """Fit one sensitivity model per network function.

    Parameters
    ----------
    dataset : ProfileDataset
        Rows of plan ``solo``, ``pressure`` and ``imported`` are fitted; rows of ``mix`` set the width of intervals.
    models : sequence of str, optional
        Names of the registry; all by default.
    targets : sequence of str, optional
        Workload keys or NF names; all by default.
    seed : int
        Seed of everything random in training.

    Returns
    -------
    ModelLibrary
        Save it with its `save` method; saved models are data, never code.

    Raises
    ------
    MissingMetricError
        Where the dataset lacks a metric that a model named in `models` needs.
    UnknownNameError
        For a model or target there is none of.
    """
    from slomo.models.training import train as train_library

    return train_library(dataset, models=models, targets=_target_keys(dataset, targets), seed=seed)


def load_models(directory: str | Path) -> "ModelLibrary":
    """Load saved models.

    Raises
    ------
    ConfigurationError
        Where there are none, or a file is damaged.

    Examples
    --------
    >>> load_models("/nowhere/at/all")
    Traceback (most recent call last):
    slomo.errors.ConfigurationError: there are no models at '/nowhere/at/all'
    hint: train some: slomo profile NF --out profile.parquet, then slomo train profile.parquet --models /nowhere/at/all
    """
    from slomo.models.library import ModelLibrary

    if not Path(directory).is_dir():
        steps = f"slomo profile NF --out profile.parquet, then slomo train profile.parquet --models {directory}"
        raise ConfigurationError(f"there are no models at '{directory}'", hint=f"train some: {steps}")
    return ModelLibrary.load(directory)


def predict(
    target: Workload | str,
    competitors: Iterable[Workload | str],
    library: "ModelLibrary | str | Path",
    *,
    machine: str | None = None,
    model: str = DEFAULT_MODEL,
    coverage: float = 0.9,
    compat: Literal["slomo"] | None = None,
    strict: bool = False,
) -> "Prediction":
    """Predict what a network function loses beside others.

    Parameters
    ----------
    target : Workload or str
        The network function asked about: a workload, its key, or a name.
    competitors : iterable of Workload or str
        One entry per instance; a text may carry a count, ``"stats:3"``.
    library : ModelLibrary or path
        Trained models, or the directory they were saved in.
    machine : str, optional
        Needed where the library has models of several machines.
    model : str
        Name of the sensitivity model.
    coverage : float
        Nominal coverage of the interval, above 0 and below 1.
    compat : {"slomo"}, optional
        Compose by the published rule.
    strict : bool
        Raise instead of returning a verdict of ``unsupported``.

    Raises
    ------
    UnknownNameError
        For a name there is none of, with the nearest.
    InvalidValueError
        For a mix larger than the machine, or a coverage out of range.
    UnsupportedPredictionError
        Where no prediction can be made; with `strict`, where none is supported.
    """
    from slomo.prediction.predictor import Predictor

    predictor = Predictor(_opened(library), machine, model, compat)
    return predictor.predict(
        _named(target)[0], [item for text in competitors for item in _named(text)], coverage, strict=strict
    )


def predict_vector(
    target: Workload | str,
    vector: Mapping[str, float],
    library: "ModelLibrary | str | Path",
    *,
    traffic: Mapping[str, float] | None = None,
    machine: str | None = None,
    model: str = DEFAULT_MODEL,
    coverage: float = 0.9,
    strict: bool = False,
) -> "Prediction":
    """Predict beside a competition whose socket-level vector is known, for instance from `pcm`.

    Parameters
    ----------
    target, library, machine, model, coverage, strict
        As for :func:`predict`.
    vector : mapping of str to float
        Metric -> value in the vocabulary's unit.
    traffic : mapping of str to float, optional
        Traffic attributes the target was imported with.

    Raises
    ------
    MissingMetricError
        Where the vector lacks a metric the model reads.
    """
    from slomo.prediction.predictor import Predictor

    predictor = Predictor(_opened(library), machine, model)
    return predictor.predict_vector(_named(target)[0], vector, traffic, coverage, strict=strict)


def _opened(library: "ModelLibrary | str | Path") -> "ModelLibrary":
    return load_models(library) if isinstance(library, (str, Path)) else library


def _named(item: Workload | str) -> list[Workload | str]:
    """Read a text as people write it; a plain name stays a name, for the library knows which workload it stands for."""
    if isinstance(item, Workload):
        return [item]
    workload, count = parse_instances(item)
    plain = "(" not in item and "@" not in item
    return [workload.nf if plain else workload] * count


def _target_keys(dataset: "ProfileDataset", targets: Sequence[str] | None) -> tuple[str, ...] | None:
    if targets is None:
        return None
    return tuple(key for name in targets for key in dataset.select(target=name).targets)


def evaluate(
    library: "ModelLibrary | str | Path",
    dataset: "ProfileDataset | None" = None,
    *,
    machine: "str | Machine | None" = None,
    mixes: int = 200,
    seed: int = 0,
    models: Sequence[str] | None = None,
    coverage: float = 0.9,
    compat: Literal["slomo"] | None = None,
    testbed: "str | Testbed" = "simulated",
    own: Iterable["NetworkFunction"] = (),
    store: str | Path | None = None,
    jobs: int | None = None,
    progress: "Progress | None" = None,
) -> "Evaluation":
    """Check every model against mixes that were never trained on.

    Parameters
    ----------
    library : ModelLibrary or path
        Trained models, or the directory they were saved in.
    dataset : ProfileDataset, optional
        Mixes that were run; without it, `mixes` new ones are run.
    machine : str or Machine, optional
        Needed where the library has models of several machines.
    mixes : int
        Mixes to run, of 1 to 7 unlike competitors.
    seed : int
        Seed of the mixes and their runs; no seed draws a mix that calibrated intervals.
    models : sequence of str, optional
        Names of models; all by default.
    coverage : float
        Nominal coverage of the intervals, above 0 and below 1.
    compat : {"slomo"}, optional
        Compose by the published rule.
    testbed, own, store, jobs, progress
        As in :func:`profile`.

    Raises
    ------
    InvalidValueError
        Where there are no mixes to judge by.
    """
    from slomo.prediction.evaluation import evaluate as judge

    opened = _opened(library)
    if dataset is None:
        host = _host_of(opened, machine)
        workloads = [opened.find(key, host.name).workload for key in opened.workloads(host.name)]
        if not workloads:
            raise UnknownNameError("machine with models", host.name, opened.machines)
        targets = [workload for workload in workloads if workload.nf != _SYNTHETIC]
        dataset = profile(
            targets,
            machine=host,
            plan="mixes",
            mixes=mixes,
            stream="test",
            seed=seed,
            testbed=testbed,
            own=own,
            store=store,
            jobs=jobs,
            progress=progress,
        )
    elif machine is not None:
        dataset = dataset.select(machine=_machine_name(machine))
    return judge(opened, dataset, models, coverage, compat=compat)


def calibration_mixes(dataset: "ProfileDataset") -> int:
    """Return how many mixes of a dataset belong to the half that :func:`profile` calibrates intervals with.

    Judging by them is no cheat for errors, for nothing is fitted to mixes, but the coverage of intervals may flatter.
    """
    from slomo.profiling.plans import stream_of
    from slomo.vocabulary.colocation import Colocation

    mixes = dataset.select(plan="mix")
    places = mixes.frame.drop_duplicates("run_key").index
    targets = {key: mixes.workload(key) for key in mixes.targets}
    found = (Colocation("", targets[mixes.frame["target"].iloc[row]], mixes.competitors(int(row))) for row in places)
    return sum(stream_of(colocation) == "calibration" for colocation in found)


def _mixes(
    workloads: Sequence[Workload], machine: "Machine", count: int | None, stream: "Stream", **rest: Any
) -> "ExperimentPlan":
    """Return a plan of `count` mixes; without a count, of as many as there are different ones, up to a bound."""
    from slomo.profiling.plans import mixes_plan

    wanted = CALIBRATION_MIXES if count is None else count
    while True:
        try:
            return mixes_plan(workloads, machine, wanted, stream=stream, **rest)
        except InvalidValueError:
            # A handful of network functions has few different mixes; that is no fault where no number was asked for.
            if count is not None or wanted <= 1:
                raise
            wanted //= 2


def _host_of(library: "ModelLibrary", machine: "str | Machine | None") -> "Machine":
    if machine is not None:
        return _machine(machine)
    if len(library.machines) != 1:
        raise UsageError(
            f"the models are for several machines: {', '.join(library.machines) or 'none'}",
            hint="name one with --machine",
        )
    return _machine(library.machines[0])


def _machine(machine: "str | Machine") -> "Machine":
    from slomo.vocabulary.machine import load_machine  # reads YAML, which predicting does without

    return load_machine(machine) if isinstance(machine, str) else machine


def _machine_name(machine: "str | Machine") -> str:
    return machine if isinstance(machine, str) and not machine.endswith((".yaml", ".yml")) else _machine(machine).name


def _workloads(given: Sequence[Workload | str] | Workload | str) -> tuple[Workload, ...]:
    items = [given] if isinstance(given, (Workload, str)) else given
    return tuple(item if isinstance(item, Workload) else parse_workload(item) for item in items)
