"""Hyper-threads of a core: two places only where told, for what is promised nothing, and said to be not predicted."""

import pytest

from slomo.errors import InvalidValueError
from slomo.placement.online.placer import Placer
from slomo.placement.over_time.judge import Judge
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.decision import Decision
from slomo.placement.problem.enforcement import plan_from_decision
from slomo.placement.problem.request import SLO, Request
from slomo.records.run import Phase, RunRecord, TenantSample
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

from .conftest import MACHINE

WILLING = SLO(kind="on-demand")


def spare(number: int) -> Request:
    return Request(f"spare-{number}", "firewall", WILLING)


@pytest.fixture
def threaded(library) -> Placer:
    return Placer(library, Cluster.uniform(MACHINE, 1, threads_per_core=2))


def test_a_core_is_one_place_unless_told(library) -> None:
    """Eight cores take eight; the ninth is refused for want of cores."""
    placer = Placer(library, Cluster.uniform(MACHINE, 1))

    decisions = [placer.admit(spare(number)) for number in range(9)]

    assert [decision.accepted for decision in decisions] == [True] * 8 + [False]
    assert decisions[8].refused.what == "cores"


def test_where_told_both_threads_take_what_is_promised_nothing(threaded) -> None:
    """Sixteen fit on eight cores, two on each; their decisions say that nothing predicts them."""
    decisions = [threaded.admit(spare(number)) for number in range(17)]
    seats = {item.seat for decision in decisions[:16] for item in decision.assignments}
    shared = threaded.decision("spare-0")

    assert not decisions[16].accepted
    assert seats == {str(core) for core in range(8)} | {f"{core}.1" for core in range(8)}
    assert shared.assignments[0].predicted_mpps is None
    assert "not supported" in shared.reasons[0]


def test_a_promise_is_refused_beside_shared_cores_and_shares_none(threaded) -> None:
    """Predictions know whole cores: a promise closes the second threads, and shared cores refuse a promise."""
    promised = Request("edge", "lpm", SLO(min_share=0.5))
    for number in range(9):
        threaded.admit(spare(number))
    refused = threaded.admit(promised)
    for number in (7, 8):
        threaded.remove(f"spare-{number}")
    accepted = threaded.admit(promised)
    closed = threaded.admit(spare(99))

    assert "hyper-threads" in refused.refused.text
    assert accepted.accepted
    assert not closed.accepted
    assert closed.refused.request == "edge"


def test_what_shares_cores_is_not_judged(threaded) -> None:
    """Hyper-threads are not simulated: those requests are named, not run; without them everybody runs."""

    def run(colocation):
        sample = TenantSample(4.0, MetricVector({}, scope=Scope.CORE))
        return RunRecord(colocation, 0, None, Phase((sample,) * len(colocation.tenants), MetricVector({})), {})

    for number in range(9):
        threaded.admit(spare(number))
    crowded = Judge(run).judge(threaded)
    threaded.remove("spare-8")

    assert len(crowded.not_run) == 9
    assert crowded.mixes_run == 0
    assert Judge(run).judge(threaded).not_run == ()


def test_threads_survive_documents_and_are_not_acted_on(threaded) -> None:
    """Snapshots and JSON keep the thread; a plan for a machine refuses what it cannot pin."""
    for number in range(9):
        threaded.admit(spare(number))
    decision = threaded.decision("spare-8")
    other = Placer(threaded.estimates.library, threaded.cluster)
    other.restore(threaded.snapshot())

    assert Decision.from_dict(decision.to_dict()) == decision == other.decision("spare-8")
    assert decision.assignments[0].seat == "0.1"
    with pytest.raises(InvalidValueError, match="hyper-thread 1 of core 0"):
        plan_from_decision(decision, decision.servers[0], load_machine(MACHINE))
    with pytest.raises(InvalidValueError, match="threads_per_core is 3, needed 1 or 2"):
        Server("a", MACHINE, threads_per_core=3)
