"""Build HTML by functions that escape all text that is not marked as markup.

Callers choose the names of network functions, servers and requests. Since text is escaped, no name can become markup;
the content security policy would not run it either.
"""

from collections.abc import Iterable
from html import escape
from typing import Any


class Markup(str):
    """Text that is already HTML and is not escaped."""

    __slots__ = ()


#: HTML elements without an end tag, and SVG elements that close themselves.
_EMPTY, _CLOSED = frozenset({"input", "link", "meta", "br"}), frozenset({"rect", "line", "path", "circle"})


def tag(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """Return an HTML element.

    `name`: name of the element. `*children`: text is escaped, :class:`Markup` is not, None is left out. `**attributes`:
    in names, trailing underscores are removed and others become dashes; None and False omit the attribute, True gives
    it no value.

    >>> tag("a", "<b>", href="/x?a=1&b=2", class_="k")
    '<a href="/x?a=1&amp;b=2" class="k">&lt;b&gt;</a>'
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        parts.append(f" {label}" if value is True else f' {label}="{escape(str(value))}"')
    parts.append("/>" if name in _CLOSED else ">")
    if name in _EMPTY or name in _CLOSED:
        return Markup("".join(parts))
    return Markup("".join(parts) + joined(children) + f"</{name}>")


def joined(children: Iterable[Any]) -> Markup:
    """Return child elements one after the other."""
    return Markup("".join(_text(child) for child in children))


def _text(child: Any) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, (list, tuple)):
        return joined(child)
    return escape(str(child))


#: Largest number of columns for which a table's rows become cards on a phone; wider tables scroll.
CARDS = 8


def table(caption: str, headers: Iterable[str], rows: Iterable[Iterable[Any]]) -> Markup:
    """Return a table whose first column names its rows; on a phone each row is a card with labelled cells.

    A table that is still too wide scrolls within its own area. ARIA roles are explicit, since some screen readers do
    not recognise cards as a table.
    """
    _, *columns = names = list(headers)
    head = tag("tr", [tag("th", name, scope="col", role="columnheader") for name in names], role="row")
    body = []
    for first, *rest in rows:
        cells = [tag("td", cell, data_label=name, role="cell") for name, cell in zip(columns, rest, strict=True)]
        body.append(tag("tr", tag("th", first, scope="row", role="rowheader"), cells, role="row"))
    parts = tag("thead", head, role="rowgroup"), tag("tbody", body, role="rowgroup")
    inner = tag("table", tag("caption", caption), *parts, role="table", class_="cards" if len(names) <= CARDS else None)
    return tag("div", inner, class_="wide", role="region", aria_label=caption, tabindex="0")
