"""Designs span what they say, plans are values, mixes for calibration and test never meet."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slomo.errors import ConfigurationError, IncompatibleMeasurementsError, InvalidValueError, UnknownNameError
from slomo.profiling.campaign.schedule import needs_another
from slomo.profiling.plans import sources as plans
from slomo.profiling.plans.basic import mixes_plan, pressure_plan, solo_plan, stream_of
from slomo.profiling.plans.designs import Pressure, competitor, grid, make_design, slomo_grid, sobol, thinned
from slomo.profiling.plans.plan import ExperimentPlan, combine, run_seed
from slomo.profiling.plans.sources import farthest, sources
from slomo.testbed.simulated import SimulatedTestbed
from slomo.testing.builders import toy_plan
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.workload import Traffic, Workload
from slomo.workflow.profile import profile

MACHINE = "e5-2620v4"
FUNCTIONS = ["efficuts", "endre", "firewall", "ipsec", "lpm", "mazunat", "snort", "stats", "suricata"]


def test_slomo_grid_is_the_published_one():
    """588 runs: 7 data sizes, 3 access counts, 4 iteration counts, 1 to 7 instances."""
    design = slomo_grid()
    seen = {name: {point.workload.configuration[name] for point in design} for name in design[0].workload.configuration}

    assert len(design) == 588 == len(set(design))
    assert seen == {
        "data_size_mib": {2, 4, 6, 8, 10, 15, 20},
        "reads_per_packet": {1000, 5000, 10000},
        "iterations": {1, 2, 5, 10},
    }
    assert {point.instances for point in design} == set(range(1, 8))


def test_io_block_varies_buffers_and_packets():
    """The I/O path is an extra block on top of the published grid."""
    block = slomo_grid(io=True)[588:]

    assert {point.workload.configuration["packet_buffers"] for point in block} == {512, 2048, 8192, 32768}
    assert {point.workload.traffic.packet_size_b for point in block} == {64, 512, 1500}


def test_default_grid_has_the_same_budget_and_gentler_pressure():
    """The default grid costs what SLOMO's costs, and reads far less per packet at limited rates too."""
    design = grid()

    assert len(design) == len(slomo_grid()) == len(set(design))
    assert max(point.workload.configuration["reads_per_packet"] for point in design) < 1000
    assert {point.workload.configuration["rate_mpps"] for point in design} == {0, 0.4, 1.6}


@settings(max_examples=20)
@given(points=st.integers(1, 200), seed=st.integers(0, 2**32))
def test_sobol_points_are_possible_and_seeded(points, seed):
    """Any number of points, every knob in its range, the same for the same seed."""
    design = sobol(points, seed)

    assert len(design) == points
    assert all(1 <= point.instances <= 7 for point in design)
    assert all(competitor(dict(point.workload.configuration)) for point in design)
    assert design == sobol(points, seed)


def test_impossible_knobs_are_refused():
    """Negative sizes, fractions of reads and unknown knobs are named with their range or nearest match."""
    with pytest.raises(InvalidValueError, match="data_size_mib is -1"):
        competitor({"data_size_mib": -1})
    with pytest.raises(InvalidValueError, match="whole number"):
        grid({"reads_per_packet": [1.5]})
    with pytest.raises(UnknownNameError, match="did you mean 'data_size_mib'"):
        grid({"data_size": [1]})
    with pytest.raises(InvalidValueError, match="instances"):
        grid(instances=0)
    with pytest.raises(InvalidValueError, match="instances"):
        Pressure(Workload("synthetic"), 0)
    with pytest.raises(InvalidValueError, match="points is 0"):
        sobol(0)


def test_equal_settings_have_one_fingerprint():
    """8 and 8.0 MiB are the same competitor."""
    first, second = (competitor({"data_size_mib": size}) for size in (8, 8.0))
    assert first.to_dict() == second.to_dict()


def test_designs_are_found_by_name_and_thinned():
    """Names give designs, a number of runs thins a grid, more runs than points are refused."""
    assert make_design("slomo-grid") == slomo_grid()
    assert len(make_design("sobol", runs=30)) == 30
    some = make_design("grid", runs=30, seed=1)
    assert len(set(some)) == 30
    assert some == make_design("grid", runs=30, seed=1) != make_design("grid", runs=30, seed=2)
    with pytest.raises(UnknownNameError, match="did you mean 'sobol'"):
        make_design("sobel")
    with pytest.raises(InvalidValueError, match="needed 1 to 588"):
        thinned(grid(), 589)


def test_pressure_plan_has_the_design_and_the_solo_run():
    """Every target is run alone and at every point of the design."""
    plan = pressure_plan(["lpm", "stats"], MACHINE, "grid", runs=20, seed=1)

    assert len(plan) == 2 * 21
    assert [len(c.competitors) == 0 for c in plan.colocations].count(True) == 2
    assert {c.target.nf for c in plan.colocations} == {"lpm", "stats"}


def test_plans_name_unknown_machines():
    """A machine there is not is refused with the nearest name."""
    with pytest.raises(UnknownNameError, match="did you mean 'e5-2620v4'"):
        solo_plan(["lpm"], "e5-2620")


@settings(max_examples=15)
@given(seeds=st.tuples(st.integers(0, 1000), st.integers(0, 1000)))
def test_calibration_and_test_mixes_never_meet(seeds):
    """No set of tenants is in both streams, whatever the seeds and whoever is the target."""
    test, calibration = (
        mixes_plan(FUNCTIONS, MACHINE, 60, stream=stream, seed=seed)
        for stream, seed in zip(("test", "calibration"), seeds, strict=True)
    )
    tenants = [{tuple(sorted(w.key for w in c.tenants)) for c in plan.colocations} for plan in (test, calibration)]

    assert not tenants[0] & tenants[1]
    assert all(stream_of(c) == "test" for c in test.colocations)


def test_mixes_are_of_unlike_competitors_in_all_sizes():
    """Competitors of a mix differ in kind, sizes 1 to 7 are equally frequent, mixes are all different."""
    plan = mixes_plan(FUNCTIONS, MACHINE, 210, seed=1)
    sizes = [len(c.competitors) for c in plan.colocations]

    assert all(len(set(c.competitors)) == len(c.competitors) for c in plan.colocations)
    assert {size: sizes.count(size) for size in set(sizes)} == dict.fromkeys(range(1, 8), 30)
    assert {c.target.nf for c in plan.colocations} == set(FUNCTIONS)


def test_mixes_of_few_kinds_repeat_kinds():
    """Seven competitors of two kinds are possible; more mixes than exist are refused with their number."""
    assert len(mixes_plan(["lpm", Workload("lpm", traffic=Traffic(packet_size_b=1500))], MACHINE, 3, sizes=(7,))) == 3
    with pytest.raises(InvalidValueError, match="only about"):
        mixes_plan(["lpm"], MACHINE, 50)


@pytest.mark.parametrize(("count", "sizes"), [(0, (1,)), (5, (8,)), (5, (0,)), (5, ())])
def test_impossible_mixes_are_refused(count, sizes):
    """No mixes, no size, or a size beyond the machine's cores is named."""
    with pytest.raises(InvalidValueError, match="1 to 7 competitors"):
        mixes_plan(FUNCTIONS, MACHINE, count, sizes)


def test_plans_survive_their_mapping():
    """A plan written and read is the same plan; one of another version is refused."""
    plan = pressure_plan("lpm", MACHINE, runs=5, replicates=2, seed=9)

    assert ExperimentPlan.from_dict(plan.to_dict()) == plan
    assert ExperimentPlan.from_dict(plan.to_dict()).fingerprint == plan.fingerprint
    with pytest.raises(ConfigurationError, match="schema version 7"):
        ExperimentPlan.from_dict({**plan.to_dict(), "schema_version": 7})


def test_combined_plans_run_shared_colocations_once():
    """The solo run of both plans is one run; plans of unlike seeds do not combine."""
    solo, pressure = solo_plan(["lpm"], MACHINE), pressure_plan("lpm", MACHINE, runs=5)

    assert len(combine("all", [solo, pressure])) == 6
    with pytest.raises(InvalidValueError, match="differ in seed"):
        combine("all", [solo, pressure_plan("lpm", MACHINE, runs=5, seed=1)])


def test_impossible_plans_are_refused():
    """A plan has co-locations, all different, and sensible replicates."""
    colocations = toy_plan().colocations
    with pytest.raises(InvalidValueError, match="no co-location"):
        ExperimentPlan("empty", ())
    with pytest.raises(InvalidValueError, match="twice"):
        ExperimentPlan("double", colocations + colocations[:1])
    with pytest.raises(InvalidValueError, match="replicates"):
        ExperimentPlan("backwards", colocations, replicates=3, maximum_replicates=2)
    with pytest.raises(InvalidValueError, match="dispersion"):
        ExperimentPlan("strict", colocations, dispersion_limit=0.0)


@given(seed=st.integers(0, 2**63), replicate=st.integers(0, 100))
def test_run_seeds_are_safe_everywhere(seed, replicate):
    """A run's seed is exact as a float and differs from its neighbour's."""
    drawn_seed = run_seed(seed, "0123456789abcdef", replicate)

    assert 0 <= drawn_seed < 2**53
    assert int(float(drawn_seed)) == drawn_seed
    assert drawn_seed != run_seed(seed, "0123456789abcdef", replicate + 1)


def test_repetition_stops_when_stable_or_at_the_maximum():
    """Stable values need no more runs; unstable ones stop at the maximum."""
    plan = ExperimentPlan("p", toy_plan().colocations, replicates=2, maximum_replicates=3)

    assert needs_another([1.0], plan)
    assert not needs_another([1.0, 1.0], plan)
    assert needs_another([1.0, 2.0], plan)
    assert not needs_another([1.0, 2.0, 3.0], plan)


@pytest.mark.parametrize("name", ["e5-2620v4", "silver-4110", "gold-6430"])
def test_sixty_points_leave_no_gap_along_any_source(name: str) -> None:
    """Accesses, bytes at the ports, load of the channel: no step between neighbours is a quarter of the whole."""
    machine = load_machine(name)
    usable = machine.memory_peak_gb_s * machine.memory_efficiency
    per_source: list[list[float]] = [[], [], []]
    for number, point in enumerate(sources(machine, 60, seed=3)):
        set_to, size_b = point.workload.configuration, point.workload.traffic.packet_size_b
        packets = float(set_to["rate_mpps"]) * point.instances
        lines = int(set_to["reads_per_packet"]) + 2 * int(set_to.get("writes_per_packet", 0))
        place = (
            np.log(packets / point.instances * lines / 0.5) / np.log(300.0),
            packets * 8e-3 * (size_b + 20) / machine.shared_wire_gbps(),
            packets * lines * 64e-3 / min(1.1 * usable, 35.0),  # seven instances move 35 GB/s at the most
        )[number % 3]
        per_source[number % 3].append(float(place))
    for places in per_source:
        assert np.diff(sorted([0.0, *places, 1.0])).max() < 0.25
        assert min(places) > -0.05
        assert max(places) < 1.05


@pytest.mark.parametrize("name", ["e5-2620v4", "silver-4110", "gold-6430"])
def test_instances_are_enough_for_the_load_that_is_meant(name: str) -> None:
    """No instance is to move more than a core can at random, nor more than one port carries, where more may run."""
    machine = load_machine(name)
    for number, point in enumerate(sources(machine, 180, seed=4)):
        set_to, size_b = point.workload.configuration, point.workload.traffic.packet_size_b
        rate = float(set_to["rate_mpps"])
        if point.instances == 7 or number % 3 == 0:
            continue
        lines = int(set_to["reads_per_packet"]) + 2 * int(set_to.get("writes_per_packet", 0))
        assert rate * 8e-3 * (size_b + 20) <= 1.01 * machine.nic_gbps
        assert number % 3 == 1 or rate * lines * 64e-3 <= 2.53
        assert rate * point.instances * 8e-3 * (size_b + 20) <= 1.02 * machine.shared_wire_gbps() or size_b == 64


def test_several_instances_leave_a_large_cache_partly_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """With data divided among instances in every second setting, more settings of four and more do not fill it."""
    machine = load_machine("gold-6430")

    def held_mib() -> list[float]:
        beside = [point for number, point in enumerate(sources(machine, 588, seed=3)) if number % 3 < 2]
        settings_of = [(point.workload.configuration, point.instances) for point in beside if point.instances > 3]
        return [float(chosen["data_size_mib"]) * instances for chosen, instances in settings_of]

    divided = np.array(held_mib())
    monkeypatch.setattr(plans, "_LARGE_LLC_MIB", machine.llc_mib)
    assert (divided < machine.llc_mib).mean() > 1.3 * (np.array(held_mib()) < machine.llc_mib).mean()


def test_a_narrow_channel_is_overloaded_in_a_quarter_of_the_memory_settings() -> None:
    """Seven cores move 17.5 GB/s at random: more than such a channel carries, less than one of 25.6 GB/s does."""
    machine = load_machine(MACHINE)
    narrow = replace(machine, memory_peak_gb_s=8.0 / machine.memory_efficiency)

    def loads_gb_s(machine: Machine) -> list[float]:
        made = []
        for point in sources(machine, 180, seed=3)[2::3]:
            set_to = point.workload.configuration
            lines = int(set_to["reads_per_packet"]) + 2 * int(set_to["writes_per_packet"])
            made.append(float(set_to["rate_mpps"]) * lines * 64e-3 * point.instances)
        return made

    loads = np.array(loads_gb_s(narrow))
    assert (loads > 1.1 * 8.0).mean() == pytest.approx(0.25, abs=0.02)
    assert 16.0 < loads.max() < 17.7
    assert max(loads_gb_s(machine)) < 1.11 * machine.memory_peak_gb_s * machine.memory_efficiency


@pytest.mark.parametrize(
    ("machine", "earlier", "value"),
    [("gold-6430", "_LARGE_LLC_MIB", 100.0), ("narrow", "_MEMORY_LOAD", (0.02, 2.5))],
)
def test_a_campaign_with_earlier_settings_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, earlier: str, value: object
) -> None:
    """A store keeps the settings of the version that began it; another number of runs or design is another campaign."""
    chosen = load_machine("gold-6430")
    if machine == "narrow":
        chosen = replace(load_machine(MACHINE), name="narrow", memory_peak_gb_s=8.0 / 0.75)
    wanted = {"machine": chosen, "plan": "pressure", "jobs": 1, "store": tmp_path / "begun.sqlite"}
    testbed = SimulatedTestbed(chosen, accesses=60_000, scale=64)
    with monkeypatch.context() as before:
        before.setattr(plans, earlier, value)
        begun = profile("lpm", testbed=testbed, runs=6, **wanted)

    assert profile("lpm", testbed=testbed, runs=6, **wanted) == begun
    assert profile("lpm", testbed=testbed, runs=6, **wanted | {"store": None}) != begun
    for other in ({"runs": 5}, {"runs": 6, "design": "grid"}):
        with pytest.raises(IncompatibleMeasurementsError, match="another campaign"):
            profile("lpm", testbed=testbed, **wanted, **other)


def test_a_campaign_of_named_mixes_keeps_to_its_settings(tmp_path: Path) -> None:
    """A synthetic competitor that the user names is not replaced by the one that a store began with."""
    chosen, store = load_machine(MACHINE), tmp_path / "named.sqlite"
    fixed = {"machine": chosen, "plan": "mixes", "jobs": 1, "store": store}
    testbed = SimulatedTestbed(chosen, accesses=60_000, scale=64)
    profile([], testbed=testbed, mixes=["lpm + synthetic(data_size_mib=8)"], **fixed)
    with pytest.raises(IncompatibleMeasurementsError, match="another campaign"):
        profile([], testbed=testbed, mixes=["lpm + synthetic(data_size_mib=16)"], **fixed)


def test_link_plan_puts_all_memory_on_the_other_socket():
    """The target stays beside the card; every second point has competitors on both sockets; one socket is refused."""
    plan = pressure_plan("lpm", MACHINE, "link", runs=8, seed=2)
    solo, *beside = plan.colocations

    assert not solo.competitors
    assert {each.memory_node for each in plan.colocations} == {1}
    assert all(each.sockets[:2] == (0, 0) for each in beside)
    assert [1 in each.sockets for each in beside] == [True, False] * 4
    with pytest.raises(InvalidValueError, match="needs the memory of another socket"):
        pressure_plan("lpm", replace(load_machine(MACHINE), sockets=1), "link")


@pytest.mark.parametrize(
    ("more", "plan"), [({}, "all"), ({"latency": True}, "pressure"), ({"reduced_mixes": 5}, "solo")]
)
def test_a_profile_over_the_link_is_not_mixed_with_others(more, plan):
    """Runs without the far memory do not stand in one dataset with those that have it."""
    with pytest.raises(InvalidValueError, match="another socket"):
        profile(["lpm", "nat"], plan=plan, design="link", runs=4, **more)


@pytest.mark.parametrize("name", ["e5-2620v4", "silver-4110"])
def test_few_settings_reach_the_ways_and_the_channel(name: str) -> None:
    """Of five settings one fills the DDIO ways, one the channel, one the LLC beside free ways; more are not chosen."""
    machine = load_machine(name)
    for seed in range(8):
        five = farthest(machine, 5, seed=seed)
        llc, _, channel, ways = np.array([plans._pressures(machine, point) for point in five]).T
        assert ways.max() > 0.9
        assert channel.max() > 0.9
        assert (llc[ways < 0.7] == 1.0).any()
        others = [point for point in sources(machine, 60, seed) if point not in five]
        assert farthest(machine, 10, seed=seed) == (*five, *others[:5])
        assert (
            pressure_plan("lpm", machine, "farthest", runs=5, seed=seed).colocations[1].competitors
            == five[0].competitors
        )
    with pytest.raises(InvalidValueError, match="runs is 61, needed 1 to 60"):
        farthest(machine, 61)
