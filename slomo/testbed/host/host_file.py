"""Read a file that describes a real testbed: cores, counters, traffic generator and settings of a campaign.

The file holds the arguments of `HostTestbed` for use on the command line.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from slomo.files.documents import parse
from slomo.files.opening import read_text
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.testbed import HostTestbed
from slomo.testbed.host.traffic.base import TrafficGenerator
from slomo.testbed.host.traffic.place import Place
from slomo.testbed.host.traffic.registry import GENERATORS, make_generator
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.network_function import NetworkFunction


class GeneratorSection(Struct):
    """The traffic generator of a host file, with the settings of the generator's class."""

    name: Annotated[Literal[*sorted(GENERATORS)], Meta(description="which")]  # type: ignore[valid-type]
    place: Annotated[str, Meta(description="USER@HOST where it runs; this host if not given")] | UnsetType = UNSET


class HostFile(Struct, forbid_unknown_fields=True):
    """Description of a host as a testbed."""

    cores: (
        Annotated[
            list[Annotated[int, Meta(ge=0)]],
            Meta(min_length=1, description="CPUs, the target's first, then the competitors'"),
        ]
        | None
    ) = None
    counters: (
        Annotated[
            str,
            Meta(
                description="pcm, perf, resctrl, pqos, several joined by +, or probe; the first that works if left out"
            ),
        ]
        | None
    ) = None
    settings: Annotated[HostSettings, Meta(description="fields of HostSettings")] = field(default_factory=HostSettings)
    generator: (
        Annotated[
            GeneratorSection,
            Meta(description=f"name ({', '.join(sorted(GENERATORS))}), settings of that generator, place: USER@HOST"),
        ]
        | UnsetType
    ) = UNSET


def load_host(
    path: str | Path, machine: str | Machine | None = None, network_functions: Iterable[NetworkFunction] = ()
) -> HostTestbed:
    """Return the testbed that a host file describes, for `machine`, the name under which its measurements are stored.

    Raises ConfigurationError, with file, line and field, for an unreadable file or a wrong field; InvalidValueError,
    UnknownNameError or TestbedError for values that this host or the generator does not accept.
    """
    file = Path(path)
    document = parse(read_text(file), str(file))
    data = document.table()
    read = document.to(HostFile)
    return HostTestbed(
        machine,
        network_functions,
        cores=read.cores,
        counters=read.counters,
        settings=read.settings,
        generator=_generator(dict(data["generator"])) if "generator" in data else None,
    )


def _generator(section: dict[str, Any]) -> TrafficGenerator:
    if "place" in section:
        section["place"] = Place(section["place"])
    return make_generator(section.pop("name"), **section)
