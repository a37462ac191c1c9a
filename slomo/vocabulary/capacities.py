"""The capacities of a machine's shared resources, which limit combined counters, and the socket of its NICs."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated

from msgspec import Meta

from slomo.files.documents import convert
from slomo.files.ranges import Count, PositiveCount
from slomo.vocabulary.metrics import Cap, Metric

_Most = Annotated[float, Meta(ge=0.0)]


@dataclass(frozen=True)
class Capacities:
    """Capacities of the shared resources of one socket."""

    #: Cores per socket; EXEC and FREQ of the socket are means over them.
    cores: PositiveCount
    #: Capacities of the last-level cache and of its DDIO ways [KiB].
    llc_kib: _Most = math.inf
    ddio_kib: _Most = math.inf
    #: Peak bandwidth of the memory channels and of the inter-socket links [GB/s].
    memory_gb_s: _Most = math.inf
    link_gb_s: _Most = math.inf
    #: Summed line rate of the ports that network functions share [Gbit/s].
    ports_gbps: _Most = math.inf
    #: Extra time of the shared cache's reporter without hits, relative to its solo time.
    llc_reporter: _Most = math.inf
    #: Socket of the NICs, on which profiles are measured.
    nic_socket: Count = 0

    def limit(self, metric: Metric) -> float:
        """Return the capacity that limits `metric` on this socket, in the metric's unit; infinite if unlimited."""
        scale = 1e9 / 2**20 if metric.unit == "MiB/s" else 1.0
        bounds = {Cap.ONE: 1.0, Cap.LLC: float(self.llc_kib), Cap.DDIO: float(self.ddio_kib)}
        bounds |= {Cap.MEMORY: self.memory_gb_s * scale, Cap.LINK: self.link_gb_s * scale}
        bounds |= {Cap.REPORTER: self.llc_reporter}
        return bounds.get(metric.cap, math.inf)

    def to_dict(self) -> dict[str, float | int | None]:
        """Return a JSON-ready mapping; an unknown (infinite) capacity becomes None."""
        stated = {name: None if math.isinf(value) else value for name, value in asdict(self).items()}
        for name in ("llc_reporter", "ports_gbps"):  # known where reporters were calibrated, and ports are stated
            if stated[name] is None:
                del stated[name]
        if not self.nic_socket:  # nearly all machines
            del stated["nic_socket"]
        return stated

    @classmethod
    def from_dict(cls, data: Mapping[str, float | int | None]) -> "Capacities":
        """Return the object that :meth:`to_dict` described."""
        return convert({name: value for name, value in data.items() if value is not None}, cls, "capacities")
