"""Ask a slomo service from Python: a small typed client over HTTP, synchronous and asynchronous.

Problems the service tells come back as the library's own errors, with their hints; writes carry an idempotency key, so
that one that is sent again after a broken line happens once.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slomo.errors import (
    ConfigurationError,
    InvalidValueError,
    PredictionError,
    SlomoError,
    StoreError,
    UsageError,
)

if TYPE_CHECKING:
    import httpx

    from slomo.placement.problem.decision import Decision
    from slomo.placement.problem.request import Request
    from slomo.prediction.result import Prediction

_ERRORS: dict[str, type[SlomoError]] = {
    "invalid-value": InvalidValueError,
    "configuration": ConfigurationError,
    "unsupported-prediction": PredictionError,
    "store": StoreError,
    "no-room": StoreError,
}


class ServiceError(SlomoError):
    """The service refused, or could not be reached.

    Parameters
    ----------
    message : str
        What it said.
    hint : str, optional
        Its hint.
    status : int
        HTTP status; 0 where nobody answered.
    """

    exit_code = 3

    def __init__(self, message: str, *, hint: str | None = None, status: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class _Messages:
    """What requests look like, and what answers mean; the same for both clients."""

    @staticmethod
    def headers(token: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"} if token else {}

    @staticmethod
    def question(target: str, competitors: Iterable[str], options: Mapping[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in options.items() if value is not None}
        return {"target": target, "competitors": list(competitors), **given}

    @staticmethod
    def tenants(names: Sequence[str], machine: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a question about a server."""
        given = {name: value for name, value in {"machine": machine, **options}.items() if value is not None}
        return {"tenants": list(names), **given}

    @staticmethod
    def prediction(document: Mapping[str, Any]) -> "Prediction":
        from slomo.prediction.result import Prediction

        return Prediction.from_dict(document)

    @staticmethod
    def placement(requests: Sequence["Request"], *, what_if: bool) -> dict[str, Any]:
        rows = []
        for request in requests:
            row = request.to_dict()
            row["chain"] = [workload.key for workload in request.chain]
            rows.append(row)
        return {"requests": rows, "what_if": what_if}

    @staticmethod
    def decisions(document: Mapping[str, Any]) -> "tuple[Decision, ...]":
        from slomo.placement.problem.decision import Decision

        listed = document.get("decisions") if isinstance(document, dict) else None
        if not isinstance(listed, list):
            raise _strange("the answer holds no decisions")
        return tuple(Decision.from_dict(item) for item in listed)

    @staticmethod
    def checked(answer: "httpx.Response") -> Any:
        if answer.status_code < 400:
            try:
                return answer.json() if answer.content else None
            except (ValueError, RecursionError):
                raise _strange("the answer is no JSON") from None
        try:
            document = answer.json()
            detail, hint = str(document["detail"]), document.get("hint")
            kind = str(document.get("type", "")).rsplit(":", 1)[-1]
        except (ValueError, KeyError, TypeError):
            raise ServiceError(f"the service answered {answer.status_code}", status=answer.status_code) from None
        if kind in ("unknown-name", "schema", "usage"):
            raise UsageError(detail, hint=hint)
        if kind in _ERRORS:
            raise _ERRORS[kind](detail, hint=hint)
        raise ServiceError(detail, hint=hint, status=answer.status_code)


def _line(kind: Any, url: str, options: Mapping[str, Any]) -> Any:
    """Return a client of httpx; UsageError for what is no address."""
    try:
        return kind(base_url=url, **options)
    except (_httpx().InvalidURL, ValueError) as problem:
        raise UsageError(f"{url[:100]!r} is no address: {problem}", hint="such as http://127.0.0.1:8080") from None


def _strange(what: str) -> ServiceError:
    return ServiceError(f"what answers is no service of slomo: {what}", hint="check the address")


def _unreached(url: str, problem: Exception) -> ServiceError:
    return ServiceError(f"cannot reach the service at {url}: {problem}", hint="start one: slomo serve --demo")


def _options(token: str | None, timeout_s: float, verify: Any) -> dict[str, Any]:
    return {"headers": _Messages.headers(token), "timeout": timeout_s, "verify": verify}


def _httpx() -> Any:
    import httpx  # loaded when somebody asks a service

    return httpx


class Client:
    """Asks a service.

    Parameters
    ----------
    url : str
        Where it answers, ``"http://127.0.0.1:8080"``.
    token : str, optional
        What it needs beyond loopback.
    timeout_s : float
        Longest wait for an answer [s].
    verify : bool or SSLContext
        Whom to trust; a context with a client certificate for mTLS.

    Examples
    --------
    >>> Client("http://127.0.0.1:1").predict("lpm")
    Traceback (most recent call last):
    slomo.client.ServiceError: cannot reach the service at http://127.0.0.1:1: ...
    """

    def __init__(self, url: str, token: str | None = None, *, timeout_s: float = 30.0, verify: Any = True) -> None:
        self._httpx = _httpx()
        self.url = url.rstrip("/")
        self._line = _line(self._httpx.Client, self.url, _options(token, timeout_s, verify))

    def predict(self, target: str, competitors: Iterable[str] = (), **options: Any) -> "Prediction":
        """Predict one mix; options are those of ``POST /v1/predict``.

        Raises
        ------
        UsageError, PredictionError, ServiceError
            As the library would, or what the service said.
        """
        return _Messages.prediction(self._post("/v1/predict", _Messages.question(target, competitors, options)))

    def predict_batch(
        self, targets: Sequence[str], mixes: Sequence[Sequence[str]], **options: Any
    ) -> dict[str, list[Any]]:
        """Predict many mixes; return columns."""
        body = {"targets": list(targets), "mixes": [list(mix) for mix in mixes], **options}
        columns: dict[str, list[Any]] = self._post("/v1/predict/batch", body)
        return columns

    def whatif(self, tenants: Sequence[str], machine: str | None = None, **options: Any) -> dict[str, Any]:
        """Ask about everybody on a server; options are those of ``POST /v1/whatif``."""
        predictions: dict[str, Any] = self._post("/v1/whatif", _Messages.tenants(tenants, machine, options))
        return predictions

    def place(self, requests: "Sequence[Request]", *, what_if: bool = False) -> "tuple[Decision, ...]":
        """Place requests, or ask what would be decided."""
        body = _Messages.placement(requests, what_if=what_if)
        return _Messages.decisions(self._post("/v1/place", body, is_write=not what_if))

    def remove(self, request: str) -> None:
        """Take a request off."""
        self._send("DELETE", f"/v1/cluster/requests/{_quoted(request)}", is_write=True)

    def get(self, path: str) -> Any:
        """Read anything the API offers."""
        return self._send("GET", path)

    def close(self) -> None:
        """Close the connection."""
        self._line.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _post(self, path: str, body: Any, *, is_write: bool = False) -> Any:
        return self._send("POST", path, body, is_write=is_write)

    def _send(self, method: str, path: str, body: Any = None, *, is_write: bool = False) -> Any:
        headers = {"Idempotency-Key": secrets.token_hex(16)} if is_write else {}
        try:
            answer = self._line.request(method, path, json=body, headers=headers)
        except self._httpx.TransportError as problem:
            raise _unreached(self.url, problem) from None
        return _Messages.checked(answer)


class AsyncClient:
    """Asks a service without waiting in line; the parameters of :class:`Client`.

    Examples
    --------
    >>> AsyncClient("http://127.0.0.1:8080").url
    'http://127.0.0.1:8080'
    """

    def __init__(self, url: str, token: str | None = None, *, timeout_s: float = 30.0, verify: Any = True) -> None:
        self._httpx = _httpx()
        self.url = url.rstrip("/")
        self._line = _line(self._httpx.AsyncClient, self.url, _options(token, timeout_s, verify))

    async def predict(self, target: str, competitors: Iterable[str] = (), **options: Any) -> "Prediction":
        """Predict one mix, as :meth:`Client.predict`."""
        return _Messages.prediction(await self._post("/v1/predict", _Messages.question(target, competitors, options)))

    async def predict_batch(
        self, targets: Sequence[str], mixes: Sequence[Sequence[str]], **options: Any
    ) -> dict[str, list[Any]]:
        """Predict many mixes; return columns."""
        body = {"targets": list(targets), "mixes": [list(mix) for mix in mixes], **options}
        columns: dict[str, list[Any]] = await self._post("/v1/predict/batch", body)
        return columns

    async def whatif(self, tenants: Sequence[str], machine: str | None = None, **options: Any) -> dict[str, Any]:
        """Ask about everybody on a server; options are those of ``POST /v1/whatif``."""
        predictions: dict[str, Any] = await self._post("/v1/whatif", _Messages.tenants(tenants, machine, options))
        return predictions

    async def place(self, requests: "Sequence[Request]", *, what_if: bool = False) -> "tuple[Decision, ...]":
        """Place requests, or ask what would be decided."""
        body = _Messages.placement(requests, what_if=what_if)
        return _Messages.decisions(await self._post("/v1/place", body, is_write=not what_if))

    async def remove(self, request: str) -> None:
        """Take a request off."""
        await self._send("DELETE", f"/v1/cluster/requests/{_quoted(request)}", is_write=True)

    async def get(self, path: str) -> Any:
        """Read anything the API offers."""
        return await self._send("GET", path)

    async def close(self) -> None:
        """Close the connection."""
        await self._line.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _post(self, path: str, body: Any, *, is_write: bool = False) -> Any:
        return await self._send("POST", path, body, is_write=is_write)

    async def _send(self, method: str, path: str, body: Any = None, *, is_write: bool = False) -> Any:
        headers = {"Idempotency-Key": secrets.token_hex(16)} if is_write else {}
        try:
            answer = await self._line.request(method, path, json=body, headers=headers)
        except self._httpx.TransportError as problem:
            raise _unreached(self.url, problem) from None
        return _Messages.checked(answer)


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")
