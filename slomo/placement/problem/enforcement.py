"""Convert decisions to a plan of settings (cores, cache ways, ...) that can be applied to a server.

A decision names sockets and cores within them, a plan the CPUs of the machine; ways that overlap no others are
guaranteed.
"""

from collections.abc import Iterable
from dataclasses import replace

from slomo.enforce.plan import EnforcementPlan, MemoryBandwidth, TenantSetting
from slomo.errors import InvalidValueError
from slomo.placement.problem.decision import Assignment, Decision
from slomo.vocabulary.identity import require_same
from slomo.vocabulary.machine import Machine


def plan_from_decision(decisions: Decision | Iterable[Decision], server: str, machine: Machine) -> EnforcementPlan:
    """Convert decisions to the plan of settings for one server.

    Raises ConfigurationError, with both fingerprints, for decisions made for another machine of the same name.

    `decisions`: accepted decisions; refused ones are passed over. `server`: name of the server whose part is planned.
    `machine`: its type: cores are counted from 0 within a socket in a decision, over the machine in a plan.

    >>> from slomo.vocabulary.machine import load_machine
    >>> made = Decision("edge", True, "resq", "", (Assignment("s1", 1, 3, "lpm", llc_way_mask=3, buffers=512),))
    >>> plan_from_decision(made, "s1", load_machine("e5-2620v4")).tenants[0].cores
    (11,)
    """
    taken = [decisions] if isinstance(decisions, Decision) else list(decisions)
    mine = [
        (decision.request, number, item)
        for decision in taken
        if decision.accepted
        for number, item in enumerate(decision.assignments)
        if item.server == server
    ]
    for request, _, item in mine:
        decided, here = f"'{request}' was placed on", f"server '{server}', as named here,"
        require_same(machine.name, item.machine_fingerprint, machine.fingerprint, here, decided)
    settings = [_setting(request, number, item, machine) for request, number, item in mine]
    masks = [setting.llc_way_mask or 0 for setting in settings]
    alone = [not any(m & o for j, o in enumerate(masks) if j != i) for i, m in enumerate(masks)]
    settings = [
        replace(setting, exclusive=lonely and setting.llc_way_mask is not None)
        for setting, lonely in zip(settings, alone, strict=True)
    ]
    return EnforcementPlan(server, tuple(settings))


def _setting(request: str, number: int, item: Assignment, machine: Machine) -> TenantSetting:
    if item.thread:
        raise InvalidValueError(
            f"'{request}': {item.workload} on hyper-thread {item.thread} of core {item.core}, needed a core of its own",
            hint="acting knows cores only: place with threads_per_core 1, or pin hyper-threads by hand",
        )
    bandwidth = item.memory_bandwidth_percent
    return TenantSetting(
        f"{request}/{item.workload}/{number}",
        cores=(item.socket * machine.cores_per_socket + item.core,),
        memory_node=item.memory_node,
        llc_way_mask=item.llc_way_mask,
        buffers=item.buffers,
        memory_bandwidth=None if bandwidth is None else MemoryBandwidth(bandwidth),
    )
