"""Check whether imported numbers are plausible; an implausible number usually shows a wrong unit in the mapping.

Bounds are far above any present machine, so an excess means a wrong unit, not a fast machine.
"""

import math

from slomo.vocabulary.machine import load_machine, machine_names

#: Framing overhead of a packet on the wire [B].
_FRAMING_B = 20
#: Packets of 64 bytes on a 1.6 Tbit/s port [Mpps].
MOST_MPPS = 1.6e12 / (8.0 * (64 + _FRAMING_B)) / 1e6
#: Ratio of throughput beside others to solo throughput above which noise and turbo cannot explain it.
MOST_OF_SOLO = 1.5
#: Ratio of throughput to a port's line rate that measurement errors explain.
PORT_SLACK = 1.02
#: Metric -> largest plausible value, in the vocabulary's unit.
_MOST = {
    "IPC": 16.0,
    "EXEC": 16.0,
    "FREQ": 10.0,
    "AFREQ": 10.0,
    "L3HIT": 1.0,
    "L2HIT": 1.0,
    "L3OCC": 64.0 * 2.0**20,
    "READ": 20_000.0,
    "WRITE": 20_000.0,
    "LMB": 20e6,
    "RMB": 20e6,
    "INST": 10e6,
    "L3MISS": 1e6,
    "L2MISS": 1e6,
}
#: Other units that the number may have, the smallest unit last.
_RATES = (("kpps", 1e3), ("pps", 1e6))


def throughput_fault(mpps: float, packet_size_b: int = 64) -> str | None:
    """Return why a throughput of packets of this size is implausible; None if it is plausible."""
    most = MOST_MPPS * (64 + _FRAMING_B) / (packet_size_b + _FRAMING_B)
    if not mpps > most:
        return None
    fitting = fitting_unit(mpps) or "another unit"
    return (
        f"that is {mpps:.4g} Mpps, and no port carries more than {most:.0f} of {packet_size_b} B; is it in {fitting}?"
    )


def port_fault(mpps: float, machine: str, packet_size_b: int) -> str | None:
    """Return why no port of a machine that slomo ships carries a throughput; None if it does, or for another machine.

    >>> port_fault(14.0, "e5-2620v4", 64), port_fault(100.0, "rack-7", 64)
    (None, None)
    >>> port_fault(100.0, "e5-2620v4", 1500)
    'that is 100 Mpps, and a port of e5-2620v4 (40 Gbit/s) carries 3.289 of 1500 B'
    """
    if machine not in machine_names():
        return None
    described = load_machine(machine)
    most = described.line_rate_mpps(packet_size_b)
    if not mpps > PORT_SLACK * most:
        return None
    return (
        f"that is {mpps:.4g} Mpps, and a port of {machine} ({described.nic_gbps:g} Gbit/s) carries {most:.4g} of "
        f"{packet_size_b} B"
    )


def fitting_unit(mpps: float) -> str | None:
    """Return the unit in which an implausible number of Mpps would be plausible; None if it would be so in no unit."""
    return next((name for name, factor in _RATES if mpps / factor <= MOST_MPPS / 10.0), None)


def share_fault(share: float) -> str | None:
    """Return why a share of solo throughput is implausible; None if it is plausible."""
    if not share > MOST_OF_SOLO:
        return None
    asked = "; is it in %?" if share <= 100.0 * MOST_OF_SOLO else ""
    return f"that is {share:.4g} times solo throughput, needed at most {MOST_OF_SOLO:g}{asked}"


def metric_fault(name: str, unit: str, value: float) -> str | None:
    """Return why a metric's value is implausible, in the unit of `slomo.vocabulary`; None if it is plausible."""
    most = _MOST.get(name, math.inf)
    if not value > most * (1.0 + 1e-6):
        return None
    return f"that is {value:.4g} {unit} of {name}, believed is at most {most:g}; give its unit"
