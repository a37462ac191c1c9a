"""Ways of a pool's workloads: exclusive blocks, burstable parts, or a common part.

Rules of Intel's Resource Management Daemon: guaranteed ways are adjacent and exclusive; burstable workloads divide the
best-effort pool or, without shrinking, take its largest free block; a limited number share the rest.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slomo.control.pools.layout import PoolLayout, free_block, share_out
from slomo.control.pools.request import PoolRequest
from slomo.control.pools.workload import PoolWorkload
from slomo.errors import TestbedError


@dataclass(frozen=True)
class PoolSeats:
    """Gives workloads their ways."""

    #: Ways of each pool.
    layout: PoolLayout
    #: Whether burstable workloads give ways back to new ones.
    shrinks: bool
    #: Largest number of workloads in the shared pool.
    max_shared: int

    def placed(
        self, others: dict[str, PoolWorkload], identifier: str, request: PoolRequest, name: str | None = None
    ) -> dict[str, PoolWorkload]:
        """Return all workloads and the new one; TestbedError if its pool is full."""
        fresh = PoolWorkload(identifier, name or str(uuid.uuid4()), request, request.pool, 0)
        if request.pool == "guarantee":
            taken = [workload.mask for workload in others.values() if workload.pool == "guarantee"]
            mask = free_block(self.layout.guarantee, taken, request.max_ways)
            if mask is None:
                raise _no_room(request, self.layout.guarantee, taken)
            return {**others, identifier: replace(fresh, mask=mask)}
        if request.pool == "shared":
            sharing = sum(workload.pool == "shared" for workload in others.values())
            if not self.layout.shared or sharing >= self.max_shared:
                raise TestbedError(
                    f"{sharing} workloads share {self.layout.shared.bit_count()} ways, at most {self.max_shared} may",
                    hint="ask for ways of its own, or another host",
                )
            return {**others, identifier: replace(fresh, mask=self.layout.shared)}
        return self._burst({**others, identifier: fresh})

    def _burst(self, workloads: dict[str, PoolWorkload]) -> dict[str, PoolWorkload]:
        bursting = {key: workload for key, workload in workloads.items() if workload.pool == "besteffort"}
        if self.shrinks:
            wishes = [(key, w.request.max_ways, w.request.min_ways) for key, w in bursting.items()]
            masks = share_out(self.layout.besteffort, wishes)
        else:
            masks = self._beside(bursting)
        if masks is None:
            newest = list(bursting.values())[-1].request
            raise _no_room(newest, self.layout.besteffort, [w.mask for w in bursting.values()])
        return {key: replace(w, mask=masks[key]) if key in masks else w for key, w in workloads.items()}

    def _beside(self, bursting: Mapping[str, PoolWorkload]) -> dict[str, int] | None:
        """Return masks without shrinking: the newest workload gets the largest free block within its limits."""
        masks = {key: workload.mask for key, workload in bursting.items() if workload.mask}
        for key, workload in bursting.items():
            if workload.mask:
                continue
            sizes = range(workload.request.max_ways, workload.request.min_ways - 1, -1)
            blocks = (free_block(self.layout.besteffort, masks.values(), ways) for ways in sizes)
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
