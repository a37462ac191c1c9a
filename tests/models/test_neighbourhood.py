"""Kinds of neighbourhood: one door says what the other says."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from slomo.models.neighbourhood import UNKNOWN, beside, within


@given(arrays(np.int64, st.tuples(st.integers(1, 10), st.integers(1, 8)), elements=st.integers(-1, 2)))
def test_servers_and_targets_are_judged_alike(members: np.ndarray) -> None:
    """An NF of a server has the neighbourhood that it has as the target beside the others; order does not matter."""
    kinds = within(members)
    for place in range(members.shape[1]):
        alone = beside(np.delete(members, place, axis=1))
        np.testing.assert_array_equal(kinds[:, place], np.where(members[:, place] >= 0, alone, UNKNOWN))
    np.testing.assert_array_equal(within(members[:, ::-1]), kinds[:, ::-1])
    np.testing.assert_array_equal(within(members[:1]), kinds[:1])  # few rows take another way
