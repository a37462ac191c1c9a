"""Settings of a service: paths of models and state, access, and limits of requests."""

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slomo.errors import InvalidValueError


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of one service: paths, access, limits."""

    #: Directory of saved models, reloaded when it changes.
    models: Path
    #: SQLite file; None keeps state in memory only, for trials and tests.
    state: Path | None = None
    #: Initial cluster if the state has none.
    cluster: Path | None = None
    #: Address to listen at.
    host: str = "127.0.0.1"
    #: Port to listen on; 0 takes a free one.
    port: int = 8080
    #: Tokens and their scopes; without `client_ca`, required for addresses beyond loopback.
    token_file: Path | None = None
    #: TLS certificate, and the CA of clients' certificates (mTLS).
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    #: Largest body of a request [bytes].
    body_limit_b: int = 32 * 1024 * 1024
    #: Largest number of questions in one request.
    batch_limit: int = 200_000
    #: Largest nesting depth of a body.
    depth_limit: int = 32
    #: Time limit for receiving a body, and for an answer [s].
    time_limit_s: float = 30.0
    #: URL of an API server to watch; ``"in-cluster"`` for a pod's own.
    kubernetes: str | None = None
    #: Whether to evict pods from nodes with a broken promise; one of "off", "dry-run", "on".
    evict: Literal["off", "dry-run", "on"] = "dry-run"
    #: Largest number of evictions per minute.
    evict_per_minute: int = 60
    #: Address of an OpenTelemetry collector (OTLP over HTTP); None sends no spans.
    otlp: str | None = None
    #: Placement policy.
    policy: str = "predicted"
    #: Probability with which all SLOs of a socket must hold.
    confidence: float = 0.95
    #: Whether callers on this machine need no token although others do, such as a scheduler in the same pod.
    open_loopback: bool = False
    #: Backend through which callers may act on this host (`slomo.enforce`), ``"auto"`` for the first that works; None
    #: refuses.
    enforce: str | None = None
    #: Whether callers may run control loops on simulated machines.
    control: bool = False
    #: Folder for receipts of changes to this host; None for that of `slomo enforce`.
    receipts: Path | None = None
    #: ``rmd.toml``: the service then answers like RMD; the backend of `enforce` makes the settings, without it none are
    #: made.
    pools: Path | None = None
    #: RMD's ``policy.yaml``; None for RMD's gold, silver and bronze.
    policies: Path | None = None
    #: Machine type of this host, which gives its number of cache ways.
    host_machine: str | None = None
    #: Whether outcomes correct predictions, placement and the scheduler's judgements, by at most 10 %.
    correct: bool = False
    #: Host names, in addition to loopback's, by which the service may be called without a token.
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise InvalidValueError(f"port is {self.port}, needed 0 to 65535")
        if not self.is_loopback and self.token_file is None and self.client_ca is None:
            raise InvalidValueError(
                f"the service would listen at {self.host} and let every caller in",
                hint="give --token-file, or --client-ca with --certificate and --key; or listen at 127.0.0.1",
            )
        if (self.certificate is None) != (self.key is None) or (self.client_ca and not self.certificate):
            raise InvalidValueError(
                "TLS needs a certificate and its key", hint="give --certificate and --key together; --client-ca beside"
            )
        if self.pools is not None and self.host_machine is None:
            raise InvalidValueError("pools were given, but not the number of cache ways", hint="give --host-machine")
        for name, value, other, needed in (
            ("--policies", self.policies, "--pools", self.pools),
            ("--host-machine", self.host_machine, "--pools", self.pools),
            ("--evict on", self.evict == "on", "--kubernetes", self.kubernetes),
        ):
            if value and not needed:
                raise InvalidValueError(f"{name} was given, which has no effect without {other}", hint=f"give {other}")
        address = self.kubernetes
        if address not in (None, "in-cluster") and not re.fullmatch(r"https?://[^/\s]+(/\S*)?", address):
            hint = "write https://HOST:PORT, or in-cluster for a pod's own"
            raise InvalidValueError(f"{address!r} is no address of an API server", hint=hint)

    @property
    def is_loopback(self) -> bool:
        """Whether the service can be reached only from this machine."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
