"""Compute how fast an instance must be at full load so that it keeps a latency SLO at its own load.

ResQ (NSDI'18) section 5.2 keeps latency by limiting load, measured alone with the whole cache. An instance slowed down
by others has a higher utilisation at the same throughput, and takes longer for every packet.
"""

from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.problem.request import Request


def promises_latency(request: Request) -> bool:
    """Return whether a request has a latency SLO."""
    slo = request.slo
    return slo.kind == "reserved" and (slo.p95_us is not None or slo.p99_us is not None)


def each_mpps(
    estimates: ThroughputEstimates, request: Request, machine: str, needed_mpps: float, count: int
) -> float | None:
    """Return the throughput of each of several equal instances at full load; None if the latency breaks."""
    each = request.capacity_for(needed_mpps, count)
    if each is None or not promises_latency(request):
        return each
    load = each
    stages, slo = len(request.chain), request.slo
    p95, p99 = (None if limit is None else limit / stages for limit in (slo.p95_us, slo.p99_us))
    for workload in request.chain:
        profile = estimates.profile(machine, workload.key)
        capacity = None if profile is None else profile.capacity_for(load, p95, p99)
        if capacity is None:
            return None
        each = max(each, capacity)
    return each
