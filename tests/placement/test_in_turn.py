"""Dobrescu's scheduler as ResQ (NSDI'18, section 6.2) has it: a second instance where one falls short."""

import pytest

from slomo.placement.online.placer import Placer
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request

from .conftest import MACHINE


@pytest.fixture
def placer(library) -> Placer:
    return Placer(library, Cluster.uniform(MACHINE, 3), "dobrescu", confidence=0.5)


def test_an_instance_goes_where_it_breaks_nobody_and_a_second_serves_what_it_lacks(placer) -> None:
    """A router loses 0.4 % per M/s of cache accesses: beside three stats it does 3.2 of 4.5, a second one the rest."""
    for number in range(3):
        placer.admit(Request(f"stats-{number}", "stats", SLO(min_share=0.5)))
    decision = placer.admit(Request("edge", "lpm", SLO(min_share=0.9), replicas=2))
    first, second = decision.assignments

    assert decision.servers == (f"{MACHINE}-1", f"{MACHINE}-2")
    assert first.needed_mpps + second.needed_mpps == pytest.approx(4.5)
    assert first.needed_mpps <= first.low_mpps
    assert second.needed_mpps <= second.low_mpps


def test_a_request_of_one_instance_gets_a_server_where_it_keeps_its_promise(placer) -> None:
    """Without leave for a second instance it goes on to an empty server."""
    for number in range(3):
        placer.admit(Request(f"stats-{number}", "stats", SLO(min_share=0.5)))
    decision = placer.admit(Request("edge", "lpm", SLO(min_share=0.9)))

    assert decision.servers == (f"{MACHINE}-2",)


def test_promises_of_others_close_a_server(placer) -> None:
    """Who is promised nearly all it does alone is left alone, however many instances come."""
    placer.admit(Request("first", "lpm", SLO(min_share=0.99)))
    decision = placer.admit(Request("edge", "stats", SLO(min_share=0.9), replicas=3))

    assert f"{MACHINE}-1" not in decision.servers


def test_what_cannot_be_served_is_refused_and_leaves_nothing(placer) -> None:
    """Three servers full of promises take no instance, and none is left half placed."""
    for number in range(3):
        placer.admit(Request(f"full-{number}", "lpm", SLO(min_share=0.99)))
    before = placer.snapshot()
    decision = placer.admit(Request("edge", "stats", SLO(min_share=0.9), replicas=4))

    assert not decision.accepted
    assert placer.snapshot() == before
