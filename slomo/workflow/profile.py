"""Measure network functions alone, beside the synthetic competitor (a program of tunable pressure), and in mixes.

SLOMO (SIGCOMM'20) section 4.1.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slomo.errors import InvalidValueError, SlomoError
from slomo.fleet.engine import on_engine
from slomo.profiling.campaign.progress import Progress
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.campaign.store import CampaignStore
from slomo.profiling.plans.basic import (
    Stream,
    accelerator_plan,
    mixes_plan,
    named_mixes_plan,
    pressure_plan,
    solo_plan,
    tenants_key,
)
from slomo.profiling.plans.designs import SYNTHETIC, Design
from slomo.profiling.plans.latency_plans import latency_plan
from slomo.profiling.plans.plan import ExperimentPlan, combine
from slomo.profiling.plans.reduced_mixes import part_load_plan, part_load_runs, reduced_mixes_plan
from slomo.profiling.plans.sources import DEFAULT_POINTS
from slomo.records.dataset import ProfileDataset
from slomo.records.schema import PACKED
from slomo.testbed.base import Testbed
from slomo.testbed.registry import machine_of, make_testbed
from slomo.vocabulary.defaults import DEFAULT_MACHINE
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.workload import Workload
from slomo.workflow.campaign import ADAPTIVE, LINK, PlanSettings, RunSettings
from slomo.workflow.names import machine_named, own_functions, workloads_of
from slomo.workflow.progress import listening

if TYPE_CHECKING:
    from slomo.profiling.adaptive.campaign import AdaptivePlan
    from slomo.profiling.adaptive.outcome import AdaptiveOutcome

#: Mixes that calibrate intervals; with fewer, actual coverage scatters more around the nominal one (split conformal).
CALIBRATION_MIXES = 200


def plan_experiments(
    network_functions: Sequence[Workload | str] | Workload | str,
    *,
    machine: str | Machine = DEFAULT_MACHINE,
    plan: str = "all",
    design: str | Design = "sources",
    runs: int | None = None,
    mixes: int | Sequence[str] | None = None,
    stream: Stream | None = None,
    replicates: int = 1,
    seed: int = 0,
    target_error: float | None = None,
) -> ExperimentPlan:
    """Return the runs of :func:`profile` that are known beforehand, with mixes drawn at random.

    :func:`profile` draws as many mixes by what they contend for, as its first runs tell. Runs at part load are not
    among them, and with design ``adaptive`` only the fixed ones.

    Parameters
    ----------
    network_functions : workload, name or sequence of them
        Targets; in mixes also the competitors.
    machine : str or Machine
        Name, YAML file, or the machine itself.
    plan, design, runs, mixes, stream, replicates, seed, target_error
        As in :func:`profile`.

    Raises
    ------
    UnknownNameError, InvalidValueError
        For a name there is none of, or a number that makes no sense.

    Examples
    --------
    >>> len(plan_experiments(["lpm", "stats"], plan="pressure", runs=20))
    42
    """
    settings = PlanSettings(plan, design, runs, mixes, stream, replicates, seed, target_error)
    return _planned(workloads_of(network_functions), machine_named(machine), settings)


def profile(
    network_functions: Sequence[Workload | str] | Workload | str,
    *,
    machine: str | Machine = DEFAULT_MACHINE,
    plan: str = "all",
    design: str | Design = "sources",
    runs: int | None = None,
    mixes: int | Sequence[str] | None = None,
    stream: Stream | None = None,
    replicates: int = 1,
    seed: int = 0,
    target_error: float | None = None,
    testbed: str | Testbed = "simulated",
    own: Iterable[NetworkFunction] | NetworkFunction = (),
    store: str | Path | None = None,
    jobs: int | None = None,
    progress: Progress | bool | None = None,
    report: "Callable[[AdaptiveOutcome], object] | None" = None,
    latency: bool | Sequence[float] = False,
    reduced_mixes: int = 0,
    packed_mixes: int = 0,
    scheduler: str | None = None,
) -> ProfileDataset:
    """Measure network functions alone, beside the synthetic competitor, and in mixes.

    Parameters
    ----------
    network_functions : workload, name or sequence of them
        Targets; in mixes also the competitors.
    machine : str or Machine
        Name, YAML file, or the machine itself.
    plan : {"all", "pressure", "solo", "mixes", "accelerator"}
        ``pressure`` is solo runs and runs beside the synthetic competitor; ``all`` is that and, with two or more
        network functions, mixes that calibrate: a third each contend for cache, I/O and memory where the machine allows
        it; no two have the same tenants. Those of plan ``mixes`` are drawn at random, as are all where the profile does
        not tell what they contend for; the dataset's environment says which, under ``mixes``.
    design : str or Design
        ``sources``, ``farthest`` (the five of these that differ most, then others, for another machine), ``grid``,
        ``slomo-grid``, ``sobol``, ``adaptive``, or ``link``: every tenant's memory on another socket, competitors on
        both, to rank metrics by (`slomo dataset metrics`); no model learns it.
    runs : int, optional
        Points of the design per network function; the design's own number by default. Of ``adaptive``, the most runs.
        Of ``sources`` with 40 or more, a quarter offers the target less than it could serve.
    mixes : int or sequence of str, optional
        Mixes to run; by default up to 200. With plan ``mixes`` also the very mixes, such as ``"2 x lpm + stats"``;
        network functions may then be left empty.
    stream : {"calibration", "test"}, optional
        Which half of all mixes to draw from: calibration in plan ``all``, else test.
    replicates, seed : int
        Runs of every experiment; seed of everything random.
    target_error : float, optional
        Held-out error at which ``adaptive`` stops, as a share of solo throughput.
    testbed : str or Testbed
        Where the experiments run; the simulator by default.
    own : NetworkFunction or iterable of them
        Additional network functions, for the simulator.
    store : path, optional
        File that keeps every finished run; the same call again goes on where the last one ended.
    jobs : int, optional
        Runs at a time; every core by default.
    progress : bool or Progress, optional
        True draws a bar on standard error, False none; by default there is one in notebooks. Your own listener receives
        the campaign's progress.
    report : callable, optional
        Called, with design ``adaptive``, with the reason why each network function's profile stopped and the runs it
        saved.
    latency : bool or sequence of float
        Measure latency at several loads afterwards, alone and beside five of the competitions (48 runs per network
        function); a sequence gives the loads, as shares of the throughput served there.
    reduced_mixes : int
        Mixes to run afterwards in which about half of the network functions are offered 15 to 95 % of their solo
        throughput. They calibrate intervals at reduced load; 60 are enough.
    packed_mixes : int
        Mixes to run afterwards as placement fills servers; fewer if there are not so many. With about 60 of them a
        server that is full breaks promises about as often as placement's confidence allows; without them, more often.
    scheduler : str, optional
        Address of a Dask scheduler whose workers make the runs instead; the dataset does not depend on it.

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
    settings = PlanSettings(plan, design, runs, mixes, stream, replicates, seed, target_error)
    listener = listening(progress, "measuring")
    running = RunSettings(
        testbed, own_functions(own), store, jobs, listener, report, latency, reduced_mixes, packed_mixes
    )
    running.check(settings.plan)
    if settings.design == LINK and (latency is not False or reduced_mixes or packed_mixes):
        raise InvalidValueError(
            "design 'link' has every tenant's memory on another socket, runs for latency and reduced mixes have not",
            hint="profile those without it",
        )
    host = machine_of(running.testbed, machine, DEFAULT_MACHINE)
    with ExitStack() as stack:
        opened = make_testbed(running.testbed, host, running.own)
        if scheduler is not None:
            opened = engine = stack.enter_context(on_engine(opened, scheduler))
            running = replace(running, jobs=jobs or engine.workers)
        workloads = workloads_of(network_functions)
        # the results of a profile without mixes decide which mixes are measured
        first = replace(settings, mixes=0) if settings.plan == "all" else settings
        measured = _measured(workloads, host, first, running, opened)
        if _has_mixes(workloads, settings):
            measured = _with_mixes(measured, workloads, host, settings, running, opened)
        for name, following in _following(measured, host, settings, running).items():
            beside = None if store is None else f"{store}.{name}"
            if settings.design == "sources":
                following = _begun(beside, following)
            added = run_campaign(following, opened, beside, running.jobs, running.progress)
            packed = {PACKED: sorted({*map(tenants_key, following.colocations)})} if name == "packed" else {}
            measured = measured.merge(ProfileDataset(added.frame, added.environment | packed))
    return measured


def _measured(
    workloads: Sequence[Workload], machine: Machine, settings: PlanSettings, running: RunSettings, testbed: Testbed
) -> ProfileDataset:
    """Make the runs that do not depend on results of other runs, and return the measurements."""
    if not settings.adaptive:
        plan = _planned(workloads, machine, settings)
        if settings.design == "sources" and not settings.named_mixes:
            plan = _begun(running.store, plan)
        return run_campaign(plan, testbed, running.store, running.jobs, running.progress)
    from slomo.profiling.adaptive.campaign import run_adaptive  # only this way of measuring trains models

    result = run_adaptive(
        _adaptive(workloads, machine, settings), testbed, running.store, running.jobs, running.progress
    )
    if running.report is not None:
        for outcome in result.outcomes:
            running.report(outcome)
    return result.dataset


def _with_mixes(
    measured: ProfileDataset,
    workloads: Sequence[Workload],
    machine: Machine,
    settings: PlanSettings,
    running: RunSettings,
    testbed: Testbed,
) -> ProfileDataset:
    """Add mixes that calibrate intervals, by resource; a store of this seed and stream goes on with its plan."""
    store = None if running.store is None else f"{running.store}.mixes"
    plan = None if store is None else _kept_plan(store, machine, settings)
    if plan is None:
        plan = _drawn_mixes(measured, workloads, machine, settings)
    mixes = run_campaign(plan, testbed, store, running.jobs, running.progress)
    calibration = ProfileDataset(mixes.frame, mixes.environment | {"mixes": plan.name})
    return measured.merge(calibration)


def _drawn_mixes(
    measured: ProfileDataset, workloads: Sequence[Workload], machine: Machine, settings: PlanSettings
) -> ExperimentPlan:
    """Return mixes chosen by the resource for which functions compete, or random ones if that is unknown."""
    from slomo.profiling.plans.mixes_by_source import mixes_by_source_plan  # trains models

    stream: Stream = settings.stream or "calibration"
    at_random = _mixes(workloads, machine, settings.mix_count, stream, **settings.seeded)
    try:
        return mixes_by_source_plan(measured, len(at_random), machine, stream=stream, **settings.seeded)
    except SlomoError as reason:  # hours of runs are not lost for it
        return replace(at_random, name=f"mixes at random: {reason.message}")


def _kept_plan(store: str, machine: Machine, settings: PlanSettings) -> ExperimentPlan | None:
    """Return the plan to which a store of mixes belongs; None without a store, or if settings differ."""
    if (plan := _plan_in(store)) is None:
        return None
    asked = (machine.name, settings.seed, settings.replicates, settings.mix_count or len(plan))
    return plan if (plan.machine, plan.seed, plan.replicates, len(plan)) == asked else None


def _plan_in(store: str | Path) -> ExperimentPlan | None:
    if not Path(store).is_file():
        return None
    with CampaignStore(store) as opened:
        stored = opened.settings().get("plan")
    return None if stored is None else ExperimentPlan.from_dict(stored)


def _begun(store: str | Path | None, plan: ExperimentPlan) -> ExperimentPlan:
    """Return the plan of a store that an earlier version began with other synthetic competitors; else `plan`."""
    begun = None if store is None else _plan_in(store)
    return plan if begun is None or _as_asked(begun) != _as_asked(plan) else begun


def _as_asked(plan: ExperimentPlan) -> dict[str, Any]:
    """Return a plan as a document in which synthetic competitors have only the names of their settings."""
    document = plan.to_dict()
    for colocation in document["colocations"]:
        competitors = colocation["competitors"]
        if competitors and all(each["nf"] == SYNTHETIC for each in competitors):
            colocation["competitors"] = sorted(competitors[0]["configuration"])
    return document


def _planned(workloads: Sequence[Workload], machine: Machine, settings: PlanSettings) -> ExperimentPlan:
    """Return the runs of a plan that are known before any run is made."""
    if settings.plan == "solo":
        return solo_plan(workloads, machine, **settings.seeded)
    if settings.plan == "accelerator":
        return accelerator_plan(workloads, machine, **settings.seeded)
    if settings.named_mixes:
        return named_mixes_plan(settings.named_mixes, machine, **settings.seeded)
    if settings.plan == "mixes":
        return _mixes(workloads, machine, settings.mix_count, settings.stream or "test", **settings.seeded)
    if settings.design == ADAPTIVE:
        first = _adaptive(workloads, machine, settings).sure()
    else:
        idle = part_load_runs(settings.design, settings.runs)
        runs = (settings.runs or DEFAULT_POINTS) - idle if idle else settings.runs
        first = pressure_plan(workloads, machine, settings.design, runs=runs, **settings.seeded)
    if not _has_mixes(workloads, settings):
        return first
    mixes = _mixes(workloads, machine, settings.mix_count, settings.stream or "calibration", **settings.seeded)
    return combine("all", [first, mixes])


def _has_mixes(workloads: Sequence[Workload], settings: PlanSettings) -> bool:
    """Return whether the plan includes mixes that calibrate intervals."""
    return settings.plan == "all" and len(workloads) > 1 and settings.mixes != 0


def _following(
    measured: ProfileDataset, machine: Machine, settings: PlanSettings, running: RunSettings
) -> dict[str, ExperimentPlan]:
    """Return, by name, the plans whose offered loads depend on throughputs measured before."""
    plans, loads = {}, running.loads(settings.plan)
    if (idle := part_load_runs(settings.design, settings.runs)) and settings.plan in ("all", "pressure"):
        plans["part-load"] = part_load_plan(measured, idle, machine=machine, **settings.seeded)
    if loads is not None:
        plans["latency"] = latency_plan(measured, loads=loads, **settings.seeded)
    half: Stream = settings.stream or "calibration"
    if running.packed_mixes:
        from slomo.workflow.packed_mixes import packed_mixes_plan  # trains models

        plans["packed"] = packed_mixes_plan(measured, running.packed_mixes, machine, stream=half, **settings.seeded)
    if running.reduced_mixes:
        plans["reduced"] = reduced_mixes_plan(
            measured, running.reduced_mixes, machine=machine, stream=half, **settings.seeded
        )
    return plans


def _adaptive(workloads: Sequence[Workload], machine: Machine, settings: PlanSettings) -> "AdaptivePlan":
    """Return the plan that chooses each run by the results of earlier runs."""
    from slomo.profiling.adaptive.campaign import adaptive_plan

    return adaptive_plan(
        workloads, machine, target_error=settings.target_error, budget=settings.runs, **settings.seeded
    )


def _mixes(
    workloads: Sequence[Workload], machine: Machine, count: int | None, stream: Stream, **rest: Any
) -> ExperimentPlan:
    """Return a plan of `count` mixes; by default all different mixes, up to a bound."""
    settings = CALIBRATION_MIXES if count is None else count
    while True:
        try:
            return mixes_plan(workloads, machine, settings, stream=stream, **rest)
        except InvalidValueError:
            # few network functions have few different mixes; this is an error only if a number was asked for
            if count is not None or settings <= 1:
                raise
            settings //= 2
