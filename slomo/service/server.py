"""Run a service under uvicorn: one process, one event loop, one thread that writes to disk."""

import gc
import resource
import socket
import ssl
from collections.abc import Callable

import uvicorn

from slomo.errors import ConfigurationError
from slomo.service.api.routes import OPERATIONS
from slomo.service.application import FrontDoor, Service, make_app
from slomo.service.edge import EdgeLimits, guarded
from slomo.service.opening import Opening
from slomo.service.settings import ServiceSettings

#: Message shown while models are trained.
PREPARING = "the demonstration's models are unpacked, once; where none are shipped they are trained, half a minute"
#: Largest number of connections, above which requests get status 503; number of file descriptors reserved for other
#: uses.
MOST_CONNECTIONS, OTHER_FILES = 8192, 256


def serve(
    settings: ServiceSettings,
    on_ready: Callable[[str], None] | None = None,
    begin: Callable[[Service], None] | None = None,
    prepare: Callable[[], object] | None = None,
) -> None:
    """Serve requests until a signal ends the process.

    `settings`: settings of the service. `on_ready`: called with the address once the service listens. `begin`: called
    with the service before it answers. `prepare`: makes what the settings name, such as models; meanwhile the port is
    open and answers state for what the service waits. Raises ConfigurationError if the address cannot be used or a file
    of the service cannot be read.
    """
    _check_tls(settings)

    def made() -> FrontDoor:
        if prepare is not None:
            prepare()
        service = Service(settings)
        if begin is not None:
            begin(service)
        gc.collect()
        gc.freeze()  # models live as long as the process, so garbage collection need not visit them again
        gc.set_threshold(50_000, 20, 50)
        return make_app(service, OPERATIONS)

    with _listener(settings) as listener:
        opening = None if prepare is None else Opening(made, PREPARING, lambda: setattr(server, "should_exit", True))
        config = uvicorn.Config(
            opening or made(),  # without `prepare`, unreadable files are reported before the first answer
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=True,
            timeout_keep_alive=75,
            http=guarded(EdgeLimits(body_s=settings.time_limit_s + 5.0)),
            ws="none",
            limit_concurrency=_connections(),
            timeout_graceful_shutdown=5,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.key,
            ssl_ca_certs=settings.client_ca,
            ssl_cert_reqs=ssl.CERT_REQUIRED if settings.client_ca else ssl.CERT_NONE,
        )
        if on_ready is not None:
            scheme = "https" if settings.certificate else "http"
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            on_ready(f"{scheme}://{host}:{listener.getsockname()[1]}")
        server = uvicorn.Server(config)
        server.run(sockets=[listener])
        if opening is not None and opening.fault is not None:
            raise opening.fault


def _connections() -> int:
    """Raise the soft limit of open files, at most to the hard one; return the number of connections that it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited, needed = resource.RLIM_INFINITY, MOST_CONNECTIONS + OTHER_FILES
    if soft != unlimited and soft < needed:
        soft = needed if hard == unlimited else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST_CONNECTIONS if soft == unlimited else max(min(MOST_CONNECTIONS, soft - OTHER_FILES), 16)


def _check_tls(settings: ServiceSettings) -> None:
    """Read certificate, key and authority once, since uvicorn does not say which of them is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        if settings.certificate is not None:
            context.load_cert_chain(settings.certificate, settings.key, lambda: "")
        if settings.client_ca is not None:
            context.load_verify_locations(settings.client_ca)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        what = f"certificate '{settings.certificate}', key '{settings.key}' or authority '{settings.client_ca}'"
        hint = "needed are PEM files that belong together, the key without a password"
        raise ConfigurationError(f"TLS cannot begin with {what}: {error}", hint=hint) from None


def _listener(settings: ServiceSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((settings.host, settings.port))
    except OSError as error:
        made.close()
        raise ConfigurationError(
            f"cannot listen at {settings.host}:{settings.port}: {error.strerror}",
            hint="choose another --port; 0 takes a free one",
        ) from None
    made.listen(1024)
    return made
