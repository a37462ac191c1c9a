"""What a machine file may switch on: a stream prefetcher in each L2, two hyper-threads per core."""

from dataclasses import replace

import pytest
import yaml

from slomo.errors import ConfigurationError, InvalidValueError, UnsupportedPredictionError
from slomo.simulator.engine import Tenant, simulate
from slomo.simulator.result import SimulationResult
from slomo.simulator.sharing.engine import simulate_chains
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.network_function import load_network_function, parse_network_function
from slomo.vocabulary.service_chains import parse_chains
from slomo.vocabulary.workload import Workload

PLAIN = load_machine("e5-2620v4")
PREFETCHING = replace(PLAIN, l2_prefetcher="stream")
THREADED = replace(PLAIN, threads_per_core=2)


def reader(pattern: str, core: int = 0, mib: float = 64.0) -> Tenant:
    """Seat a function that reads 200 lines per packet of one structure, four at a time."""
    text = f"""
description: reads
source: a test
simulated:
  compute_cycles: 600
  instructions: 1200
  structures:
    - {{name: data, size_mib: {mib}, pattern: {pattern}, reads: 200, mlp: 4}}
"""
    return Tenant(Workload("reader"), parse_network_function(text, "reader"), core)


def function(name: str, core: int = 0) -> Tenant:
    return Tenant(Workload(name), load_network_function(name), core)


def played(machine: Machine, *tenants: Tenant) -> SimulationResult:
    return simulate(machine, tenants, seed=1, accesses=60_000)


def mpps(machine: Machine, *tenants: Tenant) -> float:
    return played(machine, *tenants).tenants[0].throughput_mpps


def test_a_stream_gains_from_the_prefetcher_and_random_reads_do_not():
    """A sequential stream gets faster by a quarter at least; random reads of as much data keep their speed to 1 %."""
    assert mpps(PREFETCHING, reader("sequential")) > 1.25 * mpps(PLAIN, reader("sequential"))
    assert mpps(PREFETCHING, reader("random")) == pytest.approx(mpps(PLAIN, reader("random")), rel=0.01)


def test_prefetched_lines_are_traffic_of_the_memory():
    """Each line of a stream crosses the memory channel and counts as a miss of the LLC, though the L2 hardly misses."""
    result = played(PREFETCHING, reader("sequential"))
    lines_per_us = 200 * result.tenants[0].throughput_mpps
    assert result.sockets[0]["READ"] * 1e3 / 64 == pytest.approx(lines_per_us, rel=0.03)
    assert result.sockets[0]["L3MISS"] == pytest.approx(lines_per_us, rel=0.03)
    assert result.sockets[0]["L2MISS"] < 0.2 * lines_per_us


def test_prefetchers_move_no_more_than_the_channel_can():
    """Eight prefetched streams fill the channel, no more; a core moves no more than its queue of 16 lines lets it."""
    full = played(PREFETCHING, *(reader("sequential", core) for core in range(8))).sockets[0]
    assert 0.9 * PLAIN.usable_memory_gb_s < full["READ"] + full["WRITE"] <= 1.005 * PLAIN.usable_memory_gb_s
    alone = played(PREFETCHING, reader("sequential")).sockets[0]
    assert alone["READ"] < (16 + 4) * 64 / PLAIN.dram_local_ns


def test_hyper_threads_share_issue_slots():
    """Two busy threads of one core are slower than on two cores, and a thread gets half of the slots at least."""
    apart = mpps(THREADED, function("lpm", 0), function("lpm", 2))
    together = played(THREADED, function("lpm", 0), function("lpm", 1)).tenants
    assert apart == pytest.approx(mpps(PLAIN, function("lpm")), rel=0.01)
    assert 0.5 * apart < together[0].throughput_mpps < 0.95 * apart
    assert together[0].throughput_mpps == pytest.approx(together[1].throughput_mpps, rel=0.01)
    assert mpps(replace(THREADED, issue_width=2), function("lpm", 0), function("lpm", 1)) < together[0].throughput_mpps


def test_hyper_threads_share_their_l2():
    """Data that fit into an L2 no longer do beside a sibling with as much; on two cores they do."""
    apart, together = (
        played(THREADED, reader("random", 0, 0.18), reader("random", core, 0.18)).tenants[0] for core in (2, 1)
    )
    assert together.l3_references_per_packet > 10 * apart.l3_references_per_packet


def test_hyper_threads_have_the_lines_of_one_core_in_flight():
    """Two threads that stream get together what one core's lines in flight bring, as one thread does alone."""

    def hog(core: int) -> Tenant:
        knobs = {"data_size_mib": 64, "reads_per_packet": 1000, "pattern": "sequential"}
        return Tenant(Workload("synthetic", knobs), load_network_function("synthetic"), core)

    alone, two = (played(THREADED, *(hog(core) for core in cores)).sockets[0]["READ"] for cores in ((0,), (0, 1)))
    assert two < 1.2 * alone


def test_machines_that_are_none_are_refused_by_field():
    """Errors name field, value and range; in a file the line, too."""
    with pytest.raises(InvalidValueError, match=r"'l2_prefetcher': got 'next', needed one of 'none', 'stream'"):
        replace(PLAIN, l2_prefetcher="next")
    with pytest.raises(InvalidValueError, match=r"'threads_per_core': got 4, needed a whole number <= 2"):
        replace(PLAIN, threads_per_core=4)
    with pytest.raises(InvalidValueError, match=r"'issue_width': got 0, needed a whole number >= 1"):
        replace(PLAIN, issue_width=0)
    with pytest.raises(InvalidValueError, match=r"cores_per_socket is 7, needed an even number in each LLC domain"):
        replace(THREADED, cores_per_socket=7)


def test_machine_files_state_options(tmp_path):
    """A file may state each option; another word or number is refused with file, field and what was needed."""
    path = tmp_path / "mine.yaml"
    stated = {key: value for key, value in PREFETCHING.to_dict().items() if key not in ("name", "schema_version")}
    path.write_text(yaml.safe_dump(stated))
    assert load_machine(str(path)) == replace(PREFETCHING, name="mine")
    path.write_text(yaml.safe_dump({**stated, "threads_per_core": 3}))
    with pytest.raises(ConfigurationError, match=r"mine\.yaml.*threads_per_core"):
        load_machine(str(path))


def test_options_make_another_machine_and_defaults_none():
    """Fingerprints of machines without options are those from before there were any."""
    assert PLAIN.fingerprint == "979cdede660f81b9"
    assert len({machine.fingerprint for machine in (PLAIN, PREFETCHING, THREADED)}) == 3


def test_chains_refuse_what_they_do_not_play():
    """Shared cores are simulated without prefetchers and hyper-threads, and say so."""
    system = parse_chains("stages: {nat: {cycles: 270, core: 0}}\nchains: {web: {stages: [nat], mpps: 1}}")
    with pytest.raises(UnsupportedPredictionError, match="threads_per_core is 2"):
        simulate_chains(THREADED, system, {}, duration_ms=2, warm_ms=1)
