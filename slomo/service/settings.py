"""What a service is started with: where models and state are, who may ask, and the limits of a request."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slomo.errors import InvalidValueError


@dataclass(frozen=True)
class ServiceSettings:
    """How one service runs.

    Attributes
    ----------
    models : Path
        Directory of saved models; reloaded when it changes.
    state : Path or None
        SQLite file; None keeps state in memory only, for trials and tests.
    cluster : Path or None
        Cluster to begin with where the state has none.
    host : str
        Address to listen at.
    port : int
        Port to listen at; 0 takes a free one.
    token_file : Path or None
        Tokens and their scopes; needed, or `client_ca`, beyond loopback.
    certificate, key, client_ca : Path or None
        TLS, and the authority that signs clients' certificates (mTLS).
    body_limit_b : int
        Largest body of a request [bytes].
    batch_limit : int
        Most questions in one request.
    depth_limit : int
        Deepest nesting of a body.
    time_limit_s : float
        Longest time a body may take to arrive, and a question to be answered [s].
    kubernetes : str or None
        Address of an API server to watch; ``"in-cluster"`` for the one a pod finds.
    evict : {"off", "dry-run", "on"}
        Whether pods are moved away from nodes on which a promise is broken.
    policy : str
        Placement policy.
    confidence : float
        Probability with which all SLOs of a socket must hold.
    open_loopback : bool
        Whether callers on this machine need no token although others do: a scheduler in the same pod.
    enforce : str or None
        Backend by which callers may act on this host (`slomo.enforce`), ``"auto"`` for the first that works; None
        refuses.
    control : bool
        Whether callers may run control loops on simulated machines.
    receipts : Path or None
        Folder of receipts of what was done to this host; that of `slomo enforce` if None.
    pools : Path or None
        ``rmd.toml``: answer as RMD, by the backend of `enforce`, or only computing without one.
    policies : Path or None
        RMD's ``policy.yaml``; gold, silver and bronze as RMD ships them if None.
    host_machine : str or None
        Machine type of this host, for the ways of its cache.
    correct : bool
        Whether predictions, placement and the scheduler's judgements are corrected by outcomes, within ten per cent.
    names : tuple of str
        Host names, beside those of loopback, under which the service may be called without a token.

    Examples
    --------
    >>> ServiceSettings(Path("models")).is_loopback
    True
    """

    models: Path
    state: Path | None = None
    cluster: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    body_limit_b: int = 32 * 1024 * 1024
    batch_limit: int = 200_000
    depth_limit: int = 32
    time_limit_s: float = 30.0
    kubernetes: str | None = None
    evict: Literal["off", "dry-run", "on"] = "dry-run"
    policy: str = "predicted"
    confidence: float = 0.95
    open_loopback: bool = False
    enforce: str | None = None
    control: bool = False
    receipts: Path | None = None
    pools: Path | None = None
    policies: Path | None = None
    host_machine: str | None = None
    correct: bool = False
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise InvalidValueError(f"port is {self.port}, needed 0 to 65535")
        if not self.is_loopback and self.token_file is None and self.client_ca is None:
            raise InvalidValueError(
                f"the service would listen at {self.host} for everybody",
                hint="give --token-file, or --client-ca with --certificate and --key; or listen at 127.0.0.1",
            )
        if (self.certificate is None) != (self.key is None) or (self.client_ca and not self.certificate):
            raise InvalidValueError(
                "TLS needs a certificate and its key", hint="give --certificate and --key together; --client-ca beside"
            )
        if self.pools is not None and self.host_machine is None:
            raise InvalidValueError("pools were given, but not how many ways the cache has", hint="give --host-machine")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
