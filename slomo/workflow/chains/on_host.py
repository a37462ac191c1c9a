"""Run service chains as processes on this machine under a policy: NFVnice's controller, or NUMASFP's migration.

As in NFVnice (SIGCOMM'17), every ten milliseconds the weights are computed from arrival rates and costs per packet. The
manager sets back-pressure marks and checks every ring within fifty microseconds. NUMASFP: `migration.py`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from slomo.control.cpu_shares import NFObservation, cpu_shares, cpu_weights
from slomo.errors import ConfigurationError, InvalidValueError, UnknownNameError
from slomo.host.cores import cores_by_node
from slomo.placement.chains.moves import INTERVAL_S
from slomo.placement.chains.policies import chain_policy, chain_policy_names
from slomo.testbed.host.chains.looks import ChainLook, HostChainResult
from slomo.testbed.host.chains.moves import MoveOutcome
from slomo.testbed.host.chains.plan import ChainRunSettings, manager_core, require_runnable
from slomo.testbed.host.chains.processor_groups import GroupWeights
from slomo.testbed.host.chains.run import run_on_host
from slomo.vocabulary.service_chains import ChainSystem, load_chains
from slomo.workflow.chains.migration import NodeMigration

_SCHEDULERS: dict[str, Literal["normal", "batch", "rr"]] = {"cfs": "normal", "batch": "batch", "rr": "rr"}
#: Policies that choose the memory nodes of stages from measured rates; the others leave stages where they are.
NODE_POLICIES = tuple(name for name in chain_policy_names() if not chain_policy(name).predicts)
HOST_POLICIES = ("nfvnice", *_SCHEDULERS, *NODE_POLICIES)
#: Switches for single parts of a policy, to measure each part's effect.
Part = Literal["shares", "pressure", "local", "ecn"]
PARTS: tuple[Part, ...] = ("shares", "pressure", "local", "ecn")


def run_chains_on_host(
    system: ChainSystem | str,
    policy: str = "nfvnice",
    *,
    scheduler: str | None = None,
    without: tuple[str, ...] = (),
    settings: ChainRunSettings | None = None,
    interval_s: float | None = None,
    told: Callable[[MoveOutcome], None] | None = None,
) -> HostChainResult:
    """Run chains of processes on this machine under a policy.

    `system`: stages and chains, or the document that holds them. Policies ``cfs``, ``batch`` and ``rr`` are the
    kernel's schedulers SCHED_OTHER, SCHED_BATCH and SCHED_RR alone; ``nfvnice`` adds weights by arrivals and costs, and
    back-pressure, under `scheduler`, ``cfs`` by default. Under ``rr`` there are no weights. ``numasfp`` moves stages
    between memory nodes every `interval_s` (10 s, at most half of the run), by the rates measured since; ``octans`` and
    ``node-...`` do so once, after the first interval. `without`: parts of ``nfvnice`` to leave out: 'shares',
    'pressure', 'local', 'ecn'. `settings`: length of the run and so on; scheduler and back-pressure are the policy's.
    `told` is called when a stage has moved.
    """
    for kind, name, names in (
        ("policy", policy, HOST_POLICIES),
        ("scheduler", scheduler or "cfs", tuple(_SCHEDULERS)),
        *(("part of nfvnice", part, PARTS) for part in without),
    ):
        if name not in names:
            raise UnknownNameError(kind, name, names)
    if policy != "nfvnice" and (scheduler or without):
        named = f"scheduler '{scheduler}'" if scheduler else f"part '{without[0]}' to leave out"
        raise InvalidValueError(
            f"policy '{policy}' has no {named}; nfvnice has", hint="leave it out (--cpu-scheduler, --without)"
        )
    if interval_s is not None and policy not in NODE_POLICIES:
        raise InvalidValueError(
            f"policy '{policy}' decides nothing every {interval_s:g} s; {', '.join(NODE_POLICIES)} do",
            hint="leave it out (--interval-s)",
        )
    file, system = (system, load_chains(system)) if isinstance(system, str) else (None, system)
    nice = policy == "nfvnice"
    chosen = replace(
        settings or ChainRunSettings(),
        scheduler=_SCHEDULERS[scheduler or "cfs"] if nice else _SCHEDULERS.get(policy, "normal"),
        pressure=nice and "pressure" not in without,
        local=nice and "local" not in without,
        ecn=nice and "ecn" not in without,
    )
    with _told_with(file):
        require_runnable(system)
        migration = _migration(system, policy, interval_s, chosen) if policy in NODE_POLICIES else None
    watch = shares_loop(system) if nice and "shares" not in without else None
    return run_on_host(system, chosen, watch, migration, told)


def _migration(system: ChainSystem, policy: str, interval_s: float | None, settings: ChainRunSettings) -> NodeMigration:
    """Return what moves stages. Raises InvalidValueError for a run without a decision, or with moves of its own."""
    whole_s = settings.seconds + settings.warm_up_ms / 1e3
    interval_s = min(INTERVAL_S, whole_s / 2) if interval_s is None else interval_s
    if not 0.0 < interval_s < whole_s:
        raise InvalidValueError(
            f"'{policy}' decides every {interval_s:g} s, but the chains run for {whole_s:g} s, warm-up included",
            hint="make the run longer, or the interval shorter (--window-s, --interval-s)",
        )
    if settings.moves:
        raise InvalidValueError(f"'{policy}' moves stages itself, but {len(settings.moves)} moves are given, too")
    manager = manager_core(system) if settings.manager_core is None else settings.manager_core
    return NodeMigration(system, policy, interval_s, cores_by_node(), manager)


@contextmanager
def _told_with(file: str | None) -> Iterator[None]:
    """Name the document in errors about what it asks for."""
    try:
        yield
    except InvalidValueError as problem:
        if file is None:
            raise
        raise ConfigurationError(f"{file}: {problem.message}", hint=problem.hint) from None


def shares_loop(system: ChainSystem) -> Callable[[ChainLook, GroupWeights | None], None]:
    """Return NFVnice's controller, which computes CPU weights from measured loads and costs.

    The cost is CPU time over packets, not NFVnice's median of samples: a sample inside a burst misses the wake-up (65
    ns per packet for a function of 50 cycles) and the cache lines that other functions evicted.
    """

    def watch(look: ChainLook, weights: GroupWeights | None) -> None:
        if weights is None:
            return
        observations = [
            NFObservation(stage.name, core, seen.arrivals, seen.paid_cycles, stage.priority)
            for stage, core, seen in zip(system.stages, look.cores, look.stages, strict=True)
        ]
        scale = cpu_shares if weights.tree.version == 1 else cpu_weights
        for name, weight in scale(observations).items():
            weights.write(name, weight)

    return watch
