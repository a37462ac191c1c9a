"""A network function without a model, where told: the worst neighbour the library knows stands in for it."""

import json

import pytest

from slomo.models.library import ModelLibrary
from slomo.placement.feasibility.worst_case import STRANGER
from slomo.placement.online.placer import Placer
from slomo.placement.over_time.judge import Judge
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request
from slomo.records.run import Phase, RunRecord, TenantSample
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

MACHINE = "e5-2620v4"


@pytest.fixture
def placer(library):
    """Two servers whose placer takes strangers."""
    return Placer(library, Cluster.uniform(MACHINE, 2), fallback="worst-case", confidence=0.5)


def test_the_stand_in_presses_like_the_worst_and_suffers_like_the_worst(placer) -> None:
    """Of lpm (loses most), stats (takes most) and firewall: stats presses, lpm suffers."""
    placer.admit(Request("x", ("nat",), SLO(min_share=0.5)))
    worst = placer.estimates.worst(MACHINE)
    assert (worst.contentious.split("@")[0], worst.sensitive.split("@")[0]) == ("stats", "lpm")

    fire, lpm, stats = "firewall@64B,100000f", "lpm@64B,100000f", "stats@64B,100000f"
    beside, modelled, like = placer.estimates.rates(
        MACHINE, [(fire, lpm, STRANGER), (fire, lpm, stats), (fire, lpm, lpm)]
    )
    assert beside[lpm] == modelled[lpm]
    assert beside[fire] == modelled[fire]
    assert beside[STRANGER][0] < placer.estimates.solo_mpps(MACHINE, lpm)
    # firewall and lpm press on an lpm in its place
    assert beside[STRANGER] == like[lpm]


def test_strangers_are_packed_beside_others_and_promised_a_share(placer, ask) -> None:
    """Strangers and lpm share a server, everybody's promise holds, and the reason names who stands in."""
    decisions = placer.place_all([ask("a"), Request("x", ("nat",), SLO(min_share=0.85)), ask("b", "firewall")])

    assert all(decision.accepted for decision in decisions)
    assert placer.servers_used == 1
    assert decisions[1].assignments[0].workload == "nat@64B,100000f"
    assert "no model of 'nat@64B,100000f'" in decisions[1].reasons[0]
    assert "presses like 'stats@64B,100000f' and suffers like 'lpm@64B,100000f'" in decisions[1].reasons[0]


def test_a_crowd_of_strangers_opens_servers_before_it_breaks_promises(placer, ask) -> None:
    """As many strangers go beside an lpm as stats would; the next opens a server."""
    placer.admit(ask("a", "lpm", 0.9))
    for number in range(4):
        placer.admit(Request(f"x{number}", ("nat",), SLO(min_share=0.8)))
    verdict = placer.decision("a").assignments[0]

    assert placer.servers_used == 2
    assert verdict.low_mpps >= verdict.needed_mpps


def test_throughput_in_packets_cannot_be_promised_to_a_stranger(placer) -> None:
    """What it does alone is not known: it is refused, the rest of the batch is not."""
    refused, placed = placer.place_all(
        [Request("x", ("nat",), SLO(min_mpps=1.0)), Request("y", ("lpm",), SLO(min_share=0.8))]
    )

    assert not refused.accepted
    assert placed.accepted


@pytest.mark.parametrize("policy", ["predicted", "slomo-search"])
def test_no_errors_of_a_stranger_are_asked_for(make_library, profiles, policy) -> None:
    """Its stand-in shares the cache, also where it has a profile; a chain that asks too much of it is refused."""
    library = ModelLibrary([model for model in make_library(spread=0.02).values() if model.workload.nf != "firewall"])
    placer = Placer(library, Cluster.uniform(MACHINE, 2), policy, fallback="worst-case", profiles=profiles)
    chain = placer.admit(Request("chain", ("nat", "lpm"), SLO(min_share=1.2)))
    alone = placer.admit(Request("alone", ("firewall",), SLO(min_share=0.5)))
    assert "throughput of 'chain' (lpm@64B,100000f)" in chain.reasons[0]
    assert alone.assignments[0].llc_way_mask is None
    assert placer.estimates.lacking(MACHINE, "firewall@64B,100000f") is None


def test_a_snapshot_with_strangers_is_restored(placer, library) -> None:
    """What was placed for a stand-in is where it was after a restore by a placer that takes strangers."""
    placer.admit(Request("x", ("nat",), SLO(min_share=0.8)))
    document = json.loads(json.dumps(placer.snapshot()))
    other = Placer(library, Cluster.uniform(MACHINE, 2), fallback="worst-case", confidence=0.5)
    other.restore(document)

    assert document["fallback"] == "worst-case"
    assert other.layout() == placer.layout()


def test_a_stranger_is_judged_by_what_it_does_alone(placer, ask) -> None:
    """Solo 2.0 Mpps and 1.7 beside others is 85 %: a promise of 80 holds, one of 90 breaks."""

    def run(colocation):
        rates = [2.0 if len(colocation.tenants) == 1 else 1.7] * len(colocation.tenants)
        samples = tuple(TenantSample(rate, MetricVector({}, scope=Scope.CORE)) for rate in rates)
        return RunRecord(colocation, 0, Phase(samples, MetricVector({})), None, {})

    placer.place_all([Request("x", ("nat",), SLO(min_share=0.8)), Request("y", ("maglev",), SLO(min_share=0.9))])
    assert placer.servers_used == 1
    assert [item.request for item in Judge(run).judge(placer).violations] == ["y"]


def test_a_stranger_is_promoted_as_evidence_comes(library, make_library, ask) -> None:
    """From the worst neighbour to a screen with wide errors to its own model: nothing moves, room is found again."""
    kept = ModelLibrary([model for model in library.values() if model.workload.nf != "firewall"])
    placer = Placer(kept, Cluster.uniform(MACHINE, 2), fallback="worst-case", confidence=0.9)
    for number in range(3):
        placer.admit(Request(f"x{number}", ("firewall",), SLO(min_share=0.85)))
    placer.admit(ask("a"))
    before, more = placer.layout(), [ask(f"b{number}") for number in range(4)]

    def free():
        return sum(decision.accepted for decision in placer.what_if_all(more))

    room = [free()]
    for spread in (0.06, 0.0):  # a screen, then its whole profile
        own = next(model for model in make_library(spread=spread).values() if model.workload.nf == "firewall")
        change = placer.lifecycle.use(kept.merge(ModelLibrary([own])))
        assert (change.done, change.at_risk) == (True, ())
        room.append(free())
    assert {name: [(i.core, i.workload) for i in here] for name, here in placer.layout().items()} == {
        name: [(i.core, i.workload) for i in here] for name, here in before.items()
    }
    assert room == sorted(room)
    assert "no model of" not in placer.decision("x0").reasons[0]
