"""List of all operations of the service, for routing and for the OpenAPI document."""

from slomo.service.api import (
    agents,
    cluster,
    health,
    host,
    knowledge,
    lifecycle,
    pages,
    pools,
    predictions,
    scheduling,
    work,
)
from slomo.service.door.operation import Operation

OPERATIONS: tuple[Operation, ...] = (
    *predictions.OPERATIONS,
    *scheduling.OPERATIONS,
    *knowledge.OPERATIONS,
    *cluster.OPERATIONS,
    *lifecycle.OPERATIONS,
    *work.OPERATIONS,
    *host.OPERATIONS,
    *agents.OPERATIONS,
    *pools.OPERATIONS,
    *health.OPERATIONS,
    *pages.OPERATIONS,
)
