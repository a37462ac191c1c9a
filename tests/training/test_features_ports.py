"""Runs in which full ports kept a network function from work are known as such."""

from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.designs import competitor
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.testbed.simulated import SimulatedTestbed
from slomo.training.features import limited_by_ports
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload import Traffic, Workload

MACHINE = "e5-2620v4"


def test_packets_that_are_dropped_take_their_part_of_the_wire() -> None:
    """Six senders fill the ports though the memory lets them process less; beside one at 1 Gbit/s nothing is full."""
    knobs = {
        "data_size_mib": 25.0,
        "reads_per_packet": 30,
        "writes_per_packet": 10,
        "packet_buffers": 7381,
        "packet_size_b": 1073,
    }
    target = Workload("flowstats", {"flow_capacity": 4 << 20}, Traffic(1500, flow_count=4_000_000))
    plan = ExperimentPlan(
        "pressure",
        tuple(
            Colocation(MACHINE, target, (competitor({**knobs, "rate_mpps": rate}),) * many)
            for rate, many in ((1.53, 6), (0.11, 1))
        ),
    )
    dataset = run_campaign(plan, SimulatedTestbed(MACHINE, accesses=60_000))
    frame = dataset.frame.sort_values("competitor_count", ascending=False)

    assert limited_by_ports(frame, dataset.environment).tolist() == [True, False]
    moved = 8e-3 * 1093 * (frame["beside.PCIEHIT"] + frame["beside.PCIEMISS"]).iloc[0] / 34
    assert moved + 8e-3 * 1520 * frame["throughput_mpps"].iloc[0] < 0.97 * load_machine(MACHINE).shared_wire_gbps()
