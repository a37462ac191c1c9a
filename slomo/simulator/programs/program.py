"""Compute what an NF does for each packet from its YAML file, its settings and its traffic."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import UNSET

from slomo.errors import ConfigurationError, InvalidValueError, UnknownNameError
from slomo.files.documents import convert
from slomo.vocabulary.knobs import knobs
from slomo.vocabulary.network_function import NetworkFunction, stages_of
from slomo.vocabulary.network_function_file import SimulatedSection, StructureSection
from slomo.vocabulary.wire import WIRE_OVERHEAD_B
from slomo.vocabulary.workload import Setting, Traffic, Workload

LINE_B = 64
#: Default number of a data structure's accesses in flight; rarely are all ten line-fill buffers of a core in use.
DEFAULT_MLP = {"random": 4.0, "zipf": 4.0, "chain": 1.0, "sequential": 16.0}
#: Largest number of a pipelined NF's packets at an accelerator; more would only add latency, as the core runs ahead.
ACCELERATOR_DEPTH = 32


@dataclass(frozen=True)
class Structure:
    """One data structure of an NF: size [B], reads and writes per packet, pattern, accesses in flight."""

    name: str
    size_b: float
    reads: float
    writes: float
    pattern: str
    zipf_exponent: float
    mlp: float


@dataclass(frozen=True)
class Accelerator:
    """Use of an accelerator: time per request [ns], requests per packet, largest number of packets there at once."""

    name: str
    service_ns: float
    requests: float
    depth: int


@dataclass(frozen=True)
class Program:
    """What one packet costs an NF, and how packets reach it."""

    compute_cycles: float
    instructions: float
    packet_size_b: int
    touched_lines: int
    written_lines: int
    packet_mlp: float
    packet_buffers: int
    burst: int
    offered_mpps: float | None
    accelerator: Accelerator | None
    structures: tuple[Structure, ...]

    @property
    def data_lines(self) -> int:
        """Cache lines of a packet's bytes."""
        return -(-self.packet_size_b // LINE_B)

    @property
    def wire_bits(self) -> float:
        """Bits of a frame on the wire, preamble and gap included."""
        return 8.0 * (self.packet_size_b + WIRE_OVERHEAD_B)

    @property
    def accesses(self) -> float:
        """Line accesses of the core per packet, the packet's metadata included."""
        return 1.0 + self.touched_lines + sum(item.reads + item.writes for item in self.structures)


def program(nf: NetworkFunction, workload: Workload) -> Program:
    """Return what an NF does for each packet, for a workload's settings and traffic.

    Raises ConfigurationError if the NF has no ``simulated`` section, UnknownNameError for a setting that the NF does
    not have, InvalidValueError for one out of range.

    >>> from slomo.vocabulary.network_function import load_network_function
    >>> knobs_set = Workload("synthetic", {"data_size_mib": 8, "reads_per_packet": 100})
    >>> program(load_network_function("synthetic"), knobs_set).structures[0].size_b
    8388608.0
    """
    if nf.simulated is not None and "stages" in nf.simulated:
        return _to_completion([program(stage, part) for stage, part in stages_of(nf, workload)])
    if nf.simulated is None:
        raise ConfigurationError(
            f"network function '{nf.name}' has no 'simulated' section",
            hint="give one, or use a testbed with real machines",
        )
    return _Filler(nf, workload).program()


def _to_completion(stages: Sequence[Program]) -> Program:
    """Return the program of a chain of NFs on one core, in which each packet passes all of them in turn.

    The stages' work adds up; each stage finds the packet in the core's caches.
    """
    first = stages[0]
    sizes = {stage.packet_size_b for stage in stages}
    if len(sizes) > 1:
        raise InvalidValueError(f"packets of {sorted(sizes)} B in one chain, needed one size")
    held_b = LINE_B * (1.0 + max(stage.touched_lines for stage in stages))
    again = [
        Structure(f"packet {number}", held_b, 1.0 + s.touched_lines - w, w, "sequential", 1.0, s.packet_mlp)
        for number, s in enumerate(stages[1:], 2)
        for w in (float(min(s.written_lines, s.touched_lines)),)
    ]
    loads = [stage.offered_mpps for stage in stages if stage.offered_mpps is not None]
    return replace(
        first,
        compute_cycles=sum(stage.compute_cycles for stage in stages),
        instructions=sum(stage.instructions for stage in stages),
        packet_buffers=min(stage.packet_buffers for stage in stages),
        burst=min(stage.burst for stage in stages),
        offered_mpps=min(loads, default=None),
        structures=(*(item for stage in stages for item in stage.structures), *again),
    )


class _Filler:
    """Replaces ``$setting`` by the setting's value throughout an NF's file."""

    def __init__(self, nf: NetworkFunction, workload: Workload) -> None:
        self.nf = nf
        self.traffic: Traffic = workload.traffic
        self.file = convert(nf.simulated, SimulatedSection, f"network function '{nf.name}'")
        self.own = dict(workload.configuration)
        self.sizes = {f"{item.name}_mib" for item in self.file.structures if item.size_mib is not UNSET}
        self.settings: dict[str, Setting] = {**nf.settings}
        for name, value in self.own.items():
            self._check(name, value)
            self.settings[name] = value

    def _check(self, name: str, value: Setting) -> None:
        setting_names = {*self.nf.settings, *self.sizes, "packet_buffers", "burst", "packet_size_b"}
        if name not in setting_names:
            raise UnknownNameError("setting", name, setting_names, where=f"of '{self.nf.name}'")
        if name in knobs():
            knobs()[name].check(value)
        if name == "instances" and value != 1:
            raise InvalidValueError(
                f"'{self.nf.name}': one workload is one instance, got instances = {value}",
                hint="list it that many times",
            )
        if isinstance(value, int | float) and not 0 <= value <= 1e9:
            raise InvalidValueError(f"'{self.nf.name}': {name} is {value}, needed 0 to 1e9")

    def number(self, value: object, default: float = 0.0) -> float:
        """Return `value` as a number; a text such as ``$reads * $iterations`` is evaluated as a product of settings."""
        if value is UNSET:
            return default
        product = 1.0
        for factor in str(value).split("*"):
            product *= float(self._lookup(factor.strip()))
        return product

    def _lookup(self, text: str) -> Setting:
        if not text.startswith("$"):
            return text
        if text[1:] not in self.settings:
            raise UnknownNameError("setting", text[1:], self.settings, where=f"of '{self.nf.name}'")
        return self.settings[text[1:]]

    def structure(self, item: StructureSection) -> Structure:
        """Return one data structure with the settings filled in."""
        pattern = str(self._lookup(item.pattern))
        exponent = self.number(item.zipf_exponent)
        size_b = self.number(self.own.get(f"{item.name}_mib", item.size_mib)) * 2**20
        if item.bytes_per_flow is not UNSET:
            size_b += self.number(item.bytes_per_flow) * self.traffic.flow_count
            if self.traffic.flow_distribution == "zipf" and pattern == "random":
                pattern, exponent = "zipf", self.traffic.zipf_exponent
        own: dict[Any, float] = item.mlp if isinstance(item.mlp, dict) else {}
        mlp = item.mlp if isinstance(item.mlp, float) else own.get(pattern, DEFAULT_MLP[pattern])
        return Structure(
            name=item.name,
            size_b=max(float(LINE_B), size_b),
            reads=self.number(item.reads),
            writes=self.number(item.writes),
            pattern=pattern,
            zipf_exponent=exponent,
            mlp=1.0 if pattern == "chain" else mlp,
        )

    def per_packet(self, what: str, size_b: int) -> float:
        """Return the compute cycles, or the instructions, for one packet."""
        total = self.number(self.file.compute_cycles if what == "cycles" else self.file.instructions)
        total += self.number(getattr(self.file, f"{what}_per_byte")) * max(0, size_b - LINE_B)
        for item in self.file.structures:
            accesses = self.number(item.reads) + self.number(item.writes)
            total += accesses * self.number(getattr(item, f"{what}_per_access"))
        return total

    def program(self) -> Program:
        """Return the program that the whole file describes."""
        file, own, offered = self.file, self.own, self.traffic.offered_mpps
        size_b = int(self.number(own.get("packet_size_b", file.packet_size_b), self.traffic.packet_size_b))
        lines, accelerator = -(-size_b // LINE_B), None
        if (used := file.accelerator) is not UNSET:
            depth = ACCELERATOR_DEPTH if used.pattern == "pipeline" else 1
            accelerator = Accelerator(used.name, self.number(used.service_ns), self.number(used.requests), depth)
        return Program(
            compute_cycles=self.per_packet("cycles", size_b),
            instructions=self.per_packet("instructions", size_b),
            packet_size_b=size_b,
            touched_lines=lines if file.packet.touch == "payload" else 1,
            written_lines=min(lines, file.packet.written_lines),
            packet_mlp=file.packet.mlp,
            packet_buffers=max(32, int(self.number(own.get("packet_buffers", file.packet_buffers)))),
            burst=max(1, int(self.number(own.get("burst", file.burst)))),
            offered_mpps=(self.number(file.offered_mpps) or None) if offered is None else offered,
            accelerator=accelerator,
            structures=tuple(map(self.structure, file.structures)),
        )
