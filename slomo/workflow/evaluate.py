"""Compare the predictions of every model with measured mixes that no model was trained on.

SLOMO (SIGCOMM'20) section 6.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slomo.errors import InvalidValueError, UnknownNameError, UsageError
from slomo.evaluation.evaluate import Evaluation
from slomo.evaluation.evaluate import evaluate as judge
from slomo.models.library import ModelLibrary, opened
from slomo.profiling.campaign.progress import Progress
from slomo.profiling.plans.basic import stream_of
from slomo.profiling.plans.designs import SYNTHETIC
from slomo.records.dataset import ProfileDataset
from slomo.testbed.base import Testbed
from slomo.training.choice import ORDER
from slomo.training.plausibility import plausible_rows
from slomo.training.training import train
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.defaults import COMPOSED, DEFAULT_MODEL, EQUILIBRIUM, PUBLISHED_MODEL, Compat, compat_named
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.network_function import NetworkFunction, network_function_names, stage_names
from slomo.vocabulary.workload import Workload
from slomo.vocabulary.workload_text import parse_workload
from slomo.workflow.names import dataset_of, host_of, machine_given, own_functions
from slomo.workflow.profile import profile
from slomo.workflow.progress import listening

#: Model composed by the published rule; runs, grid and contentiousness by pressure are slomo's.
PUBLISHED = "slomo-gbr, published rule"
#: What a learning curve compares.
COMPARED = (
    DEFAULT_MODEL,
    "slomo-xgb",
    "slomo-smooth",
    "slomo-gp",
    "slomo-additive",
    PUBLISHED_MODEL,
    PUBLISHED,
    "bubbleup",
    "bubbleup-curve",
    "dobrescu",
    "dobrescu-curve",
    "mean",
    "none",
)


def evaluate(
    library: ModelLibrary | str | Path,
    dataset: ProfileDataset | str | Path | None = None,
    *,
    machine: str | Machine | None = None,
    mixes: int | None = None,
    seed: int = 0,
    models: Sequence[str] | None = None,
    coverage: float = 0.9,
    compat: Compat | None = None,
    testbed: str | Testbed = "simulated",
    own: Iterable[NetworkFunction] | NetworkFunction = (),
    store: str | Path | None = None,
    jobs: int | None = None,
    progress: Progress | bool | None = None,
    scheduler: str | None = None,
) -> Evaluation:
    """Compare the predictions of every model with measured mixes that no model was trained on.

    All further arguments are those of :func:`profile`, for mixes that are run now.

    Parameters
    ----------
    library : ModelLibrary or path
        Trained models, or the directory they were saved in.
    dataset : ProfileDataset or path, optional
        Mixes that were run; without it, `mixes` new ones are run.
    machine : str or Machine, optional
        Needed where the library has models of several machines.
    mixes : int, optional
        Mixes to run, of 1 to 7 unlike competitors; by default 200, or fewer where so few are different.
    seed : int
        Seed of the mixes and their runs; no seed draws a mix that calibrated intervals.
    models : sequence of str, optional
        Names of models; all by default.
    coverage : float
        Nominal coverage of the intervals, above 0 and below 1.
    compat : {"published"}, optional
        Compose by the published rule.

    Raises
    ------
    InvalidValueError
        Where there are no mixes to judge by.
    UnknownNameError
        For a model that was not trained, or a network function that cannot be run because `own` lacks it.
    """
    opened_library = opened(library)
    if dataset is None:
        host = host_of(opened_library, machine)
        workloads = [opened_library.find(key, host.name).workload for key in opened_library.workloads(host.name)]
        if not workloads:
            raise UnknownNameError("machine with models", host.name, opened_library.machines)
        targets = [workload for workload in workloads if workload.nf != SYNTHETIC]
        for name in models or ():
            opened_library.find(targets[0], host.name).model(name)
        own = own_functions(own)
        if testbed == "simulated":
            _require_descriptions(targets, own)
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
            progress=listening(progress, "running mixes"),
            scheduler=scheduler,
        )
    else:
        dataset = dataset_of(dataset)
        if machine is not None:
            dataset = dataset.select(machine=opened_library.name_of(machine_given(machine)))
    opened_library.require_recorded_on(dataset.environment, dataset.machines)
    dataset = plausible_rows(dataset)
    compat = compat_named(compat)
    return judge(opened_library, dataset, models, coverage, compat=compat, with_sources=compat is None)


def learning_curve(
    dataset: ProfileDataset,
    judged: ProfileDataset | None = None,
    *,
    budgets: Sequence[int],
    models: Sequence[str] | None = None,
    machine: str | Machine | None = None,
    mixes: int | None = None,
    seed: int = 0,
    **running: Any,
) -> Mapping[str, Mapping[int, float]]:
    """Train every model on growing numbers of runs, and compare each with the same measured mixes.

    `judged`: mixes that were run; without it, `mixes` new ones are run. `budgets`: runs under pressure per network
    function, 12 or more each. `models`: by default all, and SLOMO as published. `mixes`, `seed`: as in
    :func:`evaluate`; the seed also draws the runs. `running`: `testbed`, `own`, `store`, `jobs`, `progress` as in
    `slomo.workflow.profile.profile`. Returned is, by model and number of runs per network function, the mean absolute
    error of throughput [%].
    """
    given = None if machine is None else machine_given(machine)
    learned = dataset.select(machine=given if given is None or isinstance(given, str) else given.name)
    if len(learned.machines) != 1:
        raise UsageError(
            f"the dataset holds runs on several machines: {', '.join(learned.machines) or 'none'}",
            hint="name one with --machine",
        )
    host = learned.machines[0]
    if judged is None:
        profiled = [learned.workload(key) for key in learned.select(plan="pressure").targets]
        targets = [item for item in profiled if item.traffic.offered_mpps is None]  # those below full load tell latency
        rest: dict[str, Any] = {"plan": "mixes", "stream": "test", **running}
        judged = profile(targets, machine=machine or host, mixes=mixes, seed=seed, **rest)
    return _curves(learned, judged.select(machine=host, plan="mix"), budgets, models or COMPARED, seed)


def _curves(
    learned: ProfileDataset, mixes: ProfileDataset, runs: Sequence[int], models: Sequence[str], seed: int
) -> dict[str, dict[int, float]]:
    """Return the errors of :func:`learning_curve`; smaller budgets are part of larger ones, with all solo rows."""
    frame = learned.frame
    pressure = frame[frame["plan"] == "pressure"]
    at_full_load = {key: parse_workload(key).saturated.key for key in pressure["target"].unique()}
    pressure = pressure.assign(target=pressure["target"].map(at_full_load))  # runs at part load count, too
    counts = pressure.groupby("target").size()
    most = int(counts.min()) if len(counts) else 0
    if not runs or min(runs) < 12 or max(runs) > most:
        raise InvalidValueError(
            f"learning curve over {list(runs)} runs per NF, needed between 12 and the {most} that were measured",
            hint="give budgets inside that range",
        )
    order = pressure.sample(frac=1.0, random_state=seed).groupby("target").cumcount()
    curves: dict[str, dict[int, float]] = {name: {} for name in models}
    chosen_of = (DEFAULT_MODEL, COMPOSED, EQUILIBRIUM)
    families = [each for name in models for each in (ORDER if name in chosen_of else [_family(name)])]
    for budget in sorted(runs):
        chosen = frame.loc[sorted([*order.index[order < budget], *frame.index[frame["plan"] == "solo"]])]
        part = ProfileDataset(chosen.reset_index(drop=True), learned.environment)
        library = train(part, models=list(dict.fromkeys(families)), seed=seed)
        for name in models:
            compat: Compat | None = "published" if name == PUBLISHED else None
            curves[name][budget] = judge(library, mixes, [_family(name)], compat=compat).models[_family(name)].mape
    return curves


def _family(name: str) -> str:
    return PUBLISHED_MODEL if name == PUBLISHED else name


def _require_descriptions(targets: Sequence[Workload], own: Iterable[NetworkFunction]) -> None:
    described = {*network_function_names(), *(network_function.name for network_function in own)}
    for workload in targets:
        if not {*stage_names(workload.nf)} <= described:
            raise UnknownNameError(
                "network function",
                workload.nf,
                described,
                hint=f"the models know it, the simulator does not: add the file it was profiled with (--nf "
                f"{workload.nf}.yaml, own=load_network_function('{workload.nf}.yaml')), or mixes that were run "
                "(--dataset, dataset=)",
            )


def calibration_mixes(dataset: ProfileDataset) -> int:
    """Return how many full-load mixes of a dataset are in the half by which intervals are calibrated.

    Models that learned them are better on them than on new mixes, in error and in coverage.
    """
    mixes = dataset.select(plan="mix")
    reduced = mixes.frame.loc[mixes.frame["offered_mpps"].notna(), "run_key"]
    places = mixes.frame[~mixes.frame["run_key"].isin(reduced)].drop_duplicates("run_key").index
    targets = {key: mixes.workload(key) for key in mixes.targets}
    colocations = (
        Colocation("", targets[mixes.frame["target"].iloc[row]], mixes.competitors(int(row))) for row in places
    )
    return sum(stream_of(colocation) == "calibration" for colocation in colocations)
