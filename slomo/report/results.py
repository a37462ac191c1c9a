"""Draw results for their ``.plot(ax)`` methods, which take axes and return them (as scikit-learn's displays do)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from slomo.prediction.result import Prediction
from slomo.report.explanation_figures import waterfall
from slomo.report.figures import COLOURS, styled
from slomo.report.sections import scatter_section, surface_section

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from slomo.evaluation.evaluate import Evaluation
    from slomo.records.dataset import ProfileDataset

#: Largest number of rows in a drawing, the first ones; the axis says so.
MOST_ROWS = 30


def throughputs(columns: Mapping[str, Sequence[Any]], labels: Sequence[str], ax: "Axes | None" = None) -> "Axes":
    """Draw predicted throughputs as bars with intervals; solo throughput as outlines, promises as lines.

    `columns`: ``throughput_mpps``, and where known ``low_mpps``, ``high_mpps``, ``solo_mpps``, and ``needed_mpps`` or
    ``slo_mpps`` [Mpps]; None and NaN where not known. `labels`: one per entry. `ax`: where to draw; new axes by
    default.

    >>> throughputs({"throughput_mpps": [4.0], "low_mpps": [3.8], "high_mpps": [4.2]}, ["lpm"]).get_xlabel()
    'throughput [Mpps]'
    """
    shown = min(len(labels), MOST_ROWS)
    names = ("throughput_mpps", "low_mpps", "high_mpps", "solo_mpps")
    values = {name: _numbers(columns.get(name), shown) for name in names}
    promised = _numbers(columns.get("needed_mpps", columns.get("slo_mpps")), shown)
    predicted, place = values["throughput_mpps"], np.arange(shown)
    axes = ax or _new_axes((4.8, 1.9 + 0.34 * max(shown, 2)))
    cut = "" if shown == len(labels) else f", first {shown} of {len(labels)}"
    styled(axes, "", f"throughput [Mpps]{cut}", "")
    if np.isfinite(values["solo_mpps"]).any():
        outline: dict[str, Any] = {"facecolor": "none", "edgecolor": "#767676", "linewidth": 1.0}
        axes.barh(place, np.nan_to_num(values["solo_mpps"]), height=0.72, label="alone", **outline)
    axes.barh(place, np.nan_to_num(predicted), height=0.5, color=COLOURS[0], label="predicted")
    known = np.isfinite(predicted + values["low_mpps"] + values["high_mpps"])
    if known.any():
        middle = predicted[known]
        ends = np.abs(np.vstack([values["low_mpps"][known], values["high_mpps"][known]]) - middle)
        style: dict[str, Any] = {"fmt": "none", "ecolor": "#222222", "capsize": 3, "elinewidth": 1.2}
        axes.errorbar(middle, place[known], xerr=ends, label="interval", **style)
    if (promised > 0.0).any():
        there = place[promised > 0.0]
        needs = promised[promised > 0.0]
        axes.vlines(needs, there - 0.42, there + 0.42, color=COLOURS[1], linewidth=2.2, label="promised")
    axes.set_yticks(place, list(labels)[:shown])
    axes.set_ylim(shown - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.legend(fontsize=9, frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, columnspacing=1.0)
    return axes


def loss(prediction: Prediction, ax: "Axes | None" = None) -> "Axes":
    """Draw how much of a predicted loss each resource causes."""
    axes = ax or _new_axes((4.8, 4.2))
    waterfall(prediction, ax=axes)
    return axes


def scatter(evaluation: "Evaluation", model: str, ax: "Axes | None" = None) -> "Axes":
    """Draw predicted over measured slowdown of one model."""
    axes = ax or _new_axes((4.8, 5.4))
    scatter_section(evaluation, model, ax=axes)
    return axes


def surface(dataset: "ProfileDataset", target: str, ax: "Axes | None" = None) -> "Axes":
    """Draw a target's measured slowdown over access rate and occupancy of its competitors."""
    axes = ax or _new_axes((4.8, 3.8))
    surface_section(dataset, target, ax=axes)
    return axes


def _new_axes(size: tuple[float, float]) -> "Axes":
    """Return axes that a notebook shows at the end of a cell."""
    from matplotlib import pyplot

    _, axes = pyplot.subplots(figsize=size, layout="constrained")
    return axes


def _numbers(column: Sequence[Any] | None, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    if column is None:
        return np.full(count, np.nan)
    return np.array([np.nan if value is None else value for value in list(column)[:count]], dtype=float)
