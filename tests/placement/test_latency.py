"""Latency promised: instances are quick enough for their packets and for each of them, however many there are."""

import json

import pytest

from slomo.models.library import ModelLibrary
from slomo.models.partition_profile import PartitionProfile
from slomo.models.responses.partition import PartitionResponse
from slomo.placement.online.placer import Placer
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request

MACHINE = "e5-2620v4"
KEY = "lpm@64B,100000f"
PROFILE = PartitionResponse.over_ways(
    KEY, 5.0, ((1, 3.0), (4, 4.5), (8, 5.0), (18, 5.2)), ((0.2, 1.0, 2.0), (0.6, 3.0, 5.0), (0.95, 9.0, 12.0))
)
PROFILES = [PartitionProfile(MACHINE, {KEY: PROFILE})]


@pytest.mark.parametrize("policy", ["resq-greedy", "resq-milp"])
@pytest.mark.parametrize("replicas", [1, 3])
def test_every_instance_keeps_the_latency_at_its_ways(policy, replicas) -> None:
    """By the profile, packets take no longer than promised at the load and the slower pace of the ways given."""
    slo = SLO(min_share=0.8, p95_us=9.0)
    placer = Placer(ModelLibrary([]), Cluster.uniform(MACHINE, 4), policy, profiles=PROFILES)
    decisions = placer.place_all([Request(f"r{i}", ("lpm",), slo, replicas=replicas) for i in range(3)])

    assert all(decision.accepted for decision in decisions)
    for decision in decisions:
        ways = [item.llc_way_mask.bit_count() for item in decision.assignments]
        capacity = sum(PROFILE.promise_mpps(count) for count in ways)
        for count in ways:
            mine = PROFILE.promise_mpps(count)
            speed = mine / PROFILE.solo_mpps
            load = PROFILE.load_for(9.0, None, speed)
            assert 4.0 * mine / capacity <= load * mine * (1 + 1e-3)


def test_a_latency_that_no_capacity_keeps_is_refused() -> None:
    """Below what an idle instance takes, the refusal says latency."""
    placer = Placer(
        ModelLibrary([]),
        Cluster.uniform(MACHINE, 4),
        "resq-greedy",
        profiles=PROFILES,
    )
    refused = placer.admit(Request("a", ("lpm",), SLO(min_share=0.5, p95_us=0.5), replicas=4))

    assert not refused.accepted
    assert refused.refused.what == "latency"


def test_what_latency_asks_survives_a_snapshot() -> None:
    """Restored, every instance has the ways it had and needs what it did."""
    placer = Placer(
        ModelLibrary([]),
        Cluster.uniform(MACHINE, 4),
        "resq-greedy",
        profiles=PROFILES,
    )
    placer.admit(Request("a", ("lpm",), SLO(min_share=0.8, p95_us=6.0), replicas=2))
    document = json.loads(json.dumps(placer.snapshot()))
    other = Placer(
        ModelLibrary([]),
        Cluster.uniform(MACHINE, 4),
        "resq-greedy",
        profiles=PROFILES,
    )
    other.restore(document)

    assert other.snapshot()["placed"] == placer.snapshot()["placed"]
    assert other.layout() == placer.layout()
