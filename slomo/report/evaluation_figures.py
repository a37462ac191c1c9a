"""Draw how often intervals hold against their stated coverage, and errors over the number of runs.

Reliability diagrams are those of Kuleshov et al. (ICML'18), section 3. Learning curves train all models on equal
numbers of runs.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from slomo.evaluation.baselines import curves_in_better_form
from slomo.report.figures import COLOURS, axes_of, legend_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = "osD^vPX"


def reliability_diagram(observed: Mapping[str, Mapping[float, float]]) -> "Figure":
    """Draw which share of measurements lies inside intervals, over the stated coverage.

    `observed`: model -> nominal -> observed coverage, both 0 to 1.
    """
    title = "Do intervals hold what they promise?"
    figure, axes = axes_of(title, "nominal coverage [%]", "observed coverage [%]", (4.8, 4.6))
    axes.plot([0, 100], [0, 100], color="#767676", linewidth=1, linestyle=":", label="as promised")
    _curves(axes, {name: {100 * at: 100 * share for at, share in each.items()} for name, each in observed.items()})
    axes.set_xlim(0, 101)
    axes.set_ylim(0, 101)
    axes.legend(fontsize=9, frameon=False, loc="upper left")
    return figure


def learning_curves(curves: Mapping[str, Mapping[int, float]]) -> "Figure":
    """Draw the mean error of each model over the number of runs it was trained on.

    `curves`: model -> runs per NF -> mean absolute error of throughput [%].
    """
    names = "What more runs buy", "pressure runs per network function", "mean error of throughput [%]"
    figure, axes = axes_of(*names, (4.8, 4.6))
    _curves(axes, curves_in_better_form(curves))
    axes.set_xscale("log")
    counts = sorted({count for points in curves.values() for count in points})
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    legend_below(axes, columns=2)
    return figure


def _curves(axes: "Axes", curves: Mapping[str, Mapping[Any, float]]) -> None:
    """Draw a named curve through points (x -> y) each, told apart by colour and marker."""
    for index, (name, points) in enumerate(curves.items()):
        style: dict[str, Any] = {"color": COLOURS[index % len(COLOURS)], "marker": _MARKERS[index % len(_MARKERS)]}
        axes.plot(*zip(*sorted(points.items()), strict=True), linewidth=1.8, markersize=5, label=name, **style)
