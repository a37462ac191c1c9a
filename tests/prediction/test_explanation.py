"""Explanations divide the whole loss, and name the metric that carries it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slomo.prediction.explanation import LEVERS, Explanation, explain
from slomo.vocabulary.metrics import METRICS

NAMES = ("L2MISS", "L3OCC", "READ", "DDIOOCC", "L3HIT", "traffic.mtbr")


def test_every_metric_tells_of_a_resource_that_something_helps_against():
    """What a metric's row names as fought over has a lever."""
    assert {item.resource for item in METRICS.values()} == LEVERS.keys() - {"accelerator"}


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_parts_add_up_to_the_loss(seed):
    """Parts of metrics plus the unattributed rest are the loss, for any model."""
    random = np.random.default_rng(seed)
    weights, pairs = random.normal(size=6), random.normal(size=(6, 6))

    def model(rows):
        return 10.0 - rows @ weights - np.einsum("ni,ij,nj->n", rows, pairs, rows)

    vector = random.uniform(0.0, 3.0, 6)
    explanation = explain(model, NAMES, vector, solo_mpps=10.0)
    assert explanation.loss_mpps == pytest.approx(10.0 - model(vector[np.newaxis])[0])
    assert sum(explanation.metrics.values()) + explanation.unattributed_mpps == pytest.approx(explanation.loss_mpps)
    assert sum(explanation.groups.values()) == pytest.approx(sum(explanation.metrics.values()))


def test_the_only_cause_carries_everything():
    """A model that reads one metric loses everything to it, and metrics it ignores lose nothing."""
    explanation = explain(lambda rows: 5.0 - 0.1 * rows[:, 2], NAMES, np.full(6, 10.0), solo_mpps=5.0)
    assert explanation.carrier == ("READ", pytest.approx(1.0))
    assert explanation.metrics["L3OCC"] == 0.0
    assert explanation.unattributed_mpps == pytest.approx(0.0)


def test_symmetric_groups_share_an_interaction_evenly():
    """What two groups cost only together is halved between them."""
    explanation = explain(
        lambda rows: 4.0 - rows[:, 0] * rows[:, 1], ("L3OCC", "READ"), np.array([1.0, 1.0]), solo_mpps=4.0
    )
    assert explanation.groups == {"cache": 0.5, "memory bandwidth": 0.5}


def test_ratios_and_traffic_cause_nothing():
    """A metric without a value for no competition, and the target's own traffic, stay unattributed."""
    explanation = explain(lambda rows: 4.0 - rows[:, 4] - rows[:, 5], NAMES, np.ones(6), solo_mpps=4.0)
    assert explanation.unattributed_mpps == pytest.approx(2.0)
    assert "L3HIT" not in explanation.metrics
    assert "traffic.mtbr" not in explanation.metrics


def test_no_loss_has_no_carrier():
    """Nothing lost, nobody to blame."""
    assert explain(lambda rows: np.full(len(rows), 4.0), NAMES, np.ones(6), solo_mpps=4.0).carrier is None
    assert Explanation(0.1, {}, 0.1).carrier is None


def test_explanation_survives_json():
    """An explanation rebuilt from its mapping is equal."""
    explanation = Explanation(0.5, {"L3OCC": 0.4}, 0.1)
    assert Explanation.from_dict(explanation.to_dict()) == explanation


def test_competitors_share_each_metric_by_what_they_put_in():
    """Parts of competitors add up to the parts of metrics, in proportion to their own values."""
    own = {"a": np.array([9.0, 1.0, 5.0, 0.0, 0.5, 3.0]), "b": np.array([1.0, 3.0, 5.0, 0.0, 0.7, 3.0])}
    vector = own["a"] + own["b"]
    explanation = explain(lambda rows: 9.0 - rows[:, :4] @ np.array([0.1, 0.2, 0.05, 1.0]), NAMES, vector, 9.0, own)
    for metric, part in explanation.metrics.items():
        assert sum(parts[metric] for parts in explanation.competitors.values()) == pytest.approx(part)
    assert explanation.competitors["a"]["L2MISS"] == pytest.approx(0.9 * explanation.metrics["L2MISS"])
    assert explanation.competitors["b"]["L3OCC"] == pytest.approx(0.75 * explanation.metrics["L3OCC"])
    total = sum(part for parts in explanation.by_competitor.values() for part in parts.values())
    assert total + explanation.unattributed_mpps == pytest.approx(explanation.loss_mpps)
    assert Explanation.from_dict(explanation.to_dict()) == explanation


def test_the_number_of_neighbours_is_a_cause() -> None:
    """What reads the number of neighbours loses by it, under memory bandwidth, and each neighbour has its part."""
    own = {"lpm": np.array([10.0, 1.0]), "vpn": np.array([10.0, 3.0])}
    parts = explain(lambda rows: 5.0 - rows @ np.array([0.05, 0.1]), ("L2MISS", "neighbours"), np.array([20.0, 4.0]),
                    solo_mpps=5.0, own_values=own)  # fmt: skip
    assert parts.groups == pytest.approx({"cache": 1.0, "memory bandwidth": 0.4})
    assert parts.loss_mpps == pytest.approx(1.4)
    assert parts.by_competitor["vpn"]["memory bandwidth"] == pytest.approx(0.3)
