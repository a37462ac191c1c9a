"""What is set on a server besides its tenants: cache ways, throttles, cores, memory nodes, sockets, a shared port."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from slomo.errors import InvalidValueError


def llc_numbers(cores: Sequence[int | None], per_socket: int, caches: int) -> list[int]:
    """Return the number of each tenant's last-level cache on a socket; without a core it has the first free one.

    >>> llc_numbers([None, 9, None, None, None, None], per_socket=32, caches=8)
    [0, 2, 0, 0, 0, 1]
    """
    taken = {core % per_socket for core in cores if core is not None}
    free = (core for core in range(per_socket) if core not in taken)
    own = [next(free, 0) if core is None else core % per_socket for core in cores]
    return [core * caches // per_socket for core in own]


@dataclass(frozen=True)
class ServerSetting:
    """What each tenant of a server may use, in the tenants' order; a field left out divides nothing."""

    #: Mask of each tenant's cache ways; all ways by default.
    ways: Sequence[int] | None = None
    #: Memory bandwidth throttle of each, above 0 to 100 [%]; 100 by default.
    bandwidth_percent: Sequence[float] | None = None
    #: Core of each; tenants with equal ones share it, None (the default) is a core of its own, the first free one.
    cores: Sequence[int | None] | None = None
    #: CPU weight of each on a shared core, above 0; equal by default.
    weights: Sequence[float] | None = None
    #: Memory node of each; that of its socket by default.
    nodes: Sequence[int] | None = None
    #: Socket of each; all on the NIC's by default. Tenants of different sockets share no cache and no channel.
    sockets: Sequence[int] | None = None
    #: Line rate of the one NIC port that all tenants of the server, on any socket, share max-min fair [Gbit/s]; by
    #: default they share the machine's ports.
    port_gbps: float | None = None

    def checked(self, tenants: int) -> "ServerSetting":
        """Return the setting with tuples. Raises InvalidValueError for lists of other lengths, or impossible values."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "port_gbps"}
        for name, listed in values.items():
            if listed is not None and len(listed) != tenants:
                raise InvalidValueError(
                    f"{name.replace('_', ' ')} {list(listed)} for {tenants} NFs, needed one each",
                    hint=f"leave {name} out for what is usual",
                )
        for mask in self.ways or ():
            if mask <= 0:
                raise InvalidValueError(f"way mask {mask:#x}, needed one way or more", hint="0x3 is ways 0 and 1")
        for percent in self.bandwidth_percent or ():
            if not 0.0 < percent <= 100.0:
                raise InvalidValueError(
                    f"memory bandwidth of {percent:g} %, needed above 0 to 100", hint="100 is no throttle"
                )
        for weight in self.weights or ():
            if not 0.0 < weight < math.inf:
                raise InvalidValueError(f"CPU weight {weight:g}, needed above 0")
        if self.port_gbps is not None and not 0.0 < self.port_gbps <= 1e6:
            raise InvalidValueError(f"port_gbps is {self.port_gbps}, needed above 0 to 1e6 Gbit/s")
        for name in ("nodes", "sockets"):
            if (least := min(values[name] or (0,))) < 0:
                raise InvalidValueError(f"{name}: {least}, needed 0 or more")
        tuples = {name: None if listed is None else tuple(listed) for name, listed in values.items()}
        return replace(self, **tuples)  # type: ignore[arg-type]

    def only(self, places: Sequence[int]) -> "ServerSetting":
        """Return the setting of some of the tenants."""
        listed = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "port_gbps"}
        chosen = {name: None if values is None else tuple(values[i] for i in places) for name, values in listed.items()}
        return replace(self, **chosen)  # type: ignore[arg-type]
