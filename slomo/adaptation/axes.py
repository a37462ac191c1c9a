"""What may vary between workloads of one NF: packet size, flow count, and every numeric setting, as coordinates.

SLOMO (SIGCOMM'20) section 7 extrapolates over flow counts only; Yala (ASPLOS'25) section 5 names packet size, flow
count and match density as the attributes that matter. A rule-set size is a setting like any other.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slomo.models.nf_model import NFModel
from slomo.vocabulary.workload import Setting, Workload

FLOWS, SIZE, ZIPF = "flow_count", "packet_size_b", "zipf_exponent"


@dataclass(frozen=True)
class Position:
    """Where a workload lies among those of its NF.

    Attributes
    ----------
    fixed : tuple
        What must agree exactly: the NF, the law flows are drawn by, and settings that are no numbers.
    numbers : mapping of str to float
        Everything between whose values one may interpolate, by name.
    """

    fixed: tuple[object, ...]
    numbers: Mapping[str, float]

    def comparable(self, other: "Position") -> bool:
        """Return whether the two differ in numbers only."""
        return self.fixed == other.fixed and self.numbers.keys() == other.numbers.keys()

    def differs_in(self, other: "Position") -> tuple[str, ...]:
        """Return the names of the numbers that differ."""
        return tuple(name for name, value in self.numbers.items() if other.numbers[name] != value)

    def at(self, name: str, value: float) -> "Position":
        """Return the position with one number replaced."""
        return Position(self.fixed, {**self.numbers, name: value})


@dataclass(frozen=True, eq=False)
class Profiled:
    """A model and where it was profiled."""

    model: NFModel
    position: Position

    @property
    def answers(self) -> bool:
        """Whether it was profiled under pressure; a solo run alone says nothing about neighbours."""
        families = self.model.sensitivity.values()
        return self.model.response is not None or any(family.composition != "none" for family in families)


def position_of(workload: Workload) -> Position:
    """Return where a workload lies; settings it leaves out have the NF's defaults, where these are known.

    Examples
    --------
    >>> dict(position_of(Workload("ip-router", {"routes": 65536})).numbers)["routes"]
    65536.0
    >>> position_of(Workload("ip-router", {"routes": 131072})) == position_of(Workload("ip-router"))
    True
    """
    traffic = workload.traffic
    settings = {**_defaults(workload.nf), **workload.configuration}
    numbers = {FLOWS: float(traffic.flow_count), SIZE: float(traffic.packet_size_b)}
    if traffic.flow_distribution != "uniform":
        numbers[ZIPF] = traffic.zipf_exponent
    numbers |= {name: float(value) for name, value in sorted(settings.items()) if _numeric(value)}
    rest = tuple((name, value) for name, value in sorted(settings.items()) if not _numeric(value))
    return Position((workload.nf, traffic.flow_distribution, rest), numbers)


def comparable(models: Iterable[NFModel], position: Position) -> list[Profiled]:
    """Return the models of the same NF that differ from `position` in numbers only."""
    found = (Profiled(model, position_of(model.workload)) for model in models)
    return [profiled for profiled in found if profiled.position.comparable(position)]


def scaled(name: str, values: Sequence[float]) -> list[float]:
    """Return values on the scale on which time per packet is about straight between two profiles.

    Packet sizes and shares (a match density) count as they are: lines moved and matches made grow with them. Flow
    counts, rule sets and other sizes count by their logarithm: what misses a cache, or the depth of a tree, does.

    Examples
    --------
    >>> scaled("packet_size_b", [64.0, 1500.0]), scaled("match_density", [0.0, 0.5])
    ([64.0, 1500.0], [0.0, 0.5])
    >>> round(scaled("rules", [1000.0])[0], 2)
    6.91
    """
    logarithms = by_logarithm(name, values)
    return [math.log(value) if logarithms else value for value in values]


def by_logarithm(name: str, values: Sequence[float]) -> bool:
    """Return whether an attribute counts by its logarithm: sizes do, bytes of a packet and shares do not.

    Examples
    --------
    >>> by_logarithm("rules", [10.0, 1000.0]), by_logarithm("match_density", [0.1, 0.9])
    (True, False)
    """
    return name not in (SIZE, ZIPF) and min(values) > 0.0 and max(values) > 1.0


def _numeric(value: Setting) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _defaults(nf: str) -> dict[str, Setting]:
    """Return a shipped NF's default settings, the sizes of its data structures among them."""
    # descriptions are YAML, read only where a workload was not profiled as it is asked about
    from slomo.vocabulary.network_function import load_network_function, network_function_names

    if nf not in network_function_names():
        return {}
    function = load_network_function(nf)
    structures = (function.simulated or {}).get("structures", ())
    sizes = {f"{item['name']}_mib": item["size_mib"] for item in structures if _numeric(item.get("size_mib", ""))}
    return {**sizes, **function.settings}
