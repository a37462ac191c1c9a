"""DDIO ways in a register."""

import struct
from pathlib import Path

import pytest

from slomo.errors import InvalidValueError, TestbedError
from slomo.host.ddio import REGISTER, DdioWays


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
