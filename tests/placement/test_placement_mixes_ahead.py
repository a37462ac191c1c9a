"""Mixes told ahead: tables of rates, pricing over all of them, and plans filled by value."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.feasibility.mixes import Host, Piece, Pieces
from slomo.placement.feasibility.oracle import Oracle
from slomo.placement.feasibility.rates import RateBook
from slomo.placement.online.placer import Placer
from slomo.placement.planning.rounding import fill_by_value
from slomo.placement.planning.shared_pricing import SharedPricing, classes_of
from slomo.placement.policies.search import cover
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request
from slomo.vocabulary.workload import Workload

MACHINE = "e5-2620v4"
#: What the hand-made models say: solo [Mpps], M/s of accesses, share lost per M/s of the others'.
FUNCTIONS = {"lpm": (5.0, 20.0, 0.002), "stats": (3.6, 30.0, 0.001), "firewall": (0.4, 1.0, 0.0)}
KEYS = {nf: Workload(nf).key for nf in FUNCTIONS}


def floors(share):
    """Return the least rates that are of use."""
    return {KEYS[nf]: share * solo for nf, (solo, _, _) in FUNCTIONS.items()}


def test_table_holds_every_mix_at_the_rates_of_single_predictions(make_library) -> None:
    """All C(3 + 5, 5) - 1 mixes of three kinds on five cores are there, and each says what asking for it alone says."""
    estimates = ThroughputEstimates(make_library(spread=0.05), confidence=0.9)
    table = RateBook(estimates).table(MACHINE, floors(1e-9), 5, 10_000)

    assert table.reach == 5
    assert len(table.rows) == math.comb(8, 5) - 1
    for mix, row in table.rows.items():
        keys = [[*table.floors][number] for number in mix]
        alone = estimates.rates(MACHINE, [keys], [len(set(keys))])[0]
        for number in set(mix):
            tabulated = (table.mpps[row, number], table.low[row, number], table.high[row, number])
            assert tabulated == pytest.approx(alone[[*table.floors][number]], rel=1e-12)


def test_table_holds_the_mixes_of_use_and_no_others(library) -> None:
    """There are just those mixes in which everybody reaches its floor; nobody fares worse in any part of them."""
    estimates = ThroughputEstimates(library)
    every = RateBook(estimates).table(MACHINE, floors(1e-9), 6, 10_000)
    table = RateBook(estimates).table(MACHINE, floors(0.9), 6, 10_000)
    floor = np.array([*table.floors.values()])
    of_use = {mix for mix, row in every.rows.items() if not (every.low[row] / floor - 1.0 < 0.0).any()}

    assert set(table.rows) == of_use
    assert np.array_equal(table.least, table.low, equal_nan=True)  # these models never gain by a competitor more


def test_a_mix_with_a_part_that_breaks_is_of_no_use(library, monkeypatch) -> None:
    """Where predictions let a competitor more help, the worst part counts: whoever leaves, all others are kept."""
    estimates = ThroughputEstimates(library)
    plain = estimates.rates_of_places

    def odd(machine, members, different=None):
        mpps, low, high = plain(machine, members, different)
        return mpps, np.where((members >= 0).sum(axis=1, keepdims=True) == 2, 0.5 * low, low), high

    monkeypatch.setattr(estimates, "rates_of_places", odd)
    table = RateBook(estimates).table(MACHINE, floors(0.3), 4, 10_000)

    assert np.nanmax(table.least[table.counts.sum(axis=1) > 2] / [floors(1.0)[key] for key in table.floors]) <= 0.5
    assert set(RateBook(estimates).table(MACHINE, floors(0.6), 4, 10_000).rows) == {(0,), (1,), (2,)}


def test_growing_stops_where_it_becomes_too_much(library) -> None:
    """A table cut off says up to how many tenants it is whole, and nothing larger is called hopeless."""
    estimates = ThroughputEstimates(library)
    book = RateBook(estimates)
    table = book.table(MACHINE, floors(0.5), 8, 20)
    needs = floors(0.9)

    assert table.reach < 8
    assert max(len(mix) for mix in table.rows) == table.reach
    assert not book.hopeless(MACHINE, (KEYS["lpm"],) * 8, needs)


def test_hopeless_mixes_break_and_others_are_judged(library) -> None:
    """What a grown table lacks breaks some promise; mixes that hold are never called hopeless."""
    pieces = Pieces()
    numbers = {nf: pieces.number(Piece((KEYS[nf],), 0.9 * solo)) for nf, (solo, _, _) in FUNCTIONS.items()}
    oracle, host = Oracle(pieces, ThroughputEstimates(library), predicts=True), Host(MACHINE, 8, 18)
    judge = Oracle(pieces, ThroughputEstimates(library), predicts=True)
    oracle.table(host, floors(0.9), most=100)
    mixes = list(itertools.combinations_with_replacement(sorted(numbers.values()), 4))

    assert {mix for mix in mixes if oracle.hopeless(host, mix)} == {m for m in mixes if not judge.verdict(host, m).ok}
    assert any(oracle.hopeless(host, mix) for mix in mixes)


def priced(library, wanted, cores=5):
    """Return pricing, oracle and demand for classes (NF, share, replicas, count)."""
    pieces, splits, demand = Pieces(), {}, {}
    for nf, share, replicas, count in wanted:
        need = share * FUNCTIONS[nf][0]
        cut = {
            k: pieces.number(Piece((KEYS[nf],) * k, need / k, instances=k, replicas=replicas))
            for k in range(1, replicas + 1)
        }
        first = next(iter(cut.values()))
        splits[first], demand[first] = cut, count
    host = Host(MACHINE, cores, 18)
    oracle = Oracle(pieces, ThroughputEstimates(library), predicts=True)
    classes = classes_of(pieces, splits, demand)
    names = {item.workload for item in classes}
    least = {key: min(n for i in classes if i.workload == key for _, n in i.pieces.values()) for key in names}
    return SharedPricing(host, oracle.table(host, least), classes), oracle, host, splits, demand


CLASSES = st.lists(
    st.tuples(
        st.sampled_from(sorted(FUNCTIONS)), st.sampled_from([0.8, 0.9, 0.95]), st.integers(1, 3), st.integers(1, 6)
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda item: item[:3],
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CLASSES, st.lists(st.floats(0.05, 0.9), min_size=4, max_size=4))
def test_pricing_knows_the_best_of_all_mixes(library, wanted, prices) -> None:
    """The best value agrees with judging every mix of every way to cut every request, one by one."""
    pricing, oracle, host, splits, demand = priced(library, wanted)
    worth = np.array(prices[: len(wanted)])
    klass = {piece: number for number, first in enumerate(demand) for piece in splits[first].values()}
    best = 0.0
    for size in range(1, host.cores + 1):
        for mix in itertools.combinations_with_replacement(sorted(klass), size):
            served = np.bincount([klass[piece] for piece in mix], minlength=len(wanted))
            if (served <= [*demand.values()]).all() and oracle.verdict(host, mix).ok:
                best = max(best, float(served @ worth))
    columns, value = pricing(worth)

    assert value == pytest.approx(best)
    assert all(oracle.verdict(host, column.signature).ok for column in columns)
    if best > 1.0 + 1e-6:  # worth more than a server costs
        assert max(np.dot(column.serves, worth) for column in columns) == pytest.approx(best)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CLASSES)
def test_plans_serve_everybody_with_mixes_that_hold(library, wanted) -> None:
    """Filled by value or planned by columns: everybody is served, every mix holds, no bound is beaten."""
    pricing, oracle, host, splits, demand = priced(library, wanted)
    klass = {piece: number for number, first in enumerate(demand) for piece in splits[first].values()}
    counts = np.array([*demand.values()])
    filled = fill_by_value(counts, np.full(len(counts), 0.3), pricing, passes=3)
    plan = cover(counts.tolist(), list(filled.seen.values()), pricing)
    for sockets in (filled.best, plan.sockets):
        served = np.zeros(len(counts), dtype=int)
        for mix, count in sockets.items():
            served += count * np.bincount([klass[piece] for piece in mix], minlength=len(counts))
            assert oracle.verdict(host, mix).ok
        assert (served >= counts).all()

    assert plan.proven
    assert plan.lower_bound <= min(plan.count, sum(filled.best.values()))
    assert plan.count <= plan.lower_bound + 1


def test_filling_by_value_finds_who_goes_well_together(library) -> None:
    """Three lpm fill a socket at 90 %, six firewalls beside them cost nothing; kind by kind would leave cores empty."""
    requests = [Request(f"{nf}{i}", (nf,), SLO(min_share=0.9)) for nf in ("lpm", "firewall") for i in range(30)]
    placer = Placer(library, Cluster.uniform(MACHINE, 40))
    placer.place_all(requests)

    assert placer.servers_used == 10


def test_requests_that_may_be_cut_differently_are_told_apart(library) -> None:
    """Of requests for the same throughput, only those that allow replicas are cut, in a batch as one by one."""
    requests = [Request(f"r{i}", ("stats",), SLO(min_share=0.97), replicas=1 + 3 * (i % 2)) for i in range(40)]
    for policy in ("predicted", "slomo-search"):
        placer = Placer(library, Cluster.uniform(MACHINE, 60), policy)
        decisions = placer.place_all(requests)

        assert all(decision.accepted for decision in decisions)
        assert {len(decisions[i].assignments) for i in range(0, 40, 2)} == {1}
        assert max(len(decisions[i].assignments) for i in range(1, 40, 2)) > 1


def test_bound_says_what_it_rests_on(library) -> None:
    """For single functions and for chains the bound names the mixes it is one for."""
    for chain in (("lpm",), ("lpm", "firewall")):
        placer = Placer(library, Cluster.uniform(MACHINE, 40), "slomo-search")
        placer.place_all(Request(f"r{i}", chain, SLO(min_mpps=0.35)) for i in range(20))
        plan = placer.policy.last

        assert "(proven for mixes that hold in every part)" in plan.text
        assert plan.lower_bound <= placer.servers_used == plan.count
