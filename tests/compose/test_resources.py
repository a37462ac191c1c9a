"""A share of a core, and the names of execution patterns."""

import pytest

from slomo.compose.cores import CoreUser, shared_core_mpps
from slomo.compose.uncertain import checked_pattern
from slomo.errors import UnknownNameError


def test_a_smaller_share_takes_more_time():
    """A quarter of a core serves a quarter; unknown patterns are refused."""
    assert shared_core_mpps([CoreUser(100.0), CoreUser(100.0, weight=3.0)]) == pytest.approx((2.5, 7.5))
    with pytest.raises(UnknownNameError, match="pipelines"):
        checked_pattern("pipelines")
