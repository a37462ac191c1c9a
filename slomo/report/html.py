"""A report as one HTML file that needs nothing else: text, tables, and figures inside it as base64 images.

It opens from a mail or a bug report, without a network, in a light or dark browser.
"""

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from slomo.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Section:
    """One section of a report.

    Attributes
    ----------
    title : str
        Heading.
    text : str
        One paragraph of plain text; HTML in it is shown, not obeyed.
    table : Table or None
        Shown under the text.
    figure : matplotlib Figure or None
        Shown under the table.
    alternative : str
        What the figure shows, for readers who cannot see it.
    """

    title: str
    text: str = ""
    table: Table | None = None
    figure: "Figure | None" = None
    alternative: str = ""

    @property
    def image(self) -> str | None:
        """The figure as a ``data:`` address, or None."""
        return (
            None
            if self.figure is None
            else f"data:image/png;base64,{base64.b64encode(png_bytes(self.figure)).decode()}"
        )

    def _repr_html_(self) -> str:
        return _render("section.html.j2", section=self)


def png_bytes(figure: "Figure") -> bytes:
    """Return the figure as PNG, the same bytes for the same figure.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> png_bytes(Figure(figsize=(1, 1)))[1:4]
    b'PNG'
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def render_html(title: str, sections: Sequence[Section], *, lead: str = "", footer: str = "") -> str:
    """Return a self-contained HTML page.

    Parameters
    ----------
    title : str
        Title of the page.
    sections : sequence of Section
        In order.
    lead : str
        Sentence under the title.
    footer : str
        Last line: how the report was made.

    Examples
    --------
    >>> "&lt;script&gt;" in render_html("A <script> title", [])
    True
    """
    return _render("report.html.j2", title=title, lead=lead, sections=sections, footer=footer)


def _render(template: str, **values: object) -> str:
    from jinja2 import Environment, FunctionLoader

    folder = files("slomo.report")
    loader = FunctionLoader(lambda name: folder.joinpath(name).read_text(encoding="utf-8"))
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cell"] = _cell
    environment.tests["numeric"] = lambda value: isinstance(value, (int, float))
    return environment.get_template(template).render(**values)


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
