"""A simulated server whose settings a plan can change; changes take effect in the next simulation.

Knobs: ``ways:T``, ``bandwidth:T``, ``core:T``, ``node:T``, ``buffers:T`` of each tenant T, and ``device-ways``.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from slomo.enforce.change import Backend
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import InvalidValueError, RefusedSettingError
from slomo.host.knobs import Knobs, VanishedError, Wish
from slomo.simulator.engine import Tenant, simulate
from slomo.simulator.result import SimulationResult
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.network_function import NetworkFunction, load_network_function
from slomo.vocabulary.way_masks import refusal
from slomo.vocabulary.workload import Workload

FIELDS = ("ways", "bandwidth", "core", "node", "buffers")


@dataclass(frozen=True)
class Occupant:
    """A network function that runs on a simulated server."""

    #: Name, unique on the server.
    name: str
    #: The network function, its settings and its traffic.
    workload: Workload
    #: Description of the network function; by default the shipped one of that name.
    network_function: NetworkFunction | None = None


class SimulatedServer:
    """A simulated machine with tenants on its cores, and the settings in force.

    `occupants`: tenants, placed in order on free cores, on the NIC's socket first. `scale`, `accesses`: settings of
    `slomo.simulator.engine.simulate`.

    >>> from slomo.vocabulary.machine import load_machine
    >>> server = SimulatedServer(load_machine("e5-2620v4"), [Occupant("a", Workload("l2fwd"))])
    >>> server.knobs["core:a"]
    '0'
    """

    def __init__(
        self, machine: Machine, occupants: Sequence[Occupant], *, scale: int = 32, accesses: int = 60_000
    ) -> None:
        self.machine, self.scale, self.accesses = machine, scale, accesses
        self.occupants: dict[str, Occupant] = {}
        self.knobs: dict[str, str | None] = {"device-ways": f"{machine.ddio_way_mask:x}"}
        self.lock = threading.RLock()
        for occupant in occupants:
            self.add(occupant)

    @property
    def llcs(self) -> dict[str, int]:
        """Tenant -> number of its last-level cache."""
        return {name: self.machine.llc_domain_of(int(self.knobs[f"core:{name}"] or 0)) for name in self.occupants}

    def add(self, occupant: Occupant, core: int | None = None) -> None:
        """Start a tenant, by default on the first free core; the cores of the NIC's socket are tried first."""
        first = self.machine.nic_socket * self.machine.cores_per_socket
        order = [*range(first, self.machine.cores), *range(first)]
        taken = {int(self.knobs[f"core:{name}"] or 0) for name in self.occupants}
        free = [number for number in ([core] if core is not None else order) if number not in taken]
        if not free:
            raise InvalidValueError(f"server '{self.machine.name}' has no free core for '{occupant.name}'")
        self.occupants[occupant.name] = occupant
        self.knobs.update({f"{field}:{occupant.name}": None for field in FIELDS})
        self.knobs[f"core:{occupant.name}"] = str(free[0])

    def offer(self, name: str, workload: Workload) -> None:
        """Change a tenant's offered load."""
        self.occupants[name] = replace(self.occupants[name], workload=workload)

    def simulate(self, seed: int = 0, times: int = 1) -> SimulationResult:
        """Simulate all tenants under the settings in force, in the order of `occupants`."""
        machine = self.machine
        devices = int(self.knobs["device-ways"] or "0", 16).bit_count()
        if devices != machine.ddio_ways:
            machine = replace(machine, ddio_ways=devices)
        tenants = [self._tenant(occupant) for occupant in self.occupants.values()]
        return simulate(machine, tenants, seed=seed, scale=self.scale, accesses=times * self.accesses)

    def _tenant(self, occupant: Occupant) -> Tenant:
        def knob(field: str) -> str | None:
            return self.knobs[f"{field}:{occupant.name}"]

        ways, bandwidth, node, buffers = knob("ways"), knob("bandwidth"), knob("node"), knob("buffers")
        function = occupant.network_function or load_network_function(occupant.workload.nf)
        if buffers is not None:
            function = replace(function, simulated={**(function.simulated or {}), "packet_buffers": int(buffers)})
        return Tenant(
            occupant.workload,
            function,
            int(knob("core") or 0),
            llc_way_mask=None if ways is None else int(ways, 16),
            mba_percent=None if bandwidth is None else float(bandwidth),
            memory_socket=None if node is None else int(node),
        )


class Knobbed(Protocol):
    """Interface of a simulated machine whose settings (knobs) can be read and written."""

    machine: Machine
    knobs: dict[str, str | None]
    lock: threading.RLock


class SimulatedKnobs(Knobs):
    """Base class of backends of simulated machines: reads and writes their settings."""

    name = "simulated"

    def __init__(self, server: Knobbed) -> None:
        self._knobbed = server

    def available(self) -> tuple[bool, str]:
        """Return True: a simulated machine is always available."""
        return True, self.place()

    def place(self) -> str:
        """Return the machine's name."""
        return f"simulated {self._knobbed.machine.name}"

    def lock(self) -> AbstractContextManager[object]:
        """Exclude other threads while a `with` block runs."""
        return self._knobbed.lock

    def read(self, knob: str) -> str | None:
        """Return the present value of a setting."""
        return self._knobbed.knobs.get(knob)

    def write(self, knob: str, value: str | None) -> None:
        """Change a setting. Raises VanishedError if its tenant has ended."""
        if knob not in self._knobbed.knobs:
            raise VanishedError(f"'{knob}': that tenant no longer exists")
        self._knobbed.knobs[knob] = value

    def knobs(self) -> Iterator[str]:
        """Return the names of all settings."""
        return iter(tuple(self._knobbed.knobs))


class SimulatedBackend(SimulatedKnobs, Backend):
    """Applies plans to a `SimulatedServer`.

    >>> from slomo.vocabulary.machine import load_machine
    >>> SimulatedBackend(SimulatedServer(load_machine("e5-2620v4"), [])).available()
    (True, 'simulated e5-2620v4')
    """

    def __init__(self, server: SimulatedServer) -> None:
        super().__init__(server)
        self.server = server

    def wishes(self, plan: EnforcementPlan) -> tuple[Wish, ...]:
        """Return the values that a plan requires of every tenant's settings."""
        wishes = [wish for tenant in plan.tenants for wish in self._tenant(tenant)]
        if plan.device_way_mask is not None:
            wishes.append(Wish("device-ways", f"{self._mask(plan.device_way_mask):x}"))
        return tuple(wishes)

    def _tenant(self, tenant: TenantSetting) -> list[Wish]:
        if tenant.tenant not in self.server.occupants:
            raise RefusedSettingError(
                f"no tenant '{tenant.tenant}' on simulated '{self.server.machine.name}'",
                hint=f"tenants: {', '.join(self.server.occupants) or 'none'}",
            )
        machine = self.server.machine
        values: dict[str, str | None] = {"ways": None, "bandwidth": None}
        if tenant.llc_way_mask is not None:
            values["ways"] = f"{self._mask(tenant.llc_way_mask):x}"
        if tenant.memory_bandwidth is not None:
            if tenant.memory_bandwidth.unit != "percent" or tenant.memory_bandwidth.value < 10:
                raise RefusedSettingError(
                    f"memory bandwidth of {tenant.memory_bandwidth.text}, but this machine takes percent, 10 to 100",
                    hint="give it in percent",
                )
            values["bandwidth"] = f"{tenant.memory_bandwidth.value:g}"
        if tenant.cores:
            if tenant.cores[0] >= machine.cores:
                raise RefusedSettingError(f"core {tenant.cores[0]}, but '{machine.name}' has {machine.cores}")
            values["core"] = str(tenant.cores[0])
        if tenant.memory_node is not None:
            if tenant.memory_node >= machine.sockets:
                raise RefusedSettingError(
                    f"memory node {tenant.memory_node}, but '{machine.name}' has {machine.sockets}"
                )
            values["node"] = str(tenant.memory_node)
        if tenant.buffers is not None:
            values["buffers"] = str(tenant.buffers)
        return [Wish(f"{field}:{tenant.tenant}", value) for field, value in values.items()]

    def _mask(self, mask: int) -> int:
        machine = self.server.machine
        if why := refusal(mask, machine.full_way_mask, f"'{machine.name}'"):
            raise RefusedSettingError(why, hint="0x3 is ways 0 and 1")
        return mask
