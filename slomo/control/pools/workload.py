"""A workload in a cache pool, converted to RMD's format and to a setting of the machine.

The rules are those of Intel's Resource Management Daemon. Guaranteed ways are adjacent and exclusive. Burstable
workloads divide the besteffort pool or, if shrinking is off, take its largest free block. A limited number of workloads
share the shared pool.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slomo.control.pools.configuration import PoolConfiguration
from slomo.control.pools.layout import PoolLayout, free_block, share_out
from slomo.control.pools.request import PoolRequest
from slomo.enforce.plan import MemoryBandwidth, TenantSetting
from slomo.errors import TestbedError

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


def placed(
    layout: PoolLayout,
    configuration: PoolConfiguration,
    others: Mapping[str, PoolWorkload],
    newcomer: PoolWorkload,
) -> dict[str, PoolWorkload]:
    """Return all workloads with their ways, a new one included; TestbedError if the new workload's pool is full."""
    request, identifier = newcomer.request, newcomer.identifier
    if request.pool == "guarantee":
        taken = [workload.mask for workload in others.values() if workload.pool == "guarantee"]
        mask = free_block(layout.guarantee, taken, request.max_ways)
        if mask is None:
            raise _no_room(request, layout.guarantee, taken)
        return {**others, identifier: replace(newcomer, mask=mask)}
    if request.pool == "shared":
        sharing, most = sum(workload.pool == "shared" for workload in others.values()), configuration.max_allowed_shared
        if not layout.shared or sharing >= most:
            raise TestbedError(
                f"{sharing} workloads share {layout.shared.bit_count()} ways, at most {most} may",
                hint="ask for ways of its own, or another host",
            )
        return {**others, identifier: replace(newcomer, mask=layout.shared)}
    workloads = {**others, identifier: newcomer}
    bursting = {key: workload for key, workload in workloads.items() if workload.pool == "besteffort"}
    if configuration.shrink:
        wishes = [(key, w.request.max_ways, w.request.min_ways) for key, w in bursting.items()]
        masks = share_out(layout.besteffort, wishes)
    else:
        masks = _beside(layout, bursting)
    if masks is None:
        raise _no_room(request, layout.besteffort, [w.mask for w in bursting.values()])
    return {key: replace(w, mask=masks[key]) if key in masks else w for key, w in workloads.items()}


def _beside(layout: PoolLayout, bursting: Mapping[str, PoolWorkload]) -> dict[str, int] | None:
    """Return burstable workloads' ways without shrinking any; a new one gets the largest free block it may have."""
    masks = {key: workload.mask for key, workload in bursting.items() if workload.mask}
    for key, workload in bursting.items():
        if workload.mask:
            continue
        sizes = range(workload.request.max_ways, workload.request.min_ways - 1, -1)
        blocks = (free_block(layout.besteffort, masks.values(), ways) for ways in sizes)
        mask = next((candidate for candidate in blocks if candidate is not None), None)
        if mask is None:
            return None
        masks[key] = mask
    return masks


def _no_room(request: PoolRequest, pool: int, taken: Sequence[int]) -> TestbedError:
    used = sum(mask.bit_count() for mask in taken)
    return TestbedError(
        f"pool {request.pool} has no {request.min_ways} adjacent ways left: {used} of {pool.bit_count()} are taken",
        hint="remove a workload, ask for fewer ways, or for another pool",
    )
