"""Midpoint refinement: curves known within the tolerance from few points, and shapes that do not hold."""

from collections.abc import Callable

import numpy as np
import pytest

from slomo.errors import InvalidValueError
from slomo.profiling.plans.refinement import MidpointRefinement, Shape, refine


def ways(x: float) -> float:
    """Throughput against LLC ways: each way gains less, the last ones nothing."""
    return min(10.0 - 6.0 / x, 9.4)


def load(x: float) -> float:
    """Latency against load: rises without bound near saturation."""
    return 1.0 / (1.0 - x)


@pytest.mark.parametrize("shape", list(Shape)[::2])
def test_throughput_against_ways_is_known_from_half_the_ways(shape: Shape) -> None:
    """Twenty ways are known within 1 % from at most twelve of them."""
    curve = refine(ways, MidpointRefinement(1, 20, step=1, shape=shape))
    assert len(curve.points) <= 12
    assert all(abs(curve(x) - ways(x)) <= 0.01 * ways(x) for x in range(1, 21))


@pytest.mark.parametrize("shape", [Shape.CONVEX, Shape.UNKNOWN])
def test_latency_against_load_is_known_to_the_tolerance(shape: Shape) -> None:
    """Latency up to 90 % load is known within 2 % everywhere."""
    curve = refine(load, MidpointRefinement(0.1, 0.9, shape=shape, tolerance=0.02))
    assert len(curve.points) <= 25
    assert max(abs(curve(x) - load(x)) / load(x) for x in np.linspace(0.1, 0.9, 50).tolist()) <= 0.02


def test_a_known_shape_never_costs_more_points() -> None:
    """Knowing that a curve is concave or convex saves points, or costs none."""
    cases: list[tuple[Callable[[float], float], float, float, Shape]] = [
        (ways, 1.0, 20.0, Shape.CONCAVE),
        (load, 0.1, 0.9, Shape.CONVEX),
    ]
    for curve, low, high, shape in cases:
        counts = [
            len(refine(curve, MidpointRefinement(low, high, shape=given)).points) for given in (shape, Shape.UNKNOWN)
        ]
        assert counts[0] <= counts[1]


def test_a_flat_curve_needs_two_points() -> None:
    """An NF that no way helps is known from the two ends."""
    assert refine(lambda _: 5.0, MidpointRefinement(1, 20, step=1, shape=Shape.CONCAVE)).points == {1: 5.0, 20: 5.0}


def test_a_jump_ends_with_the_budget_or_the_step() -> None:
    """A step in the curve is narrowed down to the step width, or until the budget is spent."""
    narrow = refine(lambda x: 1.0 if x < 7.3 else 2.0, MidpointRefinement(1, 20, step=1))
    assert {7.0, 8.0} <= set(narrow.points)
    assert len(refine(lambda x: 1.0 if x < 7.3 else 2.0, MidpointRefinement(1, 20, budget=9)).points) == 9


def test_measurements_that_contradict_the_shape_are_named() -> None:
    """A curve said to be concave that sags is measured as one of unknown shape, and the point is listed."""
    curve = refine(lambda x: (x / 10.0) ** 2, MidpointRefinement(1, 20, step=1, shape=Shape.CONCAVE))
    assert curve.contradictions
    assert curve.shape is Shape.UNKNOWN
    assert abs(curve(10.0) - 1.0) <= 0.02


@pytest.mark.parametrize(
    "arguments",
    [{"low": 2.0, "high": 1.0}, {"low": 1.0, "high": 2.0, "budget": 0}, {"low": 1.0, "high": 2.0, "tolerance": 0.0}],
)
def test_impossible_refinements_are_refused(arguments: dict[str, float]) -> None:
    """Ends in the wrong order, a budget of zero and a tolerance of zero are refused."""
    with pytest.raises(InvalidValueError, match="refinement from"):
        MidpointRefinement(**arguments)  # type: ignore[arg-type]


def test_what_lies_outside_is_refused() -> None:
    """A point outside the ends, a throughput of zero, and asking the curve before it is measured are refused."""
    curve = MidpointRefinement(1, 20)
    for x, y in ((21.0, 1.0), (5.0, 0.0)):
        with pytest.raises(InvalidValueError, match="got value"):
            curve.tell(x, y)
    with pytest.raises(InvalidValueError, match="has no value"):
        curve(5.0)
