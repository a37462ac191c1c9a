"""The cluster as racks: every server coloured, and marked, by the promise it keeps and the headroom it has left."""

import math
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from slomo.placement.online.placer import Placer
from slomo.placement.problem.decision import Assignment
from slomo.service.page.frame import choice, field, share
from slomo.service.page.markup import Markup, joined, tag

#: Headroom below which a server is called tight.
TIGHT = 0.1


@dataclass(frozen=True)
class ServerState:
    """How a server stands.

    Attributes
    ----------
    name, machine : str
        Which server.
    tenants, cores : int
        Network functions on it, and cores they may use.
    headroom : float
        Least share by which a promise is exceeded; infinite where nothing is promised.
    """

    name: str
    machine: str
    tenants: int
    cores: int
    headroom: float

    @property
    def kind(self) -> str:
        """One word: ``empty``, ``free`` (nothing promised), ``ample``, ``tight`` or ``broken``."""
        if not self.tenants:
            return "empty"
        if math.isinf(self.headroom):
            return "free"
        return "broken" if self.headroom < 0.0 else "tight" if self.headroom < TIGHT else "ample"

    @property
    def text(self) -> str:
        """The same in words."""
        words = {
            "empty": "empty",
            "free": "nothing promised",
            "ample": f"promises kept, {share(self.headroom)} to spare" if self.kind == "ample" else "",
            "tight": f"tight, {share(self.headroom)} to spare" if self.kind == "tight" else "",
            "broken": "a promise may break",
        }
        return words[self.kind]


#: Mark and meaning of each kind, so that colour is never alone.
KINDS = {
    "ample": ("✓", f"promises kept, {share(TIGHT)} or more to spare"),
    "tight": ("!", "promises kept, little to spare"),
    "broken": ("✗", "a promise may break"),
    "free": ("~", "nothing promised"),
    "empty": ("·", "empty"),
}


def headroom_of(assignments: "tuple[Assignment, ...]") -> float:
    """Return the least share by which a promise is exceeded.

    Examples
    --------
    >>> headroom_of(())
    inf
    """
    spare = [
        (item.low_mpps if item.low_mpps is not None else math.inf) / item.needed_mpps - 1.0
        for item in assignments
        if item.needed_mpps > 0.0
    ]
    return min(spare, default=math.inf)


def states(placer: Placer) -> list[ServerState]:
    """Return how every server stands."""
    layout = placer.layout()
    sizes: dict[tuple[Any, ...], tuple[str, int]] = {}
    rows = []
    for server in placer.cluster.servers:
        key = (server.machine, server.cores_reserved, server.nic_sockets, server.sockets)
        if key not in sizes:
            sizes[key] = (server.machine_type.name, server.cores * len(server.nics))
        machine, cores = sizes[key]
        here = layout.get(server.name, ())
        rows.append(ServerState(server.name, machine, len(here), cores, headroom_of(here)))
    return rows


def cluster_content(placer: Placer | None, functions: list[str]) -> Markup:
    """Return the content of the page."""
    if placer is None:
        hint = "slomo serve --demo brings some; or POST /v1/cluster/servers."
        return tag("p", "There are no servers yet. ", tag("code", hint), class_="lead")
    rows = states(placer)
    return joined([_tiles(rows, placer), _legend(), _palette(functions), _racks(rows), _forms(rows, functions)])


def _tiles(rows: list[ServerState], placer: Placer) -> Markup:
    used = sum(row.tenants > 0 for row in rows)
    tight = sum(row.kind == "tight" for row in rows)
    broken = sum(row.kind == "broken" for row in rows)
    tiles = [
        ("Servers in use", f"{used} of {len(rows)}", ""),
        ("Requests placed", str(len(placer.requests)), ""),
        ("Tight servers", str(tight), "tight" if tight else ""),
        ("Servers that may break one", str(broken), "broken" if broken else "ample"),
    ]
    return tag(
        "dl",
        [tag("div", tag("dt", name), tag("dd", value), class_=f"tile {kind}".strip()) for name, value, kind in tiles],
        class_="tiles",
    )


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


def _racks(rows: list[ServerState]) -> Markup:
    racks: dict[str, list[ServerState]] = {}
    for row in rows:
        named = re.match(r"(rack[^-]*)-", row.name)
        racks.setdefault(named[1] if named else row.machine, []).append(row)
    sections = []
    for place, (name, servers) in enumerate(racks.items()):
        used = sum(row.tenants for row in servers)
        room = sum(row.cores for row in servers)
        head = tag("h2", name, tag("small", f"{used} of {room} cores"), id=f"rack-{place}")
        cells = tag("ul", [_cell(row) for row in servers], class_="servers")
        sections.append(tag("section", head, cells, class_="rack", aria_labelledby=f"rack-{place}"))
    return tag("div", sections, class_="racks")


def _cell(row: ServerState) -> Markup:
    mark, _ = KINDS[row.kind]
    short = row.name.rsplit("-", 1)[-1] if row.name.startswith("rack") else row.name
    spare = "" if row.kind in ("empty", "free") else f"{100 * row.headroom:.0f}%"
    said = f"{row.name}, {row.machine}: {row.tenants} of {row.cores} cores, {row.text}"
    inner = [
        tag("span", mark, class_="mark"),
        tag("span", short, class_="name"),
        tag("span", f"{row.tenants}/{row.cores}", class_="load"),
        tag("span", spare, class_="spare"),
    ]
    link = tag("a", inner, href=f"/servers/{quote(row.name, safe='')}", aria_label=said)
    return tag("li", link, class_=f"server {row.kind}", data_server=row.name)


def _forms(rows: list[ServerState], functions: list[str]) -> Markup:
    promise = tag("input", type="number", name="share", id="share", min="0", max="100", value="80", inputmode="numeric")
    name = tag("input", type="text", name="id", id="id", required=True, maxlength="200", placeholder="edge-1")
    place = tag(
        "form",
        tag("h2", "Place a request"),
        field("Name", "id", name),
        field("Network function", "nf", choice("nf", functions)),
        field("Promise, % of its throughput alone (0: none)", "share", promise),
        tag("p", tag("button", "Would it fit?", type="submit", name="what_if", value="1"),
            tag("button", "Place", type="submit", class_="strong"), class_="actions"),
        data_action="place",
        class_="card",
    )  # fmt: skip
    look = tag(
        "form",
        tag("h2", "What would it cost here?"),
        field("Network function", "add", choice("add", functions)),
        field("Server", "server", choice("server", [row.name for row in rows[:2000]])),
        tag("p", tag("button", "Show", type="submit"), class_="actions"),
        action="/whatif",
        method="get",
        class_="card",
    )
    return tag("div", place, look, class_="cards")
