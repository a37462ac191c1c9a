"""Packet buffers of a running NF, set through its control socket (Click's ControlSocket, also in FastClick).

ResQ (NSDI'18, section 4.3) sizes them so that all fit into the DDIO ways. Knob: ``buffers:HOST:PORT/HANDLER``.
"""

import socket
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from slomo.enforce.plan import EnforcementPlan
from slomo.errors import TestbedError
from slomo.host.knobs import VanishedError, Wish
from slomo.host.locks import MachineLock
from slomo.host.places import this_place

_LIMIT_S = 5.0
_LARGEST_B = 1 << 16


class BuffersBackend:
    """Reads and writes a handler whose value is a number of buffers.

    Examples
    --------
    >>> BuffersBackend().name
    'buffers'
    """

    name = "buffers"

    def available(self) -> tuple[bool, str]:
        """Return True; availability is checked per NF."""
        return True, "Click control sockets"

    def place(self) -> str:
        """Return this host and boot."""
        return this_place("control sockets")

    def lock(self) -> AbstractContextManager[object]:
        """Hold this host's lock."""
        return MachineLock("buffers of this host's network functions")

    def wishes(self, plan: EnforcementPlan, own: Sequence[str] = ()) -> tuple[Wish, ...]:  # noqa: ARG002
        """Return the handlers of tenants with decided buffer numbers.

        Raises TestbedError for a tenant without a control socket.
        """
        wishes = []
        for tenant in plan.tenants:
            if tenant.buffers is None:
                continue
            if tenant.control_socket is None:
                raise TestbedError(
                    f"tenant '{tenant.tenant}': {tenant.buffers} buffers, but no control socket to set them",
                    hint="name control_socket, for instance 127.0.0.1:7001/fd.buffers, or start it with so many",
                )
            _split(tenant.control_socket)
            wishes.append(Wish(f"buffers:{tenant.control_socket}", str(tenant.buffers)))
        return tuple(wishes)

    def read(self, knob: str) -> str | None:
        """Return the handler's value; None if nothing listens."""
        host, port, handler = _split(knob.partition(":")[2])
        try:
            return _talk(host, port, f"READ {handler}")
        except ConnectionRefusedError:
            return None
        except OSError as problem:
            raise TestbedError(f"control socket {host}:{port}: {problem.strerror or problem}") from None

    def write(self, knob: str, value: str | None) -> None:
        """Set the handler; TestbedError with the network function's answer; VanishedError if nothing listens."""
        host, port, handler = _split(knob.partition(":")[2])
        try:
            _talk(host, port, f"WRITE {handler} {value}")
        except ConnectionRefusedError:
            raise VanishedError(f"no process listens on {host}:{port}", hint="the network function ended") from None
        except OSError as problem:
            raise TestbedError(f"control socket {host}:{port}: {problem.strerror or problem}") from None

    def knobs(self) -> Iterator[str]:
        """Return nothing: the running network functions are unknown here."""
        return iter(())


def _split(address: str) -> tuple[str, int, str]:
    place, _, handler = address.partition("/")
    host, _, port = place.rpartition(":")
    if not handler or not port.isdigit() or any(ord(sign) <= 32 for sign in handler):
        raise TestbedError(f"control socket '{address}' is not understood", hint="write 127.0.0.1:7001/element.handler")
    return host or "127.0.0.1", int(port), handler


def _talk(host: str, port: int, line: str) -> str:
    """Send one line and return the data of the answer."""
    with socket.create_connection((host, port), timeout=_LIMIT_S) as connection, connection.makefile("rwb") as stream:
        stream.readline(_LARGEST_B)  # the greeting
        stream.write(line.encode("utf-8") + b"\r\n")
        stream.flush()
        answer = stream.readline(_LARGEST_B).decode("utf-8", "replace").strip()
        if not answer.startswith("200"):
            raise TestbedError(f"control socket {host}:{port} answers '{answer}' to '{line}'")
        if not line.startswith("READ"):
            return ""
        size = stream.readline(64).split()
        return stream.read(min(int(size[1]), _LARGEST_B)).decode("utf-8", "replace").strip()
