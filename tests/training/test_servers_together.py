"""Bounds of a server's tenants hold together as often as asked, whether their errors depend on each other or not."""

from dataclasses import replace

import numpy as np
import pytest

from slomo.models.error_shape import shapes_at
from slomo.models.intervals import ConformalCalibration
from slomo.placement.feasibility.bounds import different_in, level_of, lower_mpps
from slomo.training.conformal_fit import FEWEST_SERVERS, HeldOutMixes, fit_calibrations

TENANTS, SOLO = 4, 10.0


def servers(count: int, shared: float, seed: int) -> HeldOutMixes:
    """Return servers of four different tenants whose errors share a part that is the whole server's."""
    draw = np.random.default_rng(seed)
    common, own = draw.normal(size=(count, 1)), draw.normal(size=(count, TENANTS))
    error = 0.1 * (np.sqrt(shared) * common + np.sqrt(1.0 - shared) * own)
    owner, run = np.tile(np.arange(TENANTS), count), np.repeat(np.arange(count), TENANTS)
    predicted, kind = np.full(owner.shape, 8.0), np.zeros(owner.shape, dtype=np.int64)
    return HeldOutMixes(predicted + error.ravel(), predicted, np.full(owner.shape, SOLO), owner, kind, run)


def broken_share(calibrations: list[ConformalCalibration], judged: HeldOutMixes, confidence: float) -> float:
    """Return the share of servers of which a tenant falls below its bound."""
    level = level_of(confidence, TENANTS, calibrations[0].together)
    scores = np.array([each.lower_scores(level) for each in calibrations])[judged.owner, judged.kind]
    middle, size = shapes_at([each.shape for each in calibrations], judged.owner, judged.loss)
    return float((judged.errors < middle + size * scores).reshape(-1, TENANTS).any(axis=1).mean())


@pytest.mark.parametrize("shared", [0.0, 0.9])
def test_servers_break_as_often_as_asked(shared: float) -> None:
    """Of 600 servers, each tenant promised what its bound says, about the share asked for breaks a promise."""
    calibrations = fit_calibrations(servers(300, shared, 1), TENANTS)
    judged = servers(600, shared, 2)
    for confidence in (0.95, 0.9, 0.8):
        broken = broken_share(calibrations, judged, confidence)
        assert broken == pytest.approx(1.0 - confidence, abs=0.04)


def test_packed_servers_set_how_often_servers_break() -> None:
    """Of servers drawn as placement fills them, whose predictions are too high, about the share asked for breaks."""
    drawn, judged = servers(300, 0.3, 6), servers(600, 0.3, 7)
    high = drawn.run < 150
    optimistic = replace(drawn, predicted_mpps=drawn.predicted_mpps + 0.8 * high, packed=high)
    told, untold = (fit_calibrations(mixes, TENANTS) for mixes in (optimistic, replace(optimistic, packed=None)))
    judged = replace(judged, predicted_mpps=judged.predicted_mpps + 0.8)
    broken = [broken_share(each, judged, 0.8) for each in (told, untold)]

    assert broken[1] > broken[0] + 0.05
    assert broken[0] == pytest.approx(0.2, abs=0.06)


def test_few_packed_servers_count_little() -> None:
    """Three packed servers that break move the exponent a little, sixty far: each counts beside twenty of all."""
    drawn = servers(300, 0.3, 8)
    worst_first = np.argsort(drawn.errors.reshape(-1, TENANTS).min(axis=1))
    sets = [replace(drawn, packed=np.isin(drawn.run, worst_first[:packed])) for packed in (0, 3, 60)]
    none, few, many = (fit_calibrations(mixes, TENANTS)[0].together for mixes in sets)

    assert none > few > many
    assert none - few < 0.5 * (none - many)


def test_errors_that_go_together_share_no_risk() -> None:
    """Where a server's tenants err together, each is allowed more than where each errs by itself."""
    alone, together = (fit_calibrations(servers(300, shared, 3), TENANTS)[0].together for shared in (0.0, 0.9))
    assert together > alone + 0.1


def test_few_servers_are_taken_for_independent_ones() -> None:
    """With fewer calibration servers than tell how errors depend, tenants share the risk as if they did not."""
    assert fit_calibrations(servers(FEWEST_SERVERS - 1, 0.9, 4), TENANTS)[0].together == 1.0


def test_tenants_alike_count_once() -> None:
    """Four tenants alike have the bound of one; four different ones have lower bounds."""
    calibrations = fit_calibrations(servers(200, 0.3, 5), TENANTS)
    alike, unlike, mpps = np.zeros((1, 4), dtype=np.int64), np.arange(4)[None, :], np.full((1, 4), 8.0)
    low = [
        lower_mpps(calibrations, np.full(TENANTS, SOLO), mix, mpps, 0.9, different_in(mix)) for mix in (alike, unlike)
    ]
    assert different_in(alike).tolist() == [1]
    assert different_in(unlike).tolist() == [4]
    assert low[1][0, 0] < low[0][0, 0]
