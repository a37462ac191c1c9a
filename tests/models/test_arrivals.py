"""Facts about intervals at reduced load."""

from dataclasses import replace

import numpy as np
import pytest

from slomo.equilibrium.mixes import MixRows
from slomo.equilibrium.server import solve_joint
from slomo.errors import ConfigurationError, InvalidValueError
from slomo.models.interval_ends import LEAST
from slomo.models.responses.arrivals import arrival_half_width_mpps, arrival_scores
from slomo.models.responses.server_response import ServerResponse
from slomo.training.server_response_fit import widened


@pytest.fixture(scope="module")
def models(toy_library):
    """Return the toy's models."""
    return list(toy_library.values())


def test_poisson_counts_are_held_as_promised():
    """Of counts drawn from Poisson's law, 90 % lie in the interval for a measurement of their length."""
    offered = np.full(4000, 0.7)
    counts = np.random.default_rng(1).poisson(0.7 * 5000.0, 4000) / 5000.0
    width = arrival_half_width_mpps(offered, 0.5, np.zeros(0), 0.9, window_s=5e-3)
    assert np.mean(np.abs(counts - offered) <= width) == pytest.approx(0.9, abs=0.02)


def test_scores_hold_new_counts_as_promised():
    """Scores of some NFs hold counts of others offered a different load, with no length of measurement given."""
    generator = np.random.default_rng(2)
    old, new = generator.uniform(0.2, 2.0, 800), generator.uniform(2.0, 6.0, 4000)
    scores = arrival_scores(generator.poisson(old * 3000.0) / 3000.0, old, 0.5)
    inside = np.abs(generator.poisson(new * 3000.0) / 3000.0 - new) <= arrival_half_width_mpps(new, 0.5, scores, 0.9)
    assert inside.mean() == pytest.approx(0.9, abs=0.03)


def test_queues_at_a_higher_load_scatter_more():
    """Scores of queues at low loads hold the change of those at a high load: each as long as M/M/1 makes it."""
    generator, offered = np.random.default_rng(4), np.full(4000, 1.0)
    low, high = generator.uniform(0.2, 0.5, 4000), np.full(4000, 0.9)
    each = [offered + generator.normal(size=4000) / (1.0 - load) / 1e3 for load in (low, high)]
    width = arrival_half_width_mpps(offered, high, arrival_scores(each[0], offered, low), 0.9)
    assert np.mean(np.abs(each[1] - offered) <= width) == pytest.approx(0.9, abs=0.02)


def test_too_few_scores_promise_nothing():
    """With fewer scores than the coverage needs the interval reaches from nothing to twice the load."""
    assert arrival_half_width_mpps(np.array([2.0]), 0.5, np.array([0.01, 0.02]), 0.9).tolist() == [2.0]


def test_a_measurement_of_no_length_is_refused():
    """A window of 0 s, or less, is refused in words."""
    for window in (0.0, -1.0, float("nan")):
        with pytest.raises(InvalidValueError, match="needed above 0 s"):
            arrival_half_width_mpps(np.array([2.0]), 0.5, np.zeros(0), 0.9, window)


def test_a_served_load_is_as_wide_as_its_arrivals(models):
    """Far below capacity the interval is that of the arrivals; far above it that of the NF's own speed."""
    members = np.array([[0, 1]])
    solo = models[0].solo_mpps
    full = solve_joint(models, members)
    little, much = (solve_joint(models, members, np.array([[x * solo, np.nan]]), window_s=1e-3) for x in (0.2, 5.0))
    spread = arrival_half_width_mpps(np.array(0.2 * solo), 0.2, np.zeros(0), 0.9, 1e-3)
    assert little.high_mpps[0, 0] - 0.2 * solo == pytest.approx(spread)
    assert 0.2 * solo - little.low_mpps[0, 0] == pytest.approx(spread)
    assert (much.low_mpps[0, 0], much.high_mpps[0, 0]) == pytest.approx((full.low_mpps[0, 0], full.high_mpps[0, 0]))


def test_alone_at_reduced_load_serves_what_is_offered(models):
    """Without neighbours nothing is lost; where no measurements tell, as little is uncertain as between repeats."""
    offered = np.array([[0.3]])
    untold = replace(models[0], response=replace(models[0].response, arrivals=np.zeros(0)))
    endless = solve_joint([untold], np.array([[0]]), offered)
    assert endless.throughput_mpps[0, 0] == 0.3
    assert (endless.low_mpps[0, 0], endless.high_mpps[0, 0]) == pytest.approx((0.3 * (1 - LEAST), 0.3 * (1 + LEAST)))


def test_mixes_at_reduced_load_calibrate_arrivals(models):
    """Mixes whose targets serve what they are offered give every NF their scores; saturated ones do not."""
    generator = np.random.default_rng(3)
    target, members = generator.integers(0, 3, 120), generator.integers(0, 3, (120, 1))
    solo = np.array([model.solo_mpps for model in models])[target]
    offered = np.column_stack([0.3 * solo, np.full(120, np.nan)])
    served = generator.poisson(offered[:, 0] * 2000.0) / 2000.0
    calibrated = widened(models, MixRows(target, members, served, offered))
    plain = widened(models, MixRows(target, members, 0.9 * solo))
    assert {len(model.response.arrivals) for model in calibrated} == {120}
    assert [model.response.arrivals.tolist() for model in plain] == [m.response.arrivals.tolist() for m in models]
    again = ServerResponse.from_dict(calibrated[0].response.to_dict())
    assert np.array_equal(again.arrivals, calibrated[0].response.arrivals)


def test_scores_out_of_order_are_refused(models):
    """A file whose scores do not ascend is damaged."""
    data = replace(models[0].response, arrivals=np.array([2.0, 1.0])).to_dict()
    with pytest.raises(ConfigurationError, match="ascending"):
        ServerResponse.from_dict(data)
