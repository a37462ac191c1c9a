"""Common parts of all pages: head, navigation, and messages about the results of actions."""

from typing import Any

from slomo.service.page.markup import Markup, joined, tag

PAGES = (
    ("/", "Cluster"),
    ("/history", "History"),
    ("/whatif", "What if"),
    ("/jobs", "Jobs"),
    ("/drift", "Drift"),
    ("/receipts", "Receipts"),
)


def page(title: str, here: str, *content: Any, status: str = "") -> bytes:
    """Return a complete HTML page with head and navigation."""
    links = [
        tag("li", tag("a", name, href=path, aria_current="page" if path == here else None)) for path, name in PAGES
    ]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · slomo"),
        tag("link", rel="icon", href="/page.svg", type="image/svg+xml"),
        tag("link", rel="stylesheet", href="/page.css"),
        tag("script", src="/page.js", defer=True),
    )
    body = tag(
        "body",
        tag("a", "Skip to content", href="#content", class_="skip"),
        tag(
            "header",
            tag("a", "slomo", href="/", class_="brand"),
            tag("nav", tag("ul", links), aria_label="Pages"),
            tag("span", status, class_="status"),
        ),
        tag("main", tag("h1", title), joined(content), id="content", tabindex="-1"),
        tag("div", id="said", role="status", aria_live="polite"),
    )
    return ("<!doctype html>" + tag("html", head, body, lang="en")).encode()


def number(value: float, digits: int = 3) -> str:
    """Return a number as text for display.

    >>> number(0.184625), number(5.0), number(20480.0)
    ('0.185', '5', '20,480')
    """
    return f"{value:,.0f}" if abs(value) >= 10.0**digits else f"{value:.{digits}g}"


def share(value: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * value:.0f} %"


def field(label: str, name: str, control: Markup) -> Markup:
    """Return a form control with a label."""
    return tag("p", tag("label", label, for_=name), control, class_="field")


def promise_field(value: str) -> Markup:
    """Return a form control for a promise in percent of solo throughput."""
    control = tag("input", type="number", name="share", id="share", min="0", max="100", value=value or "0",
                  inputmode="numeric")  # fmt: skip
    return field("Promise, % of its throughput alone (0: none)", "share", control)


def question_form(*parts: Any, kind: str = "card") -> Markup:
    """Return the form, with these fields, that asks what one more network function would do to a server."""
    button = tag("button", "Show", type="submit", class_="strong" if kind != "card" else None)
    actions = tag("p", button, class_="actions")
    return tag("form", *parts, actions, action="/whatif", method="get", class_=kind)


def choice(name: str, options: Any, chosen: str = "") -> Markup:
    """Return a select element for texts; a text that HTML would trim also gets an explicit value."""
    return tag(
        "select",
        [
            tag("option", item, value=None if item == " ".join(item.split()) else item, selected=item == chosen)
            for item in options
        ],
        name=name,
        id=name,
    )
