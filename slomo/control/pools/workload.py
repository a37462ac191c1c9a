"""A workload in a cache pool, converted to RMD's format and to a setting of the machine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slomo.control.pools.request import PoolRequest
from slomo.enforce.plan import MemoryBandwidth, TenantSetting

#: Processes of this host: id -> name.
Processes = Callable[[], Mapping[int, str]]


@dataclass(frozen=True)
class PoolWorkload:
    """A workload that a pool has admitted."""

    #: Identifier and name, as in RMD.
    identifier: str
    uuid: str
    #: The request, completed by the policy's values.
    request: PoolRequest
    #: Mask of the workload's cache ways; 0 before they are assigned.
    mask: int = 0

    @property
    def pool(self) -> str:
        """The workload's pool; one of 'guarantee', 'besteffort', 'shared'."""
        return self.request.pool

    @property
    def class_name(self) -> str:
        """Name of the workload's resctrl class as in RMD: cores or tasks, and the pool."""
        members = self.request.core_ids or self.request.task_ids
        return f"{'_'.join(map(str, members))}-{self.pool}" if self.pool != "shared" else "shared"

    def to_dict(self) -> dict[str, Any]:
        """Return the workload as a mapping in RMD's format."""
        body = self.request.to_dict()
        return {
            "id": self.identifier,
            "uuid": self.uuid,
            **{name: body[name] for name in ("core_ids", "task_ids", "policy") if body.get(name)},
            "cos_name": self.class_name,
            "status": "Successful",
            "rdt": body["rdt"],
            "origin": "REST",
        }

    def setting(self, tenant: str) -> TenantSetting:
        """Return the workload's setting of the machine, under a tenant's name."""
        request = self.request
        bandwidth = request.memory_bandwidth
        return TenantSetting(
            tenant,
            cores=request.core_ids,
            process_ids=request.task_ids,
            llc_way_mask=self.mask,
            memory_bandwidth=None if bandwidth is None else MemoryBandwidth(bandwidth, request.bandwidth_unit),
        )


def processes_of_this_host() -> Mapping[int, str]:
    """Return the names of this host's processes by id."""
    names: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            names[int(folder.name)] = (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            continue
    return names
