"""Two sockets with a link between them: where packets, tables and stages are decides what crosses it."""

import hashlib
from dataclasses import replace

import pytest

from slomo.simulator.sharing.engine import StagePlace, simulate_chains
from slomo.simulator.sharing.result import ChainSimulation
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import load_network_function
from slomo.vocabulary.service_chains import parse_chains

MACHINE = load_machine("e5-2620v4")
LINE_GB = 64e-9


def play(cores, *, machine=MACHINE, nf="{cycles: 60}", mpps="mpps: 4", **more) -> ChainSimulation:  # type: ignore[no-untyped-def]
    stages = ", ".join(f"s{place}: {{{nf.strip('{}')}, core: {core}}}" for place, core in enumerate(cores))
    names = ", ".join(f"s{place}" for place in range(len(cores)))
    text = f"queue: {{capacity: 512}}\nstages: {{{stages}}}\nchains: {{c: {{stages: [{names}], {mpps}}}}}"
    system = parse_chains(text)
    functions = {
        stage.workload.nf: load_network_function(stage.workload.nf) for stage in system.stages if stage.workload
    }
    return simulate_chains(machine, system, functions, **{"duration_ms": 2.0, "warm_ms": 1.0, **more})


@pytest.mark.parametrize(
    ("cores", "throughput", "digest"),
    [((0, 1, 2), "0x1.db22d0e560419p+1", "312c43dff09f2521"), ((8, 0, 9), "0x1.d4fdf3b645a1dp+1", "20051190c00804a6")],
)
def test_chains_give_the_same_bits(cores, throughput: str, digest: str) -> None:
    """Rates and latencies of a chain beside the card, and of one that goes back and forth, are those of before."""
    played = play(cores, nf="{nf: ip-router}", mpps="mpps: 20", seed=3)
    chain = played.chains["c"]
    everything = (chain, [(item.processed_mpps, item.l3_hit, item.memory_gb_s) for item in played.stages.values()])

    assert chain.throughput_mpps.hex() == throughput
    assert hashlib.sha256(repr(everything).encode()).hexdigest()[:16] == digest


def test_what_crosses_the_link_is_counted() -> None:
    """Nothing crosses for a chain beside the card; a remote one's packets cross in and out, others at each hop, too."""
    near, away, torn = (play(cores) for cores in ((0, 1, 2), (8, 9, 10), (8, 0, 9)))

    assert near.link_used == 0.0
    # its line of bytes; nobody beside the card touches the metadata
    one_way = 4e6 * LINE_GB / MACHINE.link_gb_s
    assert away.link_used == pytest.approx(2.0 * one_way, rel=0.02)
    # bytes four times, metadata twice, and rings, eight descriptors to a line
    assert torn.link_used > 6.0 * one_way


def test_the_card_writes_into_the_caches_of_its_own_socket() -> None:
    """Buffers of a pool on the card's socket stay in its cache; of one on the other socket they go to memory there."""
    system = parse_chains(
        "stages: {a: {cycles: 60, core: 0}}\nchains: {c: {stages: [a], mpps: 4}}\nqueue: {capacity: 512}"
    )
    here, there = (
        simulate_chains(MACHINE, replace(system, memory_socket=socket), {}, duration_ms=2.0, warm_ms=1.0)
        for socket in (0, 1)
    )

    assert here.memory_used == (0.0, 0.0)
    assert there.memory_used[0] == 0.0
    written = 4e6 * LINE_GB / MACHINE.usable_memory_gb_s
    assert there.memory_used[1] >= 0.95 * written
    assert there.stages["a"].cycles_per_packet > here.stages["a"].cycles_per_packet


def test_tables_away_from_their_stage_slow_it() -> None:
    """A stage whose tables are in the other socket's memory serves less, and what it reads crosses the link."""
    nf = "{nf: 'synthetic(data_size_mib=64,reads_per_packet=20)'}"
    beside, away = (
        play((0,), nf=nf, mpps="mpps: 40", places={"s0": StagePlace(memory_socket=socket)}) for socket in (0, 1)
    )

    assert away.chains["c"].throughput_mpps < 0.9 * beside.chains["c"].throughput_mpps
    assert beside.link_used == 0.0 < away.link_used
    assert away.memory_used[1] > 0.0 == beside.memory_used[1]


def test_a_narrow_link_is_all_that_a_remote_chain_gets() -> None:
    """No more crosses than the link carries, and a chain across one that is full serves what fits."""
    narrow = replace(MACHINE, link_gb_s=0.5)
    played = play((8, 9), machine=narrow, mpps="mpps: 8")

    assert played.link_used == pytest.approx(1.0, abs=0.05)
    assert played.chains["c"].throughput_mpps < 0.6 * play((8, 9), mpps="mpps: 8").chains["c"].throughput_mpps


def test_chains_may_share_more_than_one_port() -> None:
    """Two chains of 30 Gbit/s fill one port of 40; of ports that carry 80 each gets what it is offered."""
    text = """
    stages: {a: {cycles: 20, core: 0}, b: {cycles: 20, core: 1}}
    chains: {x: {stages: [a], mpps: 2.467, packet_size_b: 1500}, y: {stages: [b], mpps: 2.467, packet_size_b: 1500}}
    """
    one, both = (
        simulate_chains(MACHINE, parse_chains(text), {}, wire_gbps=wire, duration_ms=4.0, warm_ms=1.0)
        for wire in (None, MACHINE.shared_wire_gbps())
    )

    assert sum(chain.gbps for chain in one.chains.values()) == pytest.approx(40.0, rel=0.03)
    assert sum(chain.gbps for chain in both.chains.values()) == pytest.approx(60.0, rel=0.03)
