"""Figures as SVG, with their numbers as text for screen readers; colours are in the style sheet."""

from collections.abc import Sequence

from slomo.service.page.frame import number
from slomo.service.page.markup import Markup, tag
from slomo.service.servers import RunningNF

#: Width of a bar in drawing units at 100 % of solo throughput.
_FULL = 200.0


def interval_bar(item: RunningNF, observed_mpps: float | None = None) -> Markup:
    """Draw a predicted throughput with its interval, on a scale from 0 to 100 % of solo throughput.

    A triangle marks the promise, a circle the observation; ticks are at 0, 50 and 100 %.
    """
    mpps, low, high = item.predicted_mpps or 0.0, item.low_mpps or 0.0, item.high_mpps or item.predicted_mpps or 0.0
    solo = item.solo_mpps or max(high, item.needed_mpps, 1e-12)

    def at(value: float) -> float:
        return round(_FULL * min(max(value / solo, 0.0), 1.05), 2)

    said = f"{number(mpps)} Mpps, between {number(low)} and {number(high)}, alone {number(solo)}"
    parts: list[Markup] = [tag("rect", x=0, y=11, width=_FULL, height=4, class_="track")]
    for share_, text in ((0.0, "0"), (0.5, "50"), (1.0, "100 %")):
        x = _FULL * share_
        parts += [tag("line", x1=x, x2=x, y1=9, y2=22, class_="tick"),
                  tag("text", text, x=x, y=31, class_="tick-text", text_anchor="middle")]  # fmt: skip
    parts.append(tag("rect", x=at(low), y=8, width=max(at(high) - at(low), 1.5), height=10, class_="range"))
    parts.append(tag("rect", x=at(mpps) - 1, y=6, width=2.5, height=14, class_="value"))
    if item.needed_mpps > 0.0:
        said += f", promised {number(item.needed_mpps)}"
        x = at(item.needed_mpps)
        parts.append(tag("path", d=f"M{x - 4} 0 L{x + 4} 0 L{x} 6 Z", class_="promise"))
        parts.append(tag("line", x1=x, x2=x, y1=0, y2=21, class_="promise"))
    if observed_mpps is not None:
        said += f", observed {number(observed_mpps)}"
        parts.append(tag("circle", cx=at(observed_mpps), cy=13, r=3.5, class_="observed"))
    return tag("svg", parts, viewBox="-8 0 232 33", role="img", aria_label=said, class_="bar", focusable="false")


#: Half the height of a line of ratios, for 20 % [px].
_HALF = 20.0


def ratio_line(ratios: Sequence[float]) -> Markup:
    """Draw the ratios of outcomes to predictions, oldest left, from -20 to +20 %; the middle line is 0."""
    shown = list(ratios)[-60:]
    points = " ".join(
        f"{'M' if not place else 'L'}{4 * place} {round(_HALF - 5.0 * _HALF * max(-0.2, min(0.2, ratio - 1.0)), 1)}"
        for place, ratio in enumerate(shown)
    )
    last = f"the last {100.0 * (shown[-1] - 1.0):+.1f} %" if shown else ""
    said = f"observed against predicted, {len(shown)} outcomes, {last}" if shown else "no outcomes"
    lines = [tag("line", x1=0, x2=240, y1=y, y2=y, class_="track-line") for y in (0.5, _HALF, 2 * _HALF - 0.5)]
    labels = [
        tag("text", text, x=244, y=y, class_="tick-text")
        for text, y in (("+20 %", 9), ("0", _HALF + 3), ("-20 %", 2 * _HALF - 1))
    ]
    parts = [*lines, *labels, tag("path", d=points, class_="trace")]
    return tag("svg", parts, viewBox="0 0 280 40", role="img", aria_label=said, class_="spark", focusable="false")
