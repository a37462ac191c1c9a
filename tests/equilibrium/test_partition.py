"""Ways that several may fill: who keeps how many."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slomo.equilibrium import partition
from slomo.equilibrium.partition import Parted, Partitions, solve_partitions
from slomo.models.responses.memory_traffic import MemoryTraffic
from slomo.models.responses.partition import PartitionResponse
from slomo.training.partition_fit import PartitionRow, fit_response

MEMORY = MemoryTraffic((80.0, 81.0), (0.0, 1000.0))


def shared(*responses: PartitionResponse, memory: MemoryTraffic = MEMORY) -> Parted:
    """All tenants share 20 ways."""
    return solve_partitions(Partitions(responses, np.full((1, len(responses)), 0xFFFFF)), memory)[0]


def response(busy_us: float, bytes_per_packet: tuple[float, ...]) -> PartitionResponse:
    """What waits for nothing, and moves memory by the ways 1, 4, 8 and 20 that it holds."""
    flat = (0.0,) * 4
    return PartitionResponse("nf", 1 / busy_us, (1.0, 4.0, 8.0, 20.0), (busy_us,) * 4, flat, bytes_per_packet)


def test_streams_divide_ways_by_how_fast_they_fill_them() -> None:
    stream, quicker = response(0.3, (64.0,) * 4), response(0.1, (64.0,) * 4)
    done = shared(stream, quicker)
    assert done.ways == pytest.approx((5.0, 15.0), rel=0.02)


def test_lines_written_back_need_no_room() -> None:
    """Of two streams with equal traffic, one that writes every line back fetches half as many lines."""
    stream = response(0.1, (128.0,) * 4)
    done = shared(stream, replace(stream, fetched_bytes=(64.0,) * 4))
    assert done.ways == pytest.approx((40.0 / 3.0, 20.0 / 3.0), rel=0.02)


@pytest.mark.parametrize(("requested", "empty"), [(64.0, 0.0), (128.0, 1.0 / 3.0)])
def test_hits_in_a_victim_cache_leave_places_empty(requested: float, empty: float) -> None:
    """Of two streams whose requests all miss, every place is full; if half of them hit, a third of a way is empty."""
    stream = replace(response(0.1, (64.0,) * 4), private_ways=0.5, requested_bytes=requested)
    assert sum(shared(stream, stream).ways) == pytest.approx(20.0 - empty, rel=1e-3)


def test_a_working_set_that_fits_is_kept_beside_another_that_fits() -> None:
    fits = response(0.1, (200.0, 100.0, 0.0, 0.0))
    done = shared(fits, response(0.5, (300.0, 100.0, 0.0, 0.0)))
    assert min(done.ways) >= 7.9
    assert done.traffic_gb_s < 0.05


def test_a_stream_takes_from_a_working_set_until_lines_live_equally_long() -> None:
    fits, stream = response(0.1, (200.0, 100.0, 0.0, 0.0)), response(0.1, (640.0,) * 4)
    done = shared(fits, stream)
    held, taken = done.ways
    misses = 200.0 - 100.0 / 3.0 * (held - 1.0)
    # the age at which it holds S ways is the integral of dS / misses; the stream's is S / 640
    assert taken / 640.0 == pytest.approx(1.0 / 200.0 + 0.03 * math.log(200.0 / misses), rel=0.02)
    assert held + taken == pytest.approx(20.0, rel=0.01)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.floats(0.05, 2.0), st.floats(0.1, 900.0)), min_size=2, max_size=5), st.integers(1, 19))
def test_ways_are_never_exceeded_and_a_batch_answers_as_one(rows: list[tuple[float, float]], own: int) -> None:
    responses = [response(us, (4 * most, 2 * most, most, most / 2)) for us, most in rows]
    first, rest = (1 << own) - 1, ((1 << (20 - own)) - 1) << own
    masks = np.array([[first, *[rest] * (len(responses) - 1)], [0xFFFFF] * len(responses)])
    together = solve_partitions(Partitions(responses, masks), MEMORY)
    assert together[0].ways[0] <= own + 1e-9
    assert sum(together[0].ways[1:]) <= 20 - own + 0.2
    assert sum(together[1].ways) <= 20.2
    assert together == [solve_partitions(Partitions(responses, row[None]), MEMORY)[0] for row in masks]
    backwards = Partitions(responses, masks[:, ::-1], np.arange(len(responses))[::-1])
    assert [each.ways[::-1] for each in solve_partitions(backwards, MEMORY)] == [each.ways for each in together]


def test_tenants_of_several_caches_divide_the_ways_of_their_own() -> None:
    """Equal and overlapping masks of two caches, and the cards' packets there: each cache is as on a socket alone."""
    nf = replace(response(0.1, (200.0, 100.0, 10.0, 0.0)), buffer_ways=1.0, buffer_bytes=64, buffer_mask=0x3)
    tenants = [nf, replace(nf, workload="b", busy_us=(0.3,) * 4), replace(nf, busy_us=(0.2,) * 4), nf]
    masks = np.array([[0xF, 0x3F, 0xF, 0x3F]])
    done = solve_partitions(Partitions(tenants, masks, llcs=[[0, 2, 0, 2]]), MEMORY)[0]
    for here in ([0, 2], [1, 3]):
        alone = solve_partitions(Partitions([tenants[i] for i in here], masks[:, here]), MEMORY)[0]
        assert [done.ways[i] for i in here] == pytest.approx(alone.ways, rel=0.01)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(0.05, 2.0), st.floats(0.1, 900.0)), min_size=2, max_size=5), st.floats(0.5, 20.0))
def test_no_server_moves_more_than_its_channel(rows: list[tuple[float, float]], most_gb_s: float) -> None:
    responses = [response(us, (4 * most, 2 * most, most, most / 2)) for us, most in rows]
    narrow = MemoryTraffic((80.0, 81.0), (0.0, 1000.0), most_gb_s)
    done, free = (shared(*responses, memory=each) for each in (narrow, MEMORY))
    assert done.traffic_gb_s <= most_gb_s * (1.0 + 1e-9)
    if free.traffic_gb_s <= most_gb_s:
        assert done == free
    else:
        assert done.traffic_gb_s == pytest.approx(most_gb_s)


def test_ways_that_others_fill_have_a_response_of_their_own() -> None:
    """A function that was also profiled in shared ways is predicted by that where it shares, else by its own ways."""
    own = [PartitionRow(float(ways), 100.0, 80.0, 1.0 / (0.2 + 0.1 / ways), 64.0) for ways in (1, 2, 4, 20)]
    less = [
        PartitionRow(ways, 100.0, 80.0, 1.0 / (0.2 + 0.05 / ways), 64.0, shares_ways=True) for ways in (0.5, 2.5, 5.0)
    ]
    fitted = fit_response("nf", own + less)
    masks = np.array([[0x3, 0xFFFFC], [0x1F, 0x1F]])
    apart, together = solve_partitions(Partitions([fitted, fitted], masks), MEMORY)

    assert 1.0 / apart.throughput_mpps[0] == pytest.approx(0.25, rel=1e-4)
    assert together.ways == pytest.approx((2.5, 2.5), rel=0.01)
    assert 1.0 / together.throughput_mpps[0] == pytest.approx(0.22, rel=1e-3)

    both = fitted.with_both(buffer_ways=0.5, buffer_bytes=64, buffer_mask=0x3, remote_waits=0.5, remote_bytes=64.0)
    (near,) = solve_partitions(Partitions([both, both], masks[1:]), MEMORY)
    assert near.ways == pytest.approx((2.0, 2.0), rel=0.01)


def test_memory_on_another_node_has_a_curve_of_its_own_and_packets_there_are_waited_for() -> None:
    """A tenant's packets are then no longer written into the cache; the other's memory stays as fast as before."""
    rows = [
        PartitionRow(ways, 100.0, ns, 1.0 / (0.2 + ns * 1e-3), 64.0) for ways in (1.0, 20.0) for ns in (80.0, 120.0)
    ]
    one = fit_response("nf", rows).with_both(buffer_ways=0.5, buffer_bytes=64, buffer_mask=0x3, remote_waits=0.5)
    memory = replace(MEMORY, away=MemoryTraffic((110.0, 111.0), (0.0, 100.0)))
    settings = Partitions([one, one], np.array([[0xF0, 0xF00]]), remote_ns=np.array([[50.0, 0.0]]))
    (far, near) = solve_partitions(settings, memory)[0].throughput_mpps

    assert 1.0 / far == pytest.approx(0.2 + 1.5 * (110.0 + 50.0) * 1e-3, rel=1e-3)
    assert 1.0 / near == pytest.approx(0.2 + 80.0 * 1e-3, rel=1e-3)


def test_rounds_end_near_the_fixed_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty servers with five tenants in shared ways: what a hundred times finer rounds change, in mean and at most."""
    draw = np.random.default_rng(31)
    memory = MemoryTraffic((80.0, 100.0, 150.0, 400.0), (0.0, 10.0, 18.0, 20.0))

    def one(number: int) -> PartitionResponse:
        ways, waits = (0.1, 1.0, 4.0, 8.0, 20.0), np.sort(draw.uniform(0.0, 4.0, 5))[::-1]
        moved = np.sort(draw.uniform(0.0, 900.0, 5))[::-1]
        return PartitionResponse(f"nf{number}", 5.0, ways, (0.2,) * 5, tuple(waits), tuple(moved))

    responses = [one(number) for number in range(20)]
    settings = Partitions(responses, np.full((40, 5), 0x3F), draw.integers(0, 20, (40, 5)))
    solved = np.array([each.throughput_mpps for each in solve_partitions(settings, memory)])
    monkeypatch.setattr(partition, "_SETTLED_WAYS", 1e-4)
    monkeypatch.setattr(partition, "_FEW_HALVINGS", 20)
    monkeypatch.setattr(partition, "_NARROWER", 1.0)
    monkeypatch.setattr(partition, "_ROUNDS", 300)
    finer = np.array([each.throughput_mpps for each in solve_partitions(settings, memory)])
    off = np.abs(solved / finer - 1.0)
    assert off.mean() <= 0.0004
    assert off.max() <= 0.002


def test_packets_of_all_tenants_take_room_where_cards_write() -> None:
    """Buffers that fill two ways in all leave two of four ways to the tenant that owns the cards' ways."""
    needs = PartitionResponse("nf", 2.0, (1.0, 4.0), (1.0, 0.5), (0.0, 0.0), (64.0, 64.0))
    packets = replace(needs, buffer_ways=1.0, buffer_bytes=64, buffer_mask=0xC0000)
    masks = np.array([[0xF, 0xF0000]])
    (without,) = solve_partitions(Partitions([needs, needs], masks), MEMORY)
    (done,) = solve_partitions(Partitions([packets, packets], masks), MEMORY)

    assert without.ways == pytest.approx((4.0, 4.0))
    assert done.ways == pytest.approx((4.0, 2.0), rel=0.02)
    assert done.throughput_mpps[0] == pytest.approx(2.0)
    assert 1.0 / done.throughput_mpps[1] == pytest.approx(1.0 - 0.5 / 3.0, rel=0.02)


def test_packets_displace_lines_of_own_ways_alone() -> None:
    """Half of the packets find places taken; a miss is as often: one way is empty beside half a way of packets."""
    needs = PartitionResponse("nf", 2.0, (1.0, 4.0), (1.0, 0.5), (0.0, 0.0), (64.0, 64.0))
    packets = replace(needs, buffer_ways=0.25, buffer_bytes=64, buffer_mask=0xF, requested_bytes=192.0, displaced=1.0)
    own, both = solve_partitions(Partitions([packets, packets], np.array([[0xF, 0xF0], [0xF, 0xF]])), MEMORY)

    assert own.ways == pytest.approx((2.5, 4.0), rel=0.02)
    assert sum(both.ways) == pytest.approx(3.5, rel=0.02)


def test_a_working_set_far_below_one_way_is_resolved() -> None:
    """Tables are exact at the numbers of ways that were measured there."""
    tiny = PartitionResponse("nf", 5.0, (0.0625, 0.125, 20.0), (0.6, 0.2, 0.2), (0.0,) * 3, (64.0, 32.0, 32.0))
    stream = response(0.1, (640.0,) * 4)
    done = shared(tiny, stream)

    assert 0.0625 < done.ways[0] < 20.0
    assert done.throughput_mpps[0] == pytest.approx(tiny.mpps(done.ways[0], done.latency_ns[0]), rel=0.02)
