"""One operation of the API: method, path, body schema, required scope, answer."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

#: Required scope, each including the ones before: none, read, report outcomes, ask for a scheduler (which holds
#: places), change.
Scope = Literal["open", "read", "observe", "schedule", "admin"]


@dataclass(frozen=True)
class Caller:
    """Name and rights of the sender of a request."""

    #: Name of the token, or ``"loopback"`` or ``"certificate"``.
    name: str
    #: The most it may do.
    scope: Scope


@dataclass(frozen=True)
class Call:
    """One request after it was checked."""

    #: Path parameters, and headers with lower-case names.
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    #: The body, as the operation's type.
    body: Any
    #: The body as received.
    raw: bytes
    #: Who asks.
    caller: Caller
    #: Identifier of the request in answers and logs.
    id: str


@dataclass(frozen=True)
class Answer:
    """Status, headers and body of an answer.

    `body` is encoded as JSON; bytes are sent as they are. `headers` come beside those that every answer has. `stream`,
    instead of a body, is an asynchronous iterator of chunks.
    """

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    media_type: str = "application/json"
    stream: Any = None


#: Function of the service and a call.
Handler = Callable[[Any, Call], Awaitable[Answer]]


@dataclass(frozen=True)
class LongWork:
    """Work in the background that an operation can start."""

    #: Names it in the state.
    kind: str
    #: Function of the service, the request, and a `slomo.service.jobs.JobProgress`.
    work: Callable[[Any, Any, Any], Awaitable[Any]]


@dataclass(frozen=True)
class Operation:
    """One operation of the API: method, path, body, scope, and the function that answers."""

    #: Such as ``"POST"`` and ``"/v1/predict"``, with path parameters in braces.
    method: str
    path: str
    #: Answers; the first line of its docstring describes the operation in the OpenAPI document.
    handle: Handler
    #: Who may call it.
    scope: Scope = "read"
    #: Schema of the body; None without a body.
    body: Any = None
    #: Schema of the answer; None if it is described only in words.
    answers: Any = None
    #: Status where all goes well.
    success: int = 200
    #: Further statuses it may have.
    statuses: tuple[int, ...] = ()
    #: Query parameter -> description.
    query: dict[str, str] = field(default_factory=dict)
    #: Form field -> description, for bodies that a browser sends.
    form: dict[str, str] = field(default_factory=dict)
    #: Of the answer.
    media_type: str = "application/json"
    #: Group in the OpenAPI document.
    tag: str = "service"
    #: Whether it changes state: it then takes ``Idempotency-Key`` and ``If-Match``, and is logged for audit.
    writes: bool = False
    #: Function of the service and a body's bytes that returns a cached answer to the same bytes, if there is one.
    repeated: Callable[[Any, bytes], bytes | None] | None = None
    #: Work that continues in the background.
    job: LongWork | None = None

    @property
    def summary(self) -> str:
        """One sentence that says what the operation does."""
        return (self.handle.__doc__ or "").partition("\n")[0]
