"""Compute how much traffic reaches each network function of a server if all share one NIC port.

A network function without a stated load takes its solo throughput; a stage of a chain counts as one.
"""

from collections.abc import Callable, Sequence

from slomo.compose.ports import port_shares_mpps
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.feasibility.kinds import without_load
from slomo.placement.feasibility.mixes import Host
from slomo.prediction.answers import answers_on
from slomo.prediction.tenants import server_of
from slomo.vocabulary.server_setting import ServerSetting
from slomo.vocabulary.workload_text import parse_workload

Solo = Callable[[str, str], float | None]


def port_shares(host: Host, tenants: Sequence[str], solo_mpps: Solo) -> dict[str, float]:
    """Return the load that reaches each workload of a mix through the shared port [Mpps]; empty without a port.

    >>> port_shares(Host("m", 8, 18, port_gbps=10.0), ["lpm@1230B", "nat@1230B"], lambda machine, key: 4.0)
    {'lpm@1230B': 0.5, 'nat@1230B': 0.5}
    """
    if host.port_gbps is None:
        return {}
    traffic = [parse_workload(key).traffic for key in tenants]
    demand_mpps = [
        solo_mpps(host.machine, key) if each.offered_mpps is None else each.offered_mpps
        for key, each in zip(tenants, traffic, strict=True)
    ]
    shares = port_shares_mpps([each.packet_size_b for each in traffic], demand_mpps, host.port_gbps)
    return dict(zip(tenants, shares, strict=True))


def behind_port(host: Host, tenants: Sequence[str], estimates: ThroughputEstimates) -> dict[str, str]:
    """Return the mix's workloads, each with the load that the shared port lets through.

    If all have models, the port is divided as for every question (`slomo.prediction.answers.answers_on`); else by
    solo throughputs. A workload that cannot serve its part is left unchanged: its ring is full in both cases.
    """
    loaded, solo_mpps = {key: key for key in tenants}, estimates.solo_mpps
    if host.port_gbps is None:
        return loaded
    if all((host.machine, without_load(key)) in estimates.library for key in tenants):
        server = server_of(estimates.library, tenants, host.machine, ServerSetting(port_gbps=host.port_gbps))
        for tenant, load in zip(server.tenants, answers_on(server, estimates.how).loads, strict=True):
            if load != tenant.offered_mpps and load is not None:
                loaded[tenant.workload.key] = tenant.workload.offered(load).key
        return loaded
    shares = port_shares(host, tenants, solo_mpps)
    for key, share in shares.items():
        workload = parse_workload(key)
        offered = workload.traffic.offered_mpps
        most = solo_mpps(host.machine, key) if offered is None else offered
        if most is not None and share < most:
            loaded[key] = workload.offered(share).key
    return loaded
