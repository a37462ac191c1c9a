"""What a NIC port that all network functions of a socket share lets through to each.

Whoever is offered no load takes as much as it serves alone; a stage of a chain counts like any other.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from slomo.compose.ports import port_shares_mpps
from slomo.placement.feasibility.mixes import Host
from slomo.vocabulary.workload import Traffic
from slomo.vocabulary.workload_text import parse_workload


@lru_cache(maxsize=4096)
def _traffic(workload: str) -> Traffic:
    return parse_workload(workload).traffic


Solo = Callable[[str, str], float | None]


def port_shares(host: Host, tenants: Sequence[str], solo_mpps: Solo) -> dict[str, float]:
    """Return what reaches each workload of a mix [Mpps]; nothing where no port is told.

    Examples
    --------
    >>> port_shares(Host("m", 8, 18, port_gbps=10.0), ["lpm@1230B", "nat@1230B"], lambda machine, key: 4.0)
    {'lpm@1230B': 0.5, 'nat@1230B': 0.5}
    """
    if host.port_gbps is None:
        return {}
    traffic = [_traffic(key) for key in tenants]
    wanted = [
        solo_mpps(host.machine, key) if each.offered_mpps is None else each.offered_mpps
        for key, each in zip(tenants, traffic, strict=True)
    ]
    shares = port_shares_mpps([each.packet_size_b for each in traffic], wanted, host.port_gbps)
    return dict(zip(tenants, shares, strict=True))


def behind_port(host: Host, tenants: Sequence[str], solo_mpps: Solo) -> dict[str, str]:
    """Return every workload of a mix as it is offered traffic through the port that all share, if they do.

    Who could not serve its part alone is left as it is: its ring is full either way.

    Examples
    --------
    >>> def solo(machine, key):
    ...     return 4.0 if "lpm" in key else 0.2
    >>> behind_port(Host("m", 8, 18, port_gbps=10.0), ["lpm@1230B", "nat@1230B"], solo)
    {'lpm@1230B': 'lpm@1230B,100000f,0.8Mpps', 'nat@1230B': 'nat@1230B'}
    """
    shares = port_shares(host, tenants, solo_mpps)
    loaded = {key: key for key in tenants}
    for key, share in shares.items():
        offered = _traffic(key).offered_mpps
        most = solo_mpps(host.machine, key) if offered is None else offered
        if most is not None and share < most:
            loaded[key] = parse_workload(key).offered(share).key
    return loaded
