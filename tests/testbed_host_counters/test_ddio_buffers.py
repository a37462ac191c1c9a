"""DDIO ways in a register, and ResQ's number of packet buffers."""

import struct
from pathlib import Path

import pytest

from slomo.errors import InvalidValueError, TestbedError
from slomo.testbed.host.isolation.buffers import ddio_buffer_limit, size_buffers
from slomo.testbed.host.isolation.ddio import REGISTER, DdioWays


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    """Return a folder with one core's registers."""
    file = tmp_path / "0" / "msr"
    file.parent.mkdir()
    file.write_bytes(bytes(REGISTER) + struct.pack("<Q", 0x600))
    return tmp_path


def test_ways_are_set_and_taken_back(devices: Path) -> None:
    """The register holds the mask inside, and what was there before outside."""
    with DdioWays(devices=devices) as ways:
        ways.set(0x7C0)
        ways.set(0x780)
        assert DdioWays(devices=devices).read() == 0x780

    assert DdioWays(devices=devices).read() == 0x600


@pytest.mark.parametrize("mask", [0, -1, 0x5, 1 << 20])
def test_masks_that_are_no_block_are_refused(devices: Path, mask: int) -> None:
    """Nothing is written for a mask with holes, without ways or too wide."""
    with pytest.raises(InvalidValueError, match="not one block"):
        DdioWays(devices=devices).set(mask)

    assert DdioWays(devices=devices).read() == 0x600


def test_where_there_is_no_register_it_says_so(tmp_path: Path) -> None:
    """Without the kernel's module the command that loads it is told."""
    with pytest.raises(TestbedError, match="No such file") as caught:
        DdioWays(devices=tmp_path).read()

    assert "modprobe msr" in str(caught.value.hint)
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "msr").touch()
    assert "holds no register" in DdioWays(devices=tmp_path).available()[1]


def test_resq_buffers_stay_in_the_ddio_space() -> None:
    """12 queues of 2048 descriptors leak at 1518 bytes and do not at 64 bytes, as ResQ found on 10 % of 45 MB."""
    ddio_kib = 0.1 * 45 * 1024

    assert ddio_buffer_limit(ddio_kib, 1518) < 12 * 2048 < ddio_buffer_limit(ddio_kib, 64)
    assert 12 * size_buffers(ddio_kib, 12) <= ddio_buffer_limit(ddio_kib)
    assert size_buffers(ddio_kib, 12, mtu_b=64) == 2048


def test_too_many_queues_are_refused() -> None:
    """Buffers too few to absorb a burst are an error with a way out."""
    with pytest.raises(InvalidValueError, match="64 queues would get 48 buffers"):
        size_buffers(4608, 64)
    with pytest.raises(InvalidValueError, match="largest frame"):
        ddio_buffer_limit(4608, 20)
