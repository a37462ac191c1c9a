"""Simulate service chains under a policy, with NFVnice's controller setting CPU shares.

As in NFVnice (SIGCOMM'17), every ten milliseconds the weights are computed from arrival rates and costs per packet; the
cost is a median of samples taken every millisecond. The manager sets back-pressure marks and checks every ring within
ten microseconds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Unpack

from slomo.control.cpu_shares import UPDATE_MS, CostWindow, NFObservation, cpu_shares
from slomo.errors import InvalidValueError, UnknownNameError
from slomo.files.documents import in_document
from slomo.simulator.sharing.engine import StagePlace, StageTick
from slomo.simulator.sharing.engine import simulate_chains as play
from slomo.simulator.sharing.result import ChainSimulation
from slomo.simulator.sharing.settings import KINDS, Manager, Scheduler, SpanFields
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import NetworkFunction, load_network_functions
from slomo.vocabulary.service_chains import ChainSystem, load_chains

SIMULATED_POLICIES = ("nfvnice", *KINDS)
NICE_PARTS = ("shares", "pressure")


def simulate_chains(
    system: ChainSystem | str,
    policy: str = "nfvnice",
    *,
    scheduler: str | Scheduler = "cfs",
    quantum_ms: float = 100.0,
    manager: Manager | None = None,
    without: Sequence[str] = (),
    functions: Sequence[NetworkFunction] = (),
    places: Mapping[str, StagePlace] | None = None,
    **span: Unpack[SpanFields],
) -> ChainSimulation:
    """Simulate chains on shared cores under a policy.

    `policy`: ``nfvnice`` adds shares by arrivals and costs, and back-pressure; all others (``cfs``, ``batch``,
    ``eevdf``, ``eevdf-batch``, ``rr``) are schedulers alone (CFS of Linux up to 6.5, EEVDF since). `scheduler`: under
    which ``nfvnice`` works, or the scheduler with its times; under ``rr`` shares have no effect. `quantum_ms`: time
    slice of ``rr``. `manager`: how it looks at the rings; whether it presses back is the policy's. `without`: parts of
    ``nfvnice`` to leave out, ``shares`` or ``pressure``. `functions`: go before shipped ones of the same name.
    `places`: LLC ways, throttle and memory socket by stage. `span`: `duration_ms` counted (500), `warm_ms` before
    (200), `seed`.
    """
    for kind, name, names in (
        ("policy", policy, SIMULATED_POLICIES),
        *(("part of nfvnice", part, NICE_PARTS) for part in without),
    ):
        if name not in names:
            raise UnknownNameError(kind, name, names)
    file = system if isinstance(system, str) else "chains"
    system = load_chains(system) if isinstance(system, str) else system
    require_held(system, file)
    names_used = {stage.workload.nf for stage in system.stages if stage.workload is not None}
    with in_document(file):
        used = load_network_functions(names_used, functions)
    nice = policy == "nfvnice"
    if isinstance(scheduler, Scheduler):
        chosen = scheduler
    else:
        chosen = Scheduler(scheduler if nice else policy, quantum_ms=quantum_ms)
    if not nice and chosen.kind != policy:
        raise UnknownNameError("policy of a scheduler's own", policy, (chosen.kind, "nfvnice"))
    return play(
        load_machine(system.machine),
        system,
        used,
        scheduler=chosen,
        manager=replace(manager or Manager(), pressure=nice and "pressure" not in without),
        on_tick=nice_shares(system) if nice and "shares" not in without else None,
        places=places,
        **span,
    )


def require_held(system: ChainSystem, file: str) -> None:
    """Raise InvalidValueError, naming the field, for cores or memory the machine lacks, or costs that change."""
    machine = load_machine(system.machine)
    for stage in system.stages:
        if stage.cycles_from:
            raise InvalidValueError(
                f"{file}: stages.{stage.name}.cycles_from changes a cost over time, which is not simulated",
                hint="slomo chain run",
            )
        if stage.core >= machine.cores:
            raise InvalidValueError(
                f"{file}: stages.{stage.name}.core is {stage.core}, machine '{machine.name}' has cores 0 to "
                f"{machine.cores - 1}",
                hint="stages may share a core",
            )
    if system.memory_socket is not None and not 0 <= system.memory_socket < machine.sockets:
        raise InvalidValueError(
            f"{file}: memory_socket is {system.memory_socket}, machine '{machine.name}' has memory on sockets 0 to "
            f"{machine.sockets - 1}",
            hint="leave it out: packets are then in the memory of the network card's socket",
        )


def unmarked_chains(system: ChainSystem, policy: str, without: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the TCP chains without ECN marking, which detect congestion only by loss."""
    marks = policy == "nfvnice" and "pressure" not in without
    return () if marks else tuple(chain.name for chain in system.chains if chain.responsive)


def nice_shares(system: ChainSystem) -> Callable[[float, Sequence[StageTick]], Mapping[str, int] | None]:
    """Return NFVnice's controller, which computes CPU shares from observed loads and costs of stages."""
    windows = {stage.name: CostWindow() for stage in system.stages}
    priorities = {stage.name: stage.priority for stage in system.stages}
    arrived = dict.fromkeys(windows, 0)
    last_ms = 0.0

    def look(now_ms: float, seen: Sequence[StageTick]) -> Mapping[str, int] | None:
        nonlocal last_ms
        for stage in seen:
            if stage.cost_cycles > 0.0:
                windows[stage.name] = windows[stage.name].plus(now_ms, stage.cost_cycles)
        elapsed_ms = now_ms - last_ms
        if elapsed_ms < UPDATE_MS:
            return None
        observations = [
            NFObservation(
                stage.name,
                stage.core,
                1e3 * (stage.arrivals - arrived[stage.name]) / elapsed_ms,
                windows[stage.name].median_cycles,
                priorities[stage.name],
            )
            for stage in seen
        ]
        arrived.update({stage.name: stage.arrivals for stage in seen})
        last_ms = now_ms
        return cpu_shares(observations)

    return look
