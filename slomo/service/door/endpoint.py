"""Answer requests to one path of the API: read and check the request, call the operation, encode the answer.

Every answer has a request id and headers against content sniffing; every failure is answered with a problem document.
"""

import asyncio
import logging
import os
import re
import time
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive, Scope, Send

from slomo.errors import ConfigurationError, UnknownNameError
from slomo.files.documents import convert
from slomo.files.json_text import repeated_key
from slomo.service.door.access import Gate, check_origin
from slomo.service.door.operation import Answer, Call, Caller, Operation
from slomo.service.door.problems import MEDIA_TYPE, Problem, problem_of
from slomo.service.logs import CONTEXT, RequestContext, trace_of
from slomo.service.metrics import Metrics
from slomo.service.settings import ServiceSettings
from slomo.service.tracing import Tracer

_LOG = logging.getLogger("slomo.service")
#: Largest number of query fields.
MOST_FIELDS = 20
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SAFE: list[tuple[bytes, bytes]] = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
]
_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode


class Served(Protocol):
    """Interface of the service that endpoints use."""

    settings: ServiceSettings
    gate: Gate
    metrics: Metrics
    tracer: Tracer

    def audit(self, method: str, path: str, actual: str, caller: Caller, request_id: str, status: int) -> None:
        """Log every change and attempted change with its caller."""


class Endpoint:
    """Answers requests of all methods to one path."""

    def __init__(self, service: Served, operations: tuple[Operation, ...]) -> None:
        self._service = service
        self._operations = {item.method: item for item in operations}
        if "GET" in self._operations:
            self._operations.setdefault("HEAD", self._operations["GET"])
        self._decoders: dict[str, msgspec.json.Decoder[Any]] = {
            item.method: msgspec.json.Decoder(item.body) for item in operations if item.body is not None
        }
        self._path = operations[0].path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        begun = time.perf_counter()
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}  # names come in lower case
        stated_id = headers.get("x-request-id", "")
        request_id = stated_id if _ID.fullmatch(stated_id) else os.urandom(8).hex()
        CONTEXT.set(RequestContext(request_id, trace_of(headers.get("traceparent", ""))))
        with self._service.tracer.span(f"{scope['method']} {self._path}", headers, request_id=request_id) as span:
            status = await self._answer(scope, receive, send, headers, request_id)
            self._service.tracer.answered(span, status)
        observed_s = time.perf_counter() - begun
        self._service.metrics.requests.observe((self._path, scope["method"], str(status)), observed_s)

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, headers: Mapping[str, str], request_id: str
    ) -> int:
        """Check a request, answer it and send the answer; return the status."""
        caller = Caller("nobody", "open")
        method = scope["method"]
        try:
            operation = self._operations.get(method)
            if operation is None:
                allowed = ", ".join(sorted(self._operations))
                raise Problem(405, f"{method} is not offered here", hint=f"use {allowed}", headers={"Allow": allowed})
            caller = self._service.gate.caller(headers, (scope.get("client") or ("",))[0])
            self._service.gate.check(caller, operation.scope)
            answer = await self._answered(scope, receive, headers, operation, (caller, request_id))
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except Exception as error:
            status, document, added = problem_of(error, request_id)
            if status >= 500:
                _LOG.exception("request %s failed", request_id, exc_info=error if status == 500 else None)
            answer = Answer(document, status, added, MEDIA_TYPE)
        self._service.audit(method, self._path, scope["path"], caller, request_id, answer.status)
        await _send(send, answer, request_id, is_head=method == "HEAD")
        return answer.status

    async def _answered(
        self,
        scope: Scope,
        receive: Receive,
        headers: Mapping[str, str],
        operation: Operation,
        who: tuple[Caller, str],
    ) -> Answer:
        """Read and answer a request within one time limit; a cached answer to an equal request may be reused."""
        limit_s, raw = self._service.settings.time_limit_s, None
        try:
            async with asyncio.timeout(limit_s):
                raw = await self._body(receive, headers, operation)
                repeated = None if operation.repeated is None else operation.repeated(self._service, raw)
                if repeated is not None:
                    return Answer(repeated)
                body = self._decoded(operation, raw)
                query = _query(scope["query_string"])
                if operation.query and operation.media_type == Answer.media_type and query.keys() - operation.query:
                    raise UnknownNameError("query field", min(query.keys() - operation.query), operation.query)
                call = Call(scope.get("path_params", {}), query, headers, body, raw, *who)
                if operation.writes:
                    check_origin(headers)
                return await operation.handle(self._service, call)
        except TimeoutError:
            if raw is None:
                raise Problem(408, f"the body did not arrive within {limit_s:g} s") from None
            hint = "ask for less at once, or as a job (Prefer: respond-async)"
            raise Problem(504, f"no answer within {limit_s:g} s", hint=hint) from None

    def _decoded(self, operation: Operation, raw: bytes) -> Any:
        """Decode the body to the operation's type; errors name the wrong field and the known ones."""
        if operation.body is None:
            return None
        try:
            body = self._decoders[operation.method].decode(raw)
            _check_keys(raw)
            return body
        except msgspec.ValidationError:
            try:
                convert(msgspec.json.decode(raw), operation.body, "the body")
            except ConfigurationError as told:
                raise msgspec.ValidationError(told.message) from told
            except msgspec.ValidationError:  # the same number in `decode`, without its field
                hint = "a number has at most 308 digits before the point"
                raise Problem(422, "the body holds a number that is too large", hint=hint) from None
            raise

    async def _body(self, receive: Receive, headers: Mapping[str, str], operation: Operation) -> bytes:
        settings = self._service.settings
        declared = headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > settings.body_limit_b:
            raise _too_large(settings.body_limit_b)
        raw = await _read(receive, settings.body_limit_b)
        if operation.body is None:
            return raw
        kind = headers.get("content-type", "application/json").split(";", 1)[0].strip().lower()
        if kind != "application/json" and not kind.endswith("+json"):
            raise Problem(415, "the body is not sent as JSON", hint="send Content-Type: application/json")
        if not raw.strip():
            raise Problem(400, "the body is empty", hint="send one JSON document; /openapi.json says which")
        _check_depth(raw, settings.depth_limit)
        return raw


def _query(text: bytes) -> dict[str, str]:
    """Return the fields of a query string."""
    if not text:
        return {}
    try:
        fields = parse_qsl(
            text.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=MOST_FIELDS,
        )
    except ValueError:
        hint = f"send NAME=VALUE&..., at most {MOST_FIELDS} fields, percent-encoded UTF-8"
        raise Problem(422, "the query cannot be read", hint=hint) from None
    if len(dict(fields)) < len(fields):
        raise Problem(422, "a field of the query is given twice", hint="give each once")
    return dict(fields)


async def _read(receive: Receive, limit_b: int) -> bytes:
    message = await receive()
    if not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        if len(body) > limit_b:
            raise _too_large(limit_b)
        return body
    parts, size = [message.get("body", b"")], len(message.get("body", b""))
    while message.get("more_body", False):
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit_b:
            raise _too_large(limit_b)
    return b"".join(parts)


def _too_large(limit_b: int) -> Problem:
    return Problem(413, f"the body is larger than {limit_b} bytes", hint="ask in several requests")


def _check_depth(raw: bytes, limit: int) -> None:
    """Raise an error if a body is nested deeper than `limit`."""
    if len(raw) > 1 << 20 or raw.count(b"[") + raw.count(b"{") <= limit:
        return
    depth = deepest = 0
    for part in re.findall(rb"[\[{]+|[\]}]+", re.sub(rb'"(?:[^"\\]|\\.)*"', b"", raw)):
        depth += len(part) if part[0] in b"[{" else -len(part)
        deepest = max(deepest, depth)
    if deepest > limit:
        raise Problem(422, f"the body is nested {deepest} deep, at most {limit} are read")


def _check_keys(raw: bytes) -> None:
    """Raise an error if an object of a valid body has a key twice; msgspec would silently use the last one."""
    # Decoding drops all but the last one, and with each the colon behind it. Of escapes only \u003a decodes to a colon.
    if raw.count(b":") != _encode(_decode(raw)).count(b":") or b"\\u003a" in raw or b"\\u003A" in raw:
        repeated = repeated_key(raw.decode())
        if repeated is not None:
            raise Problem(400, f"the body:{repeated}", hint="give each field once")


async def _send(send: Send, answer: Answer, request_id: str, *, is_head: bool) -> None:
    headers = [(b"content-type", answer.media_type.encode()), (b"x-request-id", request_id.encode())]
    if answer.headers:
        headers += [
            (name.lower().encode(), value.encode("latin-1", "replace")) for name, value in answer.headers.items()
        ]
        own = {name for name, _ in headers}
        headers += [pair for pair in _SAFE if pair[0] not in own]
    else:
        headers += _SAFE
    if answer.stream is not None:
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"", "more_body": True})  # sends the head at once
        async for chunk in answer.stream:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    body = b"" if answer.body is None else answer.body if isinstance(answer.body, bytes) else _encode(answer.body)
    if answer.status not in (204, 304):
        headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if is_head or answer.status in (204, 304) else body})


class NotFound:
    """Answers requests to unknown paths with an error document."""

    def __init__(self, service: Served) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's shape
        """Answer with 404; close connections of protocols other than HTTP."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        request_id = os.urandom(8).hex()
        problem = Problem(404, "there is nothing here", hint="see /openapi.json for what there is")
        status, document, _ = problem_of(problem, request_id)
        await _send(send, Answer(document, status, {}, MEDIA_TYPE), request_id, is_head=scope["method"] == "HEAD")
        self._service.metrics.requests.observe(("other", "any", "404"), 0.0)
