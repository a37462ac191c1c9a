"""The configuration file of a control loop: its fields, and what they name (machine, functions, RMD's files)."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from msgspec import Meta, Struct

from slomo.control.observation import Patience
from slomo.errors import ConfigurationError, UnknownNameError
from slomo.files.documents import convert, parse
from slomo.files.json_text import Position
from slomo.files.opening import read_text
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.service_chains import ChainSystem, parse_chains
from slomo.vocabulary.workload import Workload
from slomo.vocabulary.workload_text import parse_workload

#: Kind of machine -> controllers; `simulated_loops` and `host_loops` have a function of each one's name that makes it.
#: Machine ``host`` is this one.
CONTROLLERS = {
    "simulated": ("guard", "max_min", "pools", "numa", "cpu_shares"),
    "host": ("throttle", "max_min", "guard", "pools"),
}
HOST, SHARES = "host", "cpu_shares"
#: Fields of a tenant for controller ``pools``, as RMD's workloads have them.
WISHES = ("policy", "max_cache", "min_cache")
#: Fields of a service-chain file (docs/guides/chains.md), which controller `cpu_shares` reads instead of tenants.
_CHAIN_FIELDS = {"stages", "chains", "queue", "storage", "buffer_b", "memory_socket"}


GUIDE = "see docs/guides/live-control.md"
_Seconds = Annotated[float, Meta(ge=0.0, lt=1e9)]
_Count = Annotated[int, Meta(ge=0, lt=10**9)]


class TenantEntry(Struct, forbid_unknown_fields=True):
    """One tenant of the file, its promised share of solo throughput, and the resources it asks ``pools`` for."""

    workload: Annotated[str, Meta(description="{workload: lpm, slo: 0.9}")]
    name: str | None = None
    slo: Annotated[float, Meta(gt=0.0, le=1.0, description="share of solo throughput, such as 0.9")] | None = None
    policy: str | None = None
    max_cache: int | None = None
    min_cache: int | None = None


class ControlFile(Struct, forbid_unknown_fields=True):
    """The fields of a control loop's configuration file."""

    machine: str = "e5-2620v4"
    controller: str | None = None
    tenants: Annotated[list[TenantEntry], Meta(description=GUIDE)] = []
    period_s: _Seconds = Patience.period_s
    dwell_s: _Seconds = Patience.dwell_s
    cool_down_s: _Seconds = Patience.cool_down_s
    steps: _Count = 60
    seed: _Count = 0
    name: str | None = None
    partitions: str | None = None
    described: str | None = None
    pools: str | None = None
    policies: str | None = None


@dataclass(frozen=True)
class ControlConfiguration:
    """A control loop's configuration: the file's fields, and what the file names (machine, functions, RMD's files)."""

    file: ControlFile
    #: Name of the loop in `slomo control status`.
    name: str
    #: Simulated machine; None is this host.
    machine: Machine | None
    #: One of ``CONTROLLERS``.
    controller: str
    #: Name, workload, promised share of solo throughput.
    tenants: tuple[tuple[str, Workload, float | None], ...]
    #: Chains of NFs on shared cores, for ``cpu_shares``.
    system: ChainSystem | None = None
    #: For ``guard`` on this host: the host's description.
    described: Machine | None = None

    @property
    def settings(self) -> Patience:
        """How long the loop waits: after a change, and after a change that it undid."""
        return Patience(self.file.period_s, self.file.dwell_s, self.file.cool_down_s)


def read_control_file(path: str | Path) -> ControlConfiguration:
    """Read a control loop's configuration from a file."""
    document = parse(read_text(path), str(path))
    return control_from(document.data, path, lambda: document.lines)


def control_from(
    data: Any, path: str | Path, lines: Callable[[], Mapping[Position, int]] = dict
) -> ControlConfiguration:
    """Return the configuration in a mapping that has the file's fields; errors name `path`."""
    if not isinstance(data, Mapping):
        raise ConfigurationError(f"{path}: is no mapping", hint=GUIDE)
    own = {name: value for name, value in data.items() if name not in _CHAIN_FIELDS}
    file = convert(own, ControlFile, str(path), lines=lines)
    machine = None if file.machine == HOST else load_machine(file.machine)
    there = CONTROLLERS[HOST if machine is None else "simulated"]
    controller = file.controller or (SHARES if "stages" in data and machine is not None else there[0])
    if controller not in there:
        raise UnknownNameError("controller", controller, there, where=f"in {path}")
    unread = {"tenants"} if controller == SHARES else _CHAIN_FIELDS
    if unknown := sorted(unread & set(data)):
        fields = sorted({*ControlFile.__struct_fields__, *_CHAIN_FIELDS} - unread)
        raise ConfigurationError(f"{path}: unknown field '{unknown[0]}'", hint=f"fields: {', '.join(fields)}")
    if controller != SHARES and not file.tenants:
        raise ConfigurationError(f"{path}: has no list of tenants", hint=GUIDE)
    workloads = [parse_workload(tenant.workload) for tenant in file.tenants]
    named = enumerate(zip(file.tenants, workloads, strict=True))
    tenants = tuple((each.name or f"{number}:{work.nf}", work, each.slo) for number, (each, work) in named)
    if twice := [name for name, count in Counter(name for name, _, _ in tenants).items() if count > 1]:
        raise ConfigurationError(f"{path}: two tenants are named '{twice[0]}'", hint="give each a name of its own")
    _check_pools(path, file, controller)
    described = _described(path, file, controller if machine is None else "")
    chains = {name: data[name] for name in ("machine", *sorted(_CHAIN_FIELDS)) if name in data}
    system = parse_chains(yaml.safe_dump(chains), str(path)) if controller == SHARES else None
    name = file.name or Path(path).stem
    return ControlConfiguration(file, name, machine, controller, tenants, system, described)


def stated(entry: Struct, *names: str) -> dict[str, Any]:
    """Return those of the named fields that the file states."""
    return {name: value for name in names if (value := getattr(entry, name)) is not None}


def _check_pools(path: str | Path, file: ControlFile, controller: str) -> None:
    """Raise an error if RMD's files are missing for ``pools``, or given for another controller."""
    if controller != "pools":
        for name in [
            *stated(file, "pools", "policies"),
            *(key for tenant in file.tenants for key in stated(tenant, *WISHES)),
        ]:
            raise ConfigurationError(f"{path}: '{name}' is for controller pools")
    elif file.pools is None:
        raise ConfigurationError(
            f"{path}: controller pools needs 'pools', the file of RMD's configuration",
            hint="pools: rmd.toml, policies: policy.yaml",
        )


def _described(path: str | Path, file: ControlFile, controller: str) -> Machine | None:
    """Return the description of this host's machine, which the controller ``guard`` needs."""
    own = stated(file, "partitions", "described")
    if controller != "guard":
        if own:
            raise ConfigurationError(f"{path}: '{next(iter(own))}' is for controller guard on machine host")
        return None
    missing = next((name for name in ("partitions", "described") if name not in own), None)
    if missing is not None:
        raise ConfigurationError(
            f"{path}: controller guard on this host needs '{missing}': the profile over cache ways, and the file that "
            "describes the machine it was measured on",
            hint="partitions: ways.json (slomo whatif NF... --profiles ways.json), described: my-machine.yaml",
        )
    return load_machine(own["described"])
