"""Clients that ask a slomo service over HTTP, one synchronous and one asynchronous.

Errors of the service are raised as the library's own, with their hints. Writes carry an idempotency key: a write
repeated after a broken connection is applied once.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Unpack
from urllib.parse import quote

from slomo.errors import (
    ConfigurationError,
    InvalidValueError,
    PredictionError,
    RefusedSettingError,
    SlomoError,
    StoreError,
    UnknownNameError,
    UsageError,
    rebuilt,
)
from slomo.vocabulary.defaults import AnswerOptions
from slomo.vocabulary.numbers import positive_number
from slomo.vocabulary.workload import Workload
from slomo.workflow.names import sequence_of

if TYPE_CHECKING:
    import httpx

    from slomo.placement.problem.decision import Decision
    from slomo.placement.problem.request import Request
    from slomo.prediction.result import Prediction

    Requests = Sequence[Request | Mapping[str, Any]]

#: Names of network functions: one, several, or a count of each.
Names = Iterable[Workload | str] | Mapping[str, int] | Workload | str


class BatchOptions(AnswerOptions, total=False):
    """Options of ``POST /v1/predict/batch``."""

    machine: str | None


class QuestionOptions(BatchOptions, total=False):
    """Options of ``POST /v1/predict``."""

    offered_mpps: float | None
    shares_core_with: Sequence[str]
    port_gbps: float | None
    setting: Mapping[str, Any] | None
    explain: bool
    strict: bool


class WhatIfOptions(AnswerOptions, total=False):
    """Options of ``POST /v1/whatif``."""

    setting: Mapping[str, Any] | None


_ERRORS: dict[str, type[SlomoError]] = {
    "invalid-value": InvalidValueError,
    "configuration": ConfigurationError,
    "unsupported-prediction": PredictionError,
    "refused-setting": RefusedSettingError,
    "store": StoreError,
    "no-room": StoreError,
}


class ServiceError(SlomoError):
    """The service refused the request, or could not be reached.

    Parameters
    ----------
    message : str
        The service's message.
    hint : str, optional
        The service's hint.
    status : int
        HTTP status; 0 if there was no answer.
    """

    exit_code = 3

    def __init__(self, message: str, *, hint: str | None = None, status: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.status = status


@dataclass(frozen=True)
class _Call:
    """One HTTP request, the same for both clients; a write that is sent again is applied once."""

    path: str
    body: Any = None
    method: str = "POST"
    is_write: bool = False

    def of_httpx(self) -> dict[str, Any]:
        """Return the keyword arguments of httpx's ``request``."""
        headers = {"Idempotency-Key": secrets.token_hex(16)} if self.is_write else {}
        return {"method": self.method, "url": self.path, "json": self.body, "headers": headers}


def _predict(target: str, competitors: Names, options: Mapping[str, Any]) -> _Call:
    return _Call("/v1/predict", {"target": target, "competitors": _texts(competitors), **_stated(options)})


def _predict_batch(targets: Sequence[str], mixes: Sequence[Names], options: Mapping[str, Any]) -> _Call:
    return _Call("/v1/predict/batch", {"targets": list(targets), "mixes": [_texts(mix) for mix in mixes], **options})


def _whatif(tenants: Names, machine: str | None, options: Mapping[str, Any]) -> _Call:
    return _Call("/v1/whatif", {"tenants": _texts(tenants), **_stated({"machine": machine, **options})})


def _texts(names: Names) -> list[str]:
    return [item if isinstance(item, str) else item.key for item in sequence_of(names)]


def _row(request: "Request | Mapping[str, Any]") -> dict[str, Any]:
    if isinstance(request, Mapping):
        return dict(request)
    if not hasattr(request, "chain"):
        raise InvalidValueError(
            f"{request!r} is no request", hint="write for instance Request('edge', ['lpm'], SLO(min_share=0.9))"
        )
    return {**request.to_dict(), "chain": [workload.key for workload in request.chain]}


def _place(requests: "Requests", *, what_if: bool) -> _Call:
    rows = [_row(request) for request in requests]
    return _Call("/v1/place", {"requests": rows, "what_if": what_if}, is_write=not what_if)


def _remove(request: str) -> _Call:
    return _Call(f"/v1/cluster/requests/{quote(request, safe='')}", method="DELETE", is_write=True)


def _observe(observations: Iterable[Mapping[str, Any]]) -> _Call:
    return _Call("/v1/observations", {"observations": [dict(item) for item in observations]}, is_write=True)


def _report(node: str, report: Mapping[str, Any]) -> _Call:
    return _Call(f"/v1/agents/{quote(node, safe='')}", dict(report))


def _plan(node: str) -> _Call:
    return _Call(f"/v1/agents/{quote(node, safe='')}/plan", method="GET")


def _stated(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _prediction(document: Mapping[str, Any]) -> "Prediction":
    from slomo.prediction.result import Prediction

    return Prediction.from_dict(document)


def _decisions(document: Mapping[str, Any]) -> "tuple[Decision, ...]":
    from slomo.placement.problem.decision import Decision

    listed = document.get("decisions") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise _strange("the answer holds no decisions")
    return tuple(Decision.from_dict(item) for item in listed)


def _checked(answer: "httpx.Response") -> Any:
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
    if kind == "unknown-name":
        raise rebuilt(UnknownNameError, detail, hint)
    if kind in ("schema", "usage"):
        raise UsageError(detail, hint=hint)
    if kind in _ERRORS:
        raise _ERRORS[kind](detail, hint=hint)
    raise ServiceError(detail, hint=hint, status=answer.status_code)


def _strange(what: str) -> ServiceError:
    return ServiceError(f"what answers is no service of slomo: {what}", hint="check the address")


class _Connection:
    """Connection to a service through an httpx client, which is imported on first use."""

    _kind: ClassVar[str]

    def __init__(self, url: str, token: str | None = None, *, timeout_s: float = 30.0, verify: Any = True) -> None:
        import httpx

        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise UsageError(f"{repr(url)[:100]} is no address", hint="such as http://127.0.0.1:8080")
        positive_number("timeout_s", timeout_s, "s")
        self.url, self._broken, self._slow = url.rstrip("/"), httpx.TransportError, httpx.ReadTimeout
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._line: Any = getattr(httpx, self._kind)(
                base_url=self.url, headers=headers, timeout=timeout_s, verify=verify
            )
        except (httpx.InvalidURL, ValueError) as problem:
            raise UsageError(
                f"{self.url[:100]!r} is no address: {problem}", hint="such as http://127.0.0.1:8080"
            ) from None

    def _unreached(self, problem: Exception) -> ServiceError:
        if isinstance(problem, self._slow):
            return ServiceError(f"no answer from the service at {self.url} in time", hint="pass a longer timeout_s=")
        return ServiceError(f"cannot reach the service at {self.url}: {problem}", hint="start one: slomo serve --demo")


class Client(_Connection):
    """Synchronous client of a slomo service.

    Parameters
    ----------
    url : str
        Where it answers, ``"http://127.0.0.1:8080"``.
    token : str, optional
        What it needs beyond loopback.
    timeout_s : float
        Longest wait for an answer [s].
    verify : bool or SSLContext
        TLS verification; a context with a client certificate for mTLS.

    Examples
    --------
    >>> Client("http://127.0.0.1:1").predict("lpm")
    Traceback (most recent call last):
    slomo.client.ServiceError: cannot reach the service at http://127.0.0.1:1: ...
    """

    _kind = "Client"

    def predict(self, target: str, competitors: Names = (), **options: Unpack[QuestionOptions]) -> "Prediction":
        """Predict the target's throughput beside competitors; options are those of ``POST /v1/predict``.

        Raises
        ------
        UsageError, UnknownNameError, PredictionError, ServiceError
            As the library raises them; ServiceError for other failures of the service.
        """
        return _prediction(self._send(_predict(target, competitors, options)))

    def predict_batch(
        self, targets: Sequence[str], mixes: Sequence[Names], **options: Unpack[BatchOptions]
    ) -> dict[str, list[Any]]:
        """Predict many mixes; return the results as columns."""
        columns: dict[str, list[Any]] = self._send(_predict_batch(targets, mixes, options))
        return columns

    def whatif(self, tenants: Names, machine: str | None = None, **options: Unpack[WhatIfOptions]) -> dict[str, Any]:
        """Predict all NFs of a server; options are those of ``POST /v1/whatif``."""
        predictions: dict[str, Any] = self._send(_whatif(tenants, machine, options))
        return predictions

    def place(self, requests: "Requests", *, what_if: bool = False) -> "tuple[Decision, ...]":
        """Place requests on the service's cluster; with `what_if`, only return the decision."""
        return _decisions(self._send(_place(requests, what_if=what_if)))

    def remove(self, request: str) -> None:
        """Remove a request from the service's cluster."""
        self._send(_remove(request))

    def observe(self, observations: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Send measured throughputs (``POST /v1/observations``); return how each differs from its prediction."""
        answer: dict[str, Any] = self._send(_observe(observations))
        return answer

    def report(self, node: str, report: Mapping[str, Any]) -> dict[str, Any]:
        """Send the report of a Kubernetes node's agent (``POST /v1/agents/{node}``)."""
        answer: dict[str, Any] = self._send(_report(node, report))
        return answer

    def plan(self, node: str) -> dict[str, Any] | None:
        """Return the plan of settings that the agent of a node carries out; None if it has none."""
        answer: dict[str, Any] = self._send(_plan(node))
        return None if answer["plan"] is None else dict(answer["plan"])

    def get(self, path: str) -> Any:
        """Return what the service answers to GET for any path of its API."""
        return self._send(_Call(path, method="GET"))

    def close(self) -> None:
        """Close the connection."""
        self._line.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, call: _Call) -> Any:
        try:
            return _checked(self._line.request(**call.of_httpx()))
        except self._broken as problem:
            raise self._unreached(problem) from None


class AsyncClient(_Connection):
    """Asynchronous client of a service, with the parameters of :class:`Client`.

    Examples
    --------
    >>> AsyncClient("http://127.0.0.1:8080").url
    'http://127.0.0.1:8080'
    """

    _kind = "AsyncClient"

    async def predict(self, target: str, competitors: Names = (), **options: Unpack[QuestionOptions]) -> "Prediction":
        """Predict one mix, as :meth:`Client.predict`."""
        return _prediction(await self._send(_predict(target, competitors, options)))

    async def predict_batch(
        self, targets: Sequence[str], mixes: Sequence[Names], **options: Unpack[BatchOptions]
    ) -> dict[str, list[Any]]:
        """Predict many mixes, as :meth:`Client.predict_batch`."""
        columns: dict[str, list[Any]] = await self._send(_predict_batch(targets, mixes, options))
        return columns

    async def whatif(
        self, tenants: Names, machine: str | None = None, **options: Unpack[WhatIfOptions]
    ) -> dict[str, Any]:
        """Predict all NFs of a server; options are those of ``POST /v1/whatif``."""
        predictions: dict[str, Any] = await self._send(_whatif(tenants, machine, options))
        return predictions

    async def place(self, requests: "Requests", *, what_if: bool = False) -> "tuple[Decision, ...]":
        """Place requests on the service's cluster, as :meth:`Client.place`."""
        return _decisions(await self._send(_place(requests, what_if=what_if)))

    async def remove(self, request: str) -> None:
        """Remove a request from the service's cluster."""
        await self._send(_remove(request))

    async def observe(self, observations: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Send measured throughputs, as :meth:`Client.observe`."""
        answer: dict[str, Any] = await self._send(_observe(observations))
        return answer

    async def report(self, node: str, report: Mapping[str, Any]) -> dict[str, Any]:
        """Send the report of a node's agent, as :meth:`Client.report`."""
        answer: dict[str, Any] = await self._send(_report(node, report))
        return answer

    async def plan(self, node: str) -> dict[str, Any] | None:
        """Return a node's plan, as :meth:`Client.plan`."""
        answer: dict[str, Any] = await self._send(_plan(node))
        return None if answer["plan"] is None else dict(answer["plan"])

    async def get(self, path: str) -> Any:
        """Return what the service answers to GET, as :meth:`Client.get`."""
        return await self._send(_Call(path, method="GET"))

    async def close(self) -> None:
        """Close the connection."""
        await self._line.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _send(self, call: _Call) -> Any:
        try:
            return _checked(await self._line.request(**call.of_httpx()))
        except self._broken as problem:
            raise self._unreached(problem) from None
