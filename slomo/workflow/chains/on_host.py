"""Run service chains as processes on this machine under a policy, with NFVnice's controller.

As in NFVnice (SIGCOMM'17), every ten milliseconds the weights are computed from arrival rates and costs per packet. The
manager sets back-pressure marks and checks every ring within fifty microseconds.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from slomo.control.cpu_shares import NFObservation, cpu_shares, cpu_weights
from slomo.errors import ConfigurationError, InvalidValueError, UnknownNameError
from slomo.testbed.host.chains.looks import ChainLook, HostChainResult
from slomo.testbed.host.chains.plan import ChainRunSettings, require_runnable
from slomo.testbed.host.chains.processor_groups import GroupWeights
from slomo.testbed.host.chains.run import run_on_host
from slomo.vocabulary.service_chains import ChainSystem, load_chains

Policy = Literal["nfvnice", "cfs", "batch", "rr"]
HOST_POLICIES: tuple[Policy, ...] = ("nfvnice", "cfs", "batch", "rr")
_SCHEDULERS: dict[str, Literal["normal", "batch", "rr"]] = {"cfs": "normal", "batch": "batch", "rr": "rr"}
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
) -> HostChainResult:
    """Run chains of processes on this machine under a policy.

    `system`: stages and chains, or the document that holds them. Policies ``cfs``, ``batch`` and ``rr`` are the
    kernel's schedulers SCHED_OTHER, SCHED_BATCH and SCHED_RR alone; ``nfvnice`` adds weights by arrivals and costs, and
    back-pressure, under `scheduler`, ``cfs`` by default. Under ``rr`` there are no weights. `without`: parts of
    ``nfvnice`` to leave out: 'shares', 'pressure', 'local', 'ecn'. `settings`: length of the run and so on; scheduler
    and back-pressure are the policy's.
    """
    for kind, name, names in (
        ("policy", policy, HOST_POLICIES),
        ("scheduler", scheduler or "cfs", tuple(_SCHEDULERS)),
        *(("part of nfvnice", part, PARTS) for part in without),
    ):
        if name not in names:
            raise UnknownNameError(kind, name, names)
    if isinstance(system, str):
        system = _runnable(system)
    nice = policy == "nfvnice"
    chosen = replace(
        settings or ChainRunSettings(),
        scheduler=_SCHEDULERS[scheduler or "cfs"] if nice else _SCHEDULERS[policy],
        pressure=nice and "pressure" not in without,
        local=nice and "local" not in without,
        ecn=nice and "ecn" not in without,
    )
    watch = shares_loop(system) if nice and "shares" not in without else None
    return run_on_host(system, chosen, watch)


def _runnable(file: str) -> ChainSystem:
    """Return the chains of a file. Raises ConfigurationError for something that this machine cannot run."""
    system = load_chains(file)
    try:
        require_runnable(system)
    except InvalidValueError as problem:
        raise ConfigurationError(f"{file}: {problem.message}", hint=problem.hint) from None
    return system


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
