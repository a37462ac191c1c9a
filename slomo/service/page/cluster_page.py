"""Draw the cluster as racks; a server's mark and colour show whether its promises are kept, and its headroom."""

import math
import re
from collections.abc import Sequence
from urllib.parse import quote

from slomo.service.page.frame import choice, field, number, promise_field, question_form, share
from slomo.service.page.markup import Markup, joined, table, tag
from slomo.service.servers import TIGHT, RunningNF, RunningServer, promises
from slomo.units import plural

#: Largest number of rows in the table of promises that do not hold.
MOST_AT_RISK = 200


def state_text(row: RunningServer) -> str:
    """Return a server's state in words."""
    spare = f"{_spare(row)} % to spare"
    return {"ample": f"promises kept, {spare}", "tight": f"tight, {spare}"}.get(row.kind, KINDS[row.kind][1])


def _spare(row: RunningServer) -> str:
    """Return the headroom above promises in percent, rounded down to a whole number."""
    return str(math.floor(100.0 * row.headroom)) if math.isfinite(row.headroom) else "-"


#: Mark and meaning of each kind of server, so that colour is never the only sign.
KINDS = {
    "ample": ("✓", f"promises kept, {share(TIGHT)} or more to spare"),
    "tight": ("!", "promises kept, little to spare"),
    "broken": ("✗", "a promise may break"),
    "unjudged": ("?", "a promise cannot be judged"),
    "free": ("~", "nothing promised"),
    "empty": ("·", "empty"),
}


def cluster_content(servers: Sequence[RunningServer], functions: list[str], *, is_kubernetes: bool) -> Markup:
    """Return the content of the cluster page; pods on Kubernetes nodes are placed by their scheduler, not here."""
    if not servers:
        return _no_servers(is_kubernetes=is_kubernetes)
    stands = tag("div", _tiles(servers), at_risk(servers), data_live="stands")
    racks = tag("div", _racks(servers), data_live="racks")
    forms = _forms(servers, functions, is_kubernetes=is_kubernetes)
    return joined([stands, _legend(), _filters(servers), _palette(functions), racks, forms])


def _no_servers(*, is_kubernetes: bool) -> Markup:
    if is_kubernetes:
        label = "kubectl label node NODE slomo.io/machine=silver-4110"
        text = "No node is known yet. Label the nodes with their machine type, and they appear here: "
        return tag("p", text, tag("code", label), class_="lead")
    body = '{"servers": [{"name": "s1", "machine": "e5-2620v4"}]}'
    command = f"curl -H 'Content-Type: application/json' -d '{body}' .../v1/cluster/servers"
    return joined([
        tag("p", "There are no servers yet. Add some, then place requests on them:", class_="lead"),
        tag("p", tag("code", command)),
        tag("p", "or look at an example with ", tag("code", "slomo serve --demo"), "; machine types are at ",
            tag("a", "/v1/machines", href="/v1/machines"), "."),
    ])  # fmt: skip


def _tiles(rows: Sequence[RunningServer]) -> Markup:
    used, counts = sum(bool(row.tenants) for row in rows), promises(rows)
    tight = sum(row.kind == "tight" for row in rows)
    tiles = [
        ("Servers in use", f"{used} of {len(rows)}", ""),
        ("Network functions", str(sum(len(row.tenants) for row in rows)), ""),
        ("Promises kept", f"{counts['kept']} of {sum(counts.values())}", ""),
        ("Promises that may break", str(counts["broken"]), "broken" if counts["broken"] else "ample"),
        ("Promises not judged", str(counts["unjudged"]), "unjudged" if counts["unjudged"] else "ample"),
        ("Tight servers", str(tight), "tight" if tight else ""),
    ]
    return tag(
        "dl",
        [tag("div", tag("dt", name), tag("dd", value), class_=f"tile {kind}".strip()) for name, value, kind in tiles],
        class_="tiles",
    )


def at_risk(rows: Sequence[RunningServer]) -> Markup | None:
    """Return a section on promises that are broken or cannot be judged; None if there are none."""
    here = [(row, item) for row in rows for item in row.tenants if item.state in ("broken", "unjudged")]
    if not here:
        return None
    cells = [
        [item.owner or item.workload.split("@")[0], tag("a", row.name, href=server_link(row.name)),
         item.workload.split("@")[0], state(item), _mpps(item.needed_mpps), _mpps(item.low_mpps), item.why]
        for row, item in sorted(here, key=lambda pair: (pair[1].state, pair[0].name))[:MOST_AT_RISK]
    ]  # fmt: skip
    headers = ("Whose", "Server", "Network function", "Promise", "Promised", "To be counted on", "Why")
    more = f"{len(here) - MOST_AT_RISK} more are at /v1/cluster/at-risk." if len(here) > MOST_AT_RISK else None
    caption = "Promises that do not hold"
    return tag("section", tag("h2", caption), table(caption, headers, cells), more and tag("p", more, class_="hint"))


def state(item: RunningNF) -> Markup:
    """Return the state of a promise as a coloured word."""
    kind = {"kept": "ample", "none": "free"}.get(item.state, item.state)
    text = {"kept": "kept", "broken": "may break", "unjudged": "not judged", "none": "none"}[item.state]
    return tag("span", text, class_=f"badge {kind}")


def server_link(name: str) -> str:
    """Return the URL of a server's page."""
    return f"/servers/{quote(name, safe='')}"


def _mpps(value: float | None) -> str:
    return f"{number(value)} Mpps" if value else "-"


def _legend() -> Markup:
    items = [
        tag("li", tag("span", mark, class_=f"swatch {kind}", aria_hidden="true"), text)
        for kind, (mark, text) in KINDS.items()
    ]
    return tag("ul", items, class_="legend", aria_label="Legend")


def _palette(functions: list[str]) -> Markup:
    chips = [tag("li", name, class_="chip", draggable="true", data_nf=name) for name in functions]
    text = "Drag a network function onto a server to see what would happen, or use the form below."
    return tag("section", tag("p", text, class_="hint"), tag("ul", chips, class_="chips"), aria_label="Palette")


def _filters(rows: Sequence[RunningServer]) -> Markup:
    """Return the controls that select the servers to show; page.js stores the selection in the URL."""
    machines = sorted({row.machine for row in rows})
    functions = sorted({item.workload.split("@")[0] for row in rows for item in row.tenants})
    kinds = [kind for kind in KINDS if any(row.kind == kind for row in rows)]
    choices = (("kind", "State", [(kind, KINDS[kind][1]) for kind in kinds]),
               ("machine", "Machine type", [(name, name or "not known") for name in machines]),
               ("runs", "Network function", [(name, name) for name in functions]))  # fmt: skip
    find = tag("input", type="search", id="find", placeholder="part of a name", autocomplete="off")
    selects = [
        field(label, key, tag("select", tag("option", "all", value=""),
                              [tag("option", text, value=value or "?") for value, text in options], id=key))
        for key, label, options in choices
    ]  # fmt: skip
    count = tag("p", plural(len(rows), "server"), id="shown", role="status")
    return tag("section", field("Find servers", "find", find), selects, count, class_="filters", aria_label="Filters")


def _racks(rows: Sequence[RunningServer]) -> Markup:
    racks: dict[str, list[RunningServer]] = {}
    for row in rows:
        named = re.match(r"(rack[^-]*)-", row.name)
        racks.setdefault(named[1] if named else row.machine or "machine type not known", []).append(row)
    sections = []
    for place, (name, servers) in enumerate(racks.items()):
        used = sum(len(row.tenants) for row in servers)
        room = sum(row.cores for row in servers)
        head = tag("h2", name, tag("small", f"{used} of {room} cores"), id=f"rack-{place}")
        cells = tag("ul", [_cell(row) for row in servers], class_="servers")
        sections.append(tag("section", head, cells, class_="rack", aria_labelledby=f"rack-{place}"))
    return tag("div", sections, class_="racks")


def _cell(row: RunningServer) -> Markup:
    mark, _ = KINDS[row.kind]
    short = row.name.rsplit("-", 1)[-1] if row.name.startswith("rack") else row.name
    spare = f"{_spare(row)}%" if row.kind in ("ample", "tight", "broken") else ""
    title = f"{row.name}, {row.machine}: {len(row.tenants)} of {row.cores} cores, {state_text(row)}"
    inner = [
        tag("span", mark, class_="mark", aria_hidden="true"),
        tag("span", short, class_="name"),
        tag("span", f"{len(row.tenants)}/{row.cores}", class_="load"),
        tag("span", spare, class_="spare"),
        tag("span", title, class_="unseen"),
    ]
    link = tag("a", inner, href=server_link(row.name))
    runs = " ".join(sorted({item.workload.split("@")[0] for item in row.tenants}))
    marks = {"data_kind": row.kind, "data_machine": row.machine or "?", "data_runs": runs}
    return tag("li", link, class_=f"server {row.kind}", data_server=row.name, **marks)


def _forms(rows: Sequence[RunningServer], functions: list[str], *, is_kubernetes: bool) -> Markup:
    name = tag("input", type="text", name="id", id="id", required=True, maxlength="200", placeholder="edge-1")
    place = tag(
        "form",
        tag("h2", "Place a request"),
        field("Name", "id", name),
        field("Network function", "nf", choice("nf", functions)),
        promise_field("80"),
        tag("p", tag("button", "Would it fit?", type="submit", name="what_if", value="1"),
            tag("button", "Place", type="submit", class_="strong"), class_="actions"),
        data_action="place",
        class_="card",
    )  # fmt: skip
    look = question_form(
        tag("h2", "What would it cost here?"),
        field("Network function", "add", choice("add", functions)),
        field("Server", "server", choice("server", [row.name for row in rows[:2000]])),
    )
    if is_kubernetes:
        text = "Pods are placed by their scheduler: give a pod schedulerName: slomo-scheduler and slomo.io/nf."
        place = tag("section", tag("h2", "Place a pod"), tag("p", text), class_="card")
    return tag("div", place, look, class_="card-row")
