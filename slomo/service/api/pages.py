"""The pages: HTML for people, from the same state and the same answers as the API."""

from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from slomo.errors import SlomoError
from slomo.service.api.predictions import MOST_TENANTS, together
from slomo.service.door.access import COOKIE
from slomo.service.door.bodies import WhatIf
from slomo.service.door.operation import Answer, Call, Operation
from slomo.service.door.problems import Problem
from slomo.service.page.cluster_page import cluster_content
from slomo.service.page.frame import page
from slomo.service.page.markup import Markup, tag
from slomo.service.page.other_pages import drift_content, jobs_content, login_content, receipts_content
from slomo.service.page.server_page import server_content, whatif_content
from slomo.service.state import journal

if TYPE_CHECKING:
    from collections.abc import Callable

    from slomo.service.application import Service

HTML = "text/html; charset=utf-8"
_FILES = {
    name: (resources.files("slomo.service.page") / name).read_bytes() for name in ("page.css", "page.js", "page.svg")
}
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


async def _shown(service: "Service", call: Call, title: str, here: str, content: "Callable[[], Markup]") -> Answer:
    """Render aside; without a token where one is needed, lead to the form for it."""
    if call.caller.scope == "open":
        return Answer(b"", 303, {"Location": "/login"}, HTML)
    faults = service.faults()
    status = "degraded: " + "; ".join(faults) if faults else f"models {service.shelf.answers.fingerprint}"
    status_code = 200
    try:
        body = await service.aside(content)
    except Problem as problem:
        status_code, body = problem.status, tag("p", problem.message, class_="lead broken-text")
    except SlomoError as error:
        status_code, body = 422, tag("p", str(error), class_="lead broken-text")
    return Answer(page(title, here, body, status=status), status_code, {}, HTML)


def _functions(service: "Service") -> list[str]:
    library = service.shelf.answers.library
    return sorted({library[key].workload.nf for key in library})


async def cluster_page(service: "Service", call: Call) -> Answer:
    """Show the cluster."""

    def content() -> Markup:
        placer = service.clerk.placer if service.clerk.has_cluster else None
        return service.rendered(lambda: cluster_content(placer, _functions(service)))

    return await _shown(service, call, "Cluster", "/", content)


async def server_page(service: "Service", call: Call) -> Answer:
    """Show a server."""
    name = call.path["name"]

    def content() -> Markup:
        placer = service.clerk.placer
        if name not in {server.name for server in placer.cluster.servers}:
            raise Problem(404, f"There is no server '{name[:200]}'.")
        here = placer.layout().get(name, ())
        owners = _owners(service, name)
        told = None
        if 0 < len(here) <= MOST_TENANTS:
            told = _together(service, [item.workload for item in here], name)
        return server_content(placer, name, owners, told, _functions(service))

    return await _shown(service, call, name, "/", content)


def _owners(service: "Service", name: str) -> list[str]:
    """Return whose each assignment of a server is, socket by socket and core by core, as layouts have them."""
    at: dict[tuple[int, int], str] = {}
    placer = service.clerk.placer
    for request in placer.requests:
        for piece in placer.entry(request.id)["pieces"]:
            if piece["server"] == name:
                at |= {(piece["socket"], core): request.id for core in piece["cores"]}
    cores = next(server.cores for server in placer.cluster.servers if server.name == name)
    here = placer.layout().get(name, ())
    return [at.get((item.socket, item.core + item.thread * cores), "?") for item in here]


def _together(service: "Service", workloads: list[str], server: str) -> dict[str, Any] | None:
    placer = service.clerk.placer
    machine = next(item.machine_type.name for item in placer.cluster.servers if item.name == server)
    try:
        return together(service.shelf.answers, WhatIf(workloads, machine))
    except SlomoError:
        return None


async def whatif_page(service: "Service", call: Call) -> Answer:
    """Show what one network function more would do to a server."""
    server, add = call.query.get("server", ""), call.query.get("add", "")

    def content() -> Markup:
        functions = _functions(service)
        servers = [item.name for item in service.clerk.placer.cluster.servers]
        if not server or not add:
            return whatif_content(servers, functions, "", "", {}, {})
        if server not in servers or add not in functions:
            raise Problem(404, "There is no such server or network function.")
        here = [item.workload for item in service.clerk.placer.layout().get(server, ())]
        machine = next(s.machine_type.name for s in service.clerk.placer.cluster.servers if s.name == server)
        before = (_together(service, here, server) if here else None) or {}
        after: dict[str, Any] | str
        try:
            after = together(service.shelf.answers, WhatIf([*here, add], machine))
        except SlomoError as error:
            after = f"It does not fit there: {error.message}"
        return whatif_content(servers, functions, server, add, before, after)

    return await _shown(service, call, "What if", "/whatif", content)


async def jobs_page(service: "Service", call: Call) -> Answer:
    """Show jobs."""
    return await _shown(service, call, "Jobs", "/jobs", lambda: jobs_content(service.jobs.all()))


async def drift_page(service: "Service", call: Call) -> Answer:
    """Show errors and drift."""

    def content() -> Markup:
        history: dict[tuple[str, str], list[float]] = {}
        for row in service.store.read(lambda connection: journal.observations(connection, 2000)):
            if row["predicted_mpps"]:
                ratio = row["throughput_mpps"] / row["predicted_mpps"]
                history.setdefault((row["machine"], row["target"]), []).append(ratio)
        return drift_content(service.outcomes.report(), history)

    return await _shown(service, call, "Drift", "/drift", content)


async def receipts_page(service: "Service", call: Call) -> Answer:
    """Show the latest changes."""
    return await _shown(
        service, call, "Receipts", "/receipts", lambda: receipts_content(service.store.read(_latest_receipts))
    )


def _latest_receipts(connection: Any) -> list[dict[str, Any]]:
    return journal.receipts(connection, 100)


async def login_page(service: "Service", call: Call) -> Answer:  # noqa: ARG001 - every handler has both
    """Show the form for a token."""
    return Answer(page("Enter", "/login", login_content(is_wrong=False)), media_type=HTML)


async def login(service: "Service", call: Call) -> Answer:
    """Keep a token in a cookie that no script reads and no other site sends."""
    secret = parse_qs(call.raw[:4096].decode("utf-8", "replace")).get("token", [""])[0].strip()
    try:
        if not secret.isascii() or ";" in secret:
            raise Problem(401, "this token is not known")
        service.gate.caller({"authorization": f"Bearer {secret}", "host": call.headers.get("host", "")})
    except Problem:
        return Answer(page("Enter", "/login", login_content(is_wrong=True)), 401, {}, HTML)
    secure = "; Secure" if service.settings.certificate else ""
    cookie = f"{COOKIE}={secret}; HttpOnly; SameSite=Strict; Path=/{secure}"
    return Answer(b"", 303, {"Location": "/", "Set-Cookie": cookie}, HTML)


def _file(name: str) -> Any:
    async def handle(service: "Service", call: Call) -> Answer:  # noqa: ARG001
        kept = {"Cache-Control": "max-age=300"}
        return Answer(_FILES[name], 200, kept, _TYPES[name.rsplit(".", 1)[1]])

    return handle


_WHATIF = {"server": "Which server.", "add": "Which network function."}
_PAGE: dict[str, Any] = {"scope": "open", "media_type": "text/html", "tag": "page"}
OPERATIONS = (
    Operation("GET", "/", cluster_page, "Show the cluster.", statuses=(303, 422), **_PAGE),
    Operation("GET", "/servers/{name:path}", server_page, "Show a server.", statuses=(303, 404, 409, 422), **_PAGE),
    Operation("GET", "/whatif", whatif_page, "Show what one network function more would do.",
              statuses=(303, 404, 409, 422), query=_WHATIF, **_PAGE),
    Operation("GET", "/jobs", jobs_page, "Show jobs.", statuses=(303,), **_PAGE),
    Operation("GET", "/drift", drift_page, "Show errors and drift.", statuses=(303,), **_PAGE),
    Operation("GET", "/receipts", receipts_page, "Show the latest changes.", statuses=(303,), **_PAGE),
    Operation("GET", "/login", login_page, "Show the form for a token.", **_PAGE),
    Operation("POST", "/login", login, "Keep a token in a cookie.", success=303, writes=True, **_PAGE),
    *(Operation("GET", f"/{name}", _file(name), f"Return {name}.", scope="open",
                media_type=_TYPES[name.rsplit(".", 1)[1]].split(";")[0], tag="page") for name in _FILES),
)  # fmt: skip
