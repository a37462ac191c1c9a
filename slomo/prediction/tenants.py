"""The network functions of a server (its tenants), with each name resolved to a model, a load and a socket.

Only this module turns a name, text or workload into a model. Models are adapted here to unprofiled traffic and settings
(`slomo.adaptation.adapt`), with a reason.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from slomo.adaptation.adapt import at_workload
from slomo.errors import InvalidValueError
from slomo.models.library import ModelLibrary
from slomo.models.nf_model import NFModel
from slomo.vocabulary.server_setting import ServerSetting, llc_numbers
from slomo.vocabulary.way_masks import refusal, way_block
from slomo.vocabulary.wire import wire_gbps
from slomo.vocabulary.workload import Workload
from slomo.vocabulary.workload_text import each_instance, parse_workload

#: A workload, its key, its text, or the name of an NF.
Named = Workload | str
_UNDIVIDED = ServerSetting()


@dataclass(frozen=True, eq=False)
class TenantModel:
    """An NF of a server with its model, load, core and socket."""

    #: Workload as requested, offered load included.
    workload: Workload
    #: Model as trained, or adapted to the workload.
    model: NFModel
    #: Offered load [Mpps]; None if saturated, or if profiled at exactly that load.
    offered_mpps: float | None = None
    #: Reasons: adaptations that were made because the workload was not profiled.
    adapted: tuple[str, ...] = ()

    @property
    def demand_mpps(self) -> float:
        """Offered load of the NF [Mpps], or its solo throughput if it is saturated."""
        return self.model.solo_mpps if self.offered_mpps is None else self.offered_mpps

    @cached_property
    def demand_gbps(self) -> float:
        """Bandwidth on the wire at :attr:`demand_mpps` [Gbit/s]."""
        return wire_gbps(self.workload.traffic.packet_size_b, self.demand_mpps)


@dataclass(frozen=True, eq=False)
class TenantModels:
    """The NFs that share a server, and the server's settings."""

    #: Machine.
    machine: str
    #: Tenants in the given order.
    tenants: tuple[TenantModel, ...]
    #: Cache ways, throttle, core and socket of each tenant, and a shared port.
    setting: ServerSetting = _UNDIVIDED

    @property
    def nic_socket(self) -> int:
        """Socket of the NIC, on which profiles were measured."""
        capacities = self.tenants[0].model.capacities if self.tenants else None
        return 0 if capacities is None else capacities.nic_socket

    @cached_property
    def sockets(self) -> Sequence[int]:
        """Socket of each tenant; that of the NIC unless the setting names others."""
        return self.setting.sockets or (self.nic_socket,) * len(self.tenants)

    @property
    def models(self) -> list[NFModel]:
        """Every tenant's model."""
        return [tenant.model for tenant in self.tenants]

    @property
    def loads_mpps(self) -> list[float | None]:
        """Every tenant's offered load; None if saturated."""
        return [tenant.offered_mpps for tenant in self.tenants]

    @property
    def frames_b(self) -> list[int]:
        """Every tenant's packet size."""
        return [tenant.workload.traffic.packet_size_b for tenant in self.tenants]

    @cached_property
    def by_socket(self) -> dict[int, list[int]]:
        """Socket -> indices of its tenants."""
        on: dict[int, list[int]] = {}
        for number, socket in enumerate(self.sockets):
            on.setdefault(socket, []).append(number)
        return on

    @cached_property
    def llcs(self) -> tuple[int, ...]:
        """Number of each tenant's last-level cache on its socket; 0 if it has one, or nobody was profiled over ways."""
        numbers = [0] * len(self.tenants)
        known = [(m.allocation, m.capacities) for m in self.models if m.allocation and m.capacities]
        for allocation, capacities in known[:1]:
            for here in self.by_socket.values():
                cores = [self.setting.cores[i] if self.setting.cores else None for i in here]
                for i, llc in zip(here, llc_numbers(cores, capacities.cores, allocation.llc_domains), strict=True):
                    numbers[i] = llc
        return tuple(numbers)

    def beside(self, number: int) -> list[int]:
        """Return the numbers of the other tenants on the socket of tenant `number`."""
        here = self.sockets[number]
        return [other for other, socket in enumerate(self.sockets) if socket == here and other != number]

    def competitors(self, number: int) -> tuple[Workload, ...]:
        """Return the workloads of the other tenants on the socket of tenant `number`."""
        return tuple([self.tenants[other].workload for other in self.beside(number)])

    @property
    def llc_ways(self) -> int:
        """Number of ways of the machine's cache; 0 if no tenant was profiled over ways."""
        return max((model.allocation.llc_ways for model in self.models if model.allocation is not None), default=0)

    @property
    def is_divided(self) -> bool:
        """Whether any tenant has fewer than all ways, a throttle, or memory on another node than its core's."""
        setting = self.setting
        if setting is _UNDIVIDED:
            return False
        full = (1 << self.llc_ways) - 1 if setting.ways else 0
        return (
            any(mask != full for mask in setting.ways or ())
            or any(percent < 100.0 for percent in setting.bandwidth_percent or ())
            or any(node != socket for node, socket in zip(setting.nodes or (), self.sockets, strict=False))
        )

    @cached_property
    def on_core(self) -> tuple[tuple[int, ...], ...]:
        """For each tenant, all tenants that run on its core, itself included."""
        numbers = range(len(self.tenants))
        cores = self.setting.cores or (None,) * len(numbers)
        places = [number if cores[number] is None else (cores[number], self.sockets[number]) for number in numbers]
        return tuple(tuple(i for i in numbers if places[i] == place) for place in places)

    @property
    def shared_cores(self) -> tuple[tuple[int, ...], ...]:
        """Groups of tenants that share a core."""
        if self.setting.cores is None:
            return ()
        return tuple(group for group in dict.fromkeys(self.on_core) if len(group) > 1)

    def weight(self, number: int) -> float:
        """Return the CPU weight of a tenant."""
        return 1.0 if self.setting.weights is None else self.setting.weights[number]

    def with_load(self, number: int, offered_mpps: float) -> "TenantModels":
        """Return the server with another offered load for one tenant; the load becomes part of the tenant's name."""
        tenants = list(self.tenants)
        workload = tenants[number].workload.offered(offered_mpps)
        tenants[number] = replace(tenants[number], workload=workload, offered_mpps=offered_mpps)
        return replace(self, tenants=tuple(tenants))

    @property
    def ports_gbps(self) -> float:
        """Line rate shared by all tenants [Gbit/s]: the setting's port, else the machine's; infinite if unknown."""
        return self.machine_ports_gbps if self.setting.port_gbps is None else self.setting.port_gbps

    @property
    def machine_ports_gbps(self) -> float:
        """Total line rate of the machine's ports [Gbit/s], behind which profiles were measured; infinite if unknown."""
        stated = [each.model.capacities.ports_gbps for each in self.tenants if each.model.capacities is not None]
        return min(stated, default=math.inf)


def tenant_of(library: ModelLibrary, name: Named, machine: str | None) -> TenantModel:
    """Find the model of one NF by its name.

    Raises UnknownNameError for an unknown NF or machine, with the most similar name; UnsupportedPredictionError for
    traffic or settings that cannot be adapted from any profile.
    """
    if isinstance(name, str):
        if (machine or "", name) in library or not ("@" in name or "(" in name):
            model = library.find(name, machine)
            return TenantModel(model.workload, model)
        name = parse_workload(name)
    machine = library.require_machine(machine or None)
    exact = library.get((machine, name.key))
    if exact is not None and (name.traffic.offered_mpps is not None or exact.knows_pressure):
        return TenantModel(name, exact)  # avoids a search of all profiles
    profiles = library.profiles(name.nf, machine)
    adapted = at_workload(profiles, name)
    return TenantModel(name, adapted.model, name.traffic.offered_mpps, adapted.reasons)


def server_of(
    library: ModelLibrary,
    names: Sequence[Named],
    machine: str | None = None,
    setting: ServerSetting | None = None,
) -> TenantModels:
    """Return the server that the named NFs form; :func:`tenant_of` resolves each name to a model."""
    tenants = tuple([tenant_of(library, name, machine) for name in each_instance(names)])
    return server_with(tenants, machine) if setting is None else _server_under(setting, tenants, machine)


def server_with(tenants: tuple[TenantModel, ...], machine: str | None = None) -> TenantModels:
    """Return the server that these tenants form on the NIC's socket, with nothing divided."""
    if not tenants:
        return TenantModels(machine or "", ())
    first = tenants[0].model
    check_cores(first, len(tenants))
    return TenantModels(first.machine, tenants)


def _server_under(setting: ServerSetting, tenants: tuple[TenantModel, ...], machine: str | None) -> TenantModels:
    """Return the server that these tenants form under a setting."""
    name = tenants[0].model.machine if tenants else machine or ""
    server = TenantModels(name, tenants, setting.checked(len(tenants)))
    for mask in setting.ways or ():
        if server.llc_ways and (why := refusal(mask, way_block(server.llc_ways), f"'{name}'")):
            raise InvalidValueError(why, hint="0x3 is ways 0 and 1")
    capacities = tenants[0].model.capacities if tenants else None
    if capacities is not None and (most := tenants[0].model.sockets) is not None:
        for field, limit in (("nodes", most), ("sockets", most), ("cores", most * capacities.cores)):
            wrong = next((at for at in getattr(setting, field) or () if at is not None and not 0 <= at < limit), None)
            if wrong is not None:
                raise InvalidValueError(f"{field}: {wrong}, but '{name}' has {limit}, counted from 0")
    for here in server.by_socket.values():
        cores = here if not server.shared_cores else {min(server.on_core[number]) for number in here}
        check_cores(tenants[here[0]].model, len(cores))
    return server


def check_cores(subject: NFModel, tenants: int) -> None:
    """Raise an error if there are more tenants than the machine's socket has cores.

    The InvalidValueError names the machine, its cores and the tenants.
    """
    if subject.capacities is not None and tenants > subject.capacities.cores:
        raise InvalidValueError(
            f"'{subject.workload.nf}' and {tenants - 1} competitors need {tenants} cores, "
            f"{subject.machine} has {subject.capacities.cores} on a socket",
            hint=f"leave out {tenants - subject.capacities.cores}, or name a machine with more cores",
        )
