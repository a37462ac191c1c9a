"""Access control: loopback by default; tokens with scopes or client certificates for other addresses.

Tokens are kept as digests and compared in constant time. Without tokens, the ``Host`` header must name loopback, so
that another site's page cannot reach the service through its own host name (DNS rebinding).
"""

import functools
import hashlib
import hmac
import ipaddress
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from slomo.errors import ConfigurationError
from slomo.files.opening import read_text
from slomo.service.door.operation import Caller, Scope
from slomo.service.door.problems import Problem

COOKIE = "slomo_token"
_RANK: dict[Scope, int] = {"open": 0, "read": 1, "observe": 2, "schedule": 3, "admin": 4}
#: Scopes that a token may have.
_SCOPES: dict[str, Scope] = {"read": "read", "observe": "observe", "schedule": "schedule", "admin": "admin"}
_SHORTEST = 16


@dataclass(frozen=True)
class Token:
    """One token: a name for the audit log, a scope, and the digest of the secret."""

    name: str
    scope: Scope
    digest: bytes


def read_tokens(path: Path) -> tuple[Token, ...]:
    """Read a token file: one ``NAME SCOPE SECRET`` per line, ``#`` for comments; `_SCOPES` lists the scopes."""
    text = read_text(path)
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO) & ~stat.S_IRGRP:
        raise ConfigurationError(f"token file '{path}' can be read by other users", hint=f"chmod 600 {path}")
    tokens = []
    for number, line in enumerate(text.splitlines(), start=1):
        parts = line.split("#", 1)[0].split()
        if not parts:
            continue
        wrong = (
            f"{len(parts)} words, needed 3" if len(parts) != 3
            else f"the second word is no scope, needed {', '.join(_SCOPES)}" if parts[1] not in _SCOPES
            else f"the secret has {len(parts[2])} characters, needed {_SHORTEST}" if len(parts[2]) < _SHORTEST
            else ""
        )  # fmt: skip
        if wrong:
            raise ConfigurationError(
                f"token file '{path}', line {number}: {wrong}",
                hint=f"write NAME read|observe|schedule|admin SECRET, the secret of {_SHORTEST} characters or more",
            )
        tokens.append(Token(parts[0], _SCOPES[parts[1]], hashlib.sha256(parts[2].encode()).digest()))
    if not tokens:
        raise ConfigurationError(
            f"token file '{path}' holds no token", hint="write NAME read|observe|schedule|admin SECRET"
        )
    return tuple(tokens)


class Gate:
    """Identifies the sender of a request and checks the sender's rights.

    `tokens`: known tokens; without any, every caller that can reach the service has all rights (from loopback, or with
    a verified client certificate). `names`: host names that are accepted without tokens, in addition to loopback's.
    `certificates`: whether TLS verifies clients. `open_loopback`: whether callers on this machine need no token; must
    be False behind a proxy, where every caller seems to be on this machine.
    """

    def __init__(
        self,
        tokens: tuple[Token, ...] = (),
        names: tuple[str, ...] = (),
        *,
        certificates: bool = False,
        open_loopback: bool = False,
    ) -> None:
        self._tokens, self._names, self._certificates = tokens, frozenset(names), certificates
        self._open_loopback = open_loopback

    def caller(self, headers: Mapping[str, str], address: str = "") -> Caller:
        """Return the sender of a request, identified by token, certificate or `address`."""
        if not self._tokens:
            if not self._certificates:
                self._check_name(headers.get("host", ""))
            return Caller("certificate" if self._certificates else "loopback", "admin")
        if self._open_loopback and address and _is_loopback(address) and "authorization" not in headers:
            self._check_name(headers.get("host", ""))
            return Caller("loopback", "admin")
        secret = _secret(headers)
        if secret is None:
            return Caller("nobody", "open")
        digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
        matches = [token for token in self._tokens if hmac.compare_digest(token.digest, digest)]
        if not matches:
            raise Problem(401, "this token is not known", headers={"WWW-Authenticate": "Bearer"})
        return Caller(matches[0].name, matches[0].scope)

    def check(self, caller: Caller, scope: Scope) -> None:
        """Raise Problem 401 or 403 for a caller without the required scope."""
        if _RANK[caller.scope] >= _RANK[scope]:
            return
        if caller.scope == "open":
            hint = "send Authorization: Bearer TOKEN"
            raise Problem(401, "this needs a token", hint=hint, headers={"WWW-Authenticate": "Bearer"})
        raise Problem(
            403, f"'{caller.name}' may {caller.scope}, this needs {scope}", hint="use a token with that scope"
        )

    def _check_name(self, host: str) -> None:
        name = host.rsplit(":", 1)[0].strip("[]") if not host.endswith("]") else host.strip("[]")
        if name in ("localhost", "", "testserver") or name in self._names or _is_loopback(name):
            return
        raise Problem(421, "the service was called by a name that is not its own", hint="call it as 127.0.0.1")


@functools.lru_cache(256)
def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def check_origin(headers: Mapping[str, str]) -> None:
    """Raise an error if a browser sends a write request on behalf of another site's page."""
    origin = headers.get("origin")
    if origin is None:
        return
    try:
        same = urlsplit(origin).netloc == headers.get("host", "")
    except ValueError:
        same = False
    if not same:
        raise Problem(403, "another site's page may not change anything")


def _secret(headers: Mapping[str, str]) -> str | None:
    credentials = headers.get("authorization", "")
    if credentials[:7].lower() == "bearer ":
        return credentials[7:].strip()
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE and value:
            return value
    return None
