"""HTML pages, made from the same data as the API's answers."""

import contextlib
from collections.abc import Callable
from importlib import resources
from typing import Any
from urllib.parse import parse_qs

from slomo.errors import SlomoError
from slomo.service.api.cluster import HOURS, number_of
from slomo.service.api.predictions import MOST_TENANTS, together
from slomo.service.application import Service
from slomo.service.door.access import COOKIE
from slomo.service.door.bodies import WhatIf
from slomo.service.door.operation import Answer, Call, Operation
from slomo.service.door.problems import Problem
from slomo.service.history import EVERY_S
from slomo.service.kubernetes.pods import PodNeed
from slomo.service.page.cluster_page import cluster_content
from slomo.service.page.frame import page
from slomo.service.page.markup import Markup, tag
from slomo.service.page.other_pages import HOURS as HOURS_TO_CHOOSE
from slomo.service.page.other_pages import (
    MOST_ROWS,
    drift_content,
    history_content,
    jobs_content,
    login_content,
    receipts_content,
)
from slomo.service.page.server_page import server_content, whatif_content
from slomo.service.servers import owned
from slomo.service.state import journal
from slomo.vocabulary.numbers import digits

HTML = "text/html; charset=utf-8"
_FILES = {"page.css": "text/css", "page.js": "text/javascript", "page.svg": "image/svg+xml"}


async def _shown(service: Service, call: Call, title: str, here: str, content: Callable[[], Markup]) -> Answer:
    """Render a page in a thread; redirect to the login form if a token is missing."""
    if call.caller.scope == "open":
        return Answer(b"", 303, {"Location": "/login"}, HTML)
    faults = service.faults()
    status = "degraded: " + "; ".join(faults) if faults else f"models {service.model_store.answers.fingerprint}"
    status_code = 200
    try:
        body = await service.aside(content)
    except Problem as problem:
        status_code, body = problem.status, tag("p", problem.message, class_="lead broken-text")
    except SlomoError as error:
        status_code, body = 422, tag("p", str(error), class_="lead broken-text")
    return Answer(page(title, here, body, status=status), status_code, {}, HTML)


def _functions(service: Service) -> list[str]:
    library = service.model_store.answers.library
    return sorted({library[key].workload.nf for key in library})


async def cluster_page(service: Service, call: Call) -> Answer:
    """Show the page with all servers of the cluster."""
    servers, is_kubernetes = await service.servers(), service.kubernetes.is_on

    def content() -> Markup:
        functions = _functions(service)
        return service.rendered(
            (servers, functions), lambda: cluster_content(servers, functions, is_kubernetes=is_kubernetes)
        )

    return await _shown(service, call, "Cluster", "/", content)


async def history_page(service: Service, call: Call) -> Answer:
    """Show the page with the cluster's figures over time."""

    def content() -> Markup:
        hours = number_of(call, "hours", 24, 24) if "hours" in call.query else service.history.fitting(HOURS_TO_CHOOSE)
        rows = service.history.told(hours, MOST_ROWS)["points"]
        return history_content(service.history.told(hours), rows, hours, EVERY_S)

    return await _shown(service, call, "History", "/history", content)


async def server_page(service: Service, call: Call) -> Answer:
    """Show the page of one server."""
    name = call.path["name"]
    servers, is_kubernetes = await service.servers(), service.kubernetes.is_on

    def content() -> Markup:
        server = next((item for item in servers if item.name == name), None)
        if server is None:
            raise Problem(404, f"There is no server '{name[:200]}'.")
        if not is_kubernetes:
            server = owned(service.cluster_store.placer, server)
        costs, workloads = None, [item.workload for item in server.tenants]
        if 0 < len(workloads) <= MOST_TENANTS:
            with contextlib.suppress(SlomoError):
                costs = together(service.model_store.answers, WhatIf(tenants=workloads, machine=server.machine))
        errors, report = service.outcomes.errors(), service.agents.of(name)
        ratios = {workload: ratio for (machine, workload), (ratio, _) in errors.items() if machine == server.machine}
        return server_content(server, costs, _functions(service), ratios, report, can_remove=not is_kubernetes)

    return await _shown(service, call, name, "/", content)


async def whatif_page(service: Service, call: Call) -> Answer:
    """Show the effect of one more network function on a server."""
    asked = tuple(call.query.get(key, "") for key in ("server", "add", "share"))
    name, add, promise = asked
    servers, hosts = await service.servers(), service.hosts()

    def content() -> Markup:
        functions, names = _functions(service), [item.name for item in servers]
        if not name or not add:
            return whatif_content(names, functions, (name, add, promise), None)
        server = next((item for item in servers if item.name == name), None)
        if server is None or add not in functions:
            missing = f"server '{name[:200]}'" if server is None else f"network function '{add[:200]}' with a model"
            return whatif_content(names, functions, (name, add, promise), f"There is no {missing}.")
        if name not in hosts:
            raise Problem(422, f"Nothing can be judged on '{name[:200]}': its machine type is not known.")
        if not service.kubernetes.is_on:
            server = owned(service.cluster_store.placer, server)
        percent = digits(promise or "0", 100)
        if percent is None:
            raise Problem(422, "A promise is a whole number from 0 to 100 %.")
        need = PodNeed(add, (percent / 100.0) or None)
        try:
            effect: Any = service.one_more(need, server, servers)
        except SlomoError as error:
            effect = str(error)
        return whatif_content(names, functions, (name, add, promise), effect)

    return await _shown(service, call, "What if", "/whatif", content)


async def jobs_page(service: Service, call: Call) -> Answer:
    """Show the page of background jobs."""
    return await _shown(service, call, "Jobs", "/jobs", lambda: jobs_content(service.jobs.all()))


async def drift_page(service: Service, call: Call) -> Answer:
    """Show prediction errors and drift alarms."""

    def content() -> Markup:
        history: dict[tuple[str, str], list[float]] = {}
        for row in service.store.read(lambda connection: journal.observations(connection, 2000)):
            if row["predicted_mpps"] and service.outcomes.is_current(row):
                ratio = row["throughput_mpps"] / row["predicted_mpps"]
                history.setdefault((row["machine"], row["target"]), []).append(ratio)
        return drift_content(service.outcomes.report(), history)

    return await _shown(service, call, "Drift", "/drift", content)


async def receipts_page(service: Service, call: Call) -> Answer:
    """Show the latest changes to the cluster."""

    def content() -> Markup:
        return receipts_content(service.store.read(lambda connection: journal.receipts(connection, 100)))

    return await _shown(service, call, "Receipts", "/receipts", content)


async def login_page(service: Service, call: Call) -> Answer:  # noqa: ARG001 - every handler has both
    """Show the form in which a user enters a token."""
    return Answer(page("Log in", "/login", login_content(is_wrong=False)), media_type=HTML)


async def login(service: Service, call: Call) -> Answer:
    """Store a token in a cookie that scripts cannot read and that other sites do not send."""
    secret = parse_qs(call.raw[:4096].decode("utf-8", "replace")).get("token", [""])[0].strip()
    try:
        if not secret.isascii() or ";" in secret:
            raise Problem(401, "this token is not known")
        service.gate.caller({"authorization": f"Bearer {secret}", "host": call.headers.get("host", "")})
    except Problem:
        return Answer(page("Log in", "/login", login_content(is_wrong=True)), 401, {}, HTML)
    secure = "; Secure" if service.settings.certificate else ""
    cookie = f"{COOKIE}={secret}; HttpOnly; SameSite=Strict; Path=/{secure}"
    return Answer(b"", 303, {"Location": "/", "Set-Cookie": cookie}, HTML)


def _file(name: str, media_type: str) -> Any:
    content = (resources.files("slomo.service.page") / name).read_bytes()
    full_type = media_type + "; charset=utf-8" * media_type.startswith("text/")

    async def handle(service: Service, call: Call) -> Answer:  # noqa: ARG001
        return Answer(content, 200, {"Cache-Control": "max-age=300"}, full_type)

    handle.__doc__ = f"Return {name}."
    return handle


_WHATIF = {"server": "Which server.", "add": "Which network function.", "share": "Its promise [%]."}
_PAGE: dict[str, Any] = {"scope": "open", "media_type": "text/html", "tag": "page"}
OPERATIONS = (
    Operation("GET", "/", cluster_page, statuses=(303, 422), **_PAGE),
    Operation("GET", "/history", history_page, statuses=(303, 422), query=HOURS, **_PAGE),
    Operation("GET", "/servers/{name:path}", server_page, statuses=(303, 404, 409, 422), **_PAGE),
    Operation("GET", "/whatif", whatif_page, statuses=(303, 409, 422), query=_WHATIF, **_PAGE),
    Operation("GET", "/jobs", jobs_page, statuses=(303,), **_PAGE),
    Operation("GET", "/drift", drift_page, statuses=(303,), **_PAGE),
    Operation("GET", "/receipts", receipts_page, statuses=(303,), **_PAGE),
    Operation("GET", "/login", login_page, **_PAGE),
    Operation("POST", "/login", login, success=303, writes=True, form={"token": "A secret of the token file."},
              **_PAGE),
    *(Operation("GET", f"/{name}", _file(name, kind), scope="open", media_type=kind, tag="page")
      for name, kind in _FILES.items()),
)  # fmt: skip
