"""Draw figures as SVG, with their numbers as text for screen readers; the style sheet has the colours."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from slomo.service.page.frame import number
from slomo.service.page.markup import Markup, tag
from slomo.service.servers import RunningNF
from slomo.units import plural

#: Width of a bar in drawing units at 100 % of solo throughput.
_FULL = 200.0


def interval_bar(item: RunningNF, observed_mpps: float | None = None) -> Markup:
    """Draw a predicted throughput with its interval, the promise (triangle) and what was observed (circle)."""
    mpps, low, high = item.predicted_mpps or 0.0, item.low_mpps or 0.0, item.high_mpps or item.predicted_mpps or 0.0
    solo = item.solo_mpps or max(high, item.needed_mpps, 1e-12)

    def at(value: float) -> float:
        return round(_FULL * min(max(value / solo, 0.0), 1.05), 2)

    title = f"{number(mpps)} Mpps, between {number(low)} and {number(high)}, alone {number(solo)}"
    parts: list[Markup] = [tag("rect", x=0, y=11, width=_FULL, height=4, class_="track")]
    for share_, text in ((0.0, "0"), (0.5, "50"), (1.0, "100 %")):
        x = _FULL * share_
        parts += [tag("line", x1=x, x2=x, y1=9, y2=22, class_="tick"),
                  tag("text", text, x=x, y=31, class_="tick-text", text_anchor="middle")]  # fmt: skip
    parts.append(tag("rect", x=at(low), y=8, width=max(at(high) - at(low), 1.5), height=10, class_="range"))
    parts.append(tag("rect", x=at(mpps) - 1, y=6, width=2.5, height=14, class_="value"))
    if item.needed_mpps > 0.0:
        title += f", promised {number(item.needed_mpps)}"
        x = at(item.needed_mpps)
        parts.append(tag("path", d=f"M{x - 4} 0 L{x + 4} 0 L{x} 6 Z", class_="promise"))
        parts.append(tag("line", x1=x, x2=x, y1=0, y2=21, class_="promise"))
    if observed_mpps is not None:
        title += f", observed {number(observed_mpps)}"
        parts.append(tag("circle", cx=at(observed_mpps), cy=13, r=3.5, class_="observed"))
    return tag("svg", parts, viewBox="-8 0 232 33", role="img", aria_label=title, class_="bar", focusable="false")


#: Half the height of a line of ratios, which stands for 20 % [px].
_HALF = 20.0


def ratio_line(ratios: Sequence[float]) -> Markup:
    """Draw deviations of measured from predicted throughput, oldest left; the scale is -20 to +20 %."""
    shown = list(ratios)[-60:]
    points = " ".join(
        f"{'M' if not place else 'L'}{4 * place} {round(_HALF - 5.0 * _HALF * max(-0.2, min(0.2, ratio - 1.0)), 1)}"
        for place, ratio in enumerate(shown)
    )
    last = f"the last {100.0 * (shown[-1] - 1.0):+.1f} %" if shown else ""
    title = f"observed against predicted, {plural(len(shown), 'outcome')}, {last}" if shown else "no outcomes"
    lines = [tag("line", x1=0, x2=240, y1=y, y2=y, class_="track-line") for y in (0.5, _HALF, 2 * _HALF - 0.5)]
    labels = [
        tag("text", text, x=244, y=y, class_="tick-text")
        for text, y in (("+20 %", 9), ("0", _HALF + 3), ("-20 %", 2 * _HALF - 1))
    ]
    parts = [*lines, *labels, tag("path", d=points, class_="trace")]
    return tag("svg", parts, viewBox="0 0 280 40", role="img", aria_label=title, class_="spark", focusable="false")


@dataclass(frozen=True)
class ChartLine:
    """One line of a chart."""

    #: Text in the legend.
    name: str
    #: CSS class of the line's colour and dashes.
    kind: str
    #: Times [s since 1970] and values; None for a missing value.
    points: Sequence[tuple[float, float | None]]


#: Width and height of a chart's plot in drawing units; it is stretched to the page.
_WIDE, _HIGH = 1000.0, 100.0


def time_chart(
    caption: str, unit: str, window: dict[str, Any], scale: tuple[float, float] | None, series: Sequence[ChartLine]
) -> Markup:
    """Draw lines over time; the window has `start_s`, `end_s` and `every_s`; by default the scale fits the values."""
    values = [value for line in series for _, value in line.points if value is not None]
    low, high = scale or _scale(values)
    start_s, end_s = window["start_s"], window["end_s"]

    def path(line: ChartLine) -> str:
        parts, before_s = [], -math.inf
        for at_s, value in line.points:
            if value is None:
                before_s = -math.inf
                continue
            x = _WIDE * (at_s - start_s) / (end_s - start_s)
            y = _HIGH * (1.0 - (min(max(value, low), high) - low) / (high - low))
            begins = at_s - before_s > 3.0 * window["every_s"]  # a gap: the service was down
            parts.append(f"{'M' if begins else 'L'}{x:.1f} {y:.1f}{f' h{_WIDE / 250:g}' if begins else ''}")
            before_s = at_s
        return " ".join(parts)

    marks = [tag("line", x1=0, x2=_WIDE, y1=_HIGH * share_, y2=_HIGH * share_, class_="track-line")
             for share_ in (0.0, 0.5, 1.0)]  # fmt: skip
    if low < 0.0 < high:
        zero = _HIGH * high / (high - low)
        marks.append(tag("line", x1=0, x2=_WIDE, y1=zero, y2=zero, class_="zero-line"))
    lines = [tag("path", d=path(line), class_=f"time-line {line.kind}") for line in series]
    title = f"{caption}: {'; '.join(_told(line, unit) for line in series)}"
    plot = tag("svg", marks, lines, viewBox=f"0 -2 {_WIDE:g} {_HIGH + 4:g}", preserveAspectRatio="none", role="img",
               aria_label=title, class_="plot", focusable="false")  # fmt: skip
    ends = [tag("span", f"{number(value)} {unit}".strip()) for value in (high, 0.5 * (low + high), low)]
    moments = [datetime.fromtimestamp(at_s, UTC) for at_s in (start_s, 0.5 * (start_s + end_s), end_s)]
    times = [tag("span", at.strftime("%H:%M")) for at in moments]
    return tag(
        "figure",
        tag(
            "figcaption",
            tag("h2", caption),
            tag(
                "ul",
                [tag("li", tag("span", class_=f"key {line.kind}", aria_hidden="true"), line.name) for line in series],
                class_="keys",
            ),
        ),
        tag("div", ends, class_="axis-y", aria_hidden="true"),
        plot,
        tag("div", times, class_="axis-x", aria_hidden="true"),
        class_="chart",
    )


def _scale(values: Sequence[float]) -> tuple[float, float]:
    """Return round numbers as the ends of an axis that includes all values and 0.

    >>> _scale([3.0, 47.0]), _scale([-12.0, 4.0]), _scale([])
    ((0.0, 50.0), (-20.0, 10.0), (0.0, 1.0))
    """
    low, high = min(values, default=0.0), max(values, default=0.0)
    if max(high, -low) < 1e-9:
        return 0.0, 1.0
    step = 10.0 ** math.floor(math.log10(max(high, -low)))
    return min(0.0, step * math.floor(low / step)), max(0.0, step * math.ceil(high / step))


def _told(line: ChartLine, unit: str) -> str:
    values = [value for _, value in line.points if value is not None]
    if not values:
        return f"{line.name} not known"
    last, low, high = (f"{number(value)} {unit}".strip() for value in (values[-1], min(values), max(values)))
    return f"{line.name} {last} now, from {low} to {high}"
