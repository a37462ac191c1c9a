"""Chains on NUMA nodes: the paper's policies, and the search on predictions."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from slomo.errors import ConfigurationError, InvalidValueError, UnknownNameError
from slomo.models.library import ModelLibrary
from slomo.models.partition_profile import PartitionProfile, load_profiles, save_profiles
from slomo.models.responses.partition import PartitionResponse
from slomo.placement.chains.allocation import lookup_table
from slomo.placement.chains.moves import MoveCost
from slomo.placement.chains.nodes import Need, Node, crossings, handover_keeps, migrations
from slomo.placement.chains.planner import place_chains, plan_chains
from slomo.placement.chains.policies import Judges, chain_policy, chain_policy_names
from slomo.placement.chains.predicted import best_nodes, climbed, every_choice
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.problem.chain import RatedChain
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.documents import parse_rated_chains
from slomo.placement.problem.enforcement import plan_from_decision
from slomo.placement.problem.request import SLO, Request
from slomo.placement.workloads import numasfp_chains
from slomo.simulator.sharing.engine import StagePlace, simulate_chains
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload import Workload
from slomo.workflow.chains.judge import NodeNoise, judge_chains
from slomo.workflow.chains.node_costs import mover_of, moving_costs
from slomo.workflow.chains.on_nodes import isolations
from slomo.workflow.chains.on_nodes import place_chains as place_on_nodes

MACHINE = "e5-2620v4"
NODES = (Node(8, 18), Node(8, 18))


def chain(name, *gbps):
    return RatedChain(Request(name, ("lpm", "stats", "firewall")), gbps)


def table(item, mpps):
    """A chain takes three cores, and ways and bandwidth by its rate."""
    return Need(len(item.request.chain), 3, 4.0 * mpps)


def even(alone, beside=None):
    """An estimate by which every stage serves the same, or another rate beside another chain's."""
    return lambda mixes: [[beside if beside and len(mix) > 3 else alone] * len(mix) for _, mix in mixes]


def measured(item, seats):
    """Every chain keeps what NUMASFP measured."""
    return handover_keeps(seats)


JUDGES = Judges(table, even(4.0), measured)


@pytest.mark.parametrize("policy", chain_policy_names())
def test_every_stage_gets_a_core_and_no_node_is_overfull(policy) -> None:
    """Five chains of three take 15 of 16 cores, however they are spread."""
    chains = [chain(f"c{i}", 1.0 + i) for i in range(5)]
    placed = place_chains(policy, chains, 0, NODES, JUDGES)
    stages = [node for nodes in placed.values() for node in nodes]

    assert sorted(placed) == [item.request.id for item in chains]
    assert len(stages) == 15
    assert max(stages.count(0), stages.count(1)) <= 8


def test_octans_and_numasfp_give_the_local_node_to_the_fastest() -> None:
    """The two fastest of three chains are local, whole."""
    chains = [chain("slow", 1.0), chain("fast", 9.0), chain("middle", 5.0)]
    for policy in ("octans", "numasfp"):
        assert place_chains(policy, chains, 0, NODES, JUDGES) == {
            "slow": (1, 1, 1), "fast": (0, 0, 0), "middle": (0, 0, 0),
        }  # fmt: skip


def test_node_first_goes_by_arrival_and_splits_chains() -> None:
    """The third chain in the order of arrival finds two local cores left, and is split."""
    chains = [chain("slow", 1.0), chain("fast", 9.0), chain("middle", 5.0)]

    assert place_chains("node-first", chains, 0, NODES, JUDGES)["middle"] == (0, 0, 1)


def test_node_balance_uses_nodes_evenly() -> None:
    """Two chains go to two nodes."""
    placed = place_chains("node-balance", [chain("a", 1.0), chain("b", 1.0)], 0, NODES, JUDGES)

    assert placed == {"a": (0, 0, 0), "b": (1, 1, 1)}


def test_node_balance_by_stages_goes_back_and_forth() -> None:
    """Stages alternate between nodes: 0-1-0 for the first chain, 1-0-1 for the second."""
    placed = place_chains("node-balance-stages", [chain("a", 1.0), chain("b", 1.0)], 0, NODES, JUDGES)

    assert placed == {"a": (0, 1, 0), "b": (1, 0, 1)}


def test_only_dynamic_policies_migrate_when_rates_change() -> None:
    """When the slow chain becomes the fastest, NUMASFP swaps it in; the static policies keep their first placement."""
    chains = [chain("a", 1.0, 9.0), chain("b", 5.0, 5.0), chain("c", 9.0, 1.0)]
    for policy in chain_policy_names():
        first = place_chains(policy, chains, 0, NODES, JUDGES)
        later = place_chains(policy, chains, 1, NODES, JUDGES, first)
        assert migrations(first, later) == (6 if chain_policy(policy).places_afresh else 0)


def test_numasfp_minds_memory_bandwidth() -> None:
    """A chain that would exceed the local node's bandwidth goes to the other, though cores are left."""
    placed = place_chains(
        "numasfp", [chain("a", 9.0), chain("b", 8.0)], 0, NODES, Judges(lambda item, mpps: Need(3, 3, 60.0))
    )

    assert placed == {"a": (0, 0, 0), "b": (1, 1, 1)}


def test_search_finds_what_serves_most() -> None:
    """Where chains on one node halve each other, one goes remote; where not, both stay; ties do not move."""
    chains = [chain("a", 9.0), chain("b", 9.0)]
    harmful = best_nodes(chains, 0, NODES, Judges(table, even(10.0, 5.0)))
    harmless = best_nodes(chains, 0, NODES, Judges(table, even(10.0)))
    before = {"a": (1, 1, 1), "b": (1, 1, 1)}
    idle = best_nodes([chain("a", 0.001), chain("b", 0.001)], 0, NODES, Judges(table, even(10.0)), before)

    assert set(harmful.values()) == {(0, 0, 0), (1, 1, 1)}
    assert set(harmless.values()) == {(0, 0, 0)}
    assert idle == before


def test_search_counts_on_no_more_than_the_port_carries() -> None:
    """Of two chains of 9 Gbit/s behind a port of 10 each is predicted at 5."""
    chains = [chain("a", 9.0), chain("b", 9.0)]
    loads: list[float] = []

    def estimate(mixes):
        loads.extend(mpps for _, stages in mixes for _, mpps in stages)
        return [[max(mpps, 8.0) for _, mpps in stages] for _, stages in mixes]

    best_nodes(chains, 0, NODES, Judges(table, estimate, wire_gbps=10.0))
    assert max(loads) == pytest.approx(chain("c", 5.0).offered_mpps(0), rel=1e-5)


def test_search_moves_only_for_more_than_moving_costs() -> None:
    """Parting two chains gains 10 Mpps of 10 and moves one of 13.6 offered: it may cost 74 %, not 75."""
    chains = [chain("a", 9.0), chain("b", 9.0)]
    before = {"a": (0, 0, 0), "b": (0, 0, 0)}
    after = {
        lost: best_nodes(chains, 0, NODES, Judges(table, even(10.0, 5.0), moving=lambda *_, lost=lost: lost), before)
        for lost in (0.74, 0.75)
    }
    offered = chains[0].offered_mpps(0)

    assert 0.74 * offered < 10.0 < 0.75 * offered
    assert set(after[0.74].values()) == {(0, 0, 0), (1, 1, 1)}
    assert after[0.75] == before


def test_a_chain_with_more_stages_than_cores_says_how_many_it_has() -> None:
    """A refusal names the chain, its stages, and the cores that the emptiest server has left."""
    long = RatedChain(Request("long", ("l2fwd",) * 18), (1.0,))
    placed = place_on_nodes(Cluster.uniform("e5-2620v4", 1), [chain("c0", 1.0), long], "node-first")

    (told,) = (decision.reasons[0] for decision in placed.decisions() if not decision.accepted)
    assert told == "cores of 'long' (chain) on e5-2620v4-1 (e5-2620v4): needed 18, at best 13"


def test_chains_without_a_place_are_offered_what_nobody_serves() -> None:
    """They lower ANAT: nothing placed serves nothing."""
    long = RatedChain(Request("long", ("l2fwd",) * 18), (1.0, 2.0))
    judged = judge_chains(place_on_nodes(Cluster.uniform("e5-2620v4", 1), [long], "node-first"))

    assert (judged.anat, judged.anat_over_time) == (0.0, (0.0, 0.0))


def test_too_many_chains_are_refused() -> None:
    """More stages than cores, and a policy there is none of, are errors."""
    many = [chain(f"c{i}", 1.0) for i in range(11)]
    with pytest.raises(InvalidValueError, match="33 stages, but the server has 16 cores"):
        place_chains("octans", many, 0, NODES, JUDGES)
    with pytest.raises(UnknownNameError, match="did you mean 'octans'"):
        place_chains("octan", many, 0, NODES, JUDGES)


def crowded(alone, least):
    """An estimate by which a stage serves less with each other one on its node, but no less than `least`."""
    return lambda mixes: [[max(alone - 0.3 * (len(mix) - 1), least)] * len(mix) for _, mix in mixes]


def test_many_chains_are_climbed_for() -> None:
    """Sixteen are too many to try all ways: a climb divides them as trying all divides ten."""
    for count in (10, 16):
        chains = [RatedChain(Request(f"c{i:02d}", ("lpm",)), (9.0,)) for i in range(count)]
        nodes = (Node(16, 18), Node(16, 18))
        placed = best_nodes(chains, 0, nodes, Judges(table, crowded(12.0, 1.0)))
        assert sum(seats == (0,) for seats in placed.values()) == count // 2
    settled = best_nodes(chains, 0, nodes, Judges(table, crowded(12.0, 1.0)), placed)
    assert settled == placed


def test_a_climb_comes_close_to_the_best_of_all_ways() -> None:
    """Ten tenants, loads and pressure drawn ten times: where climbs end, 99 % of the best of 1024 ways is served."""
    generator = np.random.default_rng(5)
    nodes = (Node(8, 18), Node(8, 18))
    starts = [tuple((int(i >= 8),) for i in range(10)), tuple((i % 2,) for i in range(10))]
    for _ in range(10):
        presses, loads = generator.uniform(0.07, 1.0, 10), generator.uniform(1.0, 6.0, 10)

        def served(choice, presses=presses, loads=loads):
            on = np.array([node for (node,) in choice])
            beside = np.array([presses[on == node].sum() for node in on]) - presses
            return float((np.minimum(loads, 8.0 - beside) * np.where(on == 1, 0.9, 1.0)).sum())

        end = climbed(starts, nodes, lambda choices, served=served: [served(choice) for choice in choices])
        assert served(end) >= 0.99 * max(served(choice) for choice in every_choice([1] * 10, nodes))


def test_five_chains_of_three_on_two_nodes_of_eight_split_one() -> None:
    """No node holds three whole chains, so one is split; the search splits the one that loses least."""
    chains = [chain(f"c{i}", rate) for i, rate in enumerate((9.0, 9.0, 9.0, 9.0, 1.0))]
    placed = best_nodes(chains, 0, NODES, JUDGES)
    split = [name for name, seats in placed.items() if len(set(seats)) > 1]

    # two local chains lose nothing; the slow one serves its rate wherever it is, so it is not given a local node whole
    assert len(split) == 1
    assert placed["c4"] != (0, 0, 0)
    assert sum(crossings(seats) == 0 for seats in placed.values()) == 2


def test_chains_are_spread_over_servers_and_what_finds_no_core_is_named() -> None:
    """Five chains fill a server but for one core; the sixth goes to the next, which holds five; the last nowhere."""
    servers = {"one": NODES, "two": NODES}
    plan = plan_chains("octans", servers, [chain(f"c{i}", 1.0 + i) for i in range(11)], dict.fromkeys(servers, JUDGES))

    assert {name: len(chains) for name, chains in plan.servers.items()} == {"one": 5, "two": 5}
    assert [item.request.id for item in plan.unplaced] == ["c10"]
    assert len(plan.seats) == 1
    assert plan.migrations == 0


def planned(need):
    """Plan five chains on one server by `numasfp` with what each needs; return the plan and its only parts."""
    chains = [chain(f"c{i}", 9.0 - i) for i in range(5)]
    plan = plan_chains("numasfp", {"one": NODES}, chains, {"one": Judges(lambda item, mpps: need)})
    return plan, plan.parts[0]


def test_numasfp_allocates_ways_where_they_suffice() -> None:
    """Chains get no fewer ways than the table says, and what is left; where they need too many, the cache is shared."""
    few, parts = planned(Need(3, 5, 0.0))
    whole = {name for name, seats in few.seats[0].items() if len(set(seats)) == 1}
    _, none = planned(Need(3, 40, 0.0))

    assert len(whole) == 4
    assert parts.ways.keys() == whole
    assert all(ways in (7, 8) for ways in parts.ways.values())  # 18 less what the split chain's stages share
    assert parts.throttles == {}
    assert (dict(none.ways), dict(none.throttles)) == ({}, {})


def test_numasfp_hands_out_memory_bandwidth_while_the_node_has_some() -> None:
    """Stages get the table's throttle raised by what is left; where chains need more than a node has, nobody does."""
    few, parts = planned(Need(3, 5, 36.0, (10, 20, 30)))
    _, roomy = planned(Need(3, 5, 12.0, (10, 20, 30)))
    _, none = planned(Need(3, 5, 60.0, (10, 20, 90)))
    isolated = isolations(few.servers["one"], few.seats[0], parts, 18)
    stages = {name: [part.memory_bandwidth_percent for part in each] for name, each in isolated.items()}
    split = next(name for name, seats in few.seats[0].items() if len(set(seats)) > 1)

    assert set(parts.throttles.values()) == {(10, 20, 30)}
    assert stages.pop(split) == [None] * 3
    assert all(each == [10, 20, 30] for each in stages.values())
    assert set(roomy.throttles.values()) == {(30, 60, 90), (30, 70, 100)}
    assert (dict(none.ways), dict(none.throttles)) == ({}, {})


def test_rivals_may_be_given_what_numasfp_allocates() -> None:
    """With `allocate` the chains of a static policy have ways and throttles of their own, too."""
    judges = {"one": Judges(lambda item, mpps: Need(3, 5, 50.0, (10, 20, 90)))}
    plans = [plan_chains("octans", {"one": NODES}, [chain("a", 9.0)], judges, allocate=flag) for flag in (None, True)]

    assert [dict(plan.parts[0].ways) for plan in plans] == [{}, {"a": 18}]
    assert dict(plans[1].parts[0].throttles) == {"a": (20, 40, 100)}


def over_partitions(nf: str, waits: float, slow_us: float) -> PartitionResponse:
    """Return a function of 5 Mpps that needs ways and, if `slow_us` is above 0, suffers from a throttle to 10 %."""
    shape = (1.0, 18.0), (0.2, 0.2), (waits, 0.0), (600.0, 0.0)
    return PartitionResponse(f"{nf}@64B,100000f", 5.0, *shape, (slow_us, slow_us), ((10.0, 1.0), (100.0, 0.0)), 90.0)


def test_profiles_over_partitions_are_what_numasfp_goes_by(tmp_path) -> None:
    """Ways and throttles are the least that serve the rate; a function without a profile, or a machine, is refused."""
    responses = [over_partitions("lpm", 4.0, 1.0), over_partitions("l2fwd", 0.0, 0.0)]
    (profile,) = load_profiles(
        save_profiles([PartitionProfile(MACHINE, {each.workload: each for each in responses})], tmp_path / "p.json")
    )
    chains = [RatedChain(Request("a", ("lpm", "l2fwd")), (2.0,))]
    cluster = Cluster.uniform(MACHINE, 1)
    table = lookup_table(ThroughputEstimates(ModelLibrary([]), profiles=[profile]), load_machine(MACHINE))
    need = table(chains[0], chains[0].offered_mpps(0))
    placed = place_on_nodes(cluster, chains, "numasfp", needs=[profile])
    where = placed.decisions()[0].assignments

    assert need.throttles[0] > need.throttles[1] == 10
    assert need.memory_percent > 0.0
    assert where[0].memory_bandwidth_percent >= need.throttles[0]
    assert {item.llc_way_mask for item in where} == {(1 << cluster.servers[0].ways) - 1}
    enforced = plan_from_decision(placed.decisions(), where[0].server, load_machine(MACHINE)).tenants
    assert [item.memory_bandwidth.value for item in enforced if item.memory_bandwidth] == [
        item.memory_bandwidth_percent for item in where
    ]
    for machine, held in (("silver-4110", responses), (MACHINE, responses[:1])):
        lacking = PartitionProfile(machine, {each.workload: each for each in held})
        with pytest.raises(UnknownNameError, match="in the profiles of 'e5-2620v4'"):
            place_on_nodes(cluster, chains, "numasfp", needs=[lacking])


def test_the_judge_throttles_who_is_throttled() -> None:
    """A chain whose stages are throttled to a tenth serves less than one with all of the bandwidth."""
    chains = [RatedChain(Request("a", ("lpm", "stats")), (10.0,))]
    placed = place_on_nodes(Cluster.uniform(MACHINE, 1), chains, "numasfp", needs=[])
    served = []
    for percent in (10, 100):
        parts = tuple(replace(part, throttles={"a": (percent, percent)}) for part in placed.plan.parts)
        throttled = replace(placed, plan=replace(placed.plan, parts=parts))
        served.append(judge_chains(throttled, duration_ms=2.0).anat)

    assert served[0] < 0.7 * served[1]


def test_rates_are_read_with_requests_and_must_be_there() -> None:
    """`gbps` makes a request a chain with rates; an offered load stands for one rate; nothing at all is an error."""
    made = parse_rated_chains("requests: [{id: a, chain: [lpm, stats], gbps: [1, 2.5], count: 2}]")
    assert [(item.request.id, item.gbps) for item in made] == [("a-1", (1.0, 2.5)), ("a-2", (1.0, 2.5))]
    assert RatedChain.from_dict(json.loads(json.dumps(made[0].to_dict()))) == made[0]
    offered = parse_rated_chains("requests: [{id: a, chain: [{nf: lpm, traffic: {offered_mpps: 2.0}}]}]")[0]
    assert offered.offered_mpps(0) == pytest.approx(2.0)
    with pytest.raises(InvalidValueError, match="chain 'a': rates are"):
        parse_rated_chains("requests: [{id: a, nf: lpm}]")
    with pytest.raises(ConfigurationError, match="gbps"):
        parse_rated_chains("requests: [{id: a, nf: lpm, gbps: [0]}]")
    with pytest.raises(InvalidValueError, match="two requests are called 'a'"):
        parse_rated_chains("requests: [{id: a, nf: lpm, gbps: [1]}, {id: a, nf: lpm, gbps: [1]}]")


def test_drifting_rates_cross_at_most_once() -> None:
    """A rate goes straight from one level to another, between 1 and 10 Gbit/s; jumping rates do not."""
    for item in numasfp_chains(6, intervals=12, seed=2):
        steps = [round(b - a, 1) for a, b in itertools.pairwise(item.gbps)]
        assert max(steps) - min(steps) <= 0.1 + 1e-9
        assert all(1.0 <= rate <= 10.0 for rate in item.gbps)
    jumping = numasfp_chains(6, intervals=12, seed=2, change="jump")
    assert any(max(item.gbps) != max(item.gbps[0], item.gbps[-1]) for item in jumping)


def test_a_chain_away_from_the_card_serves_less() -> None:
    """A chain that saturates serves less on the node without the card, and least where its packets change nodes."""
    chains = [RatedChain(Request("a", ("l2fwd", "l2fwd"), SLO(min_mpps=20.0)), (40.0,))]
    local = place_on_nodes(Cluster.uniform(MACHINE, 1), chains, "octans")
    ways = [replace(local, plan=replace(local.plan, seats=({"a": seats},))) for seats in ((0, 0), (1, 1), (1, 0))]
    here, there, split = (judge_chains(placed, duration_ms=2.0) for placed in ways)

    assert there.anat < 0.97 * here.anat
    assert split.anat < here.anat
    assert (here.servers_used, here.migrations, here.utilisation) == (1, 0, 2 / 16)
    assert [item.request for item in there.violations] == ["a"]


def test_chains_on_the_other_node_share_the_link(tmp_path) -> None:
    """Three chains away from the card serve less where the link is narrow; beside the card it is of no use to them."""
    chains = [RatedChain(Request(name, ("l2fwd",)), (8.0,)) for name in ("a", "b", "c")]
    served = {}
    for link_gb_s in (32.0, 2.0):
        made = {**load_machine(MACHINE).to_dict(), "link_gb_s": link_gb_s}
        path = tmp_path / f"link-{link_gb_s:g}.yaml"
        path.write_text(json.dumps({key: value for key, value in made.items() if key != "schema_version"}))
        placed = place_on_nodes(Cluster.uniform(str(path), 1), chains, "octans")
        away = replace(placed, plan=replace(placed.plan, seats=(dict.fromkeys("abc", (1,)),)))
        served[link_gb_s] = [judge_chains(item, duration_ms=2.0).anat for item in (placed, away)]

    assert served[2.0][0] == served[32.0][0]
    assert served[2.0][1] < 0.8 * served[32.0][1] < served[32.0][0]


def test_all_packets_pass_a_manager_where_there_is_one() -> None:
    """Three chains get no more together than its threads pass on; a cluster that leaves it no cores is refused."""
    chains = [RatedChain(Request(name, ("l2fwd",)), (8.0,)) for name in ("a", "b", "c")]
    cluster = Cluster.uniform(MACHINE, 1, cores_reserved=2)
    alone, managed = (
        judge_chains(place_on_nodes(cluster, chains, "octans"), duration_ms=1.0, manager_cycles=cycles).anat
        for cycles in (None, 200.0)
    )
    offered = sum(item.offered_mpps(0) for item in chains)

    assert alone == pytest.approx(1.0, abs=0.01)
    assert 0.5 * 2100 / 200 < managed * offered < 2100 / 200  # of 2.1 GHz, lines come on top
    with pytest.raises(InvalidValueError, match="needed 2 for the manager"):
        judge_chains(place_on_nodes(Cluster.uniform(MACHINE, 1), chains, "octans"), manager_cycles=200.0)


def test_hogs_beside_chains_cost_them_what_nobody_keeps_them_from() -> None:
    """A chain loses beside tenants that stream through memory, and less where these have two ways and a tenth of it."""
    hog = Workload("synthetic", {"data_size_mib": 64.0, "pattern": "sequential"})
    chains = [RatedChain(Request("a", ("ip-router", "flowstats")), (8.0,))]
    placed = place_on_nodes(Cluster.uniform(MACHINE, 1, cores_reserved=4), chains, "octans")
    alone, beside, confined = (
        judge_chains(placed, duration_ms=1.0, beside=noise).anat
        for noise in (None, NodeNoise(hog, 4), NodeNoise(hog, 4, StagePlace(0b11, 10.0)))
    )

    assert beside < 0.9 * alone
    assert beside < confined <= alone


def test_hogs_beside_a_manager_take_no_core_of_it(monkeypatch) -> None:
    """On every socket hogs take the cores below the manager's two, whether it is there or not; all must be reserved."""
    systems = []

    def kept(machine, system, *arguments, **options):
        systems.append(system)
        return simulate_chains(machine, system, *arguments, **options)

    monkeypatch.setattr("slomo.workflow.chains.judge.simulate_chains", kept)
    chains = [RatedChain(Request("a", ("l2fwd",)), (1.0,))]
    noise = NodeNoise(Workload("synthetic", {"data_size_mib": 4.0}), 2)
    few, enough = (
        place_on_nodes(Cluster.uniform(MACHINE, 1, cores_reserved=reserved), chains, "octans") for reserved in (3, 4)
    )
    with pytest.raises(InvalidValueError, match="functions 5 of 8 cores, needed 4 for the manager and tenants"):
        judge_chains(few, manager_cycles=200.0, beside=noise)
    judge_chains(enough, duration_ms=0.2, manager_cycles=200.0, beside=noise)

    cores = {stage.name: stage.core for stage in systems[0].stages}
    assert sorted(core for name, core in cores.items() if name.startswith("beside/")) == [4, 5, 12, 13]
    assert {cores["manager/in"], cores["manager/out"]} == {6, 7}


def test_a_chain_whose_stages_move_serves_nothing_for_a_while() -> None:
    """Of two intervals of ten seconds, the second lacks the second that a move takes; without moves nothing lacks."""
    chains = [RatedChain(Request("a", ("lpm", "l2fwd"), SLO(min_mpps=0.1)), (0.1, 0.1))]
    placed = place_on_nodes(Cluster.uniform(MACHINE, 1), chains, "octans")
    moving = replace(placed, plan=replace(placed.plan, seats=({"a": (0, 0)}, {"a": (1, 1)})))
    still, moved = (judge_chains(item, duration_ms=2.0, move=1.0) for item in (placed, moving))

    assert still.anat == pytest.approx(1.0, abs=0.01)
    assert moved.migrations == 2
    assert moved.anat_over_time == pytest.approx((1.0, 0.9), abs=0.01)


def test_a_move_costs_what_is_said() -> None:
    """Pause, refill and remote memory add up over the stages that move; who stays pays nothing."""
    machine = load_machine(MACHINE)
    chains = [RatedChain(Request("a", ("ip-router", "l2fwd")), (0.1, 0.1))]
    placed = place_on_nodes(Cluster.uniform(MACHINE, 1), chains, "octans")
    moving = replace(placed, plan=replace(placed.plan, seats=({"a": (0, 0)}, {"a": (1, 1)})))
    slow = MoveCost(handover_s=0.5, copy_gb_s=0.001)
    movers = [mover_of(machine, workload) for workload in chains[0].request.chain]
    lost_s = sum(slow.lost_s(mover) for mover in movers)
    judged, usual = (judge_chains(moving, duration_ms=2.0, move=cost) for cost in (slow, None))

    assert movers[0].memory_mib > movers[1].memory_mib
    assert all(0.5 < mover.away <= 1.0 for mover in movers)
    assert 1.0 < lost_s < 10.0
    assert judged.anat_over_time[1] == pytest.approx(1.0 - lost_s / 10.0, abs=0.01)
    assert usual.anat_over_time[1] > 0.99  # some milliseconds of ten seconds
    assert moving_costs(machine, slow)(chains[0], (0, 0), (0, 0)) == 0.0
    with pytest.raises(InvalidValueError, match="a rate above 0"):
        MoveCost(copy_gb_s=0.0)


def test_slomo_numa_needs_models() -> None:
    """Without a model of a network function the search by predictions says which, and what there is."""
    with pytest.raises(UnknownNameError, match=r"network function '.*' of request 'a'"):
        place_on_nodes(Cluster.uniform(MACHINE, 1), [chain("a", 1.0)], "slomo-numa")
