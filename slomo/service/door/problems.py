"""Report errors as problem+json (RFC 9457), with hints but without tracebacks or paths of this machine."""

import sqlite3
from collections.abc import Mapping
from typing import Any

import msgspec

from slomo.errors import (
    ConfigurationError,
    InvalidValueError,
    MeasurementError,
    PredictionError,
    RefusedSettingError,
    SlomoError,
    StoreError,
    TestbedError,
    UnknownNameError,
)
from slomo.host.knobs import VanishedError

MEDIA_TYPE = "application/problem+json"

TITLES: dict[int, str] = {
    400: "The request is not understood",
    401: "A token is needed",
    403: "This token may not do that",
    404: "There is no such thing",
    405: "This method is not offered here",
    408: "The body took too long to arrive",
    409: "What is there stands against it",
    412: "The state has moved on",
    413: "The body is too large",
    415: "The body must be JSON",
    421: "The service does not answer to this name",
    422: "The request makes no sense",
    429: "Too many requests wait already",
    500: "The service has a fault",
    503: "The service cannot answer now",
    504: "The answer took too long",
    507: "There is no room to write",
}


class Problem(SlomoError):  # noqa: N818 - RFC 9457's word
    """An exception that is answered with a problem document and these `headers`."""

    def __init__(
        self, status: int, message: str, *, hint: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.status, self.headers = status, dict(headers or {})


_KINDS: tuple[tuple[type[BaseException], int, str], ...] = (
    (UnknownNameError, 422, "unknown-name"),
    (InvalidValueError, 422, "invalid-value"),
    (ConfigurationError, 422, "configuration"),
    (PredictionError, 422, "unsupported-prediction"),
    (MeasurementError, 422, "measurement"),
    (RefusedSettingError, 422, "refused-setting"),
    (VanishedError, 409, "vanished"),
    (StoreError, 503, "store"),
    (TestbedError, 503, "testbed"),
)


def problem_of(error: BaseException, request_id: str) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Return status, document and headers that report an error."""
    status, kind, detail, hint, headers = _described(error)
    document: dict[str, Any] = {
        "type": f"urn:slomo:problem:{kind}",
        "title": TITLES.get(status, "Problem"),
        "status": status,
        "detail": detail,
        "instance": f"urn:slomo:request:{request_id}",
    }
    if hint is None and status < 500:
        hint = "see /openapi.json for what a request may hold"
    if hint is not None:
        document["hint"] = hint
    return status, document, headers


def _described(error: BaseException) -> tuple[int, str, str, str | None, dict[str, str]]:
    if isinstance(error, Problem):
        kind = TITLES.get(error.status, "problem").lower().replace(" ", "-").replace("'", "")
        return error.status, kind, error.message, error.hint, error.headers
    if isinstance(error, msgspec.ValidationError):
        hint = getattr(error.__cause__, "hint", None) or "see /openapi.json for what the body may hold"
        return 422, "schema", str(error), hint, {}
    if isinstance(error, RecursionError):
        return 422, "schema", "the body is nested too deep", None, {}
    if isinstance(error, (msgspec.DecodeError, UnicodeDecodeError)):
        return 400, "malformed", f"the body is no JSON: {error}", "send one JSON document in UTF-8", {}
    if is_disk_full(error):
        return 507, "no-room", "the state cannot be written: the disk is full", "free some space; reads go on", {}
    for cls, status, kind in _KINDS:
        if isinstance(error, cls):
            assert isinstance(error, SlomoError)
            return status, kind, error.message, error.hint, {}
    if isinstance(error, SlomoError):
        return (500 if error.exit_code == SlomoError.exit_code else 422), "usage", error.message, error.hint, {}
    if isinstance(error, sqlite3.Error):
        return 503, "state", "the state cannot be read or written now", "see the service's log", {}
    return 500, "internal", "a fault of the service", "please report it with the request id and the log", {}


def is_disk_full(error: BaseException) -> bool:
    """Return whether an SQLite error means that the disk is full.

    >>> is_disk_full(sqlite3.OperationalError("database or disk is full"))
    True
    """
    if isinstance(error, OSError) and error.errno in (28, 122):
        return True
    if not isinstance(error, sqlite3.Error):
        return False
    name = getattr(error, "sqlite_errorname", "") or ""
    return name in ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE") or "disk is full" in str(error)
