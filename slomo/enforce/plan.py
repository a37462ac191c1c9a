"""A plan of settings: the resources that each tenant of a machine gets, independent of the backend that sets them.

Cores, memory node, cache ways and buffers are those of a `Decision` (ResQ, NSDI'18, section 5.2), memory bandwidth as
NUMASFP (COMSNETS'22) allocates it, CPU weights and schedulers as NFVnice (SIGCOMM'17) sets them.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from slomo.errors import ConfigurationError, InvalidValueError
from slomo.files.documents import convert
from slomo.files.ranges import Index, PositiveCount, ProcessId, WayMask
from slomo.files.stored import stored

SCHEMA_VERSION = 1
UNITS = ("percent", "MB/s", "GB/s")
#: Longest texts of a tenant's setting, and longest name in a control group's path, which the kernel limits [bytes].
LONGEST = {"tenant": 200, "cgroup": 3000, "pod": 600, "control_socket": 1000}
LONGEST_NAME = 255
SCHEDULERS = ("normal", "batch", "idle", "fifo", "round-robin")


@dataclass(frozen=True)
class MemoryBandwidth:
    """Memory bandwidth that a tenant may use, in the unit of the tenant's processor.

    >>> MemoryBandwidth(50).text
    '50 %'
    """

    #: Amount, above 0.
    value: float
    #: 'percent' of a core's unthrottled rate (Intel MBA), 'MB/s' (resctrl mounted with mba_MBps) or 'GB/s' (AMD).
    unit: str = "percent"

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise InvalidValueError(f"memory bandwidth in '{self.unit}', needed one of {', '.join(UNITS)}")
        if not 0.0 < self.value < math.inf or (self.unit == "percent" and self.value > 100.0):
            raise InvalidValueError(
                f"memory bandwidth is {self.value:g} {self.unit}, needed above 0, at most 100 percent"
            )

    @property
    def text(self) -> str:
        """The value with its unit, for display."""
        return f"{self.value:g} {'%' if self.unit == 'percent' else self.unit}"


@dataclass(frozen=True)
class TenantSetting:
    """Settings for one tenant; a setting that is None is not changed.

    Examples
    --------
    >>> TenantSetting("lpm", cores=(3,), llc_way_mask=0x3, exclusive=True).llc_way_mask
    3
    """

    #: Name, unique in the plan.
    tenant: str
    #: CPUs of the machine.
    cores: tuple[Index, ...] = ()
    #: The tenant's processes, for settings of single processes.
    process_ids: tuple[ProcessId, ...] = ()
    #: The tenant's control group below the hierarchy's root, if it has one.
    cgroup: str | None = None
    #: ``namespace/name`` of the tenant's Kubernetes pod.
    pod: str | None = None
    #: NUMA node of the tenant's memory.
    memory_node: Index | None = None
    #: Masks of the cache ways that the tenant may fill; with CDP the first is for data, the second for code.
    llc_way_mask: WayMask | None = None
    code_way_mask: WayMask | None = None
    #: Whether the ways are guaranteed: no other tenant's mask may then overlap them.
    exclusive: bool = False
    #: Limits for DRAM, and for CXL memory (AMD SMBA).
    memory_bandwidth: MemoryBandwidth | None = None
    slow_memory_bandwidth: MemoryBandwidth | None = None
    #: CPU weight relative to others on the same cores; 1 is the kernel's default.
    cpu_weight: float | None = None
    #: Largest CPU time per time, in CPUs, above 0.
    cpu_quota: float | None = None
    #: One of ``SCHEDULERS``; the last two also need `priority`, 1 to 99.
    scheduler: str | None = None
    priority: int = 0
    #: Number of packet buffers, set through `control_socket`.
    buffers: PositiveCount | None = None
    #: ``host:port/handler`` of a Click ControlSocket that takes the number of buffers.
    control_socket: str | None = None

    def __post_init__(self) -> None:
        who = f"tenant '{self.tenant[: LONGEST['tenant']]}'"
        if not self.tenant:
            raise InvalidValueError("a tenant without a name", hint="give each a name")
        texts = [(name, getattr(self, name) or "", most) for name, most in LONGEST.items()]
        names = [("one name of cgroup", name, LONGEST_NAME) for name in (self.cgroup or "").split("/")]
        for what, text, most in texts + names:
            if (size := len(text.encode(errors="replace"))) > most:
                raise InvalidValueError(f"{who}: {what} has {size} bytes, needed at most {most}")
        for mask in (self.llc_way_mask, self.code_way_mask):
            if mask is not None and mask <= 0:
                raise InvalidValueError(f"{who}: way mask {mask:#x}, needed one or more ways")
        for amount, what in ((self.cpu_weight, "CPU weight"), (self.cpu_quota, "CPU quota")):
            if amount is not None and not 0.0 < amount < math.inf:
                raise InvalidValueError(f"{who}: {what} is {amount:g}, needed above 0")
        if self.scheduler is not None and self.scheduler not in SCHEDULERS:
            raise InvalidValueError(f"{who}: scheduler '{self.scheduler}', needed one of {', '.join(SCHEDULERS)}")
        if self.buffers is not None and self.buffers < 1:
            raise InvalidValueError(f"{who}: {self.buffers} buffers, needed 1 or more")
        if min((*self.cores, *self.process_ids, self.memory_node or 0), default=0) < 0:
            raise InvalidValueError(f"{who}: a negative core, process or memory node")


def _prepared(data: Any) -> Any:
    """Return a setting's fields with masks as numbers and bandwidths as values with a unit."""
    if not isinstance(data, Mapping):
        return data
    values = {name: value for name, value in data.items() if value is not None}
    for name in ("llc_way_mask", "code_way_mask"):
        if name in values:
            values[name] = _mask(values[name])
    for name in ("memory_bandwidth", "slow_memory_bandwidth"):
        if isinstance(values.get(name), int | float):
            values[name] = {"value": values[name]}
    return values


def _mask(value: Any) -> Any:
    try:
        return int(value, 16) if isinstance(value, str) and len(value) < 64 else value
    except ValueError:
        raise ConfigurationError(f"way mask '{value}' is no number", hint="write for instance 0x7f") from None


@dataclass(frozen=True)
class EnforcementPlan:
    """Settings for all tenants of one server.

    Examples
    --------
    >>> plan = EnforcementPlan("s1", (TenantSetting("lpm", cores=(3,), llc_way_mask=0x3),))
    >>> EnforcementPlan.from_dict(plan.to_dict()) == plan
    True
    """

    #: Name of the server.
    server: str
    #: Settings by tenant; each tenant once.
    tenants: tuple[TenantSetting, ...] = ()
    #: Cache ways that devices fill (DDIO; `io_alloc` of resctrl).
    device_way_mask: WayMask | None = None
    #: Cache ways of all tasks without a class of their own (the root group of resctrl); None leaves them as they are.
    rest_way_mask: WayMask | None = None

    def __post_init__(self) -> None:
        twice = sorted(name for name, count in Counter(each.tenant for each in self.tenants).items() if count > 1)
        if twice:
            raise InvalidValueError(f"plan for '{self.server}': tenant '{twice[0]}' is listed twice", hint="once each")
        check_exclusive(self.tenants)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping that :meth:`from_dict` reads back."""
        tenants = [
            {key: value for key, value in each.items() if value not in (None, [])} for each in stored(self.tenants)
        ]
        data = {"schema_version": SCHEMA_VERSION, "server": self.server, "tenants": tenants}
        masks = {"device_way_mask": self.device_way_mask, "rest_way_mask": self.rest_way_mask}
        return data | {name: mask for name, mask in masks.items() if mask is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], name: str = "enforcement plan") -> "EnforcementPlan":
        """Return the plan that :meth:`to_dict` described.

        Raises ConfigurationError for another version or an invalid plan.

        `name`: name of the file, for error messages.
        """
        values = dict(data) if isinstance(data, Mapping) else {"tenants": data or None}
        if isinstance(values.get("tenants"), list):
            values["tenants"] = [_prepared(item) for item in values["tenants"]]
        for mask in ("device_way_mask", "rest_way_mask"):
            if values.get(mask) is not None:
                values[mask] = _mask(values[mask])
        return convert({"server": "localhost", **values}, cls, name)


def check_exclusive(tenants: Iterable[TenantSetting]) -> None:
    """Raise InvalidValueError, which names both tenants, if one tenant's guaranteed ways are also given to another."""
    masks = [(t.tenant, t.llc_way_mask, t.exclusive) for t in tenants if t.llc_way_mask is not None]
    for name, mask in ((name, mask) for name, mask, exclusive in masks if exclusive):
        for other, its, _ in masks:
            if other != name and mask & its:
                raise InvalidValueError(
                    f"ways {mask & its:#x} are guaranteed to '{name}' and also given to '{other}'",
                    hint="guaranteed masks must not overlap",
                )
