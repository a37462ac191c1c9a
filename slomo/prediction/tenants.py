"""Who runs on a server: every name resolved once, to a model, a load and a socket.

The only place where a name, a text or a workload becomes a model; traffic and settings that were not profiled are
adapted here (`slomo.adaptation.adapt`), and what was done is kept as a reason.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from slomo.adaptation.adapt import at_workload
from slomo.compose.ports import port_shares_mpps
from slomo.errors import InvalidValueError
from slomo.models.library import ModelLibrary
from slomo.models.nf_model import NFModel
from slomo.vocabulary.workload import Workload
from slomo.vocabulary.workload_text import parse_workload

#: A workload, its key or text, or the name of an NF.
Named = Workload | str


@dataclass(frozen=True, eq=False)
class TenantModel:
    """An NF of a server.

    Attributes
    ----------
    workload : Workload
        As asked, offered load included.
    model : NFModel
        As profiled, or adapted to the workload.
    offered_mpps : float or None
        What arrives [Mpps]; None where it is saturated, or was profiled at just that load.
    adapted : tuple of str
        What was done where the workload was not profiled.
    """

    workload: Workload
    model: NFModel
    offered_mpps: float | None = None
    adapted: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class TenantModels:
    """NFs that share a server.

    Attributes
    ----------
    machine : str
        Where.
    tenants : tuple of Tenant
        In the order asked.
    sockets : tuple of int
        Socket of each tenant.
    nic_socket : int
        Socket of the NIC, where profiles are measured.
    """

    machine: str
    tenants: tuple[TenantModel, ...]
    sockets: tuple[int, ...]
    nic_socket: int = 0

    @cached_property
    def models(self) -> tuple[NFModel, ...]:
        """Every tenant's model."""
        return tuple([tenant.model for tenant in self.tenants])

    def on(self, socket: int) -> list[int]:
        """Return the numbers of the tenants on a socket."""
        return self.by_socket.get(socket, [])

    @cached_property
    def by_socket(self) -> dict[int, list[int]]:
        """The numbers of the tenants on each socket."""
        on: dict[int, list[int]] = {}
        for number, socket in enumerate(self.sockets):
            on.setdefault(socket, []).append(number)
        return on

    def beside(self, number: int) -> list[TenantModel]:
        """Return the tenants that share a socket with tenant `number`."""
        return [self.tenants[i] for i in self.on(self.sockets[number]) if i != number]

    def at_load(self, number: int, offered_mpps: float | None) -> "TenantModels":
        """Return the server with another load offered to one tenant, by the name it has; None saturates it."""
        tenants = list(self.tenants)
        tenants[number] = replace(tenants[number], offered_mpps=offered_mpps)
        return replace(self, tenants=tuple(tenants))

    def with_load(self, number: int, offered_mpps: float) -> "TenantModels":
        """Return the server with another load offered to one tenant, whose name says so."""
        tenants = list(self.tenants)
        workload = tenants[number].workload.offered(offered_mpps)
        tenants[number] = replace(tenants[number], workload=workload, offered_mpps=offered_mpps)
        return replace(self, tenants=tuple(tenants))

    def behind_port(self, port_gbps: float) -> "TenantModels":
        """Return the server with everybody offered what one port for all lets through [Gbit/s], divided max-min.

        An NF that could not serve its part alone is left as it is: its ring is full either way.
        """
        server = self
        frames = [tenant.workload.traffic.packet_size_b for tenant in self.tenants]
        offered = [tenant.offered_mpps for tenant in self.tenants]
        for number, share in enumerate(port_shares_mpps(frames, offered, port_gbps)):
            most = offered[number]
            if share < (self.tenants[number].model.solo_mpps if most is None else most):
                server = server.at_load(number, share)
        return server


def tenant_of(library: ModelLibrary, name: Named, machine: str | None) -> TenantModel:
    """Resolve one name.

    Raises
    ------
    UnknownNameError
        For an NF or machine there is none of, with the nearest.
    UnsupportedPredictionError
        For traffic or settings that no profile reaches.
    """
    if isinstance(name, str):
        if (machine or "", name) in library or not ("@" in name or "(" in name):
            model = library.find(name, machine)
            return TenantModel(model.workload, model)
        name = parse_workload(name)
    machine = machine or (library.machines[0] if len(library.machines) == 1 else None)
    exact = library.get((machine or "", name.key))
    if exact is not None and (name.traffic.offered_mpps is not None or exact.knows_pressure):
        return TenantModel(name, exact)  # spares a look at every profile
    profiles = library.profiles(name.nf, machine)
    adapted = at_workload(profiles, name)
    return TenantModel(name, adapted.model, name.traffic.offered_mpps, adapted.reasons)


def server_of(
    find: Callable[[Named], TenantModel],
    workloads: Sequence[Named],
    machine: str | None = None,
    sockets: Sequence[int] | None = None,
    nic_socket: int = 0,
) -> TenantModels:
    """Resolve everybody on a server.

    Raises
    ------
    InvalidValueError
        For a text in place of a list, more NFs than a socket has cores, or sockets that do not belong to the NFs.
    """
    if isinstance(workloads, str):
        raise InvalidValueError(f"NFs are the text '{workloads}', needed a list", hint=f"write ['{workloads}']")
    places = (nic_socket,) * len(workloads) if sockets is None else tuple(sockets)
    if len(places) != len(workloads) or any(place < 0 for place in places):
        raise InvalidValueError(
            f"sockets {list(places)} for {len(workloads)} NFs, needed one socket per NF, counted from 0",
            hint="leave sockets out to put all on the NIC's socket",
        )
    tenants = tuple([find(name) for name in workloads])
    server = TenantModels(tenants[0].model.machine if tenants else machine or "", tenants, places, nic_socket)
    for here in server.by_socket.values():
        check_cores(tenants[here[0]].model, len(here))
    return server


def check_cores(subject: NFModel, tenants: int) -> None:
    """Refuse more tenants than the machine's socket has cores.

    Raises
    ------
    InvalidValueError
        Naming the machine, its cores and the tenants.
    """
    if subject.capacities is not None and tenants > subject.capacities.cores:
        raise InvalidValueError(
            f"'{subject.workload.nf}' and {tenants - 1} competitors need {tenants} cores, "
            f"{subject.machine} has {subject.capacities.cores} on a socket",
            hint=f"leave out {tenants - subject.capacities.cores}, or name a machine with more cores",
        )
