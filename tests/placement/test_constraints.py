"""Constraints bind under every policy and verb, refusals name them, contradictions are refused with the field."""

from collections import Counter
from dataclasses import replace

import pytest

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.placement.online.checker import broken_constraints
from slomo.placement.online.placer import Placer
from slomo.placement.over_time.judge import asked_times
from slomo.placement.policies.base import Policy
from slomo.placement.policies.registry import policy_names
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.documents import parse_cluster, parse_requests
from slomo.placement.problem.request import SLO, Request
from tests.placement.operations import RandomOperations, constrained_cluster

MACHINE = "e5-2620v4"
FUNCTIONS = ("lpm", "stats", "firewall")


def racks(count=3, per_rack=2, **fields):
    """Return a cluster of racks."""
    names = [(f"r{rack}-{number}", f"r{rack}") for rack in range(count) for number in range(per_rack)]
    return Cluster(tuple(Server(name, MACHINE, labels={"rack": rack}, **fields) for name, rack in names))


class Emptiest(Policy):
    """Ranks servers itself: the emptiest first."""

    name = "emptiest"
    predicts = True
    ranks = True

    def choose(self, request, choices):
        """Take the emptiest."""
        return min(choices, key=lambda each: (each.cores_used, each.server.name))


@pytest.mark.parametrize("policy", [*policy_names(), Emptiest])
def test_random_operations_break_no_constraint(library, profiles, policy) -> None:
    """After every operation of every verb, all constraints of all requests hold, recomputed from decisions alone."""
    placer = Placer(library, constrained_cluster(MACHINE), policy, profiles=profiles)
    operations = RandomOperations(placer, FUNCTIONS, seed=11)

    assert [said for _ in range(60) for said in operations.step()] == []
    assert placer.requests


def test_decisions_about_neighbours_of_a_refused_request_are_timed(library) -> None:
    """The time of one more decision is taken where a request names one that found no place."""
    placer = Placer(library, racks(), "predicted")
    requests = [Request("huge", "lpm", SLO(min_mpps=100.0)), Request("shy", "stats", anti_affinity=("huge",))]
    refused, placed = placer.place_all(requests)

    assert (refused.accepted, placed.accepted) == (False, True)
    assert len(asked_times(placer, requests)) == 2


@pytest.mark.parametrize("policy", ["predicted", "slomo-search", "first-fit", "dobrescu", "e2", Emptiest])
def test_three_replicas_spread_over_racks_are_on_three_racks(library, policy) -> None:
    """Exactly three instances, no two on a rack, whatever the policy; without the constraint one would do."""
    placer = Placer(library, racks(), policy)
    request = Request("web", "lpm", SLO(min_share=0.5), replicas=3, min_replicas=3, spread="rack")
    decision = placer.place_all([request])[0]

    assert sorted(name[:2] for name in decision.servers) == ["r0", "r1", "r2"]
    assert len(decision.assignments) == 3


@pytest.mark.parametrize("policy", ["predicted", "slomo-search", "first-fit"])
def test_max_per_host_and_skew_bind(library, policy) -> None:
    """Two instances a server at most; over racks no more than one beyond the emptiest."""
    placer = Placer(library, racks(), policy)
    four = Request("four", "firewall", SLO(min_share=0.5), replicas=4, min_replicas=4, max_per_host=2)
    five = replace(
        four, id="five", replicas=5, min_replicas=5, max_per_host=None, spread=[{"label": "rack", "max_skew": 1}]
    )
    per_host = Counter(item.server for item in placer.admit(four).assignments)
    per_rack = Counter(item.server[:2] for item in placer.admit(five).assignments)

    assert sum(per_host.values()) == 4
    assert max(per_host.values()) <= 2
    assert sorted(per_rack.values()) == [1, 2, 2]


def test_neighbours_by_label_hold_in_any_order_of_arrival(library) -> None:
    """A cache is on a rack of a web server, also where the web server comes later; a rival is on another rack."""
    placer = Placer(library, racks(), "first-fit")
    cache = Request(
        "cache", "firewall", affinity=[{"labels": {"app": "web"}, "within": "rack"}], selector={"rack": "r1"}
    )
    rival = Request("rival", "firewall", anti_affinity=[{"labels": {"app": "web"}, "within": "rack"}])
    placer.admit(cache)
    web = placer.admit(Request("web", "firewall", labels={"app": "web"}))
    away = placer.admit(rival)
    late = placer.admit(Request("late", "firewall", labels={"app": "web"}, selector={"rack": "r0"}))

    assert web.servers[0].startswith("r1")
    assert not away.servers[0].startswith("r1")
    assert not late.accepted
    assert late.refused.what == "anti_affinity"
    assert "'rival'" in late.refused.text


def test_who_is_wanted_near_is_placed_first_after_a_failure(library) -> None:
    """A lower priority that a higher one wants near decides where both go; neither is lost, and they stay together."""
    disks = {"a": "ssd", "b": "hdd", "c": "ssd"}
    servers = [Server(name, MACHINE, labels={"disk": disk}) for name, disk in disks.items()]
    placer = Placer(library, Cluster(tuple(servers)), "first-fit")
    picky = Request("picky", "firewall", selector={"disk": "ssd"})
    near = Request("near", "firewall", affinity=("picky",), priority=3)
    assert all(decision.accepted for decision in placer.place_all([picky, near]))

    change = placer.lifecycle.fail("a")

    assert not change.refused
    assert [placer.decision(name).servers for name in ("picky", "near")] == [("c",), ("c",)]


def test_preferences_are_met_where_they_can_be(library) -> None:
    """Preferred servers are taken while they hold; a preference refuses nobody, nor does a taint that is avoided."""
    servers = [Server("plain", MACHINE, cores_reserved=7, taints="old:PreferNoSchedule"),
               Server("fast", MACHINE, cores_reserved=7, labels={"disk": "ssd"})]  # fmt: skip
    placer = Placer(library, Cluster(tuple(servers)))
    asked = Request("a", "firewall", prefer=[{"selector": {"disk": "ssd"}, "weight": 2}])

    assert placer.admit(asked).servers == ("fast",)
    assert placer.admit(replace(asked, id="b")).servers == ("plain",)


def test_taints_have_effects(library) -> None:
    """NoSchedule keeps away who comes, NoExecute drives off who is there, a toleration covers key, value or effect."""
    placer = Placer(library, racks(1, 2), "first-fit")
    placer.place_all([Request("a", "firewall"), Request("t", "firewall", tolerations=("gpu:NoExecute",))])
    kept = placer.lifecycle.taint("r0-0", ["gpu=a100"])
    driven = placer.lifecycle.taint("r0-0", ["gpu=a100:NoExecute"])

    assert kept.moves == ()
    assert [(move.request, move.target) for move in driven.moves] == [("a", "r0-1")]
    assert placer.decision("t").servers == ("r0-0",)
    assert placer.admit(Request("b", "firewall", tolerations=("gpu=a100",))).servers == ("r0-0",)


def test_reserved_cores_are_for_those_they_are_reserved_for(library) -> None:
    """Of eight cores two are kept for gold."""
    placer = Placer(library, racks(1, 1, reserved={"cores": 2, "labels": {"tier": "gold"}}), "first-fit")
    plain = [placer.admit(Request(f"p{number}", "firewall")).accepted for number in range(8)]
    gold = [placer.admit(Request(f"g{number}", "firewall", labels={"tier": "gold"})).accepted for number in range(3)]

    assert sum(plain) == 6
    assert gold == [True, True, False]


@pytest.mark.parametrize("policy", ["predicted", "slomo-search", "first-fit", "resq-greedy"])
def test_a_rack_fails_and_promises_that_survive_it_hold(library, profiles, policy) -> None:
    """What is left after any rack fails serves all that was promised, with everything else that moved beside it."""
    for failing in ("r0", "r1", "r2"):
        placer = Placer(library, racks(3, 3), policy, profiles=profiles)
        sturdy = [
            Request(f"n{i}", nf, SLO(min_share=0.8), replicas=3, survives="rack") for i, nf in enumerate(FUNCTIONS)
        ]
        decisions = placer.place_all(sturdy + [Request(f"p{i}", "stats", SLO(min_share=0.5)) for i in range(6)])
        promised = {d.request: sum(a.needed_mpps for a in d.assignments) for d in decisions if d.request[0] == "n"}
        gone = {d.request: sum(a.needed_mpps for a in d.assignments if a.server[:2] == failing) for d in decisions}
        change = placer.lifecycle.fail_domain("rack", failing)

        assert set(promised) <= {request.id for request in placer.requests}
        assert placer.lifecycle.at_risk() == ()
        for request in sturdy:
            needed = 0.8 * {"lpm": 5.0, "stats": 3.6, "firewall": 0.4}[request.chain[0].nf]
            assert promised[request.id] - gone[request.id] >= needed - 1e-6
        assert not set(change.degraded) & {decision.request for decision in change.refused}


def test_a_gang_is_placed_whole_or_not_at_all(library) -> None:
    """One of three has no room, so none is placed, and the others are told why."""
    placer = Placer(library, racks(1, 1), "first-fit")
    gang = [Request(f"m{i}", "firewall", gang="g") for i in range(2)] + [Request("big", ("lpm",) * 7, gang="g")]
    refused = placer.place_all([*gang, Request("alone", "firewall")])
    placed = placer.place_all(gang[:2])

    assert [decision.accepted for decision in refused] == [False, False, False, True]
    assert refused[0].refused.what == "gang"
    assert "'big'" in refused[0].refused.text
    assert all(decision.accepted for decision in placed)


def test_disruption_budgets_stop_drains_and_rebalances_but_no_failure(library) -> None:
    """Who may not be moved is left, and said; a failure asks nobody."""
    placer = Placer(library, racks(1, 2), "first-fit")
    placer.admit(Request("still", "firewall", max_disrupted=0))
    drain = placer.lifecycle.drain("r0-0")

    assert not drain.done
    assert drain.left == ("still",)
    assert placer.rebalance(10) == ()
    assert placer.lifecycle.fail("r0-0").moves[0].target == "r0-1"


def test_a_policy_may_rank_servers_and_is_held_to_its_choices(library) -> None:
    """What a plug-in takes among those offered counts; what it makes up is an error that names it."""
    placer = Placer(library, racks(), Emptiest)
    servers = [placer.admit(Request(f"a{number}", "firewall")).servers[0] for number in range(6)]

    class Liar(Emptiest):
        name = "liar"

        def choose(self, request, choices):
            return replace(choices[0], server=Server("nowhere", MACHINE))

    assert len(set(servers)) == 6
    with pytest.raises(InvalidValueError, match="'liar' chose"):
        Placer(library, racks(), Liar).admit(Request("a", "firewall"))


def test_the_checker_sees_what_was_put_past_the_search(library) -> None:
    """Instances put on one rack behind the search's back are named with their constraint."""
    placer = Placer(library, racks(), "first-fit")
    request = Request(
        "web", "firewall", SLO(min_share=0.5), replicas=2, min_replicas=2, spread="rack", selector={"rack": "r1"}
    )
    core = placer._core
    piece = core.pieces.number(next(iter(core.cuts(replace(request, selector={}), [])[0].values()))[0])
    for socket in (0, 1):
        core.state.put(request, (socket, piece))
    core.state.keep(request, [(0, piece), (1, piece)])

    assert {item.constraint for item in broken_constraints(core)} == {"spread", "selector"}


def test_a_refusal_names_constraint_label_nearest_server_and_what_would_give(library) -> None:
    """Of four servers the one that fails fewest constraints is told."""
    servers = (
        Server("far", MACHINE, labels={"rack": "1"}, taints="gpu"),
        Server("near", MACHINE, labels={"rack": "1"}),
    )
    refused = (
        Placer(library, Cluster(servers), "first-fit").admit(Request("a", "firewall", selector={"rack": "2"})).refused
    )

    assert (refused.what, refused.server) == ("selector", "near")
    assert "selector rack=2" in refused.text
    assert "rack is 1" in refused.text
    assert "the labels of a server" in refused.gives


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"min_replicas": 3, "replicas": 2}, "min_replicas"),
        ({"slo": SLO(min_share=90)}, r"slo.min_share"),
        ({"affinity": ("b",), "anti_affinity": ("b",)}, "both name b"),
        ({"survives": "rack"}, "survives"),
        ({"max_disrupted": -1}, "max_disrupted"),
        ({"spread": [{"label": "rack", "max_skew": 0}]}, "max_skew"),
        ({"prefer": [{"selector": {"a": "b"}, "weight": -1}]}, "weight"),
    ],
)
def test_what_contradicts_itself_is_refused_with_the_field(fields, said) -> None:
    """Exit code 2, the field, and a hint where there is one thing to do."""
    with pytest.raises(InvalidValueError, match=said) as caught:
        Request("a", "lpm", **fields)
    assert caught.value.exit_code == 2


def test_percent_is_not_a_share() -> None:
    """90 is told to be 0.9; three instances may still promise more than one does alone."""
    with pytest.raises(InvalidValueError, match=r"0\.9 for 90 %"):
        parse_requests("requests: [{id: a, nf: lpm, slo: {min_share: 90}}]")
    assert parse_requests("requests: [{id: a, nf: lpm, replicas: 3, slo: {min_share: 2.5}}]")[0].slo.min_share == 2.5


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ({"selector": {"rak": "r1"}}, UnknownNameError, "did you mean 'rack'"),
        ({"spread": "zone"}, UnknownNameError, "unknown label 'zone' in spread"),
        ({"replicas": 9, "min_replicas": 9, "spread": "rack"}, InvalidValueError, "min_replicas is 9"),
        ({"replicas": 9, "min_replicas": 9, "max_per_host": 1}, InvalidValueError, "6 of those"),
        ({"replicas": 13, "min_replicas": 13, "max_per_host": 2}, InvalidValueError, "needed at most 12"),
    ],
)
def test_what_no_state_of_the_cluster_can_meet_is_refused_at_once(library, fields, error, said) -> None:
    """Unknown labels and more instances than servers take end with exit code 2 before anything is placed."""
    placer = Placer(library, racks())
    with pytest.raises(error, match=said) as caught:
        placer.place_all([Request("fine", "lpm"), Request("a", "lpm", **fields)])

    assert caught.value.exit_code == 2
    assert placer.requests == ()


def test_all_of_it_is_read_and_written(library) -> None:
    """Documents say everything; values and snapshots round-trip, and what was decided is restored."""
    text = """
    requests:
    - {id: a, nf: firewall, labels: {app: web}, replicas: 3, min_replicas: 2, survives: rack, max_disrupted: 1, gang: g,
       spread: [{label: rack, max_skew: 1}, {label: host, weight: 2}], prefer: [{selector: {rack: r1}, weight: 3}],
       affinity: [{labels: {app: web}, within: rack, weight: 1}], anti_affinity: [b], tolerations: ["gpu=a:NoExecute"]}
    - {id: b, nf: firewall, gang: g}
    """
    requests = parse_requests(text)
    cluster = parse_cluster("servers: [{name: s, machine: e5-2620v4, reserved: {cores: 2, labels: {tier: gold}}}]")
    placer = Placer(library, racks())
    assert all(decision.accepted for decision in placer.place_all(requests))
    again = Placer(library, racks())
    again.restore(placer.snapshot())

    assert tuple(Request.from_dict(request.to_dict()) for request in requests) == requests
    assert Cluster.from_dict(cluster.to_dict()) == cluster
    assert again.layout() == placer.layout()


def test_a_snapshot_that_was_spoilt_by_hand_is_refused(library) -> None:
    """Eight tight tenants on one server are not believed because the snapshot calls them at risk."""
    placer = Placer(library, Cluster.uniform(MACHINE, 8))
    placer.place_all(Request(f"t{number}", "lpm", SLO(min_share=0.97)) for number in range(8))
    document = placer.snapshot()
    first = document["placed"][0]["pieces"][0]
    for core, entry in enumerate(document["placed"]):
        entry["pieces"][0] |= {"server": first["server"], "socket": first["socket"], "cores": [core]}
    document["at_risk"] = [entry["request"]["id"] for entry in document["placed"]]

    with pytest.raises(Exception, match="does not hold"):
        Placer(library, placer.cluster).restore(document)
    assert len(Placer(library, placer.cluster).restore(document, keep_at_risk=True).at_risk) == 8


def test_a_second_failure_is_not_called_survived(library) -> None:
    """With one rack gone the promise holds on what is left; with two gone, and no room, the request is refused."""
    placer = Placer(library, racks(3, 1), "first-fit")
    placer.admit(Request("web", "lpm", SLO(min_share=0.8), replicas=3, min_replicas=3, survives="rack"))
    first = placer.lifecycle.fail_domain("rack", "r0")
    second = placer.lifecycle.fail_domain("rack", "r1")

    assert (first.degraded, first.refused) == (("web",), ())
    assert second.degraded == ()
    assert [decision.request for decision in second.refused] == ["web"]
    assert placer.requests == ()


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ({"affinity": ("b",)}, {"anti_affinity": ("a",)}, "'b' has anti_affinity to 'a'"),
        ({"affinity": ("b",), "selector": {"rack": "r1"}}, {"selector": {"rack": "r2"}}, "its selector is rack=r1"),
    ],
)
def test_two_requests_that_contradict_each_other_are_bad_input(library, one, other, said) -> None:
    """Who must be beside another that must not, or cannot, be there is told with exit code 2; nothing is placed."""
    placer = Placer(library, constrained_cluster("e5-2620v4"))
    with pytest.raises(InvalidValueError, match=said) as caught:
        placer.place_all([Request("a", ("lpm",), **one), Request("b", ("stats",), **other)])
    assert caught.value.exit_code == 2
    assert caught.value.hint
    assert not placer.requests
