"""Figures as SVG, with their numbers as text for those who do not see them; colours come from the style sheet."""

from collections.abc import Sequence

from slomo.service.page.frame import number
from slomo.service.page.markup import Markup, tag


def interval_bar(low: float, mpps: float, high: float, needed: float, solo: float) -> Markup:
    """Draw a predicted throughput with its interval on a line from 0 to the throughput alone; a mark is the promise."""
    scale = 200.0 / max(solo, high, needed, 1e-12)
    said = f"{number(mpps)} Mpps, between {number(low)} and {number(high)}, alone {number(solo)}"
    if needed > 0.0:
        said += f", promised {number(needed)}"
    parts = [
        tag("rect", x=0, y=9, width=round(solo * scale, 2), height=6, class_="track"),
        tag("rect", x=round(low * scale, 2), y=5, width=max(round((high - low) * scale, 2), 1.5), height=14,
            class_="range"),
        tag("rect", x=round(mpps * scale - 1, 2), y=3, width=2.5, height=18, class_="value"),
    ]  # fmt: skip
    if needed > 0.0:
        x = round(needed * scale, 2)
        parts.append(tag("path", d=f"M{x - 4} 0 L{x + 4} 0 L{x} 6 Z", class_="promise"))
        parts.append(tag("line", x1=x, x2=x, y1=0, y2=24, class_="promise"))
    return tag("svg", parts, viewBox="-5 0 212 24", role="img", aria_label=said, class_="bar", focusable="false")


def ratio_line(ratios: Sequence[float]) -> Markup:
    """Draw observed over predicted throughput, oldest left; the middle line is a prediction that held."""
    shown = list(ratios)[-60:]
    points = " ".join(
        f"{'M' if not place else 'L'}{4 * place} {round(20 - 20 * max(-1.0, min(1.0, ratio - 1.0)), 1)}"
        for place, ratio in enumerate(shown)
    )
    said = f"observed over predicted, {len(shown)} outcomes, the last {number(shown[-1])}" if shown else "no outcomes"
    parts = [tag("line", x1=0, x2=240, y1=20, y2=20, class_="track-line"), tag("path", d=points, class_="trace")]
    return tag("svg", parts, viewBox="0 0 244 40", role="img", aria_label=said, class_="spark", focusable="false")
