"""Cache ways: profiles by few measurements, ResQ's two schedulers, and fair shares on demand."""

from dataclasses import replace

import pytest

from slomo.errors import ConfigurationError, InvalidValueError
from slomo.models.library import ModelLibrary
from slomo.models.partition_profile import PartitionProfile, load_profiles, save_profiles
from slomo.models.responses.partition import PartitionResponse
from slomo.placement.feasibility.mixes import Host
from slomo.placement.feasibility.on_demand import CacheClass, Observed, share_out
from slomo.placement.online.placer import Placer
from slomo.placement.policies.resq_milp import Term, least_servers, solve
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request
from slomo.vocabulary.workload import Workload
from slomo.vocabulary.workload_text import parse_workload

MACHINE = "e5-2620v4"


def test_profile_promises_less_than_it_measured() -> None:
    """The ways for a rate leave 3 % for interpolation and memory bandwidth."""
    profile = PartitionResponse.over_ways("nf", 10.0, ((1, 5.0), (6, 10.0)))

    assert profile.ways_for(8.7) == 5
    assert profile.promise_mpps(5) == pytest.approx(0.97 * 9.0)
    assert profile.ways_for(9.8) is None
    assert profile.alone_mpps(0) == 0.0


def test_profiles_round_trip_through_a_file(profiles, tmp_path) -> None:
    """Profiles written are profiles read; a file of something else is refused."""
    assert list(load_profiles(save_profiles(profiles, tmp_path / "p.json"))) == profiles
    for text in ("{}", "[]", '{"schema_version": 7, "profiles": []}', "nothing"):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(ConfigurationError):
            load_profiles(tmp_path / "x.json")


def promised(placer, profiles):
    """Return throughput promised per request by the ways its instances own, and check that ways do not overlap."""
    by_key = {key: response for profile in profiles for key, response in profile.responses.items()}
    for items in placer.layout().values():
        assert sum(item.llc_way_mask for item in items) < 1 << 18
        assert sum(item.llc_way_mask.bit_count() for item in items) <= 18
    return {
        request.id: sum(
            by_key[item.workload].promise_mpps(item.llc_way_mask.bit_count())
            for item in placer.decision(request.id).assignments
        )
        for request in placer.requests
    }


@pytest.mark.parametrize("policy", ["resq-greedy", "resq-milp", "slomo-search"])
def test_ways_owned_give_what_was_asked(library, profiles, ask, policy) -> None:
    """Under every policy with cache allocation, ways are owned once and promise every SLO."""
    placer = Placer(library, Cluster.uniform(MACHINE, 12), policy, profiles=profiles)
    placer.policy.shares = False
    nfs = ["lpm", "stats", "firewall"] * 4
    decisions = placer.place_all(ask(f"r{i}", nf, replicas=3) for i, nf in enumerate(nfs))
    rates = promised(placer, profiles)
    solo = {key.split("@")[0]: each.solo_mpps for profile in profiles for key, each in profile.responses.items()}

    assert all(decision.accepted for decision in decisions)
    assert all(rates[f"r{i}"] >= 0.9 * solo[nf] - 1e-9 for i, nf in enumerate(nfs))


def test_milp_needs_no_more_servers_than_greedy(library, profiles, ask) -> None:
    """The program's schedule never takes more servers than the greedy one, nor the search's than the program's."""
    used = {}
    for policy in ("resq-greedy", "resq-milp", "slomo-search"):
        placer = Placer(library, Cluster.uniform(MACHINE, 12), policy, profiles=profiles)
        placer.place_all(ask(f"r{i}", nf, replicas=3) for i, nf in enumerate(["lpm", "stats"] * 5))
        used[policy] = placer.servers_used

    assert used["slomo-search"] <= used["resq-milp"] <= used["resq-greedy"]


def test_one_search_chooses_between_shared_caches_and_own_ways(library, profiles, ask) -> None:
    """No more servers than with either alone, under a proven bound; no socket has both kinds of promises."""
    used, nfs = {}, ["lpm", "stats", "firewall"] * 8
    for name, given in (("both", profiles), ("ways", profiles), ("shared", ())):
        placer = Placer(library, Cluster.uniform(MACHINE, 24), "slomo-search", profiles=given)
        placer.policy.shares = name == "both"
        assert all(decision.accepted for decision in placer.place_all(ask(f"r{i}", nf) for i, nf in enumerate(nfs)))
        used[name] = placer.servers_used
        for items in placer.layout().values():
            assert len({item.llc_way_mask is None for item in items}) == 1
        assert placer.policy.last.proven
        assert placer.policy.last.lower_bound <= placer.servers_used
    assert used["both"] == min(used["ways"], used["shared"]) < max(used["ways"], used["shared"])


def test_what_own_ways_cannot_promise_shares_a_cache(library, profiles, ask) -> None:
    """Profiles promise 3 % less than they measured: 98 % of solo is promised in a shared cache, beside others' ways."""
    batch = [*(ask(f"a{i}", "lpm", 0.9) for i in range(4)), *(ask(f"b{i}", "firewall", 0.98) for i in range(3))]
    placer = Placer(library, Cluster.uniform(MACHINE, 8), "slomo-search", profiles=profiles)
    assert all(decision.accepted for decision in placer.place_all(batch))
    assert all(item.llc_way_mask is None for i in range(3) for item in placer.decision(f"b{i}").assignments)
    assert not placer.lifecycle.at_risk()


def test_a_promise_in_the_shared_cache_goes_beside_nobody_with_ways_of_its_own(library, profiles) -> None:
    """Its prediction is for the whole cache; the refusal says how many ways were left."""
    placer = Placer(library, Cluster.uniform(MACHINE, 1, sockets=1), "slomo-search", profiles=profiles[:1])
    names = [key.split("@")[0] for profile in profiles for key in profile.responses]
    assert placer.admit(Request("own", (names[0],), SLO(min_share=0.5))).accepted
    refused = placer.admit(Request("shared", (names[1],), SLO(min_share=0.5)))
    assert not refused.accepted
    assert refused.refused.what == "ways"


def test_milp_finds_the_packing_that_first_fit_decreasing_misses() -> None:
    """Sizes 8, 8, 5, 5, 5, 5 ways of 18: first fit decreasing and the program both need two servers, never three."""
    terms = [
        Term(f"t{i}", PartitionResponse.over_ways(f"nf{i}", 1.0, ((size, 1.0), (18, 1.01))), 0.97, 1)
        for i, size in enumerate([8, 8, 5, 5, 5, 5])
    ]
    seats = solve(Host("m", 8, 18), terms, 20.0, 0.0).seats

    assert seats is not None
    assert len({place for spots in seats.values() for place, _ in spots}) == 2


def test_milp_meets_its_bound_where_terms_repeat(library, profiles, ask) -> None:
    """Decomposed server by server, forty terms of three kinds come within a server of what no schedule can beat."""
    placer = Placer(library, Cluster.uniform(MACHINE, 40), "resq-milp", profiles=profiles)
    placer.policy.time_limit_s = 0.1
    decisions = placer.place_all(ask(f"r{i}", nf, replicas=3) for i, nf in enumerate(["lpm", "stats", "firewall"] * 13))
    greedy = Placer(library, Cluster.uniform(MACHINE, 40), "resq-greedy", profiles=profiles)
    greedy.place_all(ask(f"r{i}", nf, replicas=3) for i, nf in enumerate(["lpm", "stats", "firewall"] * 13))
    bound = int(placer.policy.last.split("bound ")[1].split(",")[0])

    assert all(decision.accepted for decision in decisions)
    assert bound <= placer.servers_used <= min(bound + 1, greedy.servers_used)


def test_a_bound_counts_cores_and_ways() -> None:
    """Twenty terms on servers of eight cores need three; terms of nine ways each, alone or together, half a server."""
    small = PartitionResponse.over_ways("firewall", 1.0, ((1, 1.0), (18, 1.0)))
    large = PartitionResponse.over_ways("lpm", 1.0, ((9, 1.0), (18, 1.05)))

    assert least_servers(Host("m", 8, 18), [Term(str(n), small, 0.9, 2) for n in range(20)]) == 3
    assert least_servers(Host("m", 8, 18), [Term(str(n), large, 0.97, 3) for n in range(5)]) == 3


def test_greedy_starts_more_instances_where_a_fair_share_is_slow(library, profiles, cluster) -> None:
    """One lpm at a fair share of 2 ways does 3.2 Mpps, so 4.5 Mpps take two instances, as ResQ's step 1 says."""
    placer = Placer(library, cluster, "resq-greedy", profiles=profiles)
    decision = placer.admit(Request("a", ("lpm",), SLO(min_share=0.9), replicas=3))

    assert len(decision.assignments) == 2
    assert sum(item.needed_mpps for item in decision.assignments) == pytest.approx(4.5)


def test_without_profiles_cache_policies_refuse(library, cluster, ask) -> None:
    """A policy that allocates ways cannot place what it has no profile of, and says so."""
    assert not Placer(library, cluster, "resq-greedy").admit(ask("a")).accepted


def test_on_demand_isolates_the_starved_alone() -> None:
    """A violator that loses much for misses gets as much as the class of the others, who keep that."""

    def observe(classes):
        isolated = len(classes) > 1
        return {
            "hog": Observed(False, 9.0, 0.5),
            "calm": Observed(False, 0.5, 0.0),
            "starved": Observed(not isolated, 0.5, 0.4),
        }

    shares = share_out(["hog", "calm", "starved"], 12, observe)

    assert shares.unmet == ()
    assert CacheClass(("starved",), 6) in shares.classes
    assert sum(item.ways for item in shares.classes) <= 12


def test_on_demand_tells_who_cannot_be_helped() -> None:
    """An SLO that stays broken in a class of its own goes to the central scheduler."""
    seen = {"a": Observed(True, 1.0, 0.9), "b": Observed(False, 5.0, 0.0)}

    assert share_out(["a", "b"], 8, lambda classes: seen).unmet == ("a",)
    with pytest.raises(InvalidValueError, match="0 cache ways"):
        share_out(["a"], 0, lambda classes: seen)


@pytest.mark.parametrize("policy", ["resq-greedy", "slomo-search"])
def test_ways_of_its_own_are_no_port_of_its_own(library, policy) -> None:
    """Eight functions of 33 Gbit/s each fit cores and ways; the machine's ports carry 80, so that two fit."""
    key = "lpm@1500B,100000f"
    profiles = [PartitionProfile(MACHINE, {key: PartitionResponse.over_ways(key, 2.75, ((1, 2.7), (18, 2.75)))})]
    model = replace(library[MACHINE, Workload("lpm").key], workload=parse_workload(key), solo_mpps=2.75)
    placer = Placer(ModelLibrary([model]), Cluster.uniform(MACHINE, 8), policy, profiles=profiles)
    placer.policy.shares = False
    decisions = placer.place_all(Request(f"r{i}", (key,), SLO(min_share=0.9)) for i in range(8))
    assert all(decision.accepted for decision in decisions)
    assert max(len(items) for items in placer.layout().values()) == 2
