"""On-demand SLOs: one instance, nothing promised, max-min shares of the cache that reserved ones leave (ResQ 5.3.2)."""

import json

import pytest

from slomo.placement.feasibility.on_demand import CacheClass, Observed, Want, class_masks, foreseen, share_out
from slomo.placement.online.placer import Placer
from slomo.placement.over_time.judge import Judge
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.decision import Decision
from slomo.placement.problem.request import SLO, Request
from slomo.records.run import Phase, RunRecord, TenantSample
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

MACHINE = "e5-2620v4"


def spare(name, nf="lpm", **slo):
    return Request(name, (nf,), SLO(kind="on-demand", **slo))


@pytest.fixture
def isolated(library, profiles):
    """One server under ResQ's greedy policy, with 18 ways to give."""
    return Placer(library, Cluster.uniform(MACHINE, 1), "resq-greedy", profiles=profiles)


def ways(placer, name):
    (item,) = placer.decision(name).assignments
    return item.llc_way_mask


def test_on_demand_takes_what_reserved_leaves(isolated, ask) -> None:
    """A reserved lpm owns 8 ways; an on-demand one gets a core, no promise, and the ways that are left."""
    reserved = isolated.admit(ask("kept", "lpm", 0.93))
    decision = isolated.admit(spare("spare", min_share=0.5))
    (item,) = decision.assignments
    owned = reserved.assignments[0].llc_way_mask

    assert decision.accepted
    assert item.needed_mpps == 0.0
    assert item.llc_way_mask & owned == 0
    assert item.llc_way_mask.bit_count() == 18 - owned.bit_count()
    assert decision.reasons[0].endswith(f"on demand: max-min share of {18 - owned.bit_count()} ways, 1 sharing")
    assert Decision.from_dict(json.loads(json.dumps(decision.to_dict()))) == decision


def test_reserved_requests_shrink_the_lease(isolated, ask) -> None:
    """Leases follow what is reserved, as it comes and goes; one way stays, or the reserved request is refused."""
    isolated.admit(spare("spare"))
    assert ways(isolated, "spare").bit_count() == 18
    isolated.admit(ask("kept", "lpm", 0.93))
    held = ways(isolated, "kept").bit_count()
    assert ways(isolated, "spare").bit_count() == 18 - held
    full = [isolated.admit(ask(f"more{i}", "lpm", 0.93)) for i in range(4)]
    assert not full[-1].accepted
    assert ways(isolated, "spare").bit_count() >= 1
    for request in [r.id for r in isolated.requests if r.id != "spare"]:
        isolated.remove(request)
    assert ways(isolated, "spare").bit_count() == 18


def test_starved_violators_are_isolated_and_the_modest_share(isolated) -> None:
    """Of three in 18 ways one that needs many and is short gets a class of its own, apart from those that need few."""
    isolated.admit(spare("hungry", "lpm", min_mpps=4.99))
    for i in range(5):
        isolated.admit(spare(f"meek{i}", "firewall", min_mpps=0.1))
    masks = {name: ways(isolated, name) for name in ("hungry", *(f"meek{i}" for i in range(5)))}

    assert len(set(masks.values())) == 2
    assert all(masks[f"meek{i}"] & masks["hungry"] == 0 for i in range(5))
    assert masks["hungry"].bit_count() + masks["meek0"].bit_count() <= 18


def test_on_demand_needs_a_core_and_breaks_no_promise(library, ask) -> None:
    """Under predictions an on-demand lpm is not put where a reserved one would break; without a core it is refused."""
    placer = Placer(library, Cluster.uniform(MACHINE, 1))
    placer.place_all([ask(f"r{i}") for i in range(3)])
    refused = placer.admit(spare("spare", "stats"))
    assert (refused.accepted, refused.refused.request) == (False, "r0")
    many = Placer(library, Cluster.uniform(MACHINE, 1), "first-fit")
    decisions = [many.admit(spare(f"s{i}")) for i in range(9)]
    assert [decision.accepted for decision in decisions] == [True] * 8 + [False]
    assert decisions[-1].refused.what == "cores"


def test_batches_place_reserved_first(library, profiles, ask) -> None:
    """A plan is made for what is reserved; on-demand requests fill up, under every policy that partitions."""
    for policy in ("resq-greedy", "resq-milp", "slomo-search", "equal-partition"):
        placer = Placer(library, Cluster.uniform(MACHINE, 4), policy, profiles=profiles)
        batch = [spare("s0"), *(ask(f"r{i}", "lpm", 0.9) for i in range(4)), spare("s1", "stats", p95_us=50.0)]
        decisions = placer.place_all(batch)

        assert all(decision.accepted for decision in decisions), policy
        twin = Placer(library, Cluster.uniform(MACHINE, 4), policy, profiles=profiles)
        twin.restore(json.loads(json.dumps(placer.snapshot())))
        assert twin.layout() == placer.layout()


def test_latency_is_foreseen_at_the_speed_the_share_allows(profiles) -> None:
    """With too few ways even half load is too slow for the limit; with all of them it holds."""
    lpm = next(each for profile in profiles for key, each in profile.responses.items() if key.startswith("lpm"))
    want = Want(lpm, p95_us=11.0)

    assert want.misses(want.mpps(1))
    assert not want.misses(want.mpps(18))
    assert want.demand_ways == 16


def test_shares_are_max_min_and_end(profiles) -> None:
    """Two that want the whole cache get halves; who is short all the same is named for the central scheduler."""
    lpm = next(each for profile in profiles for key, each in profile.responses.items() if key.startswith("lpm"))
    wants = {name: Want(lpm, needed_mpps=4.9) for name in ("a", "b")}
    shares = share_out(["a", "b"], 4, foreseen(wants))

    assert sum(item.ways for item in shares.classes) <= 4
    assert shares.unmet == ("a", "b")


def test_the_procedure_follows_what_is_observed() -> None:
    """Violators that lose much for misses get equal classes of their own; the compliant keep what they hold."""
    seen = {"bad": Observed(True, 1.0, 0.5), "good": Observed(False, 2.0, 0.0), "big": Observed(True, 9.0, 0.5)}
    fine = {name: Observed(False, item.occupancy_ways, 0.0) for name, item in seen.items()}
    rounds = []

    def observe(classes):
        rounds.append(classes)
        return seen if len(rounds) == 1 else fine

    shares = share_out(["bad", "good", "big"], 12, observe)
    masks = class_masks(shares.classes, 6)

    assert shares.classes == (CacheClass(("bad",), 5), CacheClass(("big",), 5), CacheClass(("good",), 2))
    assert sum(masks.values()) == 0xFFF << 6


def test_latency_without_throughput_is_judged_at_the_load_it_is_kept_up_to(isolated) -> None:
    """A profile keeps 20 us up to 80 % of capacity: that is what the judge offers, not saturation."""
    offered = []

    def run(colocation):
        offered.extend(item.traffic.offered_mpps for item in colocation.tenants)
        late = 15.0 if all(item.traffic.offered_mpps for item in colocation.tenants) else 500.0
        sample = TenantSample(4.0, MetricVector({}, scope=Scope.CORE), latency_p95_us=late)
        return RunRecord(colocation, 0, Phase((sample,) * len(colocation.tenants), MetricVector({})), None, {})

    isolated.admit(spare("spare", p95_us=20.0))
    judged = Judge(run).judge(isolated)

    assert offered == [None, 0.8 * 5.0]
    assert judged.on_demand_unmet == ()
