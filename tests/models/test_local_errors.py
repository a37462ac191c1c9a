"""Errors of the mixes nearest in pressure: the same bits for one and for many, and tables that fit."""

import numpy as np
import pytest

from slomo.errors import ConfigurationError
from slomo.models.local_errors import NEAREST, LocalErrors


@pytest.fixture
def known():
    """Return errors of 30 mixes under three pressures of different range."""
    random = np.random.default_rng(5)
    span = np.array([1.0, 50.0, 2e4])
    return LocalErrors(random.uniform(size=(30, 3)) * span, random.uniform(size=30), span)


def test_one_question_has_the_bits_of_a_row_of_many(known):
    """However many are asked at once."""
    asked = np.random.default_rng(6).uniform(size=(200, 3)) * known.span
    one_by_one = np.array([known.near(row) for row in asked])
    assert np.array_equal(one_by_one.T, known.near(asked))


def test_the_nearest_count_and_no_others(known):
    """Distances are in units of each pressure's range."""
    asked = known.pressures[4] + 0.01 * known.span
    away = (((known.pressures - asked) / known.span) ** 2).sum(axis=1)
    nearest = known.sizes[np.argsort(away)[:NEAREST]]
    assert known.near(asked) == (pytest.approx(nearest.mean()), nearest.max())


def test_mixes_as_far_away_as_the_last_count_too():
    """Whatever their order: otherwise one that was measured twice would count by chance."""
    same = LocalErrors(np.zeros((9, 2)), np.arange(9.0), np.ones(2))
    assert same.near(np.ones(2)) == (4.0, 8.0)


def test_few_errors_do_not_suffice(known):
    """With fewer than are read, the errors at this loss count."""
    assert known.suffice
    few = LocalErrors(known.pressures[1:NEAREST], known.sizes[1:NEAREST], known.span)
    assert not few.suffice
    assert not LocalErrors().suffice


def test_what_was_written_is_read(known):
    """Tables and their absence."""
    read = LocalErrors.from_dict(known.to_dict())
    assert (read.pressures == known.pressures).all()
    assert (read.sizes == known.sizes).all()
    assert not LocalErrors.from_dict(LocalErrors().to_dict()).suffice


@pytest.mark.parametrize("broken", [{"sizes": [0.1]}, {"span": [1.0, 0.0, 2.0]}, {"span": [1.0]}])
def test_tables_that_do_not_fit_are_refused(known, broken):
    """As many errors as pressures, in units above 0."""
    with pytest.raises(ConfigurationError, match="do not belong to their errors"):
        LocalErrors.from_dict({**known.to_dict(), **broken})
