"""Re-optimisation: nothing moves below the threshold, what moves is counted, what stays keeps its cores."""

import itertools
import json
import time

import numpy as np
import pytest

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.placement.online.placer import Placer
from slomo.placement.over_time.judge import Judge
from slomo.placement.over_time.reoptimise import aligned, reoptimise
from slomo.placement.over_time.repack import MoveBudget
from slomo.placement.over_time.timeline import play
from slomo.placement.policies.predicted import PredictedBestFit
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request
from slomo.placement.workloads import Event, arrivals
from slomo.records.run import Phase, RunRecord, TenantSample
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

MACHINE = "e5-2620v4"


def half(colocation):
    """A testbed on which every lpm runs at 4 Mpps, below the 4.5 promised."""
    sample = TenantSample(4.0, MetricVector({}, scope=Scope.CORE))
    phase = Phase((sample,) * len(colocation.tenants), MetricVector({}))
    alone = phase if colocation.target is None else None
    return RunRecord(colocation, 0, alone, None if alone else phase, {})


@pytest.fixture
def scattered(library, ask):
    """Four servers with one lpm each where three fit: what departures leave behind under first fit."""
    placer = Placer(library, Cluster.uniform(MACHINE, 6))
    placer.place_all(ask(f"r{i}") for i in range(12))
    assert placer.servers_used == 4
    keep = {placer.layout()[server][0]: server for server in placer.layout()}
    names = {item.server: item for item in keep}
    for request in placer.requests:
        first = placer.decision(request.id).assignments[0]
        if first != names[first.server]:
            placer.remove(request.id)
    assert (placer.servers_used, len(placer.requests)) == (4, 4)
    return placer


def test_nothing_moves_at_or_below_the_threshold(scattered) -> None:
    """Four servers where two would do are a gap of 100 %: a threshold of 100 % leaves all as it is."""
    before = scattered.snapshot()
    reoptimisation = reoptimise(scattered, threshold=1.0, max_share=1.0)

    assert (reoptimisation.servers_before, reoptimisation.servers_planned, reoptimisation.gap) == (4, 2, 1.0)
    assert (reoptimisation.migrated, reoptimisation.moves) == (False, ())
    assert scattered.snapshot() == before
    assert reoptimisation.text == "4 servers, a fresh plan takes 2: gap 100.0 %, not above 100 %, nothing moved"


def test_above_the_threshold_the_plan_is_carried_out(scattered) -> None:
    """Two of four move, the fewest possible; the other two keep server and core; every SLO still holds."""
    before = {request.id: scattered.decision(request.id).assignments[0] for request in scattered.requests}
    reoptimisation = reoptimise(scattered, threshold=0.5, max_share=1.0)
    after = {request.id: scattered.decision(request.id).assignments[0] for request in scattered.requests}
    moved = {move.request: move for move in reoptimisation.moves}

    assert reoptimisation.migrated
    assert scattered.servers_used == 2
    assert len(reoptimisation.moves) == len(moved) == 2
    for name, item in after.items():
        if name in moved:
            assert (moved[name].source, moved[name].target) == (before[name].server, item.server)
        else:
            assert (item.server, item.core) == (before[name].server, before[name].core)
        assert item.low_mpps >= item.needed_mpps
    assert json.loads(json.dumps(reoptimisation.to_dict()))["moves"][0]["request"] in moved
    assert reoptimise(scattered, threshold=0.0).migrated is False


def test_another_policy_may_plan(library, profiles, ask) -> None:
    """ResQ's greedy admits one by one; its program plans the same on no more servers, and placing goes on."""
    placer = Placer(library, Cluster.uniform(MACHINE, 20), "resq-greedy", profiles=profiles)
    for i in range(12):
        placer.admit(ask(f"r{i}", ("lpm", "stats")[i % 2], 0.93))
    for i in (0, 3, 4, 7):
        placer.remove(f"r{i}")
    before = placer.servers_used
    reoptimisation = reoptimise(placer, 0.0, "resq-milp", max_share=1.0)

    assert reoptimisation.servers_planned <= before
    assert placer.servers_used == (reoptimisation.servers_planned if reoptimisation.migrated else before)
    assert placer.policy.name == "resq-greedy"
    assert placer.admit(ask("late", "firewall")).accepted


@pytest.mark.parametrize("seed", range(4))
def test_whatever_came_and_went_all_is_there_afterwards(library, seed) -> None:
    """After random admissions and removals a fresh plan keeps every request, its SLO, and one tenant per core."""
    generator = np.random.default_rng(seed)
    placer = Placer(library, Cluster.uniform(MACHINE, 12))
    for number in range(30):
        name = str(generator.choice(["lpm", "stats", "firewall"]))
        chain = (name,) if generator.random() < 0.7 else (name, "firewall")
        slo = SLO(min_share=float(generator.uniform(0.5, 0.95)))
        placer.admit(Request(f"r{number}", chain, slo, replicas=int(generator.integers(1, 4))))
    for request in generator.choice([request.id for request in placer.requests], size=12, replace=False):
        placer.remove(str(request))
    kept = placer.requests
    reoptimisation = reoptimise(placer, 0.0, max_share=1.0)
    seats = [(item.server, item.socket, item.core) for items in placer.layout().values() for item in items]

    assert reoptimisation.migrated
    assert placer.requests == kept
    assert placer.servers_used == reoptimisation.servers_planned < reoptimisation.servers_before
    assert len(set(seats)) == len(seats)
    assert all(item.low_mpps >= item.needed_mpps - 1e-9 for items in placer.layout().values() for item in items)


def test_what_changes_while_it_plans_is_planned_again(scattered, ask) -> None:
    """A request that comes during the plan is neither lost nor overwritten."""
    came = []

    class Slow(PredictedBestFit):
        def plan(self, host, demand):
            if not came:
                came.append(scattered.admit(ask("late", "firewall")))
            return super().plan(host, demand)

    reoptimisation = reoptimise(scattered, 0.1, Slow, max_share=1.0)

    assert reoptimisation.migrated
    assert "late" in [request.id for request in scattered.requests]
    assert scattered.decision("late").assignments


def test_a_plan_that_places_less_is_not_carried_out(library, scattered) -> None:
    """What runs alone for want of a model cannot be planned by a policy that refuses it; nothing changes."""
    first_fit = Placer(library, Cluster.uniform(MACHINE, 1), "first-fit")
    for i in range(8):
        first_fit.admit(Request(f"r{i}", ("lpm",), SLO(min_share=0.9)))
    reoptimisation = reoptimise(first_fit, 0.0, "predicted", max_share=1.0)

    assert (reoptimisation.servers_planned, reoptimisation.migrated, reoptimisation.gap) == (None, False, 0.0)
    assert "does not place everything" in reoptimisation.text
    assert len(first_fit.requests) == 8


@pytest.fixture
def worn(library):
    """What is left of forty requests after half of them went: many servers, none full."""
    generator = np.random.default_rng(5)
    placer = Placer(library, Cluster.uniform(MACHINE, 20))
    for number in range(40):
        name = str(generator.choice(["lpm", "stats", "firewall"]))
        placer.admit(Request(f"r{number}", (name,), SLO(min_share=float(generator.uniform(0.8, 0.95)))))
    for name in generator.choice([request.id for request in placer.requests], size=22, replace=False):
        placer.remove(str(name))
    return placer


def test_a_budget_of_moves_is_kept_and_the_larger_saves_more(worn) -> None:
    """From no move to as many as are wanted: never more moves than allowed, never more servers than with fewer."""
    before, kept = worn.snapshot(), worn.requests
    servers = []
    for most in (0, 1, 2, 4, 8, None):
        worn.restore(before)
        reoptimisation = reoptimise(worn, 0.0, max_moves=most, max_share=1.0)
        assert most is None or len(reoptimisation.moves) <= most
        assert worn.servers_used == (
            reoptimisation.servers_after if reoptimisation.migrated else reoptimisation.servers_before
        )
        assert worn.requests == kept
        assert all(item.low_mpps >= item.needed_mpps - 1e-9 for items in worn.layout().values() for item in items)
        servers.append(worn.servers_used)

    assert servers == sorted(servers, reverse=True)
    assert servers[0] == reoptimisation.servers_before > servers[2] > servers[-1] == reoptimisation.servers_planned


def test_moves_that_cost_more_than_they_save_are_not_made(worn) -> None:
    """At a server per move nothing moves; at a tenth, every move made is paid for by servers saved."""
    before = worn.snapshot()
    dear = reoptimise(worn, 0.0, cost_per_move=1.01, max_share=1.0)
    assert (dear.migrated, dear.moves, worn.snapshot()) == (False, (), before)
    assert "not worth its moves" in dear.text

    reoptimisation = reoptimise(worn, 0.0, cost_per_move=0.1, max_share=1.0)
    assert reoptimisation.migrated
    assert reoptimisation.servers_before - reoptimisation.servers_after > 0.1 * len(reoptimisation.moves)


def fewest(placer, arriving, moves):
    """Return the fewest servers that any assignment with so many moves takes, by trying all of them."""
    core = placer._core
    host, names = core.state.hosts[0], sorted({server.name for server in placer.cluster.servers})
    here = {r.id: placer.decision(r.id).assignments[0].server for r in placer.requests}
    everyone = [*placer.requests, *arriving]
    numbers = [core.pieces.number(core.cuts(request, [])[0][host][0]) for request in everyone]
    best = len(names) + 1
    layouts = [((), {}, 0)]
    for request, number in zip(everyone, numbers, strict=True):
        grown = []
        for chosen, filled, moved in layouts:
            for name in names:
                cost = moved + (here.get(request.id, name) != name)
                mix = tuple(sorted((*filled.get(name, ()), number)))
                if cost <= moves and core.policy.oracle.verdict(host, mix).ok:
                    grown.append(((*chosen, name), {**filled, name: mix}, cost))
        layouts = grown
    return min((len(filled) for _, filled, _ in layouts), default=best)


@pytest.mark.parametrize("seed", range(6))
def test_newcomers_and_moves_are_planned_together(library, seed) -> None:
    """On cases small enough to try every assignment, none takes fewer servers, and none is below the bound."""
    generator = np.random.default_rng([seed, 7])
    slos = [SLO(min_share=float(share)) for share in generator.choice([0.7, 0.8, 0.9], 16)]
    nfs = generator.choice(["lpm", "stats"], 16).tolist()
    drawn = [Request(f"r{i}", (nf,), slo) for i, (nf, slo) in enumerate(zip(nfs, slos, strict=True))]
    placer = Placer(library, Cluster.uniform(MACHINE, 4))
    placer.place_all(drawn[:10])
    for name in generator.choice([f"r{i}" for i in range(10)], 5, replace=False):
        placer.remove(str(name))
    arriving, before = drawn[10:12], {r.id: placer.decision(r.id).assignments[0].server for r in placer.requests}
    best = {moves: fewest(placer, arriving, moves) for moves in (0, 1, 2)}
    document = placer.snapshot()
    for moves, servers in best.items():
        placer.restore(document)
        done = reoptimise(placer, 0.0, max_moves=moves, max_share=1.0, arriving=arriving)
        after = {r.id: placer.decision(r.id).assignments[0].server for r in placer.requests}

        assert [decision.accepted for decision in done.decisions] == [True, True]
        assert set(after) == {*before, "r10", "r11"}
        assert sum(after[name] != server for name, server in before.items()) == len(done.moves) <= moves
        assert placer.servers_used == servers
        assert done.lower_bound is None or done.lower_bound <= servers
        assert all(item.low_mpps >= item.needed_mpps for items in placer.layout().values() for item in items)


def test_a_loaded_machine_makes_the_same_plan(worn, ask, monkeypatch) -> None:
    """The common plan limits work: a clock that runs an hour between two looks changes nothing."""
    state, plans, clock = worn.snapshot(), [], itertools.count(0.0, 3600.0)
    for hurried in (False, True):
        worn.restore(state)
        if hurried:
            monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
        done = reoptimise(worn, 0.0, max_moves=8, max_share=1.0, arriving=[ask("new"), ask("newer", "stats")])
        plans.append((done, worn.snapshot()["placed"]))

    assert plans[0] == plans[1]
    assert plans[0][0].lower_bound is not None


def test_who_is_bound_stays_and_is_placed_all_the_same(library, ask) -> None:
    """A tenant whose disruption budget is 0 keeps its server; a newcomer with a constraint finds its place."""
    placer = Placer(library, Cluster.uniform(MACHINE, 8))
    placer.place_all(ask(f"r{i}") for i in range(12))
    placer.admit(ask("guarded", "firewall", max_disrupted=0))
    home = placer.decision("guarded").assignments[0].server
    for name in ("r1", "r2", "r4", "r5", "r7", "r8", "r10", "r11"):
        placer.remove(name)
    done = reoptimise(
        placer, 0.0, max_moves=4, max_share=1.0, arriving=[ask("new"), ask("apart", anti_affinity=("new",))]
    )
    servers = {name: placer.decision(name).assignments[0].server for name in ("new", "apart")}

    assert [decision.accepted for decision in done.decisions] == [True, True]
    assert servers["new"] != servers["apart"]
    assert len(done.moves) <= 4
    assert placer.decision("guarded").assignments[0].server == home
    assert done.migrated
    assert placer.servers_used == done.servers_after < done.servers_before


def test_a_newcomer_that_is_refused_is_told_and_the_others_are_placed(library, ask) -> None:
    """On one full server nothing moves; the refusal is among the decisions, and the state is that of `place_all`."""
    placer = Placer(library, Cluster.uniform(MACHINE, 1))
    placer.place_all(ask(f"r{i}") for i in range(2))
    done = reoptimise(placer, 0.0, arriving=[ask("a"), ask("b")])

    assert [decision.accepted for decision in done.decisions] == [True, False]
    assert [request.id for request in placer.requests] == ["r0", "r1", "a"]
    with pytest.raises(InvalidValueError, match="placed already"):
        reoptimise(placer, 0.0, arriving=[ask("a")])


def test_a_negative_budget_or_cost_is_refused(worn) -> None:
    """Numbers below 0 are errors, and nothing changes."""
    before = worn.snapshot()
    for bad in ({"max_moves": -1}, {"cost_per_move": -0.1}, {"cost_per_move": float("nan")}):
        with pytest.raises(InvalidValueError, match="needed"):
            reoptimise(worn, **bad)
    assert worn.snapshot() == before


@pytest.mark.parametrize("threshold", [-0.1, float("nan"), float("inf")])
def test_bad_thresholds_and_planners_change_nothing(scattered, threshold) -> None:
    """A threshold that is no number from 0, or a planner there is none of, is an error that leaves the state."""
    before = scattered.snapshot()
    with pytest.raises(InvalidValueError, match="threshold of re-optimisation"):
        reoptimise(scattered, threshold)
    with pytest.raises(UnknownNameError, match="did you mean 'resq-milp'"):
        reoptimise(scattered, 0.1, "resq-mlp")
    assert scattered.snapshot() == before


def test_a_chain_moves_whole_and_an_instance_more_counts(library) -> None:
    """Pieces are matched by request and network functions; one that comes without one that goes is a move, too."""
    cluster = Cluster.uniform(MACHINE, 3)

    def piece(server, core, nfs=("lpm",)):
        return {"server": f"{MACHINE}-{server}", "socket": 0, "cores": list(range(core, core + len(nfs))),
                "workloads": list(nfs), "needed_mpps": 1.0, "ways": [], "exclusive": False}  # fmt: skip

    def document(**placed):
        return {"policy": "predicted", "placed": [{"request": {"id": name}, "pieces": p} for name, p in placed.items()]}

    now = document(a=[piece(1, 4)], b=[piece(2, 0, ("lpm", "nat"))], c=[piece(3, 2), piece(3, 5)])
    plan = document(a=[piece(1, 0)], b=[piece(1, 1, ("lpm", "nat"))], c=[piece(1, 3), piece(2, 0), piece(2, 1)])
    result, moves = aligned(now, plan, cluster)
    cores = {
        entry["request"]["id"]: [(p["server"][-1], p["cores"]) for p in entry["pieces"]] for entry in result["placed"]
    }

    # the plan's second server has two instances of c and becomes server 3; its first shares a with 1 and b with 2
    assert cores["c"][1:] == [("3", [2]), ("3", [5])]
    assert cores["a"] == [("1", [4])]
    assert cores["b"] == [("1", [0, 1])]
    assert [(move.request, move.source[-1], move.target[-1]) for move in moves] == [("b", "2", "1"), ("c", "3", "1")]


def test_a_closed_server_takes_nothing_and_a_newcomer_is_no_move() -> None:
    """A server that the plan opens keeps its name where an empty one before it is closed; a newcomer does not move."""

    def document(**placed):
        pieces = {name: [{"server": f"{MACHINE}-{server}", "socket": 0, "cores": [0], "workloads": ["lpm"]}]
                  for name, server in placed.items()}  # fmt: skip
        return {"placed": [{"request": {"id": name}, "pieces": part} for name, part in pieces.items()]}

    now = {**document(a=2), "closed": {f"{MACHINE}-1": "cordoned"}}
    result, moves = aligned(now, document(b=3, a=2), Cluster.uniform(MACHINE, 3))

    assert [entry["pieces"][0]["server"][-1] for entry in result["placed"]] == ["2", "3"]
    assert not moves


def test_timeline_counts_servers_moves_and_refusals(library, ask) -> None:
    """Of the same comings and goings, re-optimisation needs fewer servers on average, and its moves are counted."""
    requests = [ask(f"r{i}", ("lpm", "stats", "firewall")[i % 3]) for i in range(40)]
    events = arrivals(requests, per_s=0.5, mean_stay_s=30.0, seed=3)
    plain = play(Placer(library, Cluster.uniform(MACHINE, 20), "dobrescu"), events)
    again = play(Placer(library, Cluster.uniform(MACHINE, 20), "dobrescu"), events, every_s=10.0, threshold=0.2)

    assert (plain.migrations, plain.planner, plain.reoptimisations) == (0, "", ())
    assert again.planner == "dobrescu"
    assert again.migrations == sum(len(what.moves) for _, what in again.reoptimisations) > 0
    assert again.mean_servers < plain.mean_servers
    assert all(what.gap > 0.2 for _, what in again.reoptimisations if what.migrated)
    assert all(not what.moves for _, what in again.reoptimisations if what.gap <= 0.2)
    assert [sample.time_s for sample in again.samples] == sorted(sample.time_s for sample in again.samples)
    assert again.samples[-1].placed == 0
    assert json.loads(json.dumps(again.to_dict()))["migrations"] == again.migrations


def test_timeline_passes_over_the_departure_of_what_was_refused(library, ask) -> None:
    """On one server the fourth lpm is refused; its departure is no error."""
    requests = [ask(f"r{i}") for i in range(4)]
    events = [Event(float(i), True, request) for i, request in enumerate(requests)]
    events += [Event(10.0 + i, False, request) for i, request in enumerate(requests)]
    run = play(Placer(library, Cluster.uniform(MACHINE, 1)), events)

    assert run.refused == 1
    assert max(sample.placed for sample in run.samples) == 3
    assert run.mean_servers == pytest.approx((12.0 - 0.0) / 13.0)
    with pytest.raises(InvalidValueError, match="re-optimisation every 0 s"):
        play(Placer(library, Cluster.uniform(MACHINE, 1)), events, every_s=0)


def test_timeline_is_judged_now_and_then(library, ask) -> None:
    """A judge tells the share of broken SLOs at ten times: on a testbed that serves less than promised, all break."""
    requests = [ask(f"r{i}") for i in range(16)]
    events = arrivals(requests, per_s=1.0, mean_stay_s=50.0, seed=0)
    run = play(Placer(library, Cluster.uniform(MACHINE, 4), "first-fit"), events, judge=Judge(half))
    judged = [sample for sample in run.samples if sample.violated_share is not None]

    assert 8 <= len(judged) <= 10
    assert max(sample.violated_share for sample in judged) == 1.0
    assert {round(sample.anat, 6) for sample in judged} == {round(4.0 / 4.5, 6)}
    assert run.anat == pytest.approx(4.0 / 4.5)


def test_moves_are_charged_to_what_is_served(library, ask) -> None:
    """A piece that serves nothing for ten seconds whenever it moves costs ten of all request-seconds."""
    requests = [ask(f"r{i}", ("lpm", "stats")[i % 2]) for i in range(40)]
    events = arrivals(requests, per_s=0.5, mean_stay_s=40.0, seed=3)
    runs = [
        play(Placer(library, Cluster.uniform(MACHINE, 20), "dobrescu"), events, every_s=10.0, threshold=0.0,
             judge=Judge(half), moves=MoveBudget(outage_s=outage))
        for outage in (0.0, 10.0)
    ]  # fmt: skip
    free, charged = runs
    stays = zip(free.samples, free.samples[1:], strict=False)
    placed_s = sum(now.placed * (later.time_s - now.time_s) for now, later in stays)

    assert free.migrations == charged.migrations > 0
    assert charged.anat == pytest.approx(free.anat * (1.0 - 10.0 * charged.migrations / placed_s))
