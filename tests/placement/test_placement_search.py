"""Search over mixes: bounds that hold, plans that meet them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slomo.placement.feasibility.mixes import Host
from slomo.placement.online.placer import Placer
from slomo.placement.planning.columns import Column
from slomo.placement.planning.pricing import Item, Knapsack
from slomo.placement.policies.search import cover
from slomo.placement.problem.cluster import Cluster

MACHINE = "e5-2620v4"


def all_mixes(host, items):
    """Return every mix of items that a socket holds."""
    sizes = range(1, host.cores + 1)
    mixes = itertools.chain.from_iterable(itertools.combinations_with_replacement(items, size) for size in sizes)
    return [m for m in mixes if sum(i.cores for i in m) <= host.cores and sum(i.ways for i in m) <= host.ways]


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), min_size=1, max_size=4),
    st.lists(st.floats(0.05, 1.0), min_size=4, max_size=4),
)
def test_pricing_finds_the_best_mix_there_is(sizes, prices) -> None:
    """Dynamic programming agrees with trying every mix."""
    host = Host("m", 4, 9)
    items = [Item(i, i, cores, ways) for i, (cores, ways) in enumerate(sizes)]
    worth = np.array(prices[: len(items)])
    best = max(sum(worth[item.klass] for item in mix) for mix in all_mixes(host, items))

    columns, value = Knapsack(host, items, len(items))(worth)

    assert value == pytest.approx(best)
    if best > 1.0 + 1e-6:
        assert max(np.dot(column.serves, worth) for column in columns) == pytest.approx(best)


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 30)), min_size=1, max_size=4),
)
def test_plan_serves_the_demand_and_respects_its_bound(classes) -> None:
    """Every plan serves all, holds on every socket, needs at least the bound and at most a socket per class more."""
    host = Host("m", 4, 9)
    items = [Item(i, i, cores, ways) for i, (cores, ways, _) in enumerate(classes)]
    demand = [count for _, _, count in classes]
    start = [Column((i,), tuple(int(k == i) for k in range(len(items)))) for i in range(len(items))]
    plan = cover(demand, start, Knapsack(host, items, len(items)))
    served = [sum(mix.count(i) * count for mix, count in plan.sockets.items()) for i in range(len(items))]

    assert plan.proven
    assert all(done >= wanted for done, wanted in zip(served, demand, strict=True))
    assert all(sum(items[i].ways for i in mix) <= 9 and sum(items[i].cores for i in mix) <= 4 for mix in plan.sockets)
    assert plan.lower_bound <= plan.count <= plan.lower_bound + len(items)


def test_search_beats_best_fit_where_mixing_pays(library, ask) -> None:
    """The plan needs no more servers than best fit, and its bound is proven and met within one server."""
    requests = [ask(f"r{i}", nf) for i, nf in enumerate(["lpm", "stats", "firewall", "stats"] * 25)]
    used = {}
    for policy in ("predicted", "slomo-search"):
        placer = Placer(library, Cluster.uniform(MACHINE, 60), policy)
        assert all(decision.accepted for decision in placer.place_all(requests))
        used[policy] = placer.servers_used
    plan = placer.policy.last

    assert used["slomo-search"] <= used["predicted"]
    assert plan.proven
    assert plan.count == used["slomo-search"] <= plan.lower_bound + 1


def test_small_batches_are_optimal(library, ask) -> None:
    """Twelve requests of two kinds are placed on as few servers as any assignment that keeps every SLO."""
    host_cores, slopes = 8, {"lpm": (20.0, 0.002), "stats": (30.0, 0.001)}

    def holds(lpm: int, stats: int) -> bool:
        total = 20.0 * lpm + 30.0 * stats
        kept = all(s * (total - a) <= 0.1 + 1e-9 for n, (a, s) in zip((lpm, stats), slopes.values(), strict=True) if n)
        return lpm + stats <= host_cores and kept

    mixes = [(a, b) for a in range(9) for b in range(9) if a + b and holds(a, b)]
    best = {(0, 0): 0}
    for a, b in itertools.product(range(7), range(7)):
        if a + b:
            best[a, b] = 1 + min(
                best[max(a - x, 0), max(b - y, 0)] for x, y in mixes if (min(a, x), min(b, y)) != (0, 0)
            )
    placer = Placer(library, Cluster.uniform(MACHINE, 12), "slomo-search")
    placer.place_all(ask(f"r{i}", nf) for i, nf in enumerate(["lpm", "stats"] * 6))

    assert placer.servers_used == best[6, 6]
