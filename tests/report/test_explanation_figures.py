"""The waterfall shows every step of a loss, and refuses a prediction without an explanation."""

import dataclasses

import pytest

from slomo.errors import InvalidValueError
from slomo.models.applicability import Verdict
from slomo.prediction.explanation import Explanation
from slomo.prediction.result import Prediction
from slomo.report.explanation_figures import waterfall
from slomo.report.html import svg_bytes
from slomo.vocabulary.workload import Workload

WHY = Explanation(
    1.0,
    {"L3OCC": 0.5, "READ": 0.3, "accelerator regex": 0.1},
    0.1,
    {
        "stats": {"L3OCC": 0.4, "READ": 0.1, "accelerator regex": 0.1},
        "vpn": {"L3OCC": 0.1, "READ": 0.2, "accelerator regex": 0.0},
    },
)
FOUND = Prediction(
    Workload("lpm"),
    (Workload("stats"), Workload("stats"), Workload("vpn")),
    "silver-4110",
    "slomo-xgb",
    5.0,
    4.0,
    (3.8, 4.2),
    0.9,
    Verdict.SUPPORTED,
    (),
    WHY,
)


def bars(figure):
    """Return label of the place -> bars drawn there, as (top, height)."""
    axes = figure.axes[0]
    labels = [text.get_text().replace("\n", " ") for text in axes.get_xticklabels()]
    bars_by_label = {label: [] for label in labels}
    for bar in axes.patches:
        bars_by_label[labels[round(bar.get_x() + bar.get_width() / 2)]].append((bar.get_y(), bar.get_height()))
    return bars_by_label


def test_steps_lead_from_alone_to_predicted():
    """Each resource takes its part, divided by competitor, from where the one before ended."""
    drawn = bars(waterfall(FOUND))
    assert list(drawn) == ["alone", "cache", "memory bandwidth", "accelerator", "not attributed", "predicted"]
    assert [height for _, height in drawn["cache"]] == pytest.approx([-0.4, -0.1])
    assert drawn["accelerator"] == [(pytest.approx(4.2), pytest.approx(-0.1))]
    assert drawn["not attributed"][0][0] + drawn["not attributed"][0][1] == pytest.approx(4.0)
    assert drawn["predicted"][0][1] == pytest.approx(4.0)


def test_title_and_legend_name_everybody():
    """The title counts instances, the legend has one entry per competitor."""
    axes = waterfall(FOUND).axes[0]
    assert axes.get_title(loc="left") == "lpm beside 2 x stats + vpn"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["stats", "vpn"]
    assert b">lpm beside 2 x stats + vpn</text>" in svg_bytes(waterfall(FOUND))


def test_a_given_vector_has_no_legend():
    """Where competitors are known by their vector only, steps are not divided."""
    plain = dataclasses.replace(FOUND, competitors=(), explanation=Explanation(1.0, {"L3OCC": 1.0}, 0.0))
    figure = waterfall(plain)
    assert figure.axes[0].get_legend() is None
    assert [height for _, height in bars(figure)["cache"]] == pytest.approx([-1.0])


def test_nothing_to_draw_is_an_error():
    """A prediction without explanation is refused."""
    with pytest.raises(InvalidValueError, match="no explanation"):
        waterfall(dataclasses.replace(FOUND, explanation=None))
