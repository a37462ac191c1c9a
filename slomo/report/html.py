"""Make a report as one self-contained HTML file: headline, text, tables, and figures as inline SVG with text.

The file can be attached to a mail or a bug report. It needs no network, follows a browser's light or dark mode, and is
legible on a phone and on paper.
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from slomo.report.tables import Table
from slomo.vocabulary.display import cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure


#: Least scale of a figure: its text of 9 points or more is then 8.4 pixels in a browser.
_LEAST_SCALE, _PX_PER_INCH = 0.7, 96


@dataclass(frozen=True)
class Fact:
    """One number in a report's headline."""

    #: The number with its unit.
    value: str
    #: Its meaning in a few words.
    meaning: str
    #: One sentence of detail.
    detail: str = ""


@dataclass(frozen=True)
class Section:
    """One section of a report: heading, text, table, figure."""

    #: Heading.
    title: str
    #: One paragraph of plain text; HTML in it is shown, not obeyed.
    text: str = ""
    #: Shown under the text.
    table: Table | None = None
    #: Shown under the table.
    figure: "Figure | None" = None
    #: What the figure shows, for readers who cannot see it.
    alternative: str = ""

    @property
    def image(self) -> str | None:
        """The section's figure as a ``data:`` URL; None if it has no figure."""
        if self.figure is None:
            return None
        return f"data:image/svg+xml;base64,{base64.b64encode(svg_bytes(self.figure)).decode()}"

    @property
    def least_width_px(self) -> int:
        """Width below which the figure scrolls instead of shrinking further, so that its text stays legible [px]."""
        return 0 if self.figure is None else round(_LEAST_SCALE * _PX_PER_INCH * self.figure.get_figwidth())

    def _repr_html_(self) -> str:
        return _render("section.html.j2", section=self)


def svg_bytes(figure: "Figure") -> bytes:
    """Return a figure as SVG whose text can be searched; equal figures give equal bytes."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "slomo", "font.family": "sans-serif"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def render_html(
    title: str, sections: Sequence[Section], *, headline: Sequence[Fact] = (), lead: str = "", footer: str = ""
) -> str:
    """Return a report as one HTML page that needs no other file.

    `headline` are the numbers to read first, above all sections; `lead` stands under the title; `footer` says how
    the report was made.

    >>> "&lt;script&gt;" in render_html("A <script> title", [])
    True
    """
    return _render("report.html.j2", title=title, lead=lead, headline=headline, sections=sections, footer=footer)


def _render(template: str, **values: object) -> str:
    from jinja2 import Environment, FunctionLoader

    folder = files("slomo.report")
    loader = FunctionLoader(lambda name: folder.joinpath(name).read_text(encoding="utf-8"))
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cell"] = cell
    environment.tests["numeric"] = lambda value: isinstance(value, (int, float))
    return environment.get_template(template).render(**values)
