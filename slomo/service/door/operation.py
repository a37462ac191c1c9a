"""One operation of the API: method, path, body schema, required scope, answer."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

#: Required scope; each scope includes the ones before: none, read, report outcomes, ask as scheduler (which reserves
#: places), change.
Scope = Literal["open", "read", "observe", "schedule", "admin"]


@dataclass(frozen=True)
class Caller:
    """Name and rights of the sender of a request."""

    #: Name of the token, or ``"loopback"`` or ``"certificate"``.
    name: str
    #: The sender's scope.
    scope: Scope


@dataclass(frozen=True)
class Call:
    """One request that has passed all checks."""

    #: Path parameters, and headers with lower-case names.
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    #: The body, decoded to the operation's type.
    body: Any
    #: The body as received.
    raw: bytes
    #: Sender of the request.
    caller: Caller
    #: Identifier of the request in answers and logs.
    id: str


@dataclass(frozen=True)
class Answer:
    """Status, headers and body of an answer."""

    #: Encoded as JSON, unless it is bytes.
    body: Any = None
    status: int = 200
    #: Added to those of every answer.
    headers: dict[str, str] = field(default_factory=dict)
    media_type: str = "application/json"
    #: Asynchronous iterator of chunks, instead of a body.
    stream: Any = None


#: Function from the service and a call to the answer.
Handler = Callable[[Any, Call], Awaitable[Answer]]


@dataclass(frozen=True)
class LongWork:
    """Background work that an operation can start."""

    #: Name of this kind of work in the state file.
    kind: str
    #: Function that does the work, given the service, the request and a `slomo.service.jobs.JobProgress`.
    work: Callable[[Any, Any, Any], Awaitable[Any]]


@dataclass(frozen=True)
class Operation:
    """One operation of the API: method, path, body, scope, and the function that answers."""

    #: Method and path, such as ``"POST"`` and ``"/v1/predict"``; path parameters are in braces.
    method: str
    path: str
    #: Function that answers; the first line of its docstring describes the operation in the OpenAPI document.
    handle: Handler
    #: Required scope of the caller.
    scope: Scope = "read"
    #: Schema of the body; None without a body.
    body: Any = None
    #: Schema of the answer; None if it is described only in words.
    answers: Any = None
    #: Status of a successful answer.
    success: int = 200
    #: Other possible statuses.
    statuses: tuple[int, ...] = ()
    #: Query parameter -> description.
    query: dict[str, str] = field(default_factory=dict)
    #: Form field -> description, for bodies that a browser sends.
    form: dict[str, str] = field(default_factory=dict)
    #: Media type of the answer.
    media_type: str = "application/json"
    #: Group of the operation in the OpenAPI document.
    tag: str = "service"
    #: Whether the operation changes state; it then accepts ``Idempotency-Key`` and ``If-Match``, and is logged for
    #: audit.
    writes: bool = False
    #: Function from the service and a body's bytes to the cached answer to the same bytes, or None.
    repeated: Callable[[Any, bytes], bytes | None] | None = None
    #: Work that continues in the background.
    job: LongWork | None = None

    @property
    def summary(self) -> str:
        """One sentence that describes the operation."""
        return (self.handle.__doc__ or "").partition("\n")[0]
