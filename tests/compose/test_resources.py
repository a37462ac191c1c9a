"""A share of a core, and the names of execution patterns."""

import pytest

from slomo.compose.resources import checked_pattern, core_share_ns
from slomo.errors import InvalidValueError, UnknownNameError


def test_a_smaller_share_takes_more_time():
    """A quarter of a core takes four times as long; shares above 1 and unknown patterns are refused."""
    assert core_share_ns(100.0, 0.25) == pytest.approx(400.0)
    with pytest.raises(InvalidValueError, match=r"1\.5"):
        core_share_ns(100.0, 1.5)
    with pytest.raises(UnknownNameError, match="pipelines"):
        checked_pattern("pipelines")
