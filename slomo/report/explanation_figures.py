"""Draw a prediction as a waterfall: from solo throughput, resource by resource, to throughput beside others.

The figure has one step per resource, divided by competitor, like SHAP's waterfall plots (Lundberg and Lee, NeurIPS'17).
SLOMO (SIGCOMM'20) asks which metric explains a slowdown.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from slomo.errors import InvalidValueError
from slomo.prediction.result import Prediction, label
from slomo.report.figures import COLOURS, axes_of
from slomo.vocabulary.workload_text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_INK, _GREY, _UNKNOWN = "#222222", "#5B6470", "#B8BEC6"
_HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo")
#: Share of solo throughput below which a step is too thin for a number inside it.
_THIN = 0.004


def waterfall(prediction: Prediction, *, ax: "Axes | None" = None) -> "Figure":
    r"""Draw how much of a predicted loss each resource causes, as a waterfall.

    `prediction`: with an explanation. `ax`: where to draw; a figure of its own by default. Raises InvalidValueError for
    a prediction without explanation.

    >>> from slomo.models.applicability import Verdict
    >>> from slomo.prediction.explanation import Explanation
    >>> from slomo.prediction.result import Prediction
    >>> from slomo.vocabulary.workload import Workload
    >>> why = Explanation(1.0, {"L3OCC": 0.7, "READ": 0.3}, 0.0, {"stats": {"L3OCC": 0.7, "READ": 0.3}})
    >>> lpm, stats = Workload("lpm"), Workload("stats")
    >>> p = Prediction(lpm, (stats,), "silver-4110", "slomo-gbr", 5.0, 4.0, (3.8, 4.2), 0.9, Verdict.SUPPORTED, (), why)
    >>> [text.get_text() for text in waterfall(p).axes[0].get_xticklabels()]
    ['alone', 'cache', 'memory\nbandwidth', 'predicted']
    """
    why = prediction.explanation
    if why is None:
        raise InvalidValueError("this prediction has no explanation to draw", hint="predict with explain=True")
    groups = {group: part for group, part in why.groups.items() if part}
    steps: dict[str, Mapping[str, float]] = {}
    for group, part in groups.items():
        shares = {name: parts[group] for name, parts in why.by_competitor.items() if parts.get(group)}
        steps[group] = shares or {"": part}
    if abs(why.unattributed_mpps) >= _THIN * prediction.solo_mpps:
        steps["not\nattributed"] = {"": why.unattributed_mpps}
    names = list(why.by_competitor)
    figure, axes = axes_of(_title(prediction), "", "throughput [Mpps]", (1.4 + 0.85 * (len(steps) + 2), 4.2), ax)
    level = _steps(axes, steps, names, prediction.solo_mpps)
    _ends(axes, prediction, len(steps) + 1)
    _labels(axes, prediction, steps, names, level)
    return figure


def _title(prediction: Prediction) -> str:
    beside = counted(map(label, prediction.competitors)) or "a given vector"
    return f"{label(prediction.target)} beside {beside if len(beside) < 60 else f'{len(prediction.competitors)} NFs'}"


def _steps(axes: "Axes", steps: Mapping[str, Mapping[str, float]], names: list[str], solo_mpps: float) -> float:
    """Draw one hanging bar per resource, divided by competitor; return the lowest level reached."""
    level = lowest = solo_mpps
    for place, shares in enumerate(steps.values(), start=1):
        begin = level
        for name, part in shares.items():
            index = names.index(name) if name else None
            axes.bar(
                place,
                -part,
                bottom=level,
                width=0.62,
                color=_UNKNOWN if index is None else COLOURS[index % len(COLOURS)],
                hatch="" if index is None else _HATCHES[index // len(COLOURS) % len(_HATCHES)],
                edgecolor="white",
                linewidth=0.8,
                zorder=3,
            )
            level -= part
        lowest = min(lowest, level, begin)
        total = begin - level
        _write_above(axes, f"{-total:z.3f}\n({-100 * total / solo_mpps:z.1f} %)", (place, max(begin, level)))
        axes.plot([place - 0.31, place + 1.31], [level, level], color=_GREY, linewidth=0.8, linestyle=":", zorder=2)
    axes.plot([-0.31, 1.31], [solo_mpps, solo_mpps], color=_GREY, linewidth=0.8, linestyle=":", zorder=2)
    return lowest


def _ends(axes: "Axes", prediction: Prediction, last: int) -> None:
    """Draw the first and last bar: solo throughput, and predicted throughput with its interval."""
    axes.bar([0, last], [prediction.solo_mpps, prediction.throughput_mpps], width=0.62, color=_GREY, zorder=3)
    low, high = prediction.interval
    middle = prediction.throughput_mpps
    whisker = [[max(middle - low, 0.0)], [max(high - middle, 0.0)]]
    axes.errorbar([last], [middle], yerr=whisker, color=_INK, capsize=5, linewidth=1.4, zorder=4)
    for place, value in ((0, prediction.solo_mpps), (last, max(high, middle))):
        share = -100 * prediction.slowdown
        text = f"{prediction.solo_mpps:.3f}" if place == 0 else f"{middle:.3f}\n({share:z.1f} %)"
        _write_above(axes, text, (place, value))


def _write_above(axes: "Axes", text: str, place: tuple[float, float]) -> None:
    axes.annotate(text, place, xytext=(0, 4), textcoords="offset points", ha="center", fontsize=9, color=_INK)


def _labels(axes: "Axes", prediction: Prediction, steps: Mapping[str, object], names: list[str], lowest: float) -> None:
    axes.set_xticks(
        range(len(steps) + 2), ["alone", *(group.replace(" ", "\n") for group in steps), "predicted"], fontsize=9
    )
    axes.grid(visible=False, axis="x")
    bottom = min(lowest, prediction.interval[0], prediction.throughput_mpps)
    span = max(prediction.solo_mpps - bottom, 0.02 * prediction.solo_mpps)
    # a loss of a few percent would be invisible on an axis from zero; the axis label states the break
    floor = max(0.0, bottom - 0.6 * span)
    axes.set_ylim(floor, max(prediction.solo_mpps, prediction.interval[1]) + 0.28 * span)
    if floor > 0.0:
        axes.set_ylabel("throughput [Mpps], axis not from 0", color=_INK)
    if names:
        from matplotlib.patches import Patch

        patches = [
            Patch(
                facecolor=COLOURS[index % len(COLOURS)],
                hatch=_HATCHES[index // len(COLOURS) % len(_HATCHES)],
                edgecolor="white",
                label=name if len(name) < 40 else f"{name[:37]}...",
            )
            for index, name in enumerate(names)
        ]
        axes.legend(
            handles=patches,
            title="because of",
            fontsize=9,
            frameon=False,
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
        )
