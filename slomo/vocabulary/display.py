"""How values show themselves in a notebook: one HTML table for all, in which every text is escaped.

Names come from files that others wrote (datasets, models, requests); none of them may become markup.
"""

from collections.abc import Iterable, Sequence
from html import escape

#: Rows a table shows at most; the rest is counted.
MOST_ROWS = 30


def html_table(caption: str, head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table, its first column the name of the row.

    Examples
    --------
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
