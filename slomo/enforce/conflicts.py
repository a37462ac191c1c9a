"""Find conflicts of a plan before the first write: a setting with two values, or resources that others use.

A plan gives each knob one value. Process 1, kernel threads and programs that keep the machine reachable are never
tenants. Ways that another receipt guarantees to a tenant are not given to others. Drivers for the same resource exclude
each other: resctrl and pqos for cache classes, CPU sets and CPU affinity for CPUs.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from slomo.enforce.change import Backend
from slomo.enforce.plan import EnforcementPlan, check_exclusive
from slomo.errors import InvalidValueError, SlomoError, StoreError, TestbedError
from slomo.host.journal import Journal, Receipt
from slomo.host.knobs import Wish
from slomo.host.marker import stat_fields

#: Programs that keep a machine running and reachable.
PROTECTED = frozenset(
    {"systemd", "systemd-journald", "systemd-journal", "systemd-udevd", "systemd-logind", "dbus-daemon"}
    | {"sshd", "containerd", "dockerd", "crio", "kubelet"}
)
_KERNEL_THREAD = 0x0020_0000
_FLAGS = 6  # index of the flags among the fields after the command's name in /proc/PID/stat
_CACHE_CLASSES = {"resctrl", "pqos"}


def require_free(
    plan: EnforcementPlan, wishes: Sequence[Wish], backend: Backend, journal: Journal, receipt: Receipt | None
) -> None:
    """Raise an error if a plan conflicts with itself, with recorded changes, or with protected processes."""
    _require_each_once(plan, wishes)
    if backend.acts_on_processes:
        for tenant in plan.tenants:
            for pid in tenant.process_ids:
                require_unprotected(tenant.tenant, pid)
    others = [each for each in journal.receipts(still_open=True) if receipt is None or each.number != receipt.number]
    for other in others:
        _require_compatible(plan, wishes, backend, other)


def require_unprotected(tenant: str, pid: int) -> None:
    """Raise InvalidValueError, with the reason, for a process whose settings must not change, such as process 1."""
    if why := protection(pid):
        raise InvalidValueError(
            f"tenant '{tenant}': process {pid} {why} and must not be touched", hint="name the tenant's own processes"
        )


def protection(pid: int, processes: Path = Path("/proc")) -> str:
    """Return why a process's settings must not change; an empty text if they may."""
    if pid == 1:
        return "starts and ends all others"
    if pid == os.getpid():
        return "is slomo itself"
    fields = stat_fields(pid)
    if fields is not None and int(fields[_FLAGS]) & _KERNEL_THREAD:
        return "is a thread of the kernel"
    try:
        command = (processes / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
    return f"is '{command}', which keeps the machine reachable," if command in PROTECTED else ""


def _require_each_once(plan: EnforcementPlan, wishes: Sequence[Wish]) -> None:
    owners: dict[object, str] = {}
    for tenant in plan.tenants:
        for kind, name in [("process", pid) for pid in tenant.process_ids] + [("control group", tenant.cgroup)]:
            if name is not None and owners.setdefault((kind, name), tenant.tenant) != tenant.tenant:
                raise InvalidValueError(
                    f"{kind} {name} belongs to '{owners[kind, name]}' and to '{tenant.tenant}'", hint="name it once"
                )
    values: dict[str, str | None] = {}
    for wish in wishes:
        if not wish.give_back and values.setdefault(wish.knob, wish.value) != wish.value:
            raise InvalidValueError(
                f"'{wish.knob}' is to be {values[wish.knob]!r} for one tenant and {wish.value!r} for another",
                hint="give a core or a process to one tenant",
            )


def _require_compatible(plan: EnforcementPlan, wishes: Sequence[Wish], backend: Backend, other: Receipt) -> None:
    try:
        head = other.head
    except StoreError:  # `undo --all` names a receipt that cannot be read
        return
    mine, its = {*backend.name.split("+")}, {*str(head["backend"]).split("+")}
    if mine & _CACHE_CLASSES and its & _CACHE_CLASSES and mine & _CACHE_CLASSES != its & _CACHE_CLASSES:
        raise TestbedError(
            f"receipt '{other.identifier}' holds cache classes by {head['backend']}, and {backend.name} sets the "
            "same classes",
            hint=f"slomo enforce undo {other.identifier}",
        )
    both = mine != its and {*_cpus_of(wish.knob for wish in wishes)} & {
        (pid, {"member": "cpus", "cpus": "member"}[kind]) for pid, kind in _cpus_of(x.label for x in other.layers())
    }
    if both:
        raise TestbedError(
            f"receipt '{other.identifier}' holds the CPUs of process {min(both)[0]} by {head['backend']}",
            hint=f"apply both at once with --backend cgroup+scheduler, or undo {other.identifier} first",
        )
    if str(head["place"]) == backend.place():
        _require_guarantees(plan, head["document"], other)


def _cpus_of(knobs: "Sequence[str] | Iterator[str]") -> Iterator[tuple[str, str]]:
    """Yield the processes whose CPUs the settings `knobs` determine, with the kind of each setting."""
    for knob in knobs:
        words = knob.rpartition("|")[2].split(":")
        if words[0] == "cpus":
            yield words[1], "cpus"
        elif words[:2] == ["member", "cpuset"]:
            yield words[2], "member"


def _require_guarantees(plan: EnforcementPlan, document: object, other: Receipt) -> None:
    try:
        theirs = EnforcementPlan.from_dict(document)  # type: ignore[arg-type]
    except (SlomoError, TypeError, ValueError, AttributeError):  # a campaign's receipt holds no plan
        return
    names = {tenant.tenant for tenant in plan.tenants}
    try:
        check_exclusive([*plan.tenants, *(tenant for tenant in theirs.tenants if tenant.tenant not in names)])
    except InvalidValueError as problem:
        raise InvalidValueError(
            f"{problem.message} (receipt '{other.identifier}')",
            hint=f"choose other ways, or slomo enforce undo {other.identifier}",
        ) from None
