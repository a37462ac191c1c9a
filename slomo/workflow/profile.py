"""Profile: measure network functions alone, beside the synthetic competitor, and in mixes.

SLOMO (SIGCOMM'20) section 4.1.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.profiling.adaptive.campaign import adaptive_plan, refuse_replicates, run_adaptive
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.accelerator_plan import accelerator_plan
from slomo.profiling.plans.basic import mixes_plan, pressure_plan, solo_plan
from slomo.profiling.plans.latency_plans import LOADS, check_loads, latency_plan
from slomo.profiling.plans.plan import combine
from slomo.profiling.plans.reduced_mixes import reduced_mixes_plan
from slomo.testbed.registry import machine_of, make_testbed
from slomo.vocabulary.defaults import DEFAULT_MACHINE
from slomo.vocabulary.workload import Workload
from slomo.workflow.names import machine_named, workloads_of

if TYPE_CHECKING:
    from slomo.profiling.adaptive.campaign import AdaptivePlan
    from slomo.profiling.adaptive.outcome import AdaptiveOutcome
    from slomo.profiling.campaign.progress import Progress
    from slomo.profiling.plans.basic import Stream
    from slomo.profiling.plans.designs import Design
    from slomo.profiling.plans.plan import ExperimentPlan
    from slomo.records.dataset import ProfileDataset
    from slomo.testbed.base import Testbed
    from slomo.vocabulary.machine import Machine
    from slomo.vocabulary.network_function import NetworkFunction

#: The design that decides on its runs as it goes.
ADAPTIVE = "adaptive"
PLANS = ("all", "pressure", "solo", "mixes", "accelerator")
#: Mixes that set the width of intervals; with fewer, the promised coverage is met less exactly (split conformal).
CALIBRATION_MIXES = 200


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
    target_error: float | None = None,
) -> "ExperimentPlan":
    """Return what :func:`profile` would run.

    Parameters
    ----------
    network_functions : workload, name or sequence of them
        Targets; in mixes also the competitors.
    machine : str or Machine
        Name, YAML file, or the machine itself.
    plan : {"all", "pressure", "solo", "mixes", "accelerator"}
        ``pressure`` is solo runs and runs beside the synthetic competitor; ``all`` is that and, with two or more
        network functions, mixes that set the width of intervals.
    design : str or Design
        ``grid``, ``slomo-grid``, ``sobol``, or ``adaptive``: of that, the runs it is sure to need.
    runs : int, optional
        Points of the design per network function; the design's own number by default. Of ``adaptive``, the most runs.
    mixes : int, optional
        Mixes to run; by default up to 200.
    stream : {"calibration", "test"}, optional
        Which half of all mixes to draw from: calibration in plan ``all``, else test.
    replicates : int
        Runs of every experiment.
    seed : int
        Seed of everything random.
    target_error : float, optional
        Held-out error at which ``adaptive`` stops, as a share of solo throughput.

    Raises
    ------
    UnknownNameError, InvalidValueError
        For a name there is none of, or a number that makes no sense.

    Examples
    --------
    >>> len(plan_experiments(["lpm", "stats"], plan="pressure", runs=20))
    42
    """
    if plan not in PLANS:
        raise UnknownNameError("plan", plan, PLANS)
    workloads, host = workloads_of(network_functions), machine_named(machine)
    rest: dict[str, Any] = {"replicates": replicates, "seed": seed}
    if plan == "solo":
        return solo_plan(workloads, host, **rest)
    if plan == "accelerator":
        return accelerator_plan(workloads, host, **rest)
    if plan == "mixes":
        return _mixes(workloads, host, mixes, stream or "test", **rest)
    if design == ADAPTIVE:
        return _adaptive(workloads, host, plan, runs, mixes, stream, target_error, **rest).sure()
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
    target_error: float | None = None,
    report: "Callable[[AdaptiveOutcome], object] | None" = None,
    latency: bool | Sequence[float] = False,
    reduced_mixes: int = 0,
) -> "ProfileDataset":
    """Measure network functions alone, beside the synthetic competitor, and in mixes.

    Parameters
    ----------
    network_functions, machine, plan, design, runs, mixes, stream, replicates, seed, target_error
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
    report : callable, optional
        Hears, with design ``adaptive``, why each network function's profile stopped and what it saved.
    latency : bool or sequence of float
        Afterwards also measure latency at several loads, alone and beside five of the competitions (48 runs per
        network function); a sequence gives the loads, as shares of what was served there.
    reduced_mixes : int
        Afterwards also run so many mixes in which about half the network functions are offered 15 to 95 % of what they
        served alone: they set the width of intervals of `solve_server` at reduced load. 60 do.

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
    loads, reduced_mixes = _loads(latency, plan), _reduced_mixes(reduced_mixes, plan)
    host = machine_of(testbed, machine, DEFAULT_MACHINE)
    asked: dict[str, Any] = {"runs": runs, "mixes": mixes, "stream": stream, "replicates": replicates, "seed": seed}
    made = make_testbed(testbed, host, own)
    if design == ADAPTIVE and plan in ("all", "pressure"):
        adaptive = _adaptive(workloads_of(network_functions), host, plan, target_error=target_error, **asked)
        result = run_adaptive(adaptive, made, store, jobs, progress)
        if report is not None:
            for outcome in result.outcomes:
                report(outcome)
        measured = result.dataset
    else:
        planned = plan_experiments(network_functions, machine=host, plan=plan, design=design, **asked)
        measured = run_campaign(planned, made, store, jobs, progress)
    following = _following(measured, host, loads, reduced_mixes, stream, replicates=replicates, seed=seed)
    for name, planned in following.items():
        more = run_campaign(planned, made, None if store is None else f"{store}.{name}", jobs, progress)
        measured = measured.merge(more)
    return measured


def _following(
    measured: "ProfileDataset",
    machine: "Machine",
    loads: Sequence[float] | None,
    reduced_mixes: int,
    stream: "Stream | None",
    **rest: Any,
) -> "dict[str, ExperimentPlan]":
    """Return the plans whose offered loads follow from what was measured, by name."""
    plans = {} if loads is None else {"latency": latency_plan(measured, loads=loads, **rest)}
    if reduced_mixes:
        half: Stream = stream or "calibration"
        plans["reduced"] = reduced_mixes_plan(measured, reduced_mixes, machine=machine, stream=half, **rest)
    return plans


def _reduced_mixes(count: int, plan: str) -> int:
    """Return the number of mixes at reduced load; what is wrong with it is said before anything is measured."""
    if count < 0:
        raise InvalidValueError(f"{count} mixes at reduced load were asked for, needed 0 or more", hint="60 do")
    if count and plan not in ("all", "pressure", "solo"):
        raise InvalidValueError(
            f"mixes at reduced load were asked for with plan '{plan}', which does not measure what 100 % is",
            hint="use plan solo, pressure or all",
        )
    return count


def _loads(latency: bool | Sequence[float], plan: str) -> tuple[float, ...] | None:
    """Return the loads to measure latency at, or None; what is wrong is said before anything is measured."""
    if latency is False:
        return None
    if plan == "mixes":
        raise InvalidValueError(
            "latency at several loads was asked for with plan 'mixes'", hint="use plan solo, pressure or all"
        )
    return check_loads(LOADS if latency is True else latency)


def _adaptive(
    workloads: Sequence[Workload],
    machine: "Machine",
    plan: str,
    runs: int | None,
    mixes: int | None,
    stream: "Stream | None",
    target_error: float | None,
    replicates: int,
    seed: int,
) -> "AdaptivePlan":
    """Return the adaptive plan, with the mixes that plan ``all`` adds."""
    refuse_replicates(replicates)
    besides = None
    if plan == "all" and len(workloads) > 1 and mixes != 0:
        besides = _mixes(workloads, machine, mixes, stream or "calibration", seed=seed)
    return adaptive_plan(workloads, machine, target_error=target_error, budget=runs, seed=seed, besides=besides)


def _mixes(
    workloads: Sequence[Workload], machine: "Machine", count: int | None, stream: "Stream", **rest: Any
) -> "ExperimentPlan":
    """Return a plan of `count` mixes; without a count, of as many as there are different ones, up to a bound."""
    wanted = CALIBRATION_MIXES if count is None else count
    while True:
        try:
            return mixes_plan(workloads, machine, wanted, stream=stream, **rest)
        except InvalidValueError:
            # A handful of network functions has few different mixes; that is no fault where no number was asked for.
            if count is not None or wanted <= 1:
                raise
            wanted //= 2
