"""What a NIC port that all network functions of a socket share lets through to each.

Whoever is offered no load is taken to be sent all that the port gives it; a stage of a chain counts like any other.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from slomo.compose.ports import port_shares_mpps
from slomo.placement.feasibility.mixes import Host
from slomo.vocabulary.workload import Traffic
from slomo.vocabulary.workload_text import parse_workload

#: Predicted throughput, and the ends of its interval [Mpps].
_Rate = tuple[float, float, float]


@lru_cache(maxsize=4096)
def _traffic(workload: str) -> Traffic:
    return parse_workload(workload).traffic


def port_shares(host: Host, tenants: Sequence[str]) -> dict[str, float]:
    """Return what reaches each workload of a mix [Mpps]; nothing where each has a port of its own.

    Examples
    --------
    >>> port_shares(Host("m", 8, 18, port_gbps=10.0), ["lpm@1230B", "nat@1230B"])
    {'lpm@1230B': 0.5, 'nat@1230B': 0.5}
    """
    if host.port_gbps is None:
        return {}
    traffic = [_traffic(key) for key in tenants]
    shares = port_shares_mpps([t.packet_size_b for t in traffic], [t.offered_mpps for t in traffic], host.port_gbps)
    return dict(zip(tenants, shares, strict=True))


def behind_port(rates: Mapping[str, _Rate], shares: Mapping[str, float]) -> dict[str, _Rate]:
    """Return rates of workloads cut off at what reaches them.

    Examples
    --------
    >>> behind_port({"lpm": (2.0, 1.5, 2.5)}, {"lpm": 1.8})
    {'lpm': (1.8, 1.5, 1.8)}
    """
    return {key: _cut(rate, shares[key]) if key in shares else rate for key, rate in rates.items()}


def _cut(rate: _Rate, most: float) -> _Rate:
    return min(rate[0], most), min(rate[1], most), min(rate[2], most)
