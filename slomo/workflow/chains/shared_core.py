"""Predict network functions that share a core of this machine, from one measurement of each.

Each function has two short runs: one alone, and one beside a reporter (probe program) that fills the core's private
cache. From these runs `slomo.compose.turns` simulates any mix of the functions under any load.
"""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from statistics import median

import numpy as np

from slomo.compose.turns import RingOutcome, RingUser, TurnRules, ring_turns
from slomo.errors import InvalidValueError, TestbedError, UnknownNameError
from slomo.testbed.host.chains.cold_caches import evicts_over_us, refill_of
from slomo.testbed.host.chains.looks import HostChainResult
from slomo.testbed.host.chains.plan import ChainRunSettings, offered_mpps
from slomo.testbed.host.machine.this_machine import cache_mib
from slomo.vocabulary.service_chains import ChainStage, ChainSystem, ServiceChain, load_chains
from slomo.vocabulary.workload import Workload
from slomo.workflow.chains.on_host import run_chains_on_host

#: Offered load that saturates any function: 10 Gbit/s of 64 B packets.
_SATURATING_MPPS = 14.88
_L2, _L2_MIB, _REPORTER_READS = 2, 1.0, 100
_WEIGHING_ROUNDS = 3
#: Base slice of kernel/sched/fair.c; the kernel scales it by 1 + log2 of at most eight processors.
_BASE_SLICE_US, _MOST_PROCESSORS = 700.0, 8
#: Clock that advances with the timer tick: CLOCK_MONOTONIC_COARSE in linux/time.h.
_COARSE_CLOCK = 6
PREDICTED_POLICIES = ("cfs", "nfvnice")


@dataclass(frozen=True)
class CoreReadings:
    """Measurements of all functions that share a core, and of the source of their packets."""

    functions: Mapping[str, RingUser]
    rules: TurnRules


#: Runs a system under a policy on this machine.
Runner = Callable[[ChainSystem, str], HostChainResult]


def runner(seconds: float = 0.4) -> Runner:
    """Return a function that runs a system for a short time."""
    settings = ChainRunSettings(seconds=seconds, warm_up_ms=150.0, flow_count=65536)
    return lambda system, policy: run_chains_on_host(system, policy, settings=settings)


def require_one_core(system: ChainSystem) -> int:
    """Return the core that all stages share. Raises an error if they run on several."""
    cores = sorted({stage.core for stage in system.stages})
    longest = max(system.chains, key=lambda chain: len(chain.stages))
    if len(cores) > 1 or len(longest.stages) > 1 or len(system.chains) != len(system.stages):
        raise InvalidValueError(
            f"stages on cores {', '.join(map(str, cores))}, chain '{longest.name}' of {len(longest.stages)} stages: "
            "functions that share one core are predicted, each a chain of its own",
            hint="slomo chain run measures chains of several stages, slomo chain simulate plays them",
        )
    return cores[0]


def read_core(system: ChainSystem, run: Runner | None = None) -> CoreReadings:
    """Measure each function of a core alone, and beside a reporter, a program that fills the core's cache.

    Raises InvalidValueError as `require_one_core`; TestbedError if a function does not start.
    """
    run = run or runner()
    return readings_of(system, {what: run(alone, "cfs") for what, alone in reading_systems(system).items()})


def reading_systems(system: ChainSystem) -> dict[str, ChainSystem]:
    """Return the runs to make, in any order.

    Each function runs alone and beside the probe program that fills the core's private cache; the probe program also
    runs beside a copy of itself.
    """
    reporter = _reporter(require_one_core(system))
    like = replace(reporter, name="like")
    return {
        **{f"alone {stage.name}": _side_by_side(system, stage) for stage in system.stages},
        **{f"beside {stage.name}": _side_by_side(system, stage, reporter) for stage in system.stages},
        "like": _side_by_side(system, reporter, like),
    }


def readings_of(system: ChainSystem, results: Mapping[str, HostChainResult]) -> CoreReadings:
    """Convert results of runs of `reading_systems` to readings. Raises TestbedError if a function served nothing."""
    like = results["like"]
    full_us = sum(refill_of(stage).extra_us for stage in like.stages) / len(like.stages)
    functions = {}
    for name in (stage.name for stage in system.stages):
        alone, beside = results[f"alone {name}"], results[f"beside {name}"]
        target, reporter = beside.stages
        if not alone.stages[0].served:
            raise TestbedError(
                f"stage '{name}' served no packet alone in {alone.seconds:g} s", hint="something else has its core"
            )
        refill = refill_of(target)
        functions[name] = RingUser(
            1e9 * alone.stages[0].processor_share * alone.seconds / alone.stages[0].served,
            offered_mpps=0.0,
            refill_us=refill.extra_us,
            refill_over_us=refill.over_us,
            evicts_over_us=evicts_over_us(target, reporter, full_us, beside.seconds),
        )
    alone_runs = [result for what, result in results.items() if not what.startswith("beside ")]
    return CoreReadings(functions, rules_of(alone_runs, system.queue_capacity))


def predict_core(system: ChainSystem, policy: str, readings: CoreReadings) -> tuple[RingOutcome, ...]:
    """Predict the throughput of each function of a core, from the readings of all.

    Functions of one core may be many, under any load; `readings` are of these at least. Policy ``cfs`` gives equal
    shares (`shares:` of a stage where given), ``nfvnice`` by arrivals x cost x priority. Raises UnknownNameError for
    another policy; InvalidValueError as `require_one_core`.
    """
    checked_policy(policy)
    require_one_core(system)
    offered = {chain.stages[0]: offered_mpps(chain, system) for chain in system.chains}
    users = [
        replace(readings.functions[stage.name], offered_mpps=offered[stage.name], weight=stage.shares / 1024.0)
        for stage in system.stages
    ]
    if policy == "cfs":
        return ring_turns(users, readings.rules)
    costs = [user.time_ns for user in users]
    for _ in range(_WEIGHING_ROUNDS):
        outcomes = ring_turns(_weighted(system, users, costs), readings.rules)
        # cost as the controller measures it: CPU time over packets, wake-ups and cold caches included
        costs = [1e3 * one.share / one.mpps if one.mpps else cost for one, cost in zip(outcomes, costs, strict=True)]
    return outcomes


@dataclass(frozen=True)
class StageForecast:
    """Predicted throughput of a function on a shared core, and the measured one if there is one [Mpps]."""

    name: str
    predicted: RingOutcome
    measured_mpps: float | None = None


def forecast_core(
    system: ChainSystem | str, policy: str = "cfs", *, rounds: int = 3, measure: bool = False, run: Runner | None = None
) -> tuple[StageForecast, ...]:
    """Predict functions that share a core of this machine, each measured a few times alone and beside the reporter.

    `system`: functions of one core, each a chain of its own, or the document that says so. `policy`: how the core is
    divided, ``cfs`` or ``nfvnice``. `rounds`: how often everything is measured, at least 1; medians are reported.
    `measure`: run them together as well, in turn with the rest. `run`: runs a system; short runs on this machine by
    default.
    """
    if rounds < 1:
        raise InvalidValueError(f"{rounds} rounds, needed 1 or more")
    checked_policy(policy)
    system, run = load_chains(system) if isinstance(system, str) else system, run or runner()
    require_one_core(system)
    played, seen = [], []
    for _ in range(rounds):
        played.append(predict_core(system, policy, read_core(system, run)))
        if measure:
            by_stage = {chain.stages[0]: number for number, chain in enumerate(system.chains)}
            result = run(system, policy)
            seen.append([result.chains[by_stage[stage.name]].delivered_mpps for stage in system.stages])
    forecasts = []
    for number, stage in enumerate(system.stages):
        columns = zip(*(astuple(outcomes[number]) for outcomes in played), strict=True)
        measured_mpps = median(rates[number] for rates in seen) if seen else None
        forecasts.append(StageForecast(stage.name, RingOutcome(*map(median, columns)), measured_mpps))
    return tuple(forecasts)


def checked_policy(policy: str) -> str:
    """Return the policy. Raises UnknownNameError if slomo cannot predict functions under it."""
    if policy not in PREDICTED_POLICIES:
        raise UnknownNameError("policy that is predicted", policy, PREDICTED_POLICIES)
    return policy


def _weighted(system: ChainSystem, users: Sequence[RingUser], costs_ns: Sequence[float]) -> list[RingUser]:
    loads = [
        stage.priority * user.offered_mpps * cost
        for stage, user, cost in zip(system.stages, users, costs_ns, strict=True)
    ]
    mean = sum(loads) / len(loads)
    return [replace(user, weight=load / mean) for user, load in zip(users, loads, strict=True)]


def rules_of(runs: Sequence[HostChainResult], ring: int) -> TurnRules:
    """Return the packet source's timing in the given runs, and the time slices of this machine's scheduler.

    The manager's polling interval grows with the packets it moves. The line through the runs is that of Theil and Sen
    (median of the slopes of all pairs): in runs in which the manager falls behind, a packet was measured to take up to
    three times as long, and a few such runs would decide a line of least squares.
    """
    looks_us = np.array([1e6 / run.looks_per_s for run in runs])
    moved = np.array([run.delivered_mpps for run in runs]) * looks_us
    one, other = np.triu_indices(len(runs), 1)
    apart = np.abs(moved[other] - moved[one]) > 1.0
    slopes = (looks_us[other] - looks_us[one])[apart] / (moved[other] - moved[one])[apart]
    per_packet = float(np.median(slopes)) if apart.any() else 0.0
    pause = float(np.median(looks_us - per_packet * moved))
    return TurnRules(
        ring=ring - 1,
        pause_us=max(pause, 1.0),
        per_packet_us=max(per_packet, 0.0),
        slice_us=_BASE_SLICE_US * (1 + int(math.log2(min(os.cpu_count() or 1, _MOST_PROCESSORS)))),
        tick_us=1e6 * time.clock_getres(_COARSE_CLOCK),
    )


def _reporter(core: int) -> ChainStage:
    private = cache_mib(_L2, core)
    size = private[0] if private is not None else _L2_MIB
    workload = Workload("synthetic", {"data_size_mib": size, "reads_per_packet": _REPORTER_READS})
    return ChainStage("reporter", core, workload=workload)


def _side_by_side(system: ChainSystem, *stages: ChainStage) -> ChainSystem:
    chains = tuple(ServiceChain(stage.name, (stage.name,), mpps=_SATURATING_MPPS) for stage in stages)
    return replace(system, stages=tuple(replace(stage, shares=1024) for stage in stages), chains=chains)
