"""Show results as tables (text, HTML, data frames) and drawings.

Names come from files of others (datasets, models, requests) and must not become markup. pandas and matplotlib are
imported on first use; predicting needs neither.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from slomo.extras import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes  # others take the names from here
    from pandas import DataFrame as DataFrame

#: Largest number of table rows shown; the rest is counted.
MOST_ROWS = 30


def cell(value: object, missing: str = "–") -> str:
    """Return the text of one table cell.

    >>> cell(None), cell(0.5), cell(7)
    ('–', '0.50', '7')
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return missing
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def short(value: object) -> object:
    """Return a table's entry for people: three digits of a number, a dash for nothing."""
    return f"{value:.3g}" if isinstance(value, float) else "–" if value is None else value


def html_table(caption: str, head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table whose first column names the rows.

    >>> html_table("servers", ("name", "cores"), [("<b>a</b>", 8)])
    "<table><caption>servers</caption><tr><th>name</th><th>cores</th></tr><tr><th ...>&lt;b&gt;a&lt;/b&gt;</th>..."
    """
    listed = list(rows)
    names = "".join(f"<th>{escape(str(name))}</th>" for name in head)
    body = "".join(_row(*row) for row in listed[:MOST_ROWS])
    if len(listed) > MOST_ROWS:
        body += _row(f"and {len(listed) - MOST_ROWS} more")
    return f"<table><caption>{escape(caption)}</caption>{f'<tr>{names}</tr>' if names else ''}{body}</table>"


def _row(name: object, *values: object) -> str:
    cells = "".join(f"<td>{escape(str(value))}</td>" for value in values)
    return f"<tr><th style='text-align:left'>{escape(str(name))}</th>{cells}</tr>"


def frame_of(columns: Mapping[str, Sequence[Any]]) -> "DataFrame":
    """Return columns as a data frame; MissingExtraError without pandas."""
    need("pandas")
    frame: DataFrame = import_module("pandas").DataFrame(dict(columns))
    return frame


class Result:
    """Base class of results that contain throughputs and can be shown as a table or drawn."""

    @abstractmethod
    def columns(self) -> Mapping[str, Sequence[Any]]:
        """Return the result as columns of equal length, one entry per throughput."""

    @abstractmethod
    def row_labels(self) -> Sequence[str]:
        """Return the label of each entry, for the axis of a drawing."""

    def to_frame(self) -> "DataFrame":
        """Return the result as a data frame, one row per throughput; MissingExtraError without pandas."""
        return frame_of(self.columns())

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw throughputs with intervals, beside solo and promised throughputs.

        `ax`: axes to draw on; new ones by default. Raises MissingExtraError without matplotlib.

        Returned are the axes drawn on.
        """
        return drawn("throughputs", self.columns(), self.row_labels(), ax)

    def _repr_html_(self) -> str:
        columns = self.columns()
        rows = zip(*(map(short, values) for values in columns.values()), strict=True)
        return html_table(repr(self), tuple(columns), rows)


def drawn(drawing: str, *arguments: object) -> "Axes":
    """Return the axes that a function of `slomo.report.results`, found by its name, has drawn.

    Raises MissingExtraError without matplotlib.
    """
    need("matplotlib")
    axes: Axes = getattr(import_module("slomo.report.results"), drawing)(*arguments)
    return axes
