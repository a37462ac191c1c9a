"""Set scheduling policy, priority and CPUs of processes without a control group, thread by thread.

Knobs: ``policy:TID`` (``"batch 0"``, ``"fifo 10"``) and ``cpus:TID``. NFVnice
(SIGCOMM'17) compares NORMAL, BATCH and RR.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager

from slomo.enforce.change import Backend
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import RefusedSettingError, TestbedError
from slomo.host.cores import format_cpu_list, parse_cpu_list
from slomo.host.knobs import VanishedError, Wish
from slomo.host.locks import MachineLock

_POLICIES = {
    "normal": os.SCHED_OTHER,
    "batch": os.SCHED_BATCH,
    "idle": os.SCHED_IDLE,
    "fifo": os.SCHED_FIFO,
    "round-robin": os.SCHED_RR,
}
_NAMES = {number: name for name, number in _POLICIES.items()}
_RESET_ON_FORK = 0x40000000


class SchedulerBackend(Backend):
    """Sets scheduling policy and CPUs of every thread of a tenant's processes."""

    name = "scheduler"
    acts_on_processes = True

    def available(self) -> tuple[bool, str]:
        """Return True: every Linux host can set scheduling policies."""
        return True, "sched_setscheduler and sched_setaffinity"

    def lock(self) -> AbstractContextManager[object]:
        """Hold this host's lock while a `with` block runs."""
        return MachineLock("the scheduler of this host")

    def wishes(self, plan: EnforcementPlan) -> tuple[Wish, ...]:
        """Return the policy and CPUs to set for every thread of the tenants' processes."""
        return tuple(
            wish for tenant in plan.tenants for pid in tenant.process_ids for wish in self._process(tenant, pid)
        )

    def _process(self, tenant: TenantSetting, pid: int) -> list[Wish]:
        try:
            threads = sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
        except OSError:
            raise VanishedError(
                f"tenant '{tenant.tenant}': process {pid} does not exist", hint="it ended; plan again"
            ) from None
        cores, policy = set(tenant.cores), tenant.scheduler
        unknown = sorted(cores - set(range(os.cpu_count() or 1)))
        if unknown:
            raise RefusedSettingError(f"tenant '{tenant.tenant}': CPU {unknown[0]} is not on this host")
        wishes = [Wish(f"cpus:{thread}", format_cpu_list(cores)) for thread in threads] if cores else []
        if policy is not None:
            priority = tenant.priority if policy in ("fifo", "round-robin") else 0
            wishes += [Wish(f"policy:{thread}", f"{policy} {priority}") for thread in threads]
        return wishes

    def read(self, knob: str) -> str | None:
        """Return a thread's present setting; None if the thread has ended."""
        kind, _, thread = knob.partition(":")
        try:
            if kind == "cpus":
                return format_cpu_list(os.sched_getaffinity(int(thread)))
            policy = os.sched_getscheduler(int(thread)) & ~_RESET_ON_FORK
            return f"{_NAMES.get(policy, str(policy))} {os.sched_getparam(int(thread)).sched_priority}"
        except ProcessLookupError:
            return None

    def write(self, knob: str, value: str | None) -> None:
        """Give one thread a new scheduling policy, or other CPUs."""
        kind, _, thread = knob.partition(":")
        try:
            if kind == "cpus":
                os.sched_setaffinity(int(thread), parse_cpu_list(value or ""))
            else:
                name, _, priority = (value or "").partition(" ")
                os.sched_setscheduler(int(thread), _POLICIES[name], os.sched_param(int(priority)))
        except ProcessLookupError:
            raise VanishedError(f"thread {thread} no longer exists", hint="it ended; plan again") from None
        except (OSError, KeyError, ValueError) as problem:
            refused: type[TestbedError] = RefusedSettingError
            reason: str | None = "unknown policy"
            if isinstance(problem, OSError):
                refused, reason = RefusedSettingError.kind_of(problem), problem.strerror
            raise refused(f"the kernel refuses {value!r} for thread {thread}: {reason}", hint="needs root") from None

    def knobs(self) -> Iterator[str]:
        """Yield the CPU and policy setting of each thread of this process, by name."""
        for name in sorted(os.listdir("/proc/self/task")):
            yield from (f"cpus:{name}", f"policy:{name}")
