"""Testbeds keep their contract, and spoilt ones spoil as told."""

from dataclasses import replace

import pytest

from slomo.errors import InvalidValueError, TestbedError, UnknownNameError, UsageError
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.basic import mixes_plan, solo_plan
from slomo.records.dataset import ProfileDataset
from slomo.records.storage import load_dataset, save_dataset
from slomo.testbed.registry import make_testbed
from slomo.testbed.replay import ReplayTestbed
from slomo.testbed.simulated import SimulatedTestbed
from slomo.testing.builders import TOY_MACHINE, ToyTestbed, toy_plan
from slomo.testing.testbed_contract import TestbedContract
from slomo.vocabulary.colocation import Colocation, Isolation
from slomo.vocabulary.network_function import NetworkFunction, load_network_function
from slomo.vocabulary.workload import Traffic, Workload
from tests.faulty_testbeds import FailingTestbed, NoisyTestbed

MACHINE = "e5-2620v4"
QUICK = {"accesses": 40_000}
MEM = Workload("synthetic", {"data_size_mib": 8, "reads_per_packet": 100})


def toy(count: int) -> Colocation:
    return Colocation(TOY_MACHINE, Workload("lpm"), (Workload("nat"),) * count)


def simulated(count: int) -> Colocation:
    return Colocation(MACHINE, Workload("lpm"), (MEM,) * count)


class TestToy(TestbedContract):
    __test__ = True

    def make_testbed(self):
        return ToyTestbed()

    def colocations(self):
        return toy(0), toy(2)


class TestSimulated(TestbedContract):
    __test__ = True

    def make_testbed(self):
        return SimulatedTestbed(MACHINE, **QUICK)

    def colocations(self):
        return simulated(0), simulated(3)


class TestNoisy(TestbedContract):
    __test__ = True
    noise = 0.2

    def make_testbed(self):
        return NoisyTestbed(ToyTestbed(), seed=4)

    def colocations(self):
        return toy(0), toy(2)


class TestFailingNow(TestbedContract):
    __test__ = True

    def make_testbed(self):
        return FailingTestbed(ToyTestbed(), every=100)

    def colocations(self):
        return toy(0), toy(2)


def test_competitors_share_one_socket():
    """The simulator reports the NIC's socket, where everybody runs: the vectors there add up to the tenants'."""
    record = SimulatedTestbed(MACHINE, **QUICK).run(simulated(2), seed=1)
    for phase in (record.alone, record.beside):
        summed = sum(tenant.vector["L2MISS"] for tenant in phase.tenants)
        assert phase.socket["L2MISS"] == pytest.approx(summed)


def test_full_socket_runs_and_one_more_is_refused():
    """A mix larger than the machine's cores names machine, cores and tenants."""
    testbed = SimulatedTestbed(MACHINE, **QUICK)
    testbed.check(simulated(7))
    with pytest.raises(InvalidValueError, match=r"9 tenants, but machine 'e5-2620v4' has 8 cores"):
        testbed.run(simulated(8))


def test_competition_without_target_leaves_the_targets_core_free():
    """Eight competitors alone would take the core that the target needs."""
    with pytest.raises(InvalidValueError, match="8 tenants"):
        SimulatedTestbed(MACHINE, **QUICK).run(Colocation(MACHINE, None, (MEM,) * 8))


def test_another_machine_is_refused():
    """A testbed of one machine does not answer for another."""
    with pytest.raises(InvalidValueError, match="this testbed simulates 'e5-2620v4'"):
        SimulatedTestbed(MACHINE).run(Colocation("silver-4110", Workload("lpm")))


def test_names_carry_the_nearest_match():
    """Unknown machines and functions are answered with the nearest name."""
    with pytest.raises(UnknownNameError, match="did you mean 'silver-4110'"):
        SimulatedTestbed("silver-4100")
    with pytest.raises(UnknownNameError, match="did you mean 'mazunat'"):
        SimulatedTestbed(MACHINE).run(Colocation(MACHINE, Workload("mazunet")))


@pytest.mark.parametrize("settings", [{"data_size_mib": -1}, {"reads_per_packet": 1e9}, {"pattern": "zigzag"}])
def test_impossible_knobs_are_refused_before_anything_runs(settings):
    """A knob out of its range is named with what it got and what it needs."""
    colocation = Colocation(MACHINE, Workload("lpm"), (Workload("synthetic", settings),))
    with pytest.raises(InvalidValueError, match=next(iter(settings))):
        SimulatedTestbed(MACHINE).check(colocation)


def test_isolation_reaches_the_simulator():
    """A target fenced off in its own ways keeps cache that an unfenced one loses."""
    testbed = SimulatedTestbed(MACHINE, accesses=200_000)
    fences = (Isolation(0xFFC00), *([Isolation(0x003FF)] * 5))
    aggressor = Workload("synthetic", {"data_size_mib": 16, "reads_per_packet": 1000})
    target = Workload("synthetic", {"data_size_mib": 6, "reads_per_packet": 10})
    free = testbed.run(Colocation(MACHINE, target, (aggressor,) * 5), seed=1)
    fenced = testbed.run(Colocation(MACHINE, target, (aggressor,) * 5, fences), seed=1)

    assert fenced.target.vector["L3MISS"] < free.target.vector["L3MISS"]


def test_own_function_is_simulated_and_stated():
    """An NF of one's own runs under its name, and its definition is part of the environment."""
    own = NetworkFunction.from_dict({**load_network_function("l2fwd").to_dict(), "name": "mine"})
    testbed = SimulatedTestbed(MACHINE, [own], **QUICK)

    assert testbed.run(Colocation(MACHINE, Workload("mine"))).target.throughput_mpps > 0
    assert set(testbed.environment()["network_functions"]) - set(
        SimulatedTestbed(MACHINE).environment()["network_functions"]
    ) == {"mine"}


def test_loss_is_stated_for_an_offered_load_only():
    """A saturating generator has no loss; a load far below capacity loses nothing."""
    testbed = SimulatedTestbed(MACHINE, **QUICK)
    offered = Workload("lpm", traffic=Traffic(offered_mpps=1.0))

    assert testbed.run(Colocation(MACHINE, Workload("lpm"))).target.loss is None
    sample = testbed.run(Colocation(MACHINE, offered)).target
    assert sample.loss == 0.0
    assert 0 < sample.latency_p50_us <= sample.latency_p99_us


def test_noise_is_seeded_and_the_truth_is_kept():
    """Another seed gives other numbers; the truth beneath is the same; noise of zero changes nothing."""
    runs = [NoisyTestbed(ToyTestbed(), seed=seed).run(toy(2), seed=5) for seed in (1, 1, 2)]

    assert runs[0] == runs[1]
    assert runs[0].target.throughput_mpps != runs[2].target.throughput_mpps
    assert runs[0].truth == runs[2].truth == ToyTestbed().run(toy(2), seed=5)
    quiet = NoisyTestbed(ToyTestbed(), throughput=0.0, metrics=0.0).run(toy(2), seed=5)
    assert replace(quiet, truth=None) == ToyTestbed().run(toy(2), seed=5)


def test_noise_never_makes_an_impossible_share():
    """A hit rate stays a share, however noisy."""
    run = NoisyTestbed(SimulatedTestbed(MACHINE, **QUICK), metrics=0.9).run(simulated(1))

    assert 0.0 <= run.beside.socket["L3HIT"] <= 1.0
    assert run.truth is not None


def test_noise_is_part_of_the_environment():
    """Measurements with and without noise must not be merged."""
    assert NoisyTestbed(ToyTestbed()).environment() != ToyTestbed().environment()


def test_noise_out_of_range_is_refused():
    """Negative noise is refused."""
    with pytest.raises(InvalidValueError, match="needed 0 to 1"):
        NoisyTestbed(ToyTestbed(), throughput=-0.1)


def test_failures_come_as_told():
    """Every second call fails, and co-locations named fail always."""
    testbed = FailingTestbed(ToyTestbed(), every=2, keys=[toy(3).key])

    testbed.run(toy(1))
    with pytest.raises(TestbedError):
        testbed.run(toy(1))
    with pytest.raises(TestbedError):
        testbed.run(toy(3))


def test_replay_of_records_is_exact():
    """Raw records come back as they were, by seed where it was recorded."""
    records = [ToyTestbed().run(toy(count), seed=seed) for count in (0, 2) for seed in (1, 2)]
    replay = ReplayTestbed(records)

    assert [replay.run(record.colocation, seed=record.seed) for record in records] == records
    assert replay.run(toy(2), seed=99).colocation == toy(2)


def test_replay_of_a_dataset_gives_its_numbers_again():
    """A campaign on a replayed dataset ends with that dataset's throughput and vectors."""
    plan = toy_plan(competitors=4)
    dataset = run_campaign(plan, ToyTestbed())
    again = run_campaign(plan, ReplayTestbed(dataset))
    columns = ["throughput_mpps", "competition.L2MISS", "own.L3OCC", "beside.L2MISS"]

    assert again.frame[columns].to_numpy() == pytest.approx(dataset.frame[columns].to_numpy())


def test_replay_of_mixes_gives_every_tenant_again():
    """A mix replayed from a dataset answers for each of its tenants, as the recorded one did."""
    plan = mixes_plan(["lpm", "nat", "firewall"], MACHINE, 2, (1, 2))
    dataset = run_campaign(plan, ToyTestbed())
    again = run_campaign(plan, ReplayTestbed(dataset))

    assert len(dataset) == sum(len(colocation.tenants) for colocation in plan.colocations)
    assert again.frame["target"].tolist() == dataset.frame["target"].tolist()
    assert again.throughput == pytest.approx(dataset.throughput)
    assert again.vectors("own").to_numpy() == pytest.approx(dataset.vectors("own").to_numpy(), nan_ok=True)


def test_replay_of_a_mix_whose_competitors_are_unknown_answers_for_the_target():
    """Where only the target's row of a mix was kept, the replay makes no rows without throughput."""
    plan = mixes_plan(["lpm", "nat", "firewall"], MACHINE, 2, (1, 2))
    whole = run_campaign(plan, ToyTestbed())
    dataset = ProfileDataset(whole.frame[whole.frame["tenant"] == 0].reset_index(drop=True), whole.environment)

    assert run_campaign(plan, ReplayTestbed(dataset)).throughput == pytest.approx(dataset.throughput)


def test_replay_of_what_was_never_recorded_is_a_testbed_error():
    """A replay does not invent runs."""
    with pytest.raises(TestbedError, match="was not recorded"):
        ReplayTestbed([ToyTestbed().run(toy(0))]).run(toy(1))


def test_registry_knows_aliases_and_passes_instances(tmp_path):
    """An alias makes a testbed, an instance is returned as it is, a recorded dataset is replayed from its file."""
    testbed = ToyTestbed()
    assert make_testbed(testbed) is testbed
    assert make_testbed("simulated", "silver-4110").environment()["machines"].keys() == {"silver-4110"}
    dataset = run_campaign(solo_plan(["lpm"], MACHINE), SimulatedTestbed(MACHINE, **QUICK))
    dataset.to_parquet(tmp_path / "solo.parquet")
    replay = make_testbed("replay", source=tmp_path / "solo.parquet")
    assert replay.run(Colocation(MACHINE, Workload("lpm"))).target.throughput_mpps == dataset.throughput[0]
    with pytest.raises(UnknownNameError, match="did you mean 'simulated'"):
        make_testbed("simulation")
    with pytest.raises(UsageError, match="nothing to replay"):
        make_testbed("replay")


def far(target: Workload | None, *competitors: tuple[Workload, int]) -> Colocation:
    """Put a target beside the card and competitors on sockets, with all memory on socket 1."""
    sockets = (*(() if target is None else (0,)), *(socket for _, socket in competitors))
    return Colocation(MACHINE, target, tuple(each for each, _ in competitors), sockets=sockets, memory_node=1)


def test_the_vector_tells_of_the_link_and_of_the_far_memory():
    """Memory on the other socket: traffic crosses the link, and its channels' load is told whoever loads them."""
    testbed, target = SimulatedTestbed(MACHINE, **QUICK), Workload("ip-router")
    stream = Workload("synthetic", {"data_size_mib": 256, "reads_per_packet": 500})
    here = testbed.run(Colocation(MACHINE, target, (stream,)), seed=1).beside.socket
    beside, beyond = (testbed.run(far(target, (stream, socket)), seed=1) for socket in (0, 1))

    assert here["UPI"] == 0.0 < beside.beside.socket["UPI"]
    assert beside.beside.socket["LLCMISSLAT"] > here["LLCMISSLAT"] + 40.0
    # on its own socket the stream loads the channels, but neither the link nor the target's cache
    assert beyond.alone.socket["READ"] == pytest.approx(beyond.alone.tenants[0].vector["READ"])
    assert beyond.alone.socket["READ"] > 1.0
    assert beyond.alone.socket["L3OCC"] == 0.0
    assert beyond.alone.socket["UPI"] < 0.5 * beside.alone.socket["UPI"]
    tenants = sum(tenant.vector["READ"] for tenant in beyond.beside.tenants)
    assert beyond.beside.socket["READ"] == pytest.approx(tenants)


def test_each_tenant_may_have_its_memory_on_a_node_of_its_own():
    """Only the one whose memory is on the other node is slower, beside others too."""
    target = Workload("ip-router")
    ran = SimulatedTestbed(MACHINE, **QUICK).run(Colocation(MACHINE, target, (target,), memory_node=(1, 0)), seed=1)
    far, near = ran.beside.tenants
    assert far.throughput_mpps < 0.95 * near.throughput_mpps
    assert near.vector["RMB"] == 0.0 < far.vector["RMB"]


def test_replay_gives_runs_on_two_sockets_again(tmp_path):
    """Sockets and memory node of a run survive the dataset's file, beside rows without them."""
    testbed = SimulatedTestbed(MACHINE, **QUICK)
    runs = [testbed.run(each, seed=1) for each in (far(Workload("lpm"), (MEM, 0), (MEM, 1)), simulated(1))]
    save_dataset(ProfileDataset.from_records(runs, testbed.environment()), tmp_path / "runs.csv")
    replay = ReplayTestbed(load_dataset(tmp_path / "runs.csv"))

    assert replay.colocations == tuple(run.colocation for run in runs)
