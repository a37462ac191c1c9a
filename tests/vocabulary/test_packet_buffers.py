"""Packet buffers are counted in cache lines with their headroom, and fit the space devices fill."""

import pytest

from slomo.errors import InvalidValueError
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.packet_buffers import LINE_B, buffers_per_nf, lines_per_buffer


@pytest.mark.parametrize("size_b", [64, 256, 1518, 9000])
def test_all_buffers_of_a_socket_fit_the_ddio_space(size_b: int) -> None:
    """As many network functions as there are cores fill no more than the DDIO ways."""
    machine = load_machine("e5-2695v4")
    each = buffers_per_nf(machine, 9, size_b)
    assert 9 * each * lines_per_buffer(size_b) * LINE_B <= machine.capacities().ddio_kib * 1024


def test_too_little_space_is_refused() -> None:
    """Where a share would be fewer buffers than a burst, the machine and the share are named."""
    with pytest.raises(InvalidValueError, match="would get 28 buffers of 9000 bytes"):
        buffers_per_nf(load_machine("e5-2620v4"), 8, 9000)


def test_a_machine_without_ddio_has_no_limit() -> None:
    """Where devices write to memory, buffers are not limited."""
    assert buffers_per_nf(load_machine("epyc-7543"), 8, 1518) is None
