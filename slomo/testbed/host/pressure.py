"""Read counters while throughput is measured, and convert them to vectors of each NF and of the socket.

Counters and probes give the same two results: the pressure of all competitors on the socket, and the pressure of one
NF.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from slomo.host.cores import socket_of
from slomo.records.proved_zeros import ZERO_THROUGHOUT
from slomo.testbed.host.counters.base import CounterReader, CounterSample
from slomo.testbed.host.tenant import HostTenant, Window
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

NOTHING_CORE = MetricVector({}, scope=Scope.CORE)
NOTHING_SOCKET = MetricVector({}, scope=Scope.SOCKET)


@dataclass(frozen=True)
class ObservedPressure:
    """Counters of each NF's core and of the socket, in one phase of a run."""

    #: Core-level vectors, one per tenant in order; empty if unknown.
    own: tuple[MetricVector, ...]
    #: Socket-level vector.
    socket: MetricVector = NOTHING_SOCKET
    #: Vector of the whole machine.
    system: MetricVector | None = None
    #: Details for the provenance.
    details: dict[str, Any] = field(default_factory=dict)


def observe_counters(
    reader: CounterReader, tenants: Sequence[HostTenant], watch: Callable[[], list[Window]]
) -> tuple[list[Window], ObservedPressure]:
    """Read the counters of the first NF's socket while `watch()` measures throughputs."""
    cores = [core for tenant in tenants for core in tenant.where.cores]
    reader.start(cores)
    try:
        windows = watch()
    except BaseException:
        reader.stop()
        raise
    sample = reader.stop()
    socket = sample.sockets.get(socket_of(cores[0]), NOTHING_SOCKET)
    own = tuple(core_vector(sample, tenant) for tenant in tenants)
    details: dict[str, Any] = {"source": reader.name, "duration_s": sample.duration_s}
    if sample.zero_throughout:
        details[ZERO_THROUGHOUT] = {scope: list(names) for scope, names in sample.zero_throughout.items()}
    return windows, ObservedPressure(own, socket, sample.system, details)


def core_vector(sample: CounterSample, tenant: HostTenant) -> MetricVector:
    """Return the counters of an NF's core; unknown if the NF has several cores."""
    if len(tenant.where.cores) != 1:
        return NOTHING_CORE
    return sample.cores.get(tenant.where.cores[0], NOTHING_CORE)


def as_core(vector: MetricVector) -> MetricVector:
    """Convert the pressure that a single NF causes on its socket to counters of that NF's core."""
    return MetricVector(dict(vector), scope=Scope.CORE)
