"""A chain that runs to completion on one core is one network function, named by its stages and profiled as one."""

import pytest

from slomo.errors import ConfigurationError, UnknownNameError
from slomo.models.library import ModelLibrary
from slomo.placement.online.placer import Placer
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request
from slomo.simulator.programs.program import program
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import load_network_function
from slomo.vocabulary.workload_text import parse_workload
from slomo.workflow.profile_ways import profile_ways

MACHINE = "e5-2620v4"


def served(name: str) -> float:
    bed = SimulatedTestbed(MACHINE, accesses=60_000)
    return bed.run(Colocation(MACHINE, parse_workload(name)), seed=1).target.throughput_mpps


def test_times_of_the_stages_add_up() -> None:
    """Alone, a packet takes as long as in both stages together, within some per cent for what caches share."""
    assert 1 / served("lpm+stats") == pytest.approx(1 / served("lpm") + 1 / served("stats"), rel=0.04)


def test_work_adds_up_and_settings_go_to_their_stage() -> None:
    """Cycles, instructions and tables are those of the stages; `stats.` names a setting of that stage only."""
    parts = [program(load_network_function(nf), parse_workload(nf)) for nf in ("lpm", "mazunat")]
    nf = load_network_function("lpm+mazunat")
    plain = program(nf, parse_workload("lpm+mazunat"))
    fewer = program(nf, parse_workload("lpm+mazunat(lpm.trie_mib=1,packet_buffers=256)"))

    assert plain.compute_cycles == sum(part.compute_cycles for part in parts)
    assert len(plain.structures) == sum(len(part.structures) for part in parts) + 1
    assert fewer.structures[0].size_b == 2**20
    assert fewer.packet_buffers == 256
    assert "mazunat.flow_capacity" in nf.settings


def test_what_one_core_cannot_do_is_refused() -> None:
    """Unknown stages and settings are named; accelerators are no part of a core."""
    with pytest.raises(UnknownNameError, match="lmp"):
        load_network_function("lmp+stats")
    with pytest.raises(UnknownNameError, match=r"setting '.*' of 'lpm\+stats'"):
        program(load_network_function("lpm+stats"), parse_workload("lpm+stats(trie_mib=1)"))
    with pytest.raises(ConfigurationError, match="hands packets to an accelerator"):
        load_network_function("lpm+flow-monitor-regex")


def test_greedy_gives_a_chain_one_core_and_one_profile() -> None:
    """ResQ's greedy policy places `lpm+stats` on one core, where the chain of two requests takes two."""
    bed = SimulatedTestbed(MACHINE, accesses=20_000, scale=64)
    workloads = map(parse_workload, ("lpm+stats", "lpm", "stats"))
    profiles = [profile_ways(bed, load_machine(MACHINE), workloads, latency=False)]
    placer = Placer(ModelLibrary([]), Cluster.uniform(MACHINE, 2), "resq-greedy", profiles=profiles)
    whole = placer.admit(Request("whole", "lpm+stats", SLO(min_share=0.8)))
    apart = placer.admit(Request("apart", ("lpm", "stats"), SLO(min_share=0.8)))

    assert [item.workload for item in whole.assignments] == ["lpm+stats@64B,100000f"]
    assert whole.assignments[0].llc_way_mask
    assert len(apart.assignments) == 2
