"""Set the packet buffers of a running NF through its control socket (Click's ControlSocket, also in FastClick).

ResQ (NSDI'18, section 4.3) chooses the number of buffers such that all of them fit into the DDIO ways. Knob:
``buffers:HOST:PORT/HANDLER``.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing

from slomo.enforce.change import Backend
from slomo.enforce.plan import EnforcementPlan
from slomo.errors import RefusedSettingError
from slomo.host.control_socket import ControlSocket
from slomo.host.knobs import VanishedError, Wish
from slomo.host.locks import MachineLock
from slomo.host.places import this_place


class BuffersBackend(Backend):
    """Sets the number of packet buffers of an NF through a Click handler."""

    name = "buffers"

    def available(self) -> tuple[bool, str]:
        """Return True, since each NF's control socket is checked only when a plan names it."""
        return True, "Click control sockets"

    def place(self) -> str:
        """Return a text that identifies this host and its boot."""
        return this_place("control sockets")

    def lock(self) -> AbstractContextManager[object]:
        """Hold this host's lock while a `with` block runs."""
        return MachineLock("buffers of this host's network functions")

    def wishes(self, plan: EnforcementPlan) -> tuple[Wish, ...]:
        """Return, for each Click handler, the number of packet buffers that the plan asks for."""
        wishes = []
        for tenant in plan.tenants:
            if tenant.buffers is None:
                continue
            if tenant.control_socket is None:
                raise RefusedSettingError(
                    f"tenant '{tenant.tenant}': {tenant.buffers} buffers, but no control socket to set them",
                    hint="name control_socket, for instance 127.0.0.1:7001/fd.buffers, or start it with so many",
                )
            _split(tenant.control_socket)
            wishes.append(Wish(f"buffers:{tenant.control_socket}", str(tenant.buffers)))
        return tuple(wishes)

    def read(self, knob: str) -> str | None:
        """Return the handler's value; None if no NF listens."""
        port, host, handler = _split(knob.partition(":")[2])
        with closing(ControlSocket(port, host)) as click:
            try:
                return click.read(handler).strip()
            except VanishedError:
                return None

    def write(self, knob: str, value: str | None) -> None:
        """Set the handler's value. Raises TestbedError if the NF refuses; VanishedError if no NF listens."""
        port, host, handler = _split(knob.partition(":")[2])
        with closing(ControlSocket(port, host)) as click:
            click.write(handler, str(value))

    def knobs(self) -> Iterator[str]:
        """Yield no names, since this backend cannot know which NFs run."""
        return iter(())


def _split(address: str) -> tuple[int, str, str]:
    place, _, handler = address.partition("/")
    host, _, port = place.rpartition(":")
    if not handler or not port.isdigit() or any(ord(sign) <= 32 for sign in handler):
        raise RefusedSettingError(
            f"control socket '{address}' is not understood", hint="write 127.0.0.1:7001/element.handler"
        )
    return int(port), host or "127.0.0.1", handler
