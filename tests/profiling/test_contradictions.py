"""Contradictory measurements: found where there are some, not made up where there are none."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slomo.profiling.adaptive.design import contradictions


def falling(pressures: np.ndarray) -> np.ndarray:
    """Return shares of solo that fall with every pressure."""
    return 1.0 / (1.0 + 0.02 * pressures.sum(axis=1))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_what_falls_contradicts_nothing(seed: int) -> None:
    """Throughput that falls with every pressure, give or take a noise of 1 %, holds no contradiction."""
    generator = np.random.default_rng(seed)
    pressures = generator.exponential(20.0, size=(60, 3))
    noisy = falling(pressures) * (1.0 + 0.01 * generator.standard_normal(60))
    assert contradictions(pressures, noisy, noise=0.01) == []


def test_the_one_mixed_up_is_named() -> None:
    """Of sixty measurements the one that was mixed up is named, not those it contradicts."""
    pressures = np.linspace(0.0, 100.0, 60)[:, None] * np.array([[1.0, 2.0, 0.5]])
    shares = falling(pressures)
    shares[45] = shares[2]
    assert contradictions(pressures, shares, noise=0.0) == [45]


def test_gains_within_the_noise_are_no_contradiction() -> None:
    """Where one run varies by 10 %, a gain of 30 % contradicts nothing."""
    pressures = np.array([[0.0], [10.0], [20.0]])
    assert contradictions(pressures, np.array([1.0, 0.5, 0.8]), noise=0.1) == []
    assert contradictions(pressures, np.array([1.0, 0.5, 0.8]), noise=0.01) != []


def test_less_of_one_pressure_is_no_contradiction() -> None:
    """A setting that presses more on the cache and less on memory may be the gentler one."""
    assert contradictions(np.array([[10.0, 10.0], [20.0, 1.0]]), np.array([0.5, 0.9]), noise=0.0) == []
