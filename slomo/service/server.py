"""Run a service under uvicorn: one process, one event loop, one thread that writes to disk.

While it is made, requests are answered that the process is alive, but not ready, with the reason.
"""

import asyncio
import gc
import resource
import socket
import ssl
import threading
from collections.abc import Callable
from importlib import resources
from typing import Any

import msgspec
import uvicorn
from starlette.types import Message, Receive, Scope, Send

from slomo.errors import ConfigurationError
from slomo.service.api.routes import OPERATIONS
from slomo.service.application import FrontDoor, Service, make_app
from slomo.service.door.problems import MEDIA_TYPE, Problem, problem_of
from slomo.service.edge import EdgeLimits, guarded
from slomo.service.page.frame import page
from slomo.service.page.markup import tag
from slomo.service.settings import ServiceSettings

#: Time after which a browser reloads [s].
LOOK_AGAIN_S = 2
#: Message shown while models are trained.
PREPARING = "the demonstration's models are unpacked, once; where none are shipped they are trained, half a minute"
#: Largest number of connections, above which requests get status 503; number of file descriptors reserved for other
#: uses.
MOST_CONNECTIONS, OTHER_FILES = 8192, 256


class Opening:
    """An ASGI application that passes requests on to the service as soon as it is ready.

    `make` makes the service in a thread; `reason` describes the present step. If the service cannot be made, `failed`
    is called, and `fault` describes the error.
    """

    def __init__(self, make: Callable[[], Any], reason: str, failed: Callable[[], None]) -> None:
        self._make, self._reason, self._failed = make, reason, failed
        self._app: Any = None
        self._closing = asyncio.Event()
        self.fault: BaseException | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or handle the ASGI lifespan."""
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif self._app is not None:
            await self._app(scope, receive, send)
        else:
            await self._wait(scope, send)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        opening = asyncio.create_task(self._open(scope))
        await receive()
        self._closing.set()
        await asyncio.gather(opening, return_exceptions=True)
        await send({"type": "lifespan.shutdown.complete"})

    async def _open(self, scope: Scope) -> None:
        """Create the service's application, and keep its lifespan open until this application's lifespan ends."""
        made: asyncio.Queue[Any] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def run() -> None:
            try:
                app = self._make()
            except BaseException as error:
                self.fault, app = error, None
            if not loop.is_closed():
                loop.call_soon_threadsafe(made.put_nowait, app)

        threading.Thread(target=run, name="slomo-opening", daemon=True).start()
        waiting = asyncio.create_task(made.get()), asyncio.create_task(self._closing.wait())
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        app = waiting[0].result() if waiting[0].done() else None
        for task in waiting:
            task.cancel()
        if app is None:
            if self.fault is not None:
                self._failed()
            return
        calls = iter(("lifespan.startup",))

        async def receive() -> Message:
            kind = next(calls, None)
            if kind is None:
                await self._closing.wait()
            return {"type": kind or "lifespan.shutdown"}

        async def send(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._app = app

        await app(scope, receive, send)

    async def _wait(self, scope: Scope, send: Send) -> None:
        """Answer that the process is alive, with the step for which it waits."""
        if scope["type"] != "http":
            return
        accepts = dict(scope["headers"]).get(b"accept", b"")
        status, document, _ = problem_of(Problem(503, self._reason, hint="ask again soon"), "opening")
        body, kind = msgspec.json.encode(document), MEDIA_TYPE.encode()
        if scope["path"] == "/page.css":
            body = (resources.files("slomo.service.page") / "page.css").read_bytes()
            status, kind = 200, b"text/css"
        elif scope["path"] == "/healthz":
            status, body, kind = 200, b'{"status":"ok"}', b"application/json"
        elif b"text/html" in accepts:
            lead = tag("p", f"{self._reason}. This page looks again by itself.", class_="lead")
            body, kind = page("Starting", "", lead), b"text/html; charset=utf-8"
        seconds = str(LOOK_AGAIN_S).encode()
        length = str(len(body)).encode()
        headers = [(b"content-type", kind), (b"content-length", length), (b"cache-control", b"no-store")]
        headers += [(b"retry-after", seconds), (b"refresh", seconds)]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def serve(
    settings: ServiceSettings,
    on_ready: Callable[[str], None] | None = None,
    begin: Callable[[Service], None] | None = None,
    prepare: Callable[[], object] | None = None,
) -> None:
    """Serve requests until a signal ends the process.

    `settings`: settings of the service. `on_ready`: called with the address once the service listens. `begin`: called
    with the service before it answers. `prepare`: makes what the settings name, such as models; meanwhile the port is
    open and answers state for what the service waits. Raises ConfigurationError if the address cannot be used or a file
    of the service cannot be read.
    """
    _check_tls(settings)

    def made() -> FrontDoor:
        if prepare is not None:
            prepare()
        service = Service(settings)
        if begin is not None:
            begin(service)
        gc.collect()
        gc.freeze()  # models live as long as the process, so garbage collection need not visit them again
        gc.set_threshold(50_000, 20, 50)
        return make_app(service, OPERATIONS)

    with _listener(settings) as listener:
        opening = None if prepare is None else Opening(made, PREPARING, lambda: setattr(server, "should_exit", True))
        config = uvicorn.Config(
            opening or made(),  # without `prepare`, unreadable files are reported before the first answer
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=True,
            timeout_keep_alive=75,
            http=guarded(EdgeLimits(body_s=settings.time_limit_s + 5.0)),
            ws="none",
            limit_concurrency=_connections(),
            timeout_graceful_shutdown=5,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.key,
            ssl_ca_certs=settings.client_ca,
            ssl_cert_reqs=ssl.CERT_REQUIRED if settings.client_ca else ssl.CERT_NONE,
        )
        if on_ready is not None:
            scheme = "https" if settings.certificate else "http"
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            on_ready(f"{scheme}://{host}:{listener.getsockname()[1]}")
        server = uvicorn.Server(config)
        server.run(sockets=[listener])
        if opening is not None and opening.fault is not None:
            raise opening.fault


def _connections() -> int:
    """Raise the soft limit of open files, at most to the hard one; return the number of connections that it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited, needed = resource.RLIM_INFINITY, MOST_CONNECTIONS + OTHER_FILES
    if soft != unlimited and soft < needed:
        soft = needed if hard == unlimited else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST_CONNECTIONS if soft == unlimited else max(min(MOST_CONNECTIONS, soft - OTHER_FILES), 16)


def _check_tls(settings: ServiceSettings) -> None:
    """Read certificate, key and authority once, since uvicorn does not say which of them is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        if settings.certificate is not None:
            context.load_cert_chain(settings.certificate, settings.key, lambda: "")
        if settings.client_ca is not None:
            context.load_verify_locations(settings.client_ca)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        what = f"certificate '{settings.certificate}', key '{settings.key}' or authority '{settings.client_ca}'"
        hint = "needed are PEM files that belong together, the key without a password"
        raise ConfigurationError(f"TLS cannot begin with {what}: {error}", hint=hint) from None


def _listener(settings: ServiceSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((settings.host, settings.port))
    except OSError as error:
        made.close()
        raise ConfigurationError(
            f"cannot listen at {settings.host}:{settings.port}: {error.strerror}",
            hint="choose another --port; 0 takes a free one",
        ) from None
    made.listen(1024)
    return made
