"""One NIC port for several tenants: packets take turns on its wire, and nothing changes where it is wide enough."""

import dataclasses

import numpy as np
import pytest

from slomo.compose.ports import port_shares_mpps
from slomo.errors import InvalidValueError, SlomoError
from slomo.simulator.engine import Tenant, simulate
from slomo.simulator.result import require_possible
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import load_network_function
from slomo.vocabulary.workload import Traffic, Workload
from slomo.vocabulary.workload_text import parse_workload

MACHINE = "e5-2620v4"


def run(port_gbps, *names):
    tenants = tuple(parse_workload(name) for name in names)
    colocation = Colocation(MACHINE, tenants[0], tenants[1:], port_gbps=port_gbps)
    return SimulatedTestbed(MACHINE, accesses=60_000).run(colocation, seed=3).beside.tenants


@pytest.mark.parametrize(
    ("frames", "offered", "gbps"),
    [
        ([1500, 1500, 1500], [None, None, 0.1], 10.0),
        ([64, 1500], [None, None], 10.0),
        ([64, 256, 1500], [2.0, None, 0.2], 25.0),
        ([64, 64], [10.0, 12.0], 10.0),
        ([64, 64], [3.0, 4.0], 40.0),
    ],
)
def test_turns_on_the_wire_come_to_a_max_min_share(frames, offered, gbps) -> None:
    """Forwarders that could carry more get what dividing the line rate says, and what they cannot get is lost."""
    mix = [Workload("l2fwd", {}, Traffic(size, offered_mpps=mpps)) for size, mpps in zip(frames, offered, strict=True)]
    tenants = [Tenant(each, load_network_function("l2fwd"), core) for core, each in enumerate(mix)]

    played = simulate(load_machine(MACHINE), tenants, seed=1, accesses=200_000, port_gbps=gbps).tenants

    wanted = port_shares_mpps(frames, offered, gbps)
    assert [each.throughput_mpps for each in played] == pytest.approx(wanted, rel=0.05)
    for mine, share, load in zip(played, wanted, offered, strict=True):
        assert load is None or mine.loss == pytest.approx(1.0 - share / load, abs=0.02)


def test_what_a_slow_function_leaves_of_the_wire_others_use() -> None:
    """Beside three functions of 0.2 Mpps a forwarder gets the rest of the port, not a quarter of it."""
    fast, *slow = run(10.0, "l2fwd@1500B", *["suricata@1500B"] * 3)

    assert slow[0].throughput_mpps < 0.2
    used = sum(each.throughput_mpps for each in (fast, *slow)) * 8e-3 * 1520
    assert used == pytest.approx(10.0, rel=0.01)


def test_tenants_share_the_ports_of_their_machine() -> None:
    """Two ports of 40 Gbit/s carry 80 for eight forwarders together, without a port being told."""
    served = [sample.throughput_mpps for sample in run(None, *["l2fwd"] * 7)]

    assert served == pytest.approx([80e3 / 8 / 84 / 7] * 7, rel=0.01)


def test_a_card_waits_for_a_full_memory_channel() -> None:
    """Eight `stats` at 1500 B lose throughput to a channel that is full, instead of moving more than it can."""
    machine, stats = load_machine(MACHINE), Workload("stats", {}, Traffic(1500))
    tenants = [Tenant(stats, load_network_function("stats"), core) for core in range(8)]

    played = simulate(machine, tenants, seed=1, port_gbps=160.0)

    moved = played.sockets[0]["READ"] + played.sockets[0]["WRITE"]
    assert moved == pytest.approx(machine.usable_memory_gb_s, rel=0.005)
    assert sum(each.throughput_mpps for each in played.tenants) * 8e-3 * 1520 < 150.0


def test_a_fault_that_moves_too_much_is_told() -> None:
    """A result in which a channel served longer than time went by is refused as an internal fault."""
    busy_ns = np.array([1.2e6, 0.0, 0.0, 0.0])

    with pytest.raises(SlomoError, match="memory channels of socket 0 were asked for 1200000 ns"):
        require_possible(load_machine(MACHINE), busy_ns, 1e6)


def test_ports_that_exceed_the_iio_are_refused() -> None:
    """A machine file with more port than I/O controller names field, range and hint."""
    with pytest.raises(InvalidValueError, match=r"nic_ports is 5 of 40 Gbit/s, needed 1 to 4: iio_gbps is 160") as told:
        dataclasses.replace(load_machine(MACHINE), nic_ports=5)
    assert told.value.hint


def test_a_port_wide_enough_changes_nothing() -> None:
    """What no port of its own would limit runs as without one, to the last bit."""
    names = ("lpm@1500B,100000f,0.5Mpps", "stats@1500B,100000f,0.4Mpps")

    assert run(40.0, *names) == run(None, *names)


def test_a_port_is_part_of_the_experiment() -> None:
    """Documents carry it, other ports are other experiments, and one of no rate is refused."""
    narrow = Colocation(MACHINE, None, (parse_workload("lpm"),), port_gbps=10.0)

    assert Colocation.from_dict(narrow.to_dict()) == narrow
    assert narrow.key != Colocation(MACHINE, None, (parse_workload("lpm"),)).key
    with pytest.raises(InvalidValueError, match="shared port is 0"):
        Colocation(MACHINE, None, (), port_gbps=0.0)
    with pytest.raises(InvalidValueError, match="shared port is nan"):
        port_shares_mpps([64], [None], float("nan"))


def test_lines_that_devices_wrote_move_where_the_machine_says_so() -> None:
    """On Skylake the headers that cores read leave the DDIO ways; as on Broadwell they stay."""
    skylake = load_machine("silver-4110")
    held = []
    for policy in ("migrate", "allocate"):
        machine = dataclasses.replace(skylake, ddio_policy=policy)
        tenants = [Tenant(Workload("stats"), load_network_function("stats"), core) for core in range(4)]
        held.append(simulate(machine, tenants, seed=1).sockets[0]["DDIOOCC"])

    assert held[0] < 0.7 * held[1]
    with pytest.raises(InvalidValueError, match="ddio_policy is 'migrate', needed 'allocate', or a 'victim' LLC"):
        dataclasses.replace(load_machine(MACHINE), ddio_policy="migrate")


def test_frames_that_wait_before_a_full_wire_are_not_measured_as_carried() -> None:
    """Senders with rates that ask for a tenth too much serve what the wire carries, however short the run could be."""
    knobs = {"data_size_mib": 11.4, "packet_buffers": 984, "rate_mpps": 1.11, "reads_per_packet": 2}
    mix = [Workload("lpm", {}, Traffic(512)), *[Workload("synthetic", knobs, Traffic(1207))] * 7]
    tenants = [Tenant(each, load_network_function(each.nf), core) for core, each in enumerate(mix)]

    first, *others = simulate(load_machine(MACHINE), tenants, seed=4521977551491896).tenants

    carried = first.throughput_mpps * 532 + sum(each.throughput_mpps for each in others) * 1227
    assert carried * 8e-3 == pytest.approx(80.0, rel=0.003)
