"""Answer requests while the service starts: the process is alive but not ready, with the reason."""

import asyncio
import threading
from collections.abc import Callable
from importlib import resources
from typing import Any

import msgspec
from starlette.types import Message, Receive, Scope, Send

from slomo.service.door.problems import MEDIA_TYPE, Problem, problem_of
from slomo.service.page.frame import page
from slomo.service.page.markup import tag

#: Time after which a browser reloads [s].
LOOK_AGAIN_S = 2


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
