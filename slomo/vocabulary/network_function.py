"""A network function: description, simulation, and start on a real machine.

One short YAML file each in ``network_functions/``, checked by `network_function_file`; a user's own NF is a file of the
same shape. The shipped ones are those of ResQ (NSDI'18) Table 1 and SLOMO (SIGCOMM'20) Table 1. A chain that runs to
completion on one core is a network function too, named by its stages, ``lpm+stats`` (ResQ, section 5.1, does not
distinguish them); settings of a stage carry its name: ``lpm+firewall(firewall.rules=1000)``.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from slomo.errors import ConfigurationError, UnknownNameError
from slomo.files.documents import parse
from slomo.files.opening import read_text
from slomo.vocabulary.knobs import knobs
from slomo.vocabulary.network_function_file import NetworkFunctionFile
from slomo.vocabulary.workload import Setting, Workload

SCHEMA_VERSION = 1
SYNTHETIC_KNOBS = "synthetic-knobs"
#: Between the names of stages.
JOIN = "+"
#: Settings of the chain as a whole, since its stages share one ring.
SHARED_SETTINGS = ("packet_buffers", "burst")


@dataclass(frozen=True)
class NetworkFunction:
    """What one network function does per packet, and how it runs on a real machine.

    Attributes
    ----------
    name, description : str
        Short name (kebab-case) and one sentence.
    klass : str
        ``"sensitive"``, ``"neutral"`` or ``"insensitive"`` as ResQ classes them, ``"competitor"``, or empty.
    tags : tuple of str
        Where it belongs, for instance ``"resq"`` or ``"slomo"``.
    source : str
        Where its numbers come from.
    settings : mapping of str to number or str
        Settings a workload may change, with their defaults.
    simulated : mapping or None
        What a packet costs, for the simulator.
    host : mapping or None
        How to start it on a real machine.

    Examples
    --------
    >>> load_network_function("lpm").klass
    'sensitive'
    """

    name: str
    description: str
    klass: str = ""
    tags: tuple[str, ...] = ()
    source: str = ""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    simulated: Mapping[str, Any] | None = None
    host: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))

    def __reduce__(self) -> tuple[object, ...]:
        return (NetworkFunction.from_dict, (self.to_dict(),))

    def __hash__(self) -> int:
        return hash(self.name)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping that :meth:`from_dict` reads back."""
        return {
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "description": self.description,
            "class": self.klass,
            "tags": list(self.tags),
            "source": self.source,
            "settings": dict(self.settings),
            "simulated": self.simulated,
            "host": self.host,
        }

    @property
    def synthetic(self) -> bool:
        """Whether this is the synthetic competitor, whose load on cache and memory is set by numbers."""
        return self.settings.keys() == knobs().keys()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "NetworkFunction":
        """Rebuild an NF from :meth:`to_dict`'s mapping, or from a document's fields."""
        settings = data.get("settings") or {}
        if settings == SYNTHETIC_KNOBS:
            settings = {name: knob.default for name, knob in knobs().items()}
        return cls(
            name=str(data["name"]),
            description=str(data["description"]),
            klass=str(data.get("class", "")),
            tags=tuple(data.get("tags", ())),
            source=str(data.get("source", "")),
            settings=settings,
            simulated=data.get("simulated"),
            host=data.get("host"),
        )


@functools.cache
def network_function_names() -> tuple[str, ...]:
    """Return the names of the shipped NFs, sorted."""
    files = resources.files("slomo.vocabulary") / "network_functions"
    return tuple(sorted(file.name[:-5] for file in files.iterdir() if file.name.endswith(".yaml")))


def load_network_function(name_or_path: str) -> NetworkFunction:
    """Load a shipped NF by name, a chain on one core by its stages, or the user's own from a YAML file.

    Raises
    ------
    UnknownNameError
        For a name no NF has, with the nearest one.
    ConfigurationError
        For a file that is not an NF: names file, line and field.

    Examples
    --------
    >>> load_network_function("l2fwd").name
    'l2fwd'
    >>> load_network_function("lpm+stats").description
    'lpm, then stats, to completion on one core'
    """
    name = str(name_or_path)
    if name in network_function_names():
        return _shipped(name)
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or "/" in name:
        return parse_network_function(read_text(path), name, default_name=path.stem)
    if len(parts := stage_names(name)) > 1:
        return one_core_chain([load_network_function(part) for part in parts])
    raise UnknownNameError("network function", name, network_function_names())


def load_network_functions(names: Iterable[str], own: Iterable[NetworkFunction]) -> dict[str, NetworkFunction]:
    """Return the named NFs; additional ones go before shipped ones of the same name."""
    mine = {function.name: function for function in own}
    return {name: mine.get(name) or load_network_function(name) for name in names}


@functools.cache
def _shipped(name: str) -> NetworkFunction:
    text = (resources.files("slomo.vocabulary") / "network_functions" / f"{name}.yaml").read_text(encoding="utf-8")
    return parse_network_function(text, f"{name}.yaml", default_name=name)


def parse_network_function(text: str, file: str, *, default_name: str = "own-nf") -> NetworkFunction:
    """Read the YAML text that describes one network function; ConfigurationError naming file, line and field.

    `file`: its name, for errors. `default_name`: name of the NF where the document gives none.
    """
    document = parse(text, file)
    data = document.table()
    document.to(NetworkFunctionFile)
    return NetworkFunction.from_dict({"name": default_name, **data})


def stage_names(name: str) -> tuple[str, ...]:
    """Return the network functions in a name, in order."""
    return tuple(name.split(JOIN))


def one_core_chain(stages: Sequence[NetworkFunction]) -> NetworkFunction:
    """Return a chain as one network function.

    `stages`: in the order in which packets pass them. Raises ConfigurationError for a stage that is not simulated, or
    that hands packets to an accelerator.
    """
    name = JOIN.join(stage.name for stage in stages)
    for stage in stages:
        if stage.simulated is None or "accelerator" in stage.simulated:
            lacks = "is not simulated" if stage.simulated is None else "hands packets to an accelerator"
            raise ConfigurationError(
                f"chain '{name}' on one core: its stage '{stage.name}' {lacks}, needed stages that a core does alone",
                hint="leave the stage out, or place the chain with a core for each stage",
            )
    settings = {f"{stage.name}.{key}": value for stage in stages for key, value in stage.settings.items()}
    documents = [{"name": s.name, "settings": dict(s.settings), "simulated": s.simulated} for s in stages]
    what = f"{', then '.join(stage.name for stage in stages)}, to completion on one core"
    source = "; ".join(dict.fromkeys(stage.source for stage in stages if stage.source))
    return NetworkFunction(name, what, source=source, settings=settings, simulated={"stages": documents})


def stages_of(nf: NetworkFunction, workload: Workload) -> list[tuple[NetworkFunction, Workload]]:
    """Return the stages of a chain on one core, each with its part of the settings and the chain's traffic."""
    documents = (nf.simulated or {}).get("stages", ())
    stages = [
        NetworkFunction(item["name"], nf.description, settings=item["settings"], simulated=item["simulated"])
        for item in documents
    ]
    parts: list[dict[str, object]] = [{} for _ in stages]
    for name, value in workload.configuration.items():
        owners = [i for i, stage in enumerate(stages) if name.startswith(f"{stage.name}.")]
        if name in SHARED_SETTINGS:
            owners = list(range(len(stages)))
        if not owners:
            raise UnknownNameError("setting", name, {*nf.settings, *SHARED_SETTINGS}, where=f"of '{nf.name}'")
        for i in owners:
            parts[i][name.removeprefix(f"{stages[i].name}.")] = value
    return [
        (stage, Workload(stage.name, part, workload.traffic))  # type: ignore[arg-type]
        for stage, part in zip(stages, parts, strict=True)
    ]
