"""Chains on NUMA nodes: the paper's policies, and the search on predictions."""

import pytest

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.placement.numa import CHAIN_POLICIES, Need, Node, best_nodes, migrations, place_chains
from slomo.placement.problem import Request
from slomo.placement.workloads import RatedChain

NODES = (Node(8, 18), Node(8, 18))


def chain(name, *gbps):
    return RatedChain(Request(name, ("lpm", "stats", "firewall")), gbps)


def table(item, mpps):
    """A chain takes three cores, and ways and bandwidth by its rate."""
    return Need(len(item.request.chain), 3, 4.0 * mpps)


@pytest.mark.parametrize("policy", sorted(CHAIN_POLICIES))
def test_every_stage_gets_a_core_and_no_node_is_overfull(policy) -> None:
    """Five chains of three take 15 of 16 cores, however they are spread."""
    chains = [chain(f"c{i}", 1.0 + i) for i in range(5)]
    placed = place_chains(policy, chains, 0, NODES, table)
    stages = [node for nodes in placed.values() for node in nodes]

    assert sorted(placed) == [item.request.id for item in chains]
    assert len(stages) == 15
    assert max(stages.count(0), stages.count(1)) <= 8


def test_octans_and_numasfp_give_the_local_node_to_the_fastest() -> None:
    """The two fastest of three chains are local, whole."""
    chains = [chain("slow", 1.0), chain("fast", 9.0), chain("middle", 5.0)]
    for policy in ("octans", "numasfp"):
        assert place_chains(policy, chains, 0, NODES, table) == {
            "slow": (1, 1, 1), "fast": (0, 0, 0), "middle": (0, 0, 0),
        }  # fmt: skip


def test_node_first_goes_by_arrival_and_splits_chains() -> None:
    """The third chain in the order of arrival finds two local cores left, and is split."""
    chains = [chain("slow", 1.0), chain("fast", 9.0), chain("middle", 5.0)]

    assert place_chains("node-first", chains, 0, NODES, table)["middle"] == (0, 0, 1)


def test_node_balance_uses_nodes_evenly() -> None:
    """Two chains go to two nodes."""
    placed = place_chains("node-balance", [chain("a", 1.0), chain("b", 1.0)], 0, NODES, table)

    assert placed == {"a": (0, 0, 0), "b": (1, 1, 1)}


def test_only_numasfp_migrates_when_rates_change() -> None:
    """When the slow chain becomes the fastest, NUMASFP swaps it in; the static policies keep their first placement."""
    chains = [chain("a", 1.0, 9.0), chain("b", 5.0, 5.0), chain("c", 9.0, 1.0)]
    for policy in CHAIN_POLICIES:
        first = place_chains(policy, chains, 0, NODES, table)
        later = place_chains(policy, chains, 1, NODES, table, first)
        assert migrations(first, later) == (6 if policy == "numasfp" else 0)


def test_numasfp_minds_memory_bandwidth() -> None:
    """A chain that would exceed the local node's bandwidth goes to the other, though cores are left."""
    placed = place_chains("numasfp", [chain("a", 9.0), chain("b", 8.0)], 0, NODES, lambda item, mpps: Need(3, 3, 60.0))

    assert placed == {"a": (0, 0, 0), "b": (1, 1, 1)}


def test_search_finds_what_serves_most() -> None:
    """Where chains on one node halve each other, one goes remote; where not, both stay; ties do not move."""
    chains = [chain("a", 9.0), chain("b", 9.0)]
    harmful = best_nodes(chains, 0, NODES, lambda node, keys: [10.0 if len(keys) == 3 else 5.0] * len(keys))
    harmless = best_nodes(chains, 0, NODES, lambda node, keys: [10.0] * len(keys))
    before = {"a": (1, 1, 1), "b": (1, 1, 1)}
    idle = best_nodes([chain("a", 0.001), chain("b", 0.001)], 0, NODES, lambda node, keys: [10.0] * len(keys), before)

    assert set(harmful.values()) == {(0, 0, 0), (1, 1, 1)}
    assert set(harmless.values()) == {(0, 0, 0)}
    assert idle == before


def test_too_many_chains_are_refused() -> None:
    """More stages than cores, a policy there is none of, and more chains than can be searched are errors."""
    many = [chain(f"c{i}", 1.0) for i in range(11)]
    with pytest.raises(InvalidValueError, match="33 stages, but the server has 16 cores"):
        place_chains("octans", many, 0, NODES, table)
    with pytest.raises(InvalidValueError, match="11 chains on one server"):
        best_nodes(many, 0, NODES, lambda node, keys: [1.0] * len(keys))
    with pytest.raises(UnknownNameError, match="did you mean 'octans'"):
        place_chains("octan", many, 0, NODES, table)
