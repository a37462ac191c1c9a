"""All operations of the service: what is routed, and what the OpenAPI document describes."""

from slomo.service.api import cluster, health, knowledge, pages, predictions, scheduling, work
from slomo.service.door.operation import Operation

OPERATIONS: tuple[Operation, ...] = (
    *predictions.OPERATIONS,
    *scheduling.OPERATIONS,
    *knowledge.OPERATIONS,
    *cluster.OPERATIONS,
    *work.OPERATIONS,
    *health.OPERATIONS,
    *pages.OPERATIONS,
)
