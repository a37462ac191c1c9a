"""NUMASFP's lookup table, from profiles over partitions."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from slomo.cli.main import main
from slomo.errors import InvalidValueError
from slomo.models.partition_profile import PartitionProfile
from slomo.models.responses.memory_traffic import MemoryTraffic
from slomo.models.responses.partition import PartitionResponse
from slomo.placement.chains.allocation import MBA_STEP, SERVED, required, resource_rows
from slomo.records.run import RunRecord
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation, Isolation
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload_text import parse_workload
from slomo.workflow.acting.partition_profile import (
    _away_rows,
    _row,
    _with_displaced,
    predict_partition,
    profile_partitions,
)

MACHINE = load_machine("e5-2620v4")


def test_needs_grow_with_the_rate_and_serve_it() -> None:
    """More traffic never needs fewer cores or, on one core, ways; a run with exactly these serves the rate."""
    testbed, workload = SimulatedTestbed(MACHINE, accesses=20_000), parse_workload("snort@256B")
    profile = profile_partitions(testbed, MACHINE, [workload])
    response = profile.responses[workload.key]
    rows = resource_rows(response, MACHINE, [0.5, 1.0, 3.0])
    cores, one_core = [row[3] for row in rows], [row[4] for row in rows if row[3] == 1]

    assert profile.memory.most_gb_s == MACHINE.capacities().memory_gb_s  # controllers solve profiles, models have it
    assert cores == sorted(cores)
    assert cores[0] == 1 < cores[-1]
    assert all(1 <= ways <= 18 and 10 <= percent <= 100 for *_, ways, percent, _ in rows)
    assert one_core == sorted(one_core)
    for mpps in (0.2, 0.4):
        ways, _, percent = required(response, MACHINE, mpps)
        run = Colocation(MACHINE.name, workload.offered(mpps), (), (Isolation((1 << ways) - 1, percent),))
        served = testbed.run(run, seed=5).beside
        assert served is not None
        assert served.tenants[0].throughput_mpps >= (SERVED - 0.05) * mpps
        assert percent % MBA_STEP == 0


def test_packets_that_a_card_writes_to_memory_need_no_further_room() -> None:
    """Without DDIO, a card's write removes a packet's line from the cache; when fetched, it returns to its place."""
    machine = load_machine("epyc-7543")
    alone = Colocation(machine.name, parse_workload("l2fwd"), (), (Isolation(machine.full_way_mask),))
    record = SimulatedTestbed(machine, scale=64, accesses=10_000).run(alone)
    assert record.beside is not None
    target = record.beside.tenants[0]
    assert target.vector["L3MISS"] >= target.throughput_mpps
    assert _row(record, machine)[0].fetched_bytes == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize("displaced", [0.0, 0.5])
def test_runs_in_own_ways_tell_how_much_packets_displace(displaced: float) -> None:
    """The share of packets that displace lines with which the runs were made is learned; without packets it is 0."""
    lpm = parse_workload("lpm")
    needs = PartitionResponse(lpm.key, 2.0, (1.0, 4.0), (1.0, 0.5), (0.0, 0.0), (64.0, 64.0))
    packets = replace(
        needs, buffer_ways=0.25, buffer_bytes=64, buffer_mask=MACHINE.ddio_way_mask, requested_bytes=192.0
    )
    profiles = [
        PartitionProfile(MACHINE.name, {lpm.key: each}, MemoryTraffic((80.0,), (0.0,))) for each in (packets, needs)
    ]
    own = Colocation(MACHINE.name, lpm, (lpm,), (Isolation(0xF), Isolation(0xF0000)))
    truth = replace(profiles[0], responses={lpm.key: replace(packets, displaced=displaced)})
    runs = [(own, predict_partition(truth, own, MACHINE).throughput_mpps)]

    learned, without = (_with_displaced(profile, MACHINE, runs).responses[lpm.key] for profile in profiles)
    assert (learned.displaced, without.displaced) == (displaced, 0.0)


@pytest.mark.parametrize(("plan", "head"), [("resource-table", "LLC ways"), ("ways", "cache ways")])
def test_command_prints_a_table_and_writes_the_profile(
    plan: str, head: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`slomo profile --plan resource-table` gives ten rates per NF, `--plan ways` a curve; both write the same file."""
    out = tmp_path / "profiles.json"
    assert main(["profile", "l2fwd@256B", "--plan", plan, "--out", str(out)]) == 0
    assert head in capsys.readouterr().out
    assert [*json.loads(out.read_text(encoding="utf-8"))] == ["schema_version", "profiles"]


def test_a_dry_run_of_the_table_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """`--dry-run` runs nothing, so it says that it cannot describe runs that depend on each other."""
    assert main(["profile", "l2fwd@256B", "--plan", "resource-table", "--dry-run"]) == 2
    assert "each run depends on those before it" in capsys.readouterr().err


def test_the_plan_chooses_its_runs_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """Options that number runs or mixes of other plans are refused instead of ignored."""
    assert main(["profile", "l2fwd@256B", "--plan", "ways", "--runs", "8"]) == 2
    assert "--runs was given with --plan ways" in capsys.readouterr().err


def test_a_testbed_that_places_memory_itself_leaves_other_nodes_out() -> None:
    """A real machine refuses runs with memory on a given node, so its profiles say nothing about other nodes."""

    class Real(SimulatedTestbed):
        def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
            raise InvalidValueError(f"memory node {colocation.memory_node} is given, but this testbed chooses it")

    assert _away_rows(Real(MACHINE), MACHINE, parse_workload("lpm"), 0) == []
