"""One NIC port for several tenants: packets take turns on its wire, and nothing changes where it is wide enough."""

import pytest

from slomo.compose.ports import port_shares_mpps
from slomo.errors import InvalidValueError
from slomo.simulator.hardware.port import delivered_mpps
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
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
        ([64, 64], [30.0, 40.0], 40.0),
        ([64, 64], [3.0, 4.0], 40.0),
    ],
)
def test_turns_on_the_wire_come_to_a_max_min_share(frames, offered, gbps) -> None:
    """Played packet by packet, everybody gets what dividing the line rate says, within half a per cent."""
    played = delivered_mpps(frames, offered, gbps)

    assert played == pytest.approx(port_shares_mpps(frames, offered, gbps), rel=0.005)


def test_a_port_wide_enough_changes_nothing() -> None:
    """What no port of its own would limit runs as without one, to the last bit."""
    names = ("lpm@1500B,100000f,0.5Mpps", "stats@1500B,100000f,0.4Mpps")

    assert run(40.0, *names) == run(None, *names)


def test_a_narrow_port_divides_its_rate() -> None:
    """Three saturated functions behind 10 Gbit/s serve a third each, and the wire is full."""
    served = [sample.throughput_mpps for sample in run(10.0, *["lpm@1500B"] * 3)]

    assert served == pytest.approx([10e3 / 8 / 1520 / 3] * 3, rel=0.02)


def test_what_the_port_drops_is_lost() -> None:
    """Offered twice what the port carries, half is lost though the function could serve it."""
    (sample,) = run(5.0, "lpm@1500B,100000f,0.822368Mpps")

    assert sample.loss == pytest.approx(0.5, abs=0.02)


def test_a_port_is_part_of_the_experiment() -> None:
    """Documents carry it, other ports are other experiments, and one of no rate is refused."""
    narrow = Colocation(MACHINE, None, (parse_workload("lpm"),), port_gbps=10.0)

    assert Colocation.from_dict(narrow.to_dict()) == narrow
    assert narrow.key != Colocation(MACHINE, None, (parse_workload("lpm"),)).key
    with pytest.raises(InvalidValueError, match="shared port is 0"):
        Colocation(MACHINE, None, (), port_gbps=0.0)
    with pytest.raises(InvalidValueError, match="shared port is nan"):
        port_shares_mpps([64], [None], float("nan"))
