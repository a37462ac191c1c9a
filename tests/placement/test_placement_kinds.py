"""One plan over several kinds of servers: at the least cost, whatever the order in which they are listed."""

import itertools

import numpy as np
import pytest

from slomo.placement.feasibility.mixes import Host
from slomo.placement.online.placer import Placer
from slomo.placement.planning.columns import Column
from slomo.placement.planning.kinds_cover import SocketKind, cover_kinds
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.request import SLO, Request
from slomo.vocabulary.workload import Traffic, Workload

SMALL, LARGE = "e5-2620v4", "e5-2695v4"


def servers(count):
    """Return so many servers of either machine."""
    return [Server(f"{machine}-{i}", machine) for machine in (SMALL, LARGE) for i in range(count)]


@pytest.mark.parametrize("policy", ["predicted", "slomo-search"])
def test_the_order_of_servers_makes_no_difference(make_library, ask, policy) -> None:
    """A batch takes the same servers of each kind however they are listed."""
    library = make_library(SMALL, LARGE)
    batch = [ask(f"r{i}", nf, 0.8) for i, nf in enumerate(["lpm", "stats", "firewall"] * 7)]
    used = set()
    for order in (servers(6), servers(6)[::-1], sorted(servers(6), key=lambda s: s.name[::-1])):
        placer = Placer(library, Cluster(tuple(order)), policy)
        assert all(decision.accepted for decision in placer.place_all(batch))
        used.add(tuple(sorted(name.rsplit("-", 1)[0] for name in placer.layout())))
    assert len(used) == 1


def test_the_cheaper_kind_is_used(make_library, ask) -> None:
    """With large servers ten times as dear, small ones are used, and the other way round."""
    library = make_library(SMALL, LARGE)
    batch = [ask(f"r{i}", "firewall") for i in range(8)]
    for dear, cheap in itertools.permutations((SMALL, LARGE)):
        cluster = [Server(f"{m}-{i}", m, cost=10.0 if m == dear else 1.0) for m in (SMALL, LARGE) for i in range(9)]
        placer = Placer(library, Cluster(tuple(cluster)))
        placer.place_all(batch)
        assert {name.rsplit("-", 1)[0] for name in placer.layout()} == {cheap}


def test_supply_is_limited_and_what_has_no_room_is_left_out() -> None:
    """Two sockets of a kind hold no third mix; the rest goes to the dearer kind while there is some."""
    mix = [Column((0, 0), (2,))]
    kinds = [SocketKind(Host("a", 2, 1, 1.0), 2, (0,), mix), SocketKind(Host("b", 2, 1, 3.0), 1, (0,), mix)]
    plan = cover_kinds([9], kinds)
    assert [sum(sockets.values()) for sockets in plan.sockets] == [2, 1]


def test_the_plan_is_the_optimum_of_small_cases() -> None:
    """Beside every choice of mixes tried one by one, nothing is cheaper."""
    generator = np.random.default_rng(3)
    for _ in range(10):
        wanted = generator.integers(1, 4, 2)
        costs = generator.integers(1, 4, 2).astype(float)
        tables = [[tuple(generator.integers(0, 3, 2).tolist()) for _ in range(2)] + [(1, 0), (0, 1)] for _ in range(2)]
        kinds = [
            SocketKind(Host("m", 9, 9, cost), 9, (0, 1), [Column((n,), serves) for n, serves in enumerate(table)])
            for cost, table in zip(costs, tables, strict=True)
        ]
        every = [(cost, serves) for cost, table in zip(costs, tables, strict=True) for serves in table]
        serves, cost_of_each = np.array([serves for _, serves in every]), np.array([cost for cost, _ in every])
        counts = np.array(list(itertools.product(range(4), repeat=len(every))))
        enough = (counts @ serves >= wanted).all(axis=1)
        best = (counts[enough] @ cost_of_each).min()
        assert cover_kinds(wanted.tolist(), kinds).cost == pytest.approx(best)


def test_a_share_is_one_of_the_reference_machine(make_library, ask) -> None:
    """With a reference machine a request needs the same throughput wherever it ends up."""
    library = make_library(SMALL, LARGE)
    placer = Placer(library, Cluster((Server("l", LARGE),)), reference_machine=SMALL)
    placer.admit(ask("a"))
    assert placer.decision("a").assignments[0].needed_mpps == 4.5


def test_what_is_offered_less_needs_less(library) -> None:
    """A request that is offered 1 Mpps is promised no more, is placed, and keeps its own traffic in the decision."""
    placer = Placer(library, Cluster.uniform(SMALL, 1))
    slow = Request("a", Workload("lpm", traffic=Traffic(offered_mpps=1.003)), SLO(min_share=0.9))
    item = placer.admit(slow).assignments[0]
    assert (item.needed_mpps, item.workload) == (pytest.approx(1.003), slow.chain[0].key)
    assert item.predicted_mpps == pytest.approx(1.003, rel=0.06)


def test_requests_that_all_differ_are_planned_in_few_classes(library) -> None:
    """A hundred different SLOs become few kinds of pieces, at no more than the grid's share of solo each."""
    placer = Placer(library, Cluster.uniform(SMALL, 100), slo_grid=0.02)
    shares = np.linspace(0.7, 0.95, 100).tolist()
    placer.place_all([Request(f"r{i}", "lpm", SLO(min_share=share)) for i, share in enumerate(shares)])
    needs = [placer.decision(f"r{i}").assignments[0].needed_mpps for i in range(100)]
    assert needs == pytest.approx([5.0 * share for share in shares])
    assert placer.stats()["kinds of pieces"] < 30
    state = placer._core.state
    rounded = [state.pieces[n].needed_mpps for i in range(100) for _, n in state.spots[f"r{i}"]]
    assert all(0.0 <= up - need <= 0.02 * 5.0 + 1e-9 for up, need in zip(rounded, needs, strict=True))


def test_memory_does_not_grow_with_admissions(library, ask) -> None:
    """Admitting and removing the same kinds of requests over and over leaves every memory as large as it was."""
    placer = Placer(library, Cluster.uniform(SMALL, 3))
    sizes = []
    for turn in range(6):
        for i in range(40):
            placer.admit(ask(f"{turn}-{i}", ("lpm", "stats")[i % 2], 0.5))
            if i % 2:
                placer.remove(f"{turn}-{i}")
        for request in placer.requests:
            placer.remove(request.id)
        queued = placer._core.state._groups.queued
        sizes.append((queued, placer.stats()))
    assert sizes[2] == sizes[-1]
