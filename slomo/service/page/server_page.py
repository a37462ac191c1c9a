"""One server: its tenants with intervals and promises, who costs whom how much, and what one more would do."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from slomo.placement.online.placer import Placer
from slomo.placement.problem.decision import Assignment
from slomo.service.page.cluster_page import KINDS, ServerState, headroom_of
from slomo.service.page.figures import interval_bar
from slomo.service.page.frame import choice, field, number, share
from slomo.service.page.markup import Markup, joined, table, tag


def server_content(
    placer: Placer, name: str, owners: Sequence[str], told: dict[str, Any] | None, functions: list[str]
) -> Markup:
    """Return the content of a server's page.

    Parameters
    ----------
    placer : Placer
        The cluster.
    name : str
        Which server.
    owners : sequence of str
        Whose each assignment is, in order.
    told : dict or None
        Who costs whom; None where that cannot be said.
    functions : list of str
        Network functions to choose from.
    """
    server = next(item for item in placer.cluster.servers if item.name == name)
    here = placer.layout().get(name, ())
    cores = server.cores * len(server.nics)
    state = ServerState(name, server.machine_type.name, len(here), cores, headroom_of(here))
    lead = f"{state.machine}, {len(here)} of {state.cores} cores in use: {state.text}."
    return joined(
        [
            tag(
                "p",
                tag("span", KINDS[state.kind][0], class_=f"swatch {state.kind}", aria_hidden="true"),
                lead,
                class_="lead",
            ),
            _tenants(placer, state.machine, here, owners) if here else None,
            _costs(told) if told else None,
            _add(name, functions),
            tag("p", tag("a", "All servers", href="/")),
        ]
    )


def _tenants(placer: Placer, machine: str, here: Sequence[Assignment], owners: Sequence[str]) -> Markup:
    rows: list[list[Any]] = []
    for item, owner in zip(here, owners, strict=True):
        solo = placer.estimates.solo_mpps(machine, item.workload) or item.predicted_mpps or 0.0
        nf = item.workload.split("@")[0]
        remove = tag(
            "button", "Remove", type="button", data_action="remove", data_id=owner, aria_label=f"Remove {owner}"
        )
        if item.predicted_mpps is None:
            rows.append([owner, nf, f"{item.socket}:{item.seat}", "not predicted", "", "", remove])
            continue
        low, high = item.low_mpps or 0.0, item.high_mpps or item.predicted_mpps
        bar = interval_bar(low, item.predicted_mpps, high, item.needed_mpps, solo)
        lost = share(1.0 - item.predicted_mpps / solo) if solo else "-"
        promise = f"{number(item.needed_mpps)} Mpps" if item.needed_mpps else "none"
        values = [bar, tag("span", f"{number(item.predicted_mpps)} Mpps", class_="num")]
        rows.append([owner, nf, f"{item.socket}:{item.seat}", values, lost, promise, remove])
    headers = ("Request", "Network function", "Core", "Predicted, with its interval", "Lost", "Promised", "")
    note = "The thin line is the throughput alone, the broad one the interval, the triangle the promise."
    return tag("section", tag("h2", "Tenants"), table("Tenants", headers, rows), tag("p", note, class_="hint"))


def _costs(told: dict[str, Any]) -> Markup:
    """Return who costs whom: row by row what a tenant takes from each of the others."""
    tenants, costs = told["tenants"], told["costs_mpps"]
    names = [item["target"] for item in tenants]
    solos = [item["solo_mpps"] or 1.0 for item in tenants]
    rows = []
    for i, name in enumerate(names):
        cells: list[Any] = [f"{i + 1} {name}"]
        for j in range(len(names)):
            part = costs[i][j] / solos[j]
            heat = min(int(part * 50), 9)
            text = "–" if i == j else f"{100 * part:.1f}"
            cells.append(tag("span", text, class_=f"heat heat-{0 if i == j else heat}"))
        rows.append(cells)
    headers = ["takes from, % of its throughput alone", *(f"{i + 1} {name}" for i, name in enumerate(names))]
    note = "What each column's network function would gain if the row's left."
    return tag(
        "section", tag("h2", "Who costs whom"), table("Who costs whom", headers, rows), tag("p", note, class_="hint")
    )


def _add(name: str, functions: list[str]) -> Markup:
    return tag(
        "form",
        tag("h2", "What if one more came?"),
        tag("input", type="hidden", name="server", value=name),
        field("Network function", "add", choice("add", functions)),
        tag("p", tag("button", "Show", type="submit"), class_="actions"),
        action="/whatif",
        method="get",
        class_="card",
    )


def whatif_content(
    servers: list[str], functions: list[str], server: str, add: str, before: dict[str, Any], after: dict[str, Any] | str
) -> Markup:
    """Return the content of the what-if page: everybody before and after one more."""
    form = tag(
        "form",
        field("Network function", "add", choice("add", functions, add)),
        field("Server", "server", choice("server", servers, server)),
        tag("p", tag("button", "Show", type="submit", class_="strong"), class_="actions"),
        action="/whatif",
        method="get",
        class_="card row",
    )
    if not server:
        return joined([tag("p", "Choose a network function and a server.", class_="lead"), form])
    if isinstance(after, str):
        return joined([tag("p", after, class_="lead broken-text"), form])
    rows = []
    old = before.get("tenants", [])
    for place, item in enumerate(after["tenants"]):
        low, high = item["interval"]
        bar = interval_bar(low, item["throughput_mpps"], high, 0.0, item["solo_mpps"] or item["throughput_mpps"])
        was = share(old[place]["slowdown"]) if place < len(old) else "new"
        rows.append([item["target"], was, share(item["slowdown"]), bar, item["verdict"]])
    headers = ("Network function", "Lost before", "Lost then", "Predicted then", "Support")
    lead = tag(
        "p", tag("a", server, href=f"/servers/{quote(server, safe='')}"), f" with one more {add}:", class_="lead"
    )
    return joined([lead, table("What would happen", headers, rows), form])
