"""All operations of the service: what is routed, and what the OpenAPI document describes."""

from slomo.service.api import cluster, health, host, knowledge, lifecycle, pages, pools, predictions, scheduling, work
from slomo.service.door.operation import Operation

OPERATIONS: tuple[Operation, ...] = (
    *predictions.OPERATIONS,
    *scheduling.OPERATIONS,
    *knowledge.OPERATIONS,
    *cluster.OPERATIONS,
    *lifecycle.OPERATIONS,
    *work.OPERATIONS,
    *host.OPERATIONS,
    *pools.OPERATIONS,
    *health.OPERATIONS,
    *pages.OPERATIONS,
)
