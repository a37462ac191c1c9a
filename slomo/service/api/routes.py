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

_SUBJECTS = (predictions, scheduling, knowledge, cluster, lifecycle, work, host, agents, pools, health, pages)
OPERATIONS: tuple[Operation, ...] = tuple(item for subject in _SUBJECTS for item in subject.OPERATIONS)
