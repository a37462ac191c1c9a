"""What one operation of the API is: method, path, the schema of its body, who may call it, and what it answers."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

#: Who may call: everybody, who may read, who may also tell outcomes, ask for a scheduler (that holds places), or change
#: things: each may what those before may.
Scope = Literal["open", "read", "observe", "schedule", "admin"]


@dataclass(frozen=True)
class Caller:
    """Who asks."""

    #: Name of the token, ``"loopback"`` or ``"certificate"``.
    name: str
    #: The most it may do.
    scope: Scope


@dataclass(frozen=True)
class Call:
    """One request, checked."""

    #: Parameters; header names in lower case.
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    #: The body as the operation's type.
    body: Any
    #: The body as it came.
    raw: bytes
    #: Who asks.
    caller: Caller
    #: Identifies the request in answers and logs.
    id: str


@dataclass(frozen=True)
class Answer:
    """What is sent back.

    Attributes
    ----------
    body : object
        Encoded as JSON; bytes are sent as they are.
    status : int
        HTTP status.
    headers : dict
        Beside those every answer has.
    media_type : str
        Of the body.
    stream : callable or None
        Instead of a body, an asynchronous iterator of chunks.
    """

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    media_type: str = "application/json"
    stream: Any = None


#: Takes the service and a call.
Handler = Callable[[Any, Call], Awaitable[Answer]]


@dataclass(frozen=True)
class LongWork:
    """Long work that an operation may begin."""

    #: Names it in the state.
    kind: str
    #: Takes the service, what was asked, and a `slomo.service.jobs.JobProgress`.
    work: Callable[[Any, Any, Any], Awaitable[Any]]


@dataclass(frozen=True)
class Operation:
    """One operation."""

    #: ``"POST"``, ``"/v1/predict"``; parameters of the path in braces.
    method: str
    path: str
    #: Answers.
    handle: Handler
    #: One sentence for the OpenAPI document.
    summary: str
    #: Who may call it.
    scope: Scope = "read"
    #: Schema of the body; None for none.
    body: Any = None
    #: Schema of the answer; None where it is described in words only.
    answers: Any = None
    #: Status where all goes well.
    success: int = 200
    #: Further statuses it may have.
    statuses: tuple[int, ...] = ()
    #: Query parameter -> what it means.
    query: dict[str, str] = field(default_factory=dict)
    #: Field of a form -> what it means; for bodies that a browser sends.
    form: dict[str, str] = field(default_factory=dict)
    #: Of the answer.
    media_type: str = "application/json"
    #: Group in the OpenAPI document.
    tag: str = "service"
    #: Whether it changes state: then it takes ``Idempotency-Key`` and ``If-Match``, and is written to the audit log.
    writes: bool = False
    #: Takes the service and the bytes of a body; returns the answer to the same bytes where it is still known.
    repeated: Callable[[Any, bytes], bytes | None] | None = None
    #: What goes on in the background.
    job: LongWork | None = None
