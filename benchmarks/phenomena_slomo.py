"""SLOMO's (SIGCOMM'20) figures 5 to 7, played on the simulator; see phenomena.py."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from phenomena_runs import SLOMO, Line, run, tenant

from slomo.vocabulary.machine import load_machine


def fig5() -> Iterator[Line]:
    """IP router beside one synthetic competitor: occupancy decides below the LLC's capacity, access rate above.

    The competitor's access rate is set by its compute per packet: few reads per packet are slow, many are fast. "The
    competing NFs use separate memory channels" (section 3.1): it has the other socket's, at the same distance.
    """
    both = load_machine(SLOMO)
    machine = replace(
        both, memory_peak_gb_s=both.memory_peak_gb_s / 2, dram_remote_ns=both.dram_local_ns, link_gb_s=1000.0
    )
    alone = run(machine, [tenant("ip-router", 0, packet_buffers=256)]).tenants[0]
    yield Line("Fig. 5", "IP router alone: Mpps", "4.4", alone.throughput_mpps, 4.18, 4.62, fitted=True)
    yield Line("Fig. 5", "IP router alone: MB of LLC held", "8", alone.vector["L3OCC"] / 1024, 7, 9.5, fitted=True)
    lost: dict[tuple[float, float], float] = {}
    rates: dict[tuple[float, float], float] = {}
    for size in (4.0, 8.0, 20.0, 30.0):
        for reads in (6, 20, 1000):
            other = tenant("synthetic", 1, data_size_mib=size, reads_per_packet=reads, packet_buffers=256)
            result = run(machine, [tenant("ip-router", 0, packet_buffers=256), replace(other, memory_socket=1)])
            lost[size, reads] = 100 * (1 - result.tenants[0].throughput_mpps / alone.throughput_mpps)
            rates[size, reads] = result.tenants[1].vector["L2MISS"]
    for size in (4.0, 30.0):
        for reads in (6, 1000):
            what = f"beside {size:g} MB at {rates[size, reads]:.0f} Mrefs/s: % lost"
            yield Line("Fig. 5", what, "", lost[size, reads])
    below = lost[4.0, 1000] - lost[4.0, 6]
    above = lost[30.0, 1000] - lost[30.0, 6]
    yield Line("Fig. 5", "access rate's effect below capacity: points", "about 0", below, -1, 1)
    yield Line("Fig. 5", "access rate's effect above capacity: points", "10-20", above, 10, 20)
    yield Line("Fig. 5", "most lost: %", "27", max(lost.values()), 24, 30)


def fig6() -> Iterator[Line]:
    """Stateless firewall with few or many buffers beside L2 forwarders with up to 25 MB; all share 100 Gbit/s.

    The axis of the graph for 524 KB has marks at 97.5 and 100 %, none at 95: less than 5 % is lost.
    """
    for own, own_b, paper, low, high in (("524 KB", 524_000, "below 5", 0, 5), ("3 MB", 3 * 2**20, "up to 10", 5, 10)):
        worst_of_all = 0.0
        for size_b in (64, 500, 1500):
            most = max(lost_to_buffers(size_b, own_b, mib) for mib in (5, 15, 25))
            worst_of_all = max(worst_of_all, most)
            yield Line("Fig. 6", f"{own} at {size_b} B, forwarders' buffers to 25 MB: % lost", "", most)
        yield Line("Fig. 6", f"most lost to packet buffers with {own}: %", paper, worst_of_all, low, high)


def lost_to_buffers(size_b: int, own_b: int, mib: int) -> float:
    """Return what a firewall with buffers of so many bytes loses beside seven forwarders with `mib` of them [%]."""
    machine, lines = load_machine("silver-4110"), -(-size_b // 64) + 1
    target = tenant("stateless-firewall", 0, size_b, packet_buffers=own_b // (64 * lines))
    alone = run(machine.name, [target]).tenants[0].throughput_mpps
    knobs = {"port": machine.nic_gbps / 8, "packet_buffers": mib * 2**20 // (64 * lines) // 7}
    others = [tenant("l2fwd", 1 + i, size_b, **knobs) for i in range(7)]
    return 100 * (1 - run(machine.name, [target, *others]).tenants[0].throughput_mpps / alone)


def fig7() -> Iterator[Line]:
    """IP router with 2 MB of LLC beside competitors with 18 MB that load the memory channels up to 18 GB/s."""
    own, rest = 0b11, load_machine(SLOMO).full_way_mask & ~0b11
    target = tenant("ip-router", 0, mask=own, packet_buffers=256)
    alone = run(SLOMO, [target])
    mpps = alone.tenants[0].throughput_mpps
    yield Line("Fig. 7", "IP router with 2 MB: Mpps", "3.1", mpps, 2.8, 3.4, fitted=True)
    missed = alone.tenants[0].vector["L3MISS"]
    yield Line("Fig. 7", "IP router with 2 MB: misses a second, million", "4.0-5.5 (axis)", missed, 4.0, 5.5)
    misses, used, lost = [alone.tenants[0].vector["L3MISS"] / mpps], [0.0], [0.0]
    for reads, writes in ((5000, 0), (4000, 1000), (2500, 2500)):
        for count in (3, 5, 7):
            knobs = {"data_size_mib": 20, "reads_per_packet": reads, "writes_per_packet": writes, "packet_buffers": 256}
            result = run(SLOMO, [target, *(tenant("synthetic", 1 + i, mask=rest, **knobs) for i in range(count))])
            beside = result.tenants[0].throughput_mpps
            lost.append(100 * (1 - beside / mpps))
            misses.append(result.tenants[0].vector["L3MISS"] / beside)
            used.append(result.sockets[0]["READ"] + result.sockets[0]["WRITE"])
    order = np.argsort(used)
    at_18 = float(np.interp(18.0, np.array(used)[order], np.array(lost)[order]))
    yield Line(
        "Fig. 7",
        f"lost to memory bandwidth at 18 GB/s (most used {max(used):.1f}): %",
        "18",
        at_18,
        16,
        20,
        fitted=True,
    )
    yield Line("Fig. 7", "most lost to memory bandwidth: %", "18", max(lost), 16, 20, fitted=True)
    yield Line("Fig. 7", "misses per packet, most over least", "level", max(misses) / min(misses), 1.0, 1.1)
