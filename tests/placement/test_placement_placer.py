"""The live state: each decision whole or not at all, and every SLO kept by prediction."""

import json
import threading
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slomo.errors import ConfigurationError, InvalidValueError, UnknownNameError, UnsupportedPredictionError
from slomo.placement.online.placer import Placer
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.request import SLO, Request

MACHINE = "e5-2620v4"
#: What the hand-made models say: solo [Mpps], M/s of accesses, share lost per M/s of the others'.
FUNCTIONS = {"lpm": (5.0, 20.0, 0.002), "stats": (3.6, 30.0, 0.001), "firewall": (0.4, 1.0, 0.0)}


def kept(placer):
    """Say whether everything placed keeps its SLO by the formula of the hand-made models."""
    for server in placer.layout().values():
        total = sum(FUNCTIONS[item.workload.split("@")[0]][1] for item in server)
        for item in server:
            solo, accesses, slope = FUNCTIONS[item.workload.split("@")[0]]
            if solo * (1 - slope * (total - accesses)) < item.needed_mpps - 1e-9:
                return False
    return True


def test_packs_until_the_first_slo_would_break(library, cluster, ask) -> None:
    """Three lpm at 90 % of solo fit a socket (two others cost 8 %), a fourth would break the first's SLO."""
    placer = Placer(library, cluster)
    servers = [placer.admit(ask(f"r{i}")).servers for i in range(4)]

    assert servers == [("e5-2620v4-1",)] * 3 + [("e5-2620v4-2",)]
    assert kept(placer)


def test_insensitive_functions_fill_the_gaps(library, cluster, ask) -> None:
    """A firewall goes beside three lpm, as it presses on nobody: best fit takes the fullest socket that holds."""
    placer = Placer(library, cluster)
    placer.place_all(ask(f"r{i}") for i in range(4))
    decision = placer.admit(ask("f", "firewall"))

    assert decision.servers == ("e5-2620v4-1",)
    assert "every SLO holds" in decision.reasons[0]


def test_decision_carries_predictions_for_the_mix_as_it_is(library, cluster, ask) -> None:
    """An earlier decision, asked again, tells the prediction beside those who came later."""
    placer = Placer(library, cluster)
    first = placer.admit(ask("a")).assignments[0]
    placer.admit(ask("b"))
    now = placer.decision("a").assignments[0]

    assert first.predicted_mpps == 5.0
    assert now.predicted_mpps == pytest.approx(5.0 * (1 - 0.002 * 20))
    assert now.needed_mpps == 4.5
    assert now.buffers is not None


def test_confidence_leaves_room_for_the_interval(make_library, cluster, ask) -> None:
    """With intervals 5 % of solo wide on either side fewer lpm fit at confidence 0.95 than at 0.5."""
    library = make_library(spread=0.05)
    fitting = {level: _on_first(Placer(library, cluster, confidence=level), ask) for level in (0.5, 0.95)}
    assert fitting == {0.5: 4, 0.95: 1}


def _on_first(placer, ask):
    decisions = [placer.admit(ask(f"r{i}", share=0.85)) for i in range(8)]
    return sum(decision.servers == ("e5-2620v4-1",) for decision in decisions)


def test_first_fit_ignores_contention(library, cluster, ask) -> None:
    """The contention-agnostic policy fills all eight cores, whatever that does to SLOs."""
    placer = Placer(library, cluster, "first-fit")
    placer.place_all(ask(f"r{i}") for i in range(8))

    assert placer.servers_used == 1
    assert not kept(placer)


def test_dobrescu_asks_its_own_model(library, cluster, ask) -> None:
    """The baseline reads the model 'dobrescu', which here expects twice the loss, and so needs more servers."""
    placer = Placer(library, cluster, "dobrescu")
    decision = placer.admit(ask("a"))
    placer.place_all(ask(f"r{i}") for i in range(3))

    assert decision.model == "dobrescu"
    assert placer.servers_used == 2


def test_equal_partition_gives_every_core_the_same_ways(library, cluster, ask) -> None:
    """Eighteen ways over eight cores are two each, in blocks that do not overlap."""
    placer = Placer(library, cluster, "equal-partition")
    placer.place_all(ask(f"r{i}") for i in range(8))
    masks = [item.llc_way_mask for item in placer.layout()["e5-2620v4-1"]]

    assert [mask.bit_count() for mask in masks] == [2] * 8
    assert sum(masks) == (1 << 16) - 1


def test_place_all_places_as_many_as_one_by_one(library, ask) -> None:
    """A batch keeps every SLO and needs no more servers than admitting one by one."""
    nfs = ["lpm", "stats", "firewall"] * 20
    requests = [ask(f"r{i}", nf) for i, nf in enumerate(nfs)]
    batch, single = (Placer(library, Cluster.uniform(MACHINE, 40)) for _ in range(2))
    decisions = batch.place_all(requests)
    for request in requests:
        single.admit(request)

    assert [decision.request for decision in decisions] == [request.id for request in requests]
    assert all(decision.accepted for decision in decisions)
    assert kept(batch)
    assert kept(single)
    assert batch.servers_used <= single.servers_used


def test_full_cluster_refuses_and_names_the_slo_that_would_break(library, ask) -> None:
    """On one server the fourth lpm is refused for the sake of one already there; the state stays."""
    placer = Placer(library, Cluster.uniform(MACHINE, 1))
    decisions = placer.place_all(ask(f"r{i}") for i in range(4))
    refused = next(decision for decision in decisions if not decision.accepted).refused

    assert [decision.accepted for decision in decisions].count(True) == 3
    assert refused is not None
    assert (refused.what, refused.needed) == ("throughput", 4.5)
    assert refused.possible == pytest.approx(5.0 * (1 - 0.002 * 60), rel=1e-3)
    assert len(placer.requests) == 3


def test_infeasible_slo_says_what_was_possible_where(library, cluster) -> None:
    """An SLO no empty server can keep names the server type and the best there is."""
    decision = Placer(library, cluster).admit(Request("a", ("lpm",), SLO(min_mpps=6.0)))

    assert not decision.accepted
    assert decision.reasons == (
        "throughput of 'a' (lpm@64B,100000f) on e5-2620v4: needed 6, at best 5 Mpps, 17 % short",
    )


def test_replicas_share_what_one_instance_cannot_serve(library, cluster) -> None:
    """11.7 Mpps of lpm take three instances, each serving a third."""
    decision = Placer(library, cluster).admit(Request("a", ("lpm",), SLO(min_mpps=11.7), replicas=4))

    assert [item.needed_mpps for item in decision.assignments] == pytest.approx([3.9, 3.9, 3.9])


def test_replicas_that_do_not_all_fit_leave_nothing_behind(library) -> None:
    """When the last instance finds no room, the first ones are taken off again."""
    placer = Placer(library, Cluster.uniform(MACHINE, 1))
    before = placer.snapshot()
    decision = placer.admit(Request("a", ("lpm",), SLO(min_mpps=40.0), replicas=10))

    assert not decision.accepted
    assert placer.snapshot() == before


def test_chain_stays_on_one_socket(library, cluster) -> None:
    """Stages of a chain get cores of one socket, and each must serve the chain's rate."""
    decision = Placer(library, cluster).admit(Request("a", ("firewall", "lpm", "stats"), SLO(min_mpps=0.3)))

    assert len({(item.server, item.socket) for item in decision.assignments}) == 1
    assert [item.workload.split("@")[0] for item in decision.assignments] == ["firewall", "lpm", "stats"]
    assert {item.needed_mpps for item in decision.assignments} == {0.3}


def test_more_stages_than_cores_are_refused(library, cluster) -> None:
    """A chain of nine finds no socket of eight cores."""
    decision = Placer(library, cluster).admit(Request("a", ("firewall",) * 9))

    assert decision.refused is not None
    assert (decision.refused.what, decision.refused.needed, decision.refused.possible) == ("cores", 9.0, 8.0)


def test_latency_is_promised_by_the_load_that_keeps_it(library, profiles, cluster) -> None:
    """20 us at p95 hold up to 80 % load, so 4 Mpps need 5 Mpps of capacity; 5 us never hold."""
    placer = Placer(library, cluster, profiles=profiles)
    held = placer.admit(Request("a", ("lpm",), SLO(min_mpps=4.0, p95_us=20.0)))
    never = placer.admit(Request("b", ("lpm",), SLO(min_mpps=1.0, p95_us=5.0)))

    assert held.assignments[0].needed_mpps == 5.0
    assert never.refused is not None
    assert (never.refused.what, never.refused.needed, never.refused.possible) == ("latency", 5.0, 10.0)


def test_affinity_and_anti_affinity_are_kept(library, cluster, ask) -> None:
    """Friends share a server, foes do not, whichever of them came first."""
    placer = Placer(library, cluster)
    placer.place_all([ask("a"), ask("foe", anti_affinity=("a",))])
    later = placer.admit(ask("friend", "firewall", affinity=("foe",)))
    shy = placer.admit(ask("shy", "firewall", share=0.1, replicas=2, anti_affinity=("shy", "a")))

    assert placer.decision("a").servers != placer.decision("foe").servers == later.servers
    assert "e5-2620v4-1" not in shy.servers


def test_impossible_affinity_is_refused(library, ask) -> None:
    """On one server, foes cannot both be placed."""
    placer = Placer(library, Cluster.uniform(MACHINE, 1))
    placer.admit(ask("a"))
    decision = placer.admit(ask("b", anti_affinity=("a",)))

    assert decision.refused is not None
    assert decision.refused.what == "anti_affinity"


def test_removing_gives_the_room_back(library, ask) -> None:
    """After a removal the same request fits again; removing what is not there names the nearest."""
    placer = Placer(library, Cluster.uniform(MACHINE, 1))
    placer.place_all(ask(f"r{i}") for i in range(3))
    assert not placer.admit(ask("r9")).accepted
    assert placer.remove("r1").request == "r1"
    assert placer.admit(ask("r9")).accepted
    with pytest.raises(UnknownNameError, match="unknown placed request 'r1'"):
        placer.remove("r1")


def test_what_if_decides_as_admit_and_changes_nothing(library, cluster, ask) -> None:
    """Asking does not place."""
    placer = Placer(library, cluster)
    placer.place_all(ask(f"r{i}") for i in range(4))
    before = placer.snapshot()
    foreseen = placer.what_if(ask("new", "stats"))

    assert placer.snapshot() == before
    assert foreseen == placer.admit(ask("new", "stats"))


def test_duplicate_ids_place_nothing(library, cluster, ask) -> None:
    """A batch with a fault in it is refused whole."""
    placer = Placer(library, cluster)
    placer.admit(ask("a"))
    with pytest.raises(InvalidValueError, match="'a' is placed already"):
        placer.place_all([ask("b"), ask("a")])
    with pytest.raises(InvalidValueError, match="two requests are called 'b'"):
        placer.place_all([ask("b"), ask("b")])
    assert [request.id for request in placer.requests] == ["a"]


def test_an_unknown_function_is_refused_alone(library, cluster, ask) -> None:
    """In a batch one unknown network function is refused with the nearest name; asked for by itself it is an error."""
    placer = Placer(library, cluster)
    good, bad = placer.place_all([ask("b"), ask("c", "stas")])
    assert good.accepted
    assert (bad.refused.what, "did you mean 'stats'" in bad.reasons[0]) == ("model", True)
    assert "hint:" not in bad.reasons[0]
    with pytest.raises(UnknownNameError, match="did you mean 'stats'"):
        placer.admit(ask("c", "stas"))


def test_rebalance_swaps_where_no_server_has_room(library, ask) -> None:
    """No piece of the last two servers fits elsewhere until another one makes room by moving on."""
    servers = tuple(Server(f"s{n}", MACHINE, resources={"memory_gib": 12.0}) for n in range(3))
    placer = Placer(library, Cluster(servers), "first-fit")
    for name, nf, share, gib in (
        ("stays", "firewall", 0.9, 6.0), ("small", "firewall", 0.5, 3.0), ("full", "firewall", 0.9, 8.0),
        ("large", "lpm", 0.9, 5.0),
    ):  # fmt: skip
        assert placer.admit(ask(name, nf, share, resources={"memory_gib": gib})).accepted
    assert placer.decision("large").servers == ("s2",)

    assert placer.rebalance(1) == ()
    assert len(placer.rebalance(2)) == 2
    assert placer.servers_used == 2
    assert kept(placer)


def test_rebalance_moves_a_request_once(library, ask) -> None:
    """A request that moved to a server which is emptied next moves straight to its last place."""
    servers = tuple(Server(f"s{n}", MACHINE, resources={"memory_gib": 12.0}) for n in range(3))
    placer = Placer(library, Cluster(servers), "first-fit")
    sizes = {"a": 2.0, "b": 2.0, "filler": 8.0, "c": 1.0, "d": 1.0, "e": 1.0, "more": 9.0, "last": 1.0}
    for name, gib in sizes.items():
        assert placer.admit(ask(name, "firewall", 0.1, resources={"memory_gib": gib})).accepted
    placer.remove("filler")
    placer.remove("more")

    moves = placer.rebalance(4)
    assert [(move.request, move.source, move.target) for move in moves] == [
        ("a", "s0", "s1"), ("b", "s0", "s1"), ("last", "s2", "s1"),
    ]  # fmt: skip
    assert placer.servers_used == 1


def test_rebalance_empties_servers_within_the_moves_allowed(library, cluster, ask) -> None:
    """A server left with one NF is emptied by one move; with none allowed nothing moves."""
    placer = Placer(library, cluster)
    placer.place_all(ask(f"r{i}") for i in range(6))
    placer.remove("r0")
    placer.remove("r3")
    placer.remove("r4")

    assert placer.servers_used == 2
    assert placer.rebalance(0) == ()
    assert len(placer.rebalance(1)) == 1
    assert placer.servers_used == 1
    assert kept(placer)
    with pytest.raises(InvalidValueError, match="max_moves is -1"):
        placer.rebalance(-1)


def test_snapshot_restores_the_same_state(library, cluster, ask) -> None:
    """A snapshot, written as JSON and read back, gives the same layout, and decisions go on from there."""
    placer = Placer(library, cluster)
    placer.place_all([ask(f"r{i}", nf, replicas=2) for i, nf in enumerate(["lpm", "stats", "firewall", "lpm"] * 2)])
    placer.remove("r1")
    other = Placer(library, cluster)
    other.restore(json.loads(json.dumps(placer.snapshot())))

    assert other.layout() == placer.layout()
    assert other.snapshot() == placer.snapshot()
    assert other.admit(ask("n")) == placer.admit(ask("n"))


@pytest.mark.parametrize("spoil", ["version", "machine", "policy", "server", "cores", "nothing", "list"])
def test_foreign_snapshots_are_refused_and_change_nothing(library, cluster, ask, spoil) -> None:
    """A snapshot of another version or cluster, or a damaged one, is a ConfigurationError."""
    placer = Placer(library, cluster)
    placer.admit(ask("a"))
    before, document = placer.snapshot(), placer.snapshot()
    if spoil == "version":
        document["schema_version"] = 99
    elif spoil == "machine":
        document["machines"] = {MACHINE: "of another cache"}
    elif spoil == "policy":
        document["policy"] = "first-fit"
    elif spoil == "server":
        document["placed"][0]["pieces"][0]["server"] = "nowhere"
    elif spoil == "cores":
        document["placed"][0]["pieces"][0]["cores"] = [8]
    else:
        document = [] if spoil == "list" else {}
    with pytest.raises(ConfigurationError):
        placer.restore(document)

    assert placer.snapshot() == before


def test_machine_without_models_is_refused_or_given_a_socket_alone(library, ask) -> None:
    """Without a model on the only machine type, a request is refused or runs alone, and the decision says so."""
    mixed = Cluster((Server("old", MACHINE), Server("new", "silver-4110")))
    placer = Placer(library, mixed)
    assert placer.admit(ask("a")).servers == ("old",)
    only = Cluster.uniform("silver-4110", 2)
    with pytest.raises(UnsupportedPredictionError, match=r"no model of .lpm@64B,100000f. on silver-4110, only on"):
        Placer(library, only).admit(ask("a"))
    alone = Placer(library, only, fallback="alone")
    decisions = [alone.admit(Request(name, ("lpm",))) for name in ("a", "b", "c")]

    assert [decision.accepted for decision in decisions] == [True, True, False]
    assert decisions[0].servers != decisions[1].servers
    assert "no model" in decisions[0].reasons[0]


def test_several_machine_types_are_all_used(make_library, ask) -> None:
    """When servers of one type are full, those of the other take over."""
    mixed = Cluster((Server("old", MACHINE), Server("new", "silver-4110")))
    placer = Placer(make_library(MACHINE, "silver-4110"), mixed)
    decisions = placer.place_all(ask(f"r{i}") for i in range(6))

    assert Counter(decision.servers for decision in decisions) == {("old",): 3, ("new",): 3}


def test_threads_share_one_state(library, ask) -> None:
    """Eight threads that admit and remove at once leave no trace but what they meant to leave."""
    placer = Placer(library, Cluster.uniform(MACHINE, 40))

    def work(number: int) -> None:
        for i in range(10):
            placer.admit(ask(f"{number}-{i}", "lpm" if i % 2 else "firewall"))
            if i % 3 == 0:
                placer.remove(f"{number}-{i}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(placer.requests) == 8 * 6
    assert sum(len(items) for items in placer.layout().values()) == 8 * 6
    assert kept(placer)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 14), st.sampled_from(sorted(FUNCTIONS)), st.integers(1, 2)), max_size=40))
def test_whatever_comes_and_goes_every_slo_is_kept(library, ask, steps) -> None:
    """After any sequence of admissions and removals all SLOs hold, and cores are owned once."""
    placer = Placer(library, Cluster.uniform(MACHINE, 4))
    for number, nf, replicas in steps:
        name = f"r{number}"
        if name in {request.id for request in placer.requests}:
            placer.remove(name)
        else:
            placer.admit(ask(name, nf, replicas=replicas))
    seats = [(item.server, item.core) for items in placer.layout().values() for item in items]

    assert kept(placer)
    assert len(seats) == len(set(seats)) >= len(placer.requests)


def test_unknown_policy_and_fallback_are_refused(library, cluster) -> None:
    """A slip in a policy's name is answered with the name meant."""
    with pytest.raises(UnknownNameError, match="did you mean 'predicted'"):
        Placer(library, cluster, "prdicted")
    with pytest.raises(InvalidValueError, match="fallback is 'guess'"):
        Placer(library, cluster, fallback="guess")
    with pytest.raises(InvalidValueError, match=r"confidence is 1\.0"):
        Placer(library, cluster, confidence=1.0)


def test_dynamic_scaling_adds_instances_until_nobody_falls_short(library, ask) -> None:
    """E2 packs regardless, then splits the traffic of whoever falls short over more instances."""
    placer = Placer(library, Cluster.uniform(MACHINE, 6), "e2")
    placer.place_all(ask(f"r{i}", replicas=4) for i in range(6))
    counts = {request.id: len(placer.decision(request.id).assignments) for request in placer.requests}

    assert max(counts.values()) > 1
    assert kept(placer)


def test_dynamic_scaling_goes_by_what_is_observed(library, ask) -> None:
    """With an observer that sees no shortage, nothing is added; with one that always does, replicas are used up."""
    calm = Placer(library, Cluster.uniform(MACHINE, 6), "e2", observe=lambda placer: {"a": 99.0})
    calm.place_all([ask("a", replicas=3)])
    starving = Placer(library, Cluster.uniform(MACHINE, 6), "e2", observe=lambda placer: {"a": 0.0})
    starving.place_all([ask("a", replicas=3)])
    unknown = Placer(library, Cluster.uniform(MACHINE, 6), "e2", fallback="alone")  # by default predictions, if any
    assert unknown.admit(Request("a", ("nat",), SLO(min_mpps=1.0))).accepted

    assert len(calm.decision("a").assignments) == 1
    assert [item.needed_mpps for item in starving.decision("a").assignments] == [1.5] * 3


def test_servers_that_differ_cut_requests_each_in_its_own_way(library, ask) -> None:
    """Two servers of one machine type with different cores reserved place a batch that may be split."""
    cluster = Cluster((Server("a", MACHINE, cores_reserved=1), Server("b", MACHINE)))
    decisions = Placer(library, cluster).place_all([ask(f"r{i}", replicas=2) for i in range(4)])
    assert all(decision.accepted for decision in decisions)


def test_a_batch_fills_the_gaps_of_servers_in_use_first(library, ask) -> None:
    """Three servers with room for another lpm each take three more; planned alone they would open a fourth."""
    placer = Placer(library, Cluster.uniform(MACHINE, 6))
    placer.place_all(ask(f"r{i}") for i in range(9))
    for gone in ("r0", "r3", "r6"):
        placer.remove(gone)
    used = placer.servers_used
    placer.place_all(ask(f"n{i}") for i in range(3))

    assert (used, placer.servers_used) == (3, 3)
    assert kept(placer)
