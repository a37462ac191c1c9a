"""Page with charts of the cluster over time: shares of solo throughput, headroom above promises, decisions."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from slomo.service.page.figures import ChartLine, time_chart
from slomo.service.page.frame import share
from slomo.service.page.markup import Markup, joined, table, tag

#: Lengths of time windows to choose from [h].
HOURS = (1, 6, 24)
#: Largest number of rows of the table.
MOST_ROWS = 48


def history_content(history: dict[str, Any], rows: list[dict[str, Any]], hours: int, every_s: float) -> Markup:
    """Return the content of the history page: `history` by `History.told`, and fewer `rows` of it for the table."""
    links = [
        tag("a", f"{item} h", href=f"/history?hours={item}", aria_current="true" if item == hours else None)
        for item in HOURS
    ]
    choose = tag("nav", tag("ul", [tag("li", link) for link in links]), aria_label="Length of time", class_="windows")
    if not history["points"]:
        text = (
            f"Nothing was kept in this time. While servers are known, a point is taken every {every_s:.0f} s and kept "
            "for a day: shares, headroom, promises and decisions appear here."
        )
        hint = tag("p", "Add servers, or watch a cluster of Kubernetes: see ", tag("a", "Cluster", href="/"), ".")
        return joined([choose, tag("div", tag("p", text, class_="lead"), hint, data_live="charts")])
    charts = tag("div", _charts(history), class_="charts", data_live="charts")
    columns = ("Time (UTC)", "Lowest share", "Median share", "Least headroom", "Promises kept", "May break",
               "Not judged", "Decisions")  # fmt: skip
    cells = [_row(item) for item in reversed(rows)]
    numbers = tag("div", table("The cluster over time", columns, cells), data_live="numbers")
    return joined([choose, charts, tag("details", tag("summary", "The same as a table"), numbers)])


def _charts(history: dict[str, Any]) -> list[Markup]:
    points = history["points"]

    def line(name: str, key: str, kind: str, factor: float = 1.0) -> ChartLine:
        values = [(item["at_s"], None if item[key] is None else factor * item[key]) for item in points]
        return ChartLine(name, kind, values)

    return [
        time_chart("Share of the throughput alone that is predicted", "%", history, (0.0, 100.0),
                   [line("lowest", "least_share", "first", 100.0), line("median", "median_share", "second", 100.0)]),
        time_chart("Least headroom above a promise", "%", history, None,
                   [line("headroom", "least_headroom", "first", 100.0)]),
        time_chart("Promises", "", history, None,
                   [line("kept", "kept", "first"), line("may break", "broken", "bad"),
                    line("not judged", "unjudged", "third")]),
        time_chart("Decisions", "", history, None,
                   [line("accepted", "accepted", "first"), line("refused", "refused", "bad")]),
    ]  # fmt: skip


def _row(item: dict[str, Any]) -> list[str]:
    at = datetime.fromtimestamp(item["at_s"], UTC).strftime("%Y-%m-%d %H:%M:%S")
    percent: Callable[[float | None], str] = lambda value: "-" if value is None else share(value)  # noqa: E731
    counts = [str(item[name]) for name in ("kept", "broken", "unjudged")]
    shares = [percent(item[name]) for name in ("least_share", "median_share", "least_headroom")]
    return [at, *shares, *counts, f"{item['accepted'] + item['refused']}, {item['refused']} refused"]
