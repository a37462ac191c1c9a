"""A NIC port that all NFs of a server share: whoever is given less than it could serve is offered just that."""

from dataclasses import replace

from slomo.compose.ports import port_shares_mpps
from slomo.prediction.result import Prediction
from slomo.prediction.tenants import TenantModels


def behind_port(server: TenantModels, port_gbps: float) -> TenantModels:
    """Return a server whose NFs are offered what a shared port lets through.

    An NF that could not serve its part alone is left as it is: its ring is full either way.

    Parameters
    ----------
    server : TenantModels
        Names resolved, loads as asked.
    port_gbps : float
        Line rate of the port [Gbit/s].

    Raises
    ------
    InvalidValueError
        For a line rate that is no number above 0.
    """
    frames = [tenant.workload.traffic.packet_size_b for tenant in server.tenants]
    offered = [tenant.offered_mpps for tenant in server.tenants]
    for number, share in enumerate(port_shares_mpps(frames, offered, port_gbps)):
        most = offered[number]
        if share < (server.tenants[number].model.solo_mpps if most is None else most):
            server = server.at_load(number, share)
    return server


def told(prediction: Prediction, server: TenantModels, narrow: TenantModels, port_gbps: float) -> Prediction:
    """Return a prediction whose slowdown contains what a shared port costs the first NF, and that says so.

    Parameters
    ----------
    prediction : Prediction
        Of the first NF behind the port.
    server, narrow : TenantModels
        Loads as asked, and behind the port.
    port_gbps : float
        Line rate of the port [Gbit/s].
    """
    share, offered = narrow.tenants[0].offered_mpps, server.tenants[0].offered_mpps
    if share == offered or share is None:
        return prediction
    alone = server.tenants[0].model.solo_mpps
    reason = f"a port of {port_gbps:g} Gbit/s for all lets {share:.4g} Mpps through"
    latency = prediction.latency if offered is not None else None
    solo = alone if offered is None else min(alone, offered)
    return replace(prediction, solo_mpps=solo, latency=latency, reasons=(reason, *prediction.reasons))
