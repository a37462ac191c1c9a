"""Cores that NFs share, and chains of NFs: what the simulation must obey."""

import pytest

from slomo.errors import InvalidValueError, UnknownNameError, UnsupportedPredictionError
from slomo.simulator.compilation import kernel
from slomo.simulator.engine import Tenant, simulate
from slomo.simulator.programs.layout import seat_of
from slomo.simulator.programs.program import Program
from slomo.simulator.sharing import state as h
from slomo.simulator.sharing.engine import simulate_chains
from slomo.simulator.sharing.layout import build_shared
from slomo.simulator.sharing.pressure import look_at_rings, stop_upstream
from slomo.simulator.sharing.result import ChainSimulation
from slomo.simulator.sharing.settings import Manager, Scheduler
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import load_network_function
from slomo.vocabulary.service_chains import ChainSystem, parse_chains
from slomo.vocabulary.workload import Workload

MACHINE = load_machine("e5-2620v4")


@kernel
def scan_once(sharing: h.Sharing) -> None:
    look_at_rings(sharing, sharing.settings[h.E_NEXT_SCAN])
    stop_upstream(sharing)


def play(text: str | ChainSystem, kind: str = "cfs", *, pressure: bool = False, **more: object) -> ChainSimulation:
    system = parse_chains(text) if isinstance(text, str) else text
    names = {stage.workload.nf for stage in system.stages if stage.workload}
    quantum = float(more.pop("quantum_ms", 100.0))  # type: ignore[arg-type]
    return simulate_chains(
        MACHINE,
        system,
        {name: load_network_function(name) for name in names},
        scheduler=Scheduler(kind, quantum_ms=quantum),
        manager=Manager(pressure=pressure),
        **{"duration_ms": 30.0, "warm_ms": 10.0, **more},  # type: ignore[arg-type]
    )


CHAIN = """
queue: {capacity: 256}
stages: {nf1: {cycles: 120, core: 0}, nf2: {cycles: 270, core: 0}, nf3: {cycles: 550, core: 0}}
chains: {c: {stages: [nf1, nf2, nf3], mpps: 8}}
"""


@pytest.mark.parametrize("name", ["ip-router", "snort"])
def test_an_nf_with_a_core_of_its_own_is_as_fast_as_a_tenant(name: str) -> None:
    """Rings, sleeping and scheduling cost an NF that nobody disturbs at most 3 % of its throughput."""
    tenant = simulate(MACHINE, [Tenant(Workload(name), load_network_function(name), 0)], seed=1).tenants[0]
    system = f"queue: {{capacity: 2048}}\nstages: {{a: {{nf: {name}, core: 0}}}}\nchains: {{c: {{stages: [a]}}}}"
    shared = play(system, duration_ms=20.0).chains["c"]

    assert shared.throughput_mpps == pytest.approx(tenant.throughput_mpps, rel=0.03)


def test_weights_divide_a_core() -> None:
    """Three to one in shares is three to one in CPU time, under CFS normal and batch, and EEVDF."""
    text = """
    stages: {a: {cycles: 4000, core: 0, shares: 3072}, b: {cycles: 4000, core: 0}}
    chains: {x: {stages: [a], mpps: 1}, y: {stages: [b], mpps: 1}}
    """
    for kind in ("cfs", "batch", "eevdf"):
        stages = play(text, kind, duration_ms=100.0, warm_ms=30.0).stages
        assert stages["a"].cpu_share / stages["b"].cpu_share == pytest.approx(3.0, rel=0.1)


def test_round_robin_switches_once_per_quantum() -> None:
    """Two NFs that never run dry take turns of a quantum, whatever their shares are."""
    text = """
    stages: {a: {cycles: 4000, core: 0, shares: 3072}, b: {cycles: 4000, core: 0}}
    chains: {x: {stages: [a], mpps: 1}, y: {stages: [b], mpps: 1}}
    """
    stages = play(text, "rr", quantum_ms=2.0, duration_ms=200.0).stages
    switches = sum(stage.involuntary_per_s for stage in stages.values())

    assert switches == pytest.approx(500.0, rel=0.1)
    assert stages["a"].cpu_share == pytest.approx(stages["b"].cpu_share, rel=0.1)


def test_a_slice_of_eevdf_ends_at_a_tick() -> None:
    """Two NFs that never run dry take turns of the slice rounded up to ticks."""
    text = """
    stages: {a: {cycles: 4000, core: 0}, b: {cycles: 4000, core: 0}}
    chains: {x: {stages: [a], mpps: 1}, y: {stages: [b], mpps: 1}}
    """
    system = parse_chains(text)
    scheduler = Scheduler("eevdf", base_slice_ms=1.4, tick_ms=4.0)
    stages = simulate_chains(MACHINE, system, {}, scheduler=scheduler, duration_ms=80.0, warm_ms=8.0).stages

    assert sum(stage.involuntary_per_s for stage in stages.values()) == pytest.approx(250.0, rel=0.1)


def test_no_packet_leaves_before_it_arrives() -> None:
    """While all cores sleep, a source is at most a slack ahead of them: latency is the time in service."""
    text = """
    stages: {a: {cycles: 120, core: 0}, b: {cycles: 120, core: 1}}
    chains: {c: {stages: [a, b], mpps: 0.3}}
    """
    latency_us = play(text, duration_ms=5.0, warm_ms=1.0).chains["c"].latency_us

    assert 240 / 2100 < latency_us["p50"] < latency_us["p99"] < 1.0


LIGHT_BESIDE_HEAVY = """
stages: {heavy: {cycles: 2000, core: 0}, light: {cycles: 50, core: 0}}
chains: {x: {stages: [heavy], mpps: 3}, y: {stages: [light], mpps: 0.5}}
"""


@pytest.mark.parametrize(("kind", "waits_us"), [("eevdf", 200.0), ("eevdf-batch", 5000.0)])
def test_who_is_owed_time_runs_on_waking_but_for_batch(kind: str, waits_us: float) -> None:
    """A light NF beside a saturated one runs when the manager wakes it; under batch it waits for the tick."""
    system = parse_chains(LIGHT_BESIDE_HEAVY)
    scheduler = Scheduler(kind, base_slice_ms=1.4, tick_ms=4.0)
    chain = simulate_chains(MACHINE, system, {}, scheduler=scheduler, duration_ms=40.0, warm_ms=8.0).chains["y"]

    assert chain.throughput_mpps == pytest.approx(0.5, rel=0.02)
    assert waits_us / 10 < chain.latency_us["p50"] < waits_us


def test_stages_of_a_shared_core_are_woken_by_the_manager() -> None:
    """A light NF that sleeps after every packet is switched to once a look, not once a packet."""
    result = play(LIGHT_BESIDE_HEAVY.replace("mpps: 0.5", "mpps: 3"))
    looks_per_s = 1e6 / Manager().scan_us

    assert result.stages["light"].voluntary_per_s <= 1.05 * looks_per_s


def test_a_manager_that_carries_packets_limits_what_comes() -> None:
    """Where bringing a packet in and out takes 500 ns, no more than 2 Mpps pass, however fast the stages are."""
    system = parse_chains("stages: {a: {cycles: 50, core: 0}}\nchains: {x: {stages: [a], mpps: 14}}")
    result = simulate_chains(
        MACHINE, system, {}, manager=Manager(scan_us=50.0, carry_ns=500.0), duration_ms=20.0, warm_ms=5.0
    )

    assert result.chains["x"].offered_mpps == pytest.approx(14.0, rel=0.02)
    assert 1.7 < result.chains["x"].throughput_mpps < 2.0


def test_a_manager_without_time_between_looks_is_refused() -> None:
    """The time got is in the message."""
    with pytest.raises(InvalidValueError, match="looks every 0 us"):
        Manager(scan_us=0.0)


def test_packets_are_neither_made_nor_forgotten() -> None:
    """What was offered was delivered, dropped somewhere, or still waits in a ring."""
    for pressure in (False, True):
        chain = play(CHAIN, pressure=pressure, warm_ms=0.0).chains["c"]
        gone = chain.throughput_mpps + chain.entry_dropped_mpps + chain.queue_dropped_mpps
        waiting = 3 * (256 + 64) / (30.0 * 1e3)
        assert chain.offered_mpps - waiting - 1e-9 <= gone <= chain.offered_mpps + 1e-9


def test_back_pressure_saves_work() -> None:
    """With back-pressure at least ten times fewer packets are dropped after work was spent on them, and more arrive."""
    plain, nice = play(CHAIN).chains["c"], play(CHAIN, pressure=True).chains["c"]

    assert plain.wasted_mpps > 0.1
    assert nice.wasted_mpps <= plain.wasted_mpps / 10
    assert nice.throughput_mpps > plain.throughput_mpps


def test_equal_arguments_give_equal_results() -> None:
    """Same seed, same numbers; another seed, others."""
    first, again, other = (play(CHAIN, seed=seed, duration_ms=3.0, warm_ms=1.0) for seed in (5, 5, 6))
    assert first == again != other


def test_switches_cost_what_they_evict() -> None:
    """Two NFs whose data fill L2 each lose L2 hits to every switch: a packet costs more than alone."""
    own = "stages: {a: {nf: 'synthetic(data_size_mib=0.2)', core: 0}}\nchains: {x: {stages: [a]}}"
    both = """
    stages: {a: {nf: 'synthetic(data_size_mib=0.2)', core: 0}, b: {nf: 'synthetic(data_size_mib=0.2)', core: 0}}
    chains: {x: {stages: [a]}, y: {stages: [b]}}
    """
    alone = play(own).stages["a"].cycles_per_packet
    often = play(both, "rr", quantum_ms=1.0).stages["a"].cycles_per_packet

    assert often > 1.005 * alone


def test_hand_over_costs_by_distance() -> None:
    """The same chain on one socket, with its middle stage away, or all away from the card: in that order it slows."""
    text = "stages: {{a: {{cycles: 90, core: {}}}, b: {{cycles: 90, core: {}}}, c: {{cycles: 90, core: {}}}}}\n"
    text += "chains: {{x: {{stages: [a, b, c]}}}}"
    near, away, torn = (
        play(text.format(*cores), duration_ms=3.0, warm_ms=1.0).chains["x"].throughput_mpps
        for cores in ((0, 1, 2), (8, 9, 10), (8, 0, 9))
    )

    assert near > away
    assert near > torn


def test_responsive_source_reaches_its_rate_alone() -> None:
    """With nobody in its way a TCP-like source sends what it has, without a loss."""
    text = """
    stages: {a: {cycles: 100, core: 0}}
    chains: {t: {stages: [a], kind: tcp, gbps: 4, packet_size_b: 1500}}
    """
    chain = play(text).chains["t"]

    assert chain.gbps == pytest.approx(4.0, rel=0.02)
    assert chain.queue_dropped_mpps == 0.0


def test_responsive_source_gives_way() -> None:
    """Beside a constant source that overloads the core, the responsive one falls below half of it."""
    text = """
    queue: {capacity: 256}
    stages: {a: {cycles: 2000, core: 0}}
    chains:
      t: {stages: [a], kind: tcp, gbps: 8, packet_size_b: 1500}
      u: {stages: [a], mpps: 1.2, packet_size_b: 64}
    """
    chains = play(text).chains

    assert chains["t"].throughput_mpps < 0.5 * chains["u"].throughput_mpps


def test_marks_halve_before_losses() -> None:
    """With ECN the responsive source fills a slow stage's ring to the mark and loses nothing."""
    text = "queue: {capacity: 256}\nstages: {z: {cycles: 50, core: 1}, a: {cycles: 9000, core: 0}}\n"
    text += "chains: {t: {stages: [z, a], kind: tcp, gbps: 8, packet_size_b: 1500}}"
    nice = play(text, pressure=True, duration_ms=300.0, warm_ms=40.0).chains["t"]

    assert nice.marked_mpps > 0.0
    assert nice.queue_dropped_mpps + nice.entry_dropped_mpps == 0.0
    assert nice.throughput_mpps > 0.2


def test_blocking_writes_stop_the_core_asynchronous_ones_do_not() -> None:
    """With a device that is fast enough, two buffers hide its latency; waiting for every buffer does not."""
    text = """
    storage: {{mb_per_s: 2000, latency_us: 50}}
    stages: {{a: {{cycles: 500, core: 0, storage: {{bytes_per_packet: 64, mode: {}, buffer_kib: 16}}}}}}
    chains: {{x: {{stages: [a]}}}}
    """
    free = play("stages: {a: {cycles: 500, core: 0}}\nchains: {x: {stages: [a]}}").chains["x"].throughput_mpps
    hidden = play(text.format("async")).chains["x"].throughput_mpps
    waiting = play(text.format("blocking")).chains["x"].throughput_mpps

    assert hidden > 0.97 * free
    # 256 packets of some 250 ns, then 8 us of transfer and 50 us of latency
    per_buffer_us = 256 / free
    assert waiting == pytest.approx(256 / (per_buffer_us + 58.2 + 1.6), rel=0.05)


def test_writes_are_never_faster_than_the_device() -> None:
    """An NF that logs more than the device takes is slowed to its bandwidth."""
    text = """
    storage: {mb_per_s: 100, latency_us: 10}
    stages: {a: {cycles: 100, core: 0, storage: {bytes_per_packet: 64, buffer_kib: 16}}}
    chains: {x: {stages: [a]}}
    """
    assert play(text).chains["x"].throughput_mpps == pytest.approx(100 / 64, rel=0.03)


QUEUES = """
queue: {capacity: 128}
stages: {n1: {cycles: 9, core: 0}, n2: {cycles: 9, core: 0}, n3: {cycles: 9, core: 1}, n4: {cycles: 9, core: 1}}
chains: {cheap: {stages: [n1, n2, n4], mpps: 1}, costly: {stages: [n1, n3, n4], mpps: 1}}
"""


@pytest.mark.parametrize(
    ("lengths", "waiting_us", "dropping", "yielding"),
    [
        ({"n3": (115,)}, 500.0, {"costly"}, set()),  # only the chain through the overloaded function is stopped
        ({"n4": (115,)}, 500.0, {"cheap", "costly"}, {"n1", "n2", "n3"}),  # all work upstream would only wait
        ({"n3": (120,)}, 50.0, set(), set()),  # a long queue that moves fast
        ({"n1": (127,)}, 500.0, set(), set()),  # packets that wait for the first function have cost nothing
        ({"n3": (90,)}, 500.0, set(), set()),  # below the high mark pressure does not begin
        ({"n3": (104, 77)}, 500.0, {"costly"}, set()),  # between the marks it goes on
        ({"n3": (104, 75)}, 500.0, set(), set()),  # below the low mark it ends
    ],
)
def test_the_manager_presses_back(
    lengths: dict[str, tuple[int, ...]], waiting_us: float, dropping: set[str], yielding: set[str]
) -> None:
    """The manager drops at the entry of chains through an overloaded ring, and stops who works for nothing."""
    system = parse_chains(QUEUES)
    work = Program(9.0, 9.0, 64, 1, 1, 1.0, 32, 1, None, None, ())
    seats = [seat_of(MACHINE, stage.name, work, stage.core) for stage in system.stages]
    _, sharing = build_shared(MACHINE, system, seats, Scheduler(), Manager(pressure=True), seed=0)
    for look in range(len(next(iter(lengths.values())))):
        sharing.packet_times[:, 1] = float(sharing.settings[h.E_NEXT_SCAN]) - 1e3 * waiting_us
        for row, stage in zip(sharing.stages, system.stages, strict=True):
            row[h.Q_TAIL] = row[h.Q_HEAD] + lengths.get(stage.name, (0,) * (look + 1))[look]
        scan_once(sharing)

    rows = zip(sharing.chains, system.chains, strict=True)
    assert {chain.name for row, chain in rows if row[h.J_DROPPING]} == dropping
    assert {stage.name for row, stage in zip(sharing.stages, system.stages, strict=True) if row[h.Q_YIELD]} == yielding


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("stages: {a: {cycles: 9, core: 99}}\nchains: {x: {stages: [a]}}", InvalidValueError, "core 99"),
        (
            "stages: {a: {nf: ids-regex, core: 0}}\nchains: {x: {stages: [a]}}",
            UnsupportedPredictionError,
            "uses accelerator 'regex'",
        ),
        (
            "memory_socket: 5\nstages: {a: {cycles: 9, core: 0}}\nchains: {x: {stages: [a]}}",
            InvalidValueError,
            "packet buffers on socket 5",
        ),
    ],
)
def test_what_cannot_be_simulated_is_said(text: str, error: type[Exception], message: str) -> None:
    """Absent cores, accelerators and sockets are named."""
    with pytest.raises(error, match=message):
        play(text)


def test_unknown_scheduler_is_named() -> None:
    """The nearest scheduler is offered."""
    with pytest.raises(UnknownNameError, match="did you mean 'batch'"):
        Scheduler("batsch")
