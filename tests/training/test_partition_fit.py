"""Runs on partitions -> an NF's time per packet over ways, latency and throttles."""

from dataclasses import replace

import pytest

from slomo.models.responses.partition import PartitionResponse
from slomo.training.partition_fit import PartitionRow, fit_response, with_remote


def test_a_throttle_adds_time_in_proportion_to_the_wait_it_lengthens() -> None:
    """Between profiled throttles, a tenth of the bandwidth adds nine times the wait: also where that wait is steep."""
    wait_us = {1.0: 0.9, 2.0: 0.3, 8.0: 0.1}
    rows = [
        PartitionRow(ways, 100.0, 80.0 * longer, 1.0 / (0.2 + wait * longer), 64.0)
        for ways, wait in wait_us.items()
        for longer in (1.0, 2.0)
    ]
    rows += [PartitionRow(ways, 10.0, 80.0, 1.0 / (0.2 + 10.0 * wait_us[ways]), 64.0) for ways in (1.0, 8.0)]
    assert 1.0 / fit_response("nf", rows).mpps(2.0, 80.0, 10.0) == pytest.approx(0.2 + 10.0 * 0.3)


def test_less_than_a_way_makes_packets_wait_and_not_work() -> None:
    """Where only one latency was measured, the time that fewer ways add grows with the latency, at all such ways."""
    rows = [PartitionRow(ways, 100.0, ns, 1.0 / (0.2 + waits * ns * 1e-3), 64.0)
            for ways, waits, latencies in ((0.2, 4.0, (90.0,)), (0.6, 3.0, (90.0,)), (1.0, 2.0, (80.0, 120.0)),
                                           (4.0, 1.0, (80.0, 120.0))) for ns in latencies]  # fmt: skip
    fitted = fit_response("nf", rows)

    assert fitted.busy_us == pytest.approx((0.2,) * 4)
    assert fitted.waits == pytest.approx((4.0, 3.0, 2.0, 1.0))
    assert fitted.mpps(0.2, 120.0) == pytest.approx(1.0 / (0.2 + 4.0 * 0.12))


def test_a_throttled_run_beside_others_counts_their_latency_once() -> None:
    """What a throttle adds is that at idle memory: a run at a longer latency gives the same."""
    true = PartitionResponse(
        "nf", 2.5, (1.0, 4.0), (0.2, 0.2), (2.0, 1.0), (64.0, 64.0), (1.5, 1.0), ((10.0, 1.0), (100.0, 0.0)), 80.0
    )
    runs = [(ways, 100.0, ns) for ways in (1.0, 4.0) for ns in (80.0, 120.0)] + [(1.0, 10.0, 95.0), (4.0, 10.0, 80.0)]
    rows = [PartitionRow(ways, percent, ns, true.mpps(ways, ns, percent), 64.0) for ways, percent, ns in runs]

    assert fit_response("nf", rows).throttled_us == pytest.approx(true.throttled_us)


def test_a_working_set_may_end_between_two_numbers_of_ways() -> None:
    """A working set of 3.5 ways is missed in proportion to what does not fit: the time falls in a line up to there."""
    times = {float(ways): 0.2 + 0.1 * max(0.0, 3.5 - ways) for ways in range(1, 9)}
    fitted = fit_response("nf", [PartitionRow(ways, 100.0, 80.0, 1.0 / us, 64.0) for ways, us in times.items()])

    assert [1.0 / fitted.mpps(ways, 80.0) for ways in (3.0, 3.25, 3.5, 3.75)] == pytest.approx([0.25, 0.225, 0.2, 0.2])
    assert [ways for ways, _ in fitted.curve] == list(range(1, 9))


def test_where_a_working_set_ends_no_more_is_left_out_than_was_measured() -> None:
    """More ways than the working set needs slow a function a little here: lines that meet lower fetch nothing less."""
    times = {float(ways): 0.2 + 0.1 * max(0.0, 3.5 - ways) + 0.03 * max(0.0, ways - 3.5) for ways in range(1, 9)}
    rows = [
        PartitionRow(ways, 100.0, 80.0, 1.0 / us, 64.0, fetched_bytes=100.0 * max(0.0, 3.5 - ways))
        for ways, us in times.items()
    ]

    assert min(fit_response("nf", rows).fetched_bytes) >= 0.0


def test_more_shared_ways_are_never_slower() -> None:
    """In 1.8 shared ways a function is as fast as in 3 of its own, so 2 of its own, which are slower, tell nothing."""
    own = [
        PartitionRow(float(ways), 100.0, 80.0, 1.0 / us, 64.0)
        for ways, us in ((1, 0.4), (2, 0.3), (3, 0.26), (4, 0.25))
    ]
    shared = [
        PartitionRow(ways, 100.0, 80.0, 1.0 / us, 64.0, shares_ways=True) for ways, us in ((0.5, 0.4), (1.8, 0.26))
    ]
    fitted = fit_response("nf", own + shared)

    assert fitted.beside is not None
    assert [1.0 / fitted.beside.mpps(ways, 80.0) for ways in (1.8, 2.0, 3.0, 4.0)] == pytest.approx(
        [0.26, 0.26, 0.26, 0.25]
    )
    assert 1.0 / fitted.mpps(2.0, 80.0) == pytest.approx(0.3)


def test_own_ways_tell_of_shared_ones_what_their_lines_occupy() -> None:
    """Two ways of its own, of which lines fill 1.5, are as 1.5 shared ways."""
    own = [
        PartitionRow(ways, 100.0, 80.0, 1.0 / us, 64.0, occupied_ways=occupied)
        for ways, occupied, us in ((1.0, 0.8, 0.4), (2.0, 1.5, 0.3), (3.0, 2.5, 0.2))
    ]
    shared = [PartitionRow(4.0, 100.0, 80.0, 2.0, 64.0, occupied_ways=0.4, shares_ways=True)]
    fitted = fit_response("nf", own + shared)

    assert fitted.beside is not None
    assert (fitted.ways, fitted.beside.ways) == ((1.0, 2.0, 3.0), (0.4, 0.8, 1.5, 2.5))
    assert [1.0 / fitted.beside.mpps(ways, 80.0) for ways in fitted.beside.ways] == pytest.approx([0.5, 0.4, 0.3, 0.2])


def test_packets_in_memory_of_another_node_are_waited_for() -> None:
    """What a run there takes longer than its latency explains, grows with that latency; so does its traffic."""
    home = PartitionResponse("nf", 2.5, (1.0, 4.0), (0.2, 0.2), (2.0, 1.0), (256.0, 64.0))
    rows = [PartitionRow(4.0, 100.0, ns, 1.0 / (0.2 + 1.15 * ns * 1e-3), 192.0) for ns in (140.0, 180.0, 240.0)]
    fitted = with_remote(replace(home, beside=home), rows)

    for each in (fitted, fitted.beside):
        assert each is not None
        assert (each.remote_waits, each.remote_bytes) == (pytest.approx(0.15), 128.0)
