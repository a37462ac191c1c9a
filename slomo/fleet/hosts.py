"""Read the file that describes a fleet's hosts: names, access, cost."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from slomo.errors import ConfigurationError
from slomo.files.documents import read
from slomo.testbed.host.traffic.place import Place

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$", description="letters, digits, _ . -")]


@dataclass(frozen=True)
class FleetHost:
    """Name, access and cost of one host."""

    #: Name in the fleet; the name of its Dask worker.
    name: Name
    #: ``USER@HOST``; this machine if left out.
    ssh: str | None = None
    #: Python there, with slomo installed.
    python: str = "python3"
    #: Folder on that host that keeps its runs until they are collected, its lock and its token.
    state: str = "~/.cache/slomo/fleet"
    #: File on that host that describes it as testbed `host`.
    host_file: str | None = None
    #: What an hour of it costs, in whatever currency.
    cost_per_h: Annotated[float, Meta(ge=0.0)] = 0.0


@dataclass(frozen=True)
class Fleet:
    """Hosts of the same type that measure for one campaign."""

    #: At least one, names all different.
    hosts: Annotated[list[FleetHost], Meta(min_length=1, max_length=10_000)]
    #: Where runs are made there: ``host`` or ``simulated``.
    testbed: str = "host"
    #: Fingerprint of the machine that every host must be; empty: they must agree.
    fingerprint: str = ""
    #: Address of this machine that the hosts reach.
    listen: str = "127.0.0.1"
    #: Folder of native network functions that every host gets; relative to the file. A `host:` section names it as
    #: ``{functions}``.
    functions: str = ""

    def __post_init__(self) -> None:
        for host in self.hosts:
            Place(host.ssh)
        if len(self.names) < len(self.hosts):
            raise ConfigurationError("two hosts have the same name", hint="give each a name of its own")

    @property
    def names(self) -> dict[str, FleetHost]:
        """The hosts of the fleet, by name."""
        return {host.name: host for host in self.hosts}


def load_fleet(path: str | Path) -> Fleet:
    """Read a file that describes the hosts of a fleet.

    Raises ConfigurationError with file, line and field.
    """
    fleet = read(path, Fleet, hint="write for instance: hosts: [{name: rack1, ssh: lab@rack1}]")
    return replace(fleet, functions=str(Path(path).parent / fleet.functions)) if fleet.functions else fleet
