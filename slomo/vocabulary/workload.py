"""A workload: a network function, its configuration, and the traffic it serves.

SLOMO (SIGCOMM'20) section 4.1 profiles per NF type, configuration, traffic and architecture; a workload is the first
three of them. It is a value: two workloads with the same fields are the same workload, and :attr:`Workload.key` is a
stable text for it.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta

from slomo.errors import InvalidValueError
from slomo.files.documents import convert
from slomo.files.ranges import PositiveRate
from slomo.files.stored import Stored

Setting = float | int | str | bool
SCHEMA_VERSION = 1
_NUMBERS = ("packet_size_b", "flow_count", "zipf_exponent", "offered_mpps")


@dataclass(frozen=True)
class Traffic:
    """The packets that arrive at an NF: rate, sizes and flows.

    Attributes
    ----------
    packet_size_b : int
        Frame size in bytes, 64 to 9000.
    flow_count : int
        Number of flows packets are drawn from, at least 1.
    flow_distribution : str
        ``"uniform"`` or ``"zipf"``.
    zipf_exponent : float
        Exponent of the Zipf law, used with ``"zipf"`` only.
    offered_mpps : float or None
        Offered load [Mpps], above 0 to 1e6; ``None`` saturates the NF.

    Raises
    ------
    InvalidValueError
        For a value outside its range.

    Examples
    --------
    >>> Traffic(packet_size_b=1500, flow_count=1000).packet_size_b
    1500
    """

    packet_size_b: Annotated[int, Meta(ge=64, le=9000)] = 64
    flow_count: Annotated[int, Meta(ge=1, le=100_000_000)] = 100_000
    flow_distribution: str = "uniform"
    zipf_exponent: Annotated[float, Meta(gt=0.0, le=3.0)] = 1.0
    offered_mpps: PositiveRate | None = None

    def __post_init__(self) -> None:
        try:
            self._check()
        except TypeError:
            name = next(name for name in _NUMBERS if not isinstance(getattr(self, name), Real))
            raise InvalidValueError(f"traffic: {name} is {getattr(self, name)!r}, needed a number") from None

    def _check(self) -> None:
        _require(64 <= self.packet_size_b <= 9000, "packet_size_b", self.packet_size_b, "64 to 9000 bytes")
        _require(1 <= self.flow_count <= 100_000_000, "flow_count", self.flow_count, "1 to 100 000 000 flows")
        _require(
            self.flow_distribution in ("uniform", "zipf"),
            "flow_distribution",
            self.flow_distribution,
            "'uniform' or 'zipf'",
        )
        _require(0.0 < self.zipf_exponent <= 3.0, "zipf_exponent", self.zipf_exponent, "above 0 and at most 3")
        if self.offered_mpps is not None:
            _require(
                0.0 < self.offered_mpps <= 1e6,
                "offered_mpps",
                self.offered_mpps,
                "a rate above 0 to 1e6 Mpps",
            )


@dataclass(frozen=True)
class Workload(Stored, version=SCHEMA_VERSION):
    """A network function with its configuration and its traffic.

    Attributes
    ----------
    nf : str
        Name of the network function.
    configuration : mapping of str to number or str
        Settings that differ from the NF's defaults (knobs of the synthetic competitor, rule-set size, ...).
    traffic : Traffic
        The traffic that arrives.

    Raises
    ------
    InvalidValueError
        For a setting that is NaN or infinite.

    Examples
    --------
    >>> Workload("synthetic", {"data_size_mib": 8}).key
    'synthetic(data_size_mib=8)@64B,100000f'
    >>> Workload("lpm").key
    'lpm@64B,100000f'
    """

    nf: str
    configuration: Mapping[str, Setting] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)

    def __post_init__(self) -> None:
        named = isinstance(self.nf, str) and self.nf != "" and "@" not in self.nf
        if not (named and isinstance(self.traffic, Traffic)):
            raise InvalidValueError(
                f"workload: {f'{self.traffic!r} is no Traffic' if named else f'{self.nf!r} is no name'}",
                hint="write for instance Workload('lpm', traffic=Traffic(packet_size_b=1500))",
            )
        if not isinstance(self.configuration, Mapping):
            raise InvalidValueError(
                f"'{self.nf}': configuration is {self.configuration!r}, needed a mapping",
                hint="write for instance {'data_size_mib': 8}",
            )
        for name, value in self.configuration.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise InvalidValueError(f"'{self.nf}': setting {name} is {value}, needed a finite number")
        object.__setattr__(self, "configuration", MappingProxyType(dict(sorted(self.configuration.items()))))

    def __hash__(self) -> int:
        return hash(self.key)

    def __reduce__(self) -> tuple[object, ...]:
        return (Workload, (self.nf, dict(self.configuration), self.traffic))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping that :meth:`from_dict` reads back."""
        cached = self._spelled
        return {**cached, "configuration": {**cached["configuration"]}, "traffic": {**cached["traffic"]}}

    @cached_property
    def _spelled(self) -> dict[str, Any]:
        return super().to_dict()

    @cached_property
    def key(self) -> str:
        """Stable text that identifies this workload; cached, as every look-up hashes it."""
        inside = ",".join(
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in self.configuration.items()
        )
        return f"{self.nf}{f'({inside})' if inside else ''}@{traffic_key(self.traffic)}"

    def with_traffic(self, traffic: Traffic) -> "Workload":
        """Return the same NF and configuration under other traffic."""
        return replace(self, traffic=traffic, configuration=dict(self.configuration))

    def offered(self, mpps: float | None) -> "Workload":
        """Return the workload with an offered load [Mpps]; None means that the NF is saturated.

        Examples
        --------
        >>> Workload("lpm").offered(2.5).key
        'lpm@64B,100000f,2.5Mpps'
        """
        same = mpps == self.traffic.offered_mpps
        return self if same else self.with_traffic(replace(self.traffic, offered_mpps=mpps))

    @property
    def saturated(self) -> "Workload":
        """The workload without a limit of its offered load."""
        return self.offered(None)

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> "Workload":
        """Rebuild a workload from :meth:`to_dict`'s mapping."""
        return convert(data, cls, "workload")


def traffic_key(traffic: Traffic) -> str:
    """Return a short stable text for a traffic profile."""
    zipf = "" if traffic.flow_distribution == "uniform" else f",zipf{traffic.zipf_exponent:g}"
    load = "" if traffic.offered_mpps is None else f",{traffic.offered_mpps:g}Mpps"
    return f"{traffic.packet_size_b}B,{traffic.flow_count}f{zipf}{load}"


def canonical_json(data: object) -> str:
    """Return the canonical JSON text of `data`: sorted keys, no blanks; the basis of all fingerprints.

    >>> canonical_json({"b": 1, "a": [1.5]})
    '{"a":[1.5],"b":1}'
    """
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def fingerprint_of(data: object) -> str:
    """Return 16 hexadecimal digits that identify `data` by its canonical JSON."""
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()[:16]


def _require(condition: bool, name: str, got: object, needed: str) -> None:
    if not condition:
        raise InvalidValueError(f"traffic: {name} is {got!r}, needed {needed}")
