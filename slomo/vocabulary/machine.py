"""A machine: its shared resources in numbers, and the sources of these numbers.

One YAML file per machine in ``machines/``; the fields are those a line-level simulation needs (SLOMO, SIGCOMM'20,
section 3, lists the shared resources: last-level cache, DDIO space, memory bandwidth).
"""

import functools
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from msgspec import UNSET, Meta, UnsetType, defstruct

from slomo.errors import ConfigurationError, InvalidValueError, UnknownNameError
from slomo.files.documents import in_document, parse
from slomo.files.opening import read_text
from slomo.files.stored import Stored
from slomo.vocabulary.capacities import Capacities
from slomo.vocabulary.display import html_table
from slomo.vocabulary.way_masks import way_block
from slomo.vocabulary.wire import mpps_of_gbps

SCHEMA_VERSION = 1
#: Fields that older machine files lack.
_NEWER_FIELDS = ("llc_insertion", "l2_prefetcher", "threads_per_core", "issue_width")


@dataclass(frozen=True)
class Machine(Stored, version=SCHEMA_VERSION):
    """The shared resources of one server: caches, memory channels, ports, cores.

    Attributes
    ----------
    name, description, source : str
        Short name, what it is, where its numbers come from.
    sockets, cores_per_socket : int
        Cores as software sees them: hyper-threads are counted where `threads_per_core` is 2.
    frequency_ghz : float
        Nominal clock [GHz]; turbo is taken to be off.
    l2_kib, l2_ways, l2_hit_ns
        Private L2 of each core: size [KiB], ways, latency of a hit [ns].
    llc_mib, llc_ways, llc_hit_ns
        One last-level cache domain: size [MiB], ways, latency of a hit [ns].
    llc_policy : str
        ``"inclusive"`` of L2, or ``"victim"``: filled by what L2 evicts.
    llc_domains_per_socket : int
        Last-level caches per socket; cores are divided evenly among them.
    ddio_ways : int
        Highest ways of the LLC in which devices may allocate; 0 where devices write to memory.
    memory_peak_gb_s : float
        Nominal bandwidth of one socket's populated memory channels [GB/s].
    memory_efficiency : float
        Share of it that mixed reads and writes can reach, 0 to 1.
    dram_local_ns, dram_remote_ns : float
        Unloaded latency of memory on this and on another socket [ns].
    link_gb_s : float
        Bandwidth of a socket's links to the others, per direction [GB/s].
    nic_gbps : float
        Line rate of one NIC port [Gbit/s].
    nic_socket : int
        Socket the NICs are attached to.
    nic_ports : int or None
        Ports of the server, all on `nic_socket`, that all network functions share by SR-IOV, together at most what the
        IIO moves; None where it is not known and each has one of its own.
    ddio_policy : str
        ``"allocate"``: what devices wrote stays in the DDIO ways (Broadwell); ``"migrate"``: it moves to the two lowest
        ways when a core reads it (Skylake).
    llc_insertion : str
        ``"recent"``: a new line is the most recently used of its set; ``"adaptive"``: it is the least recently used one
        while that misses less often (Intel's client parts since Ivy Bridge).
    l2_prefetcher : str
        ``"none"``, or ``"stream"``: each L2 brings the lines that follow a stream (Intel's L2 streamer).
    threads_per_core : int
        Hyper-threads that share a core's L2 and issue slots, 1 or 2; with 2 the cores 0 and 1, 2 and 3, and so on are
        the threads of one core, each counted in `cores_per_socket`.
    issue_width : int
        Instructions that a core issues per cycle at most; hyper-threads share them.
    iio_gbps : float or None
        What the I/O controller and PCIe slots of a socket move in each direction [Gbit/s]; None where it is not known.

    Examples
    --------
    >>> machine = load_machine("e5-2620v4")
    >>> machine.cores, machine.llc_mib, machine.llc_policy
    (16, 20.0, 'inclusive')
    """

    name: str
    description: str
    source: Annotated[str, Meta(min_length=3, description="where the numbers come from")]
    sockets: Annotated[int, Meta(ge=1, le=8, description="1 to 8 sockets")]
    cores_per_socket: Annotated[int, Meta(ge=1, le=1024, description="1 to 1024 cores")]
    frequency_ghz: Annotated[float, Meta(gt=0.0, le=10.0, description="clock in GHz")]
    l2_kib: Annotated[float, Meta(ge=8.0, le=65536.0, description="L2 per core in KiB, 8 to 65536")]
    l2_ways: Annotated[int, Meta(ge=1, le=32, description="1 to 32 ways, the most that are simulated")]
    l2_hit_ns: Annotated[float, Meta(gt=0.0, le=1000.0, description="latency in ns")]
    llc_mib: Annotated[float, Meta(ge=0.25, le=4096.0, description="one last-level cache in MiB")]
    llc_ways: Annotated[int, Meta(ge=2, le=32, description="2 to 32 ways, the most that are simulated")]
    llc_policy: Annotated[
        Literal["inclusive", "victim"], Meta(description="'inclusive' of L2 or 'victim' (filled by L2's evictions)")
    ]
    llc_domains_per_socket: Annotated[int, Meta(ge=1, le=64, description="1 to 64 last-level caches per socket")]
    llc_hit_ns: Annotated[float, Meta(gt=0.0, le=1000.0, description="latency in ns")]
    ddio_ways: Annotated[int, Meta(ge=0, le=59, description="0 to 59 ways, fewer than llc_ways")]
    memory_peak_gb_s: Annotated[float, Meta(gt=0.0, le=10000.0, description="GB/s per socket")]
    memory_efficiency: Annotated[
        float, Meta(gt=0.0, le=1.0, description="share of the peak that mixed traffic reaches, above 0 and at most 1")
    ]
    dram_local_ns: Annotated[float, Meta(gt=0.0, le=10000.0, description="latency in ns")]
    dram_remote_ns: Annotated[float, Meta(gt=0.0, le=10000.0, description="latency in ns")]
    link_gb_s: Annotated[float, Meta(gt=0.0, le=10000.0, description="GB/s per direction")]
    nic_gbps: Annotated[float, Meta(gt=0.0, le=10000.0, description="line rate of a port in Gbit/s")]
    nic_socket: Annotated[int, Meta(ge=0, le=7, description="socket of the NICs")]
    nic_ports: (
        Annotated[
            int, Meta(ge=1, le=64, description="1 to 64 ports that network functions share; together at most iio_gbps")
        ]
        | None
    ) = None
    ddio_policy: Annotated[
        Literal["allocate", "migrate"],
        Meta(
            description="'allocate': lines stay in the DDIO ways; 'migrate': cores' reads move them to two other ways"
        ),
    ] = "allocate"
    iio_gbps: (
        Annotated[
            float,
            Meta(
                gt=0.0,
                le=100000.0,
                description="what a socket's I/O controller and PCIe slots move in each direction, in Gbit/s",
            ),
        ]
        | None
    ) = None
    llc_insertion: Annotated[
        Literal["recent", "adaptive"],
        Meta(description="'recent': a new line is its set's most recently used; 'adaptive': the least where better"),
    ] = "recent"
    l2_prefetcher: Annotated[
        Literal["none", "stream"],
        Meta(description="'none', or 'stream': each L2 brings the lines that follow a stream"),
    ] = "none"
    threads_per_core: Annotated[
        int,
        Meta(ge=1, le=2, description="1, or 2 hyper-threads that share a core, each counted in cores_per_socket"),
    ] = 1
    issue_width: Annotated[
        int,
        Meta(
            ge=1, le=16, description="1 to 16 instructions that a core issues per cycle, which its hyper-threads share"
        ),
    ] = 4

    def __post_init__(self) -> None:
        for name, value in self.check_ranges(f"machine '{self.name}'").items():
            object.__setattr__(self, name, value)
        self._require(self.ddio_ways < self.llc_ways, "ddio_ways", f"fewer than the LLC's {self.llc_ways} ways")
        self._require(self.nic_socket < self.sockets, "nic_socket", f"0 to {self.sockets - 1}")
        divides = self.cores_per_socket % self.llc_domains_per_socket == 0
        self._require(divides, "llc_domains_per_socket", f"a divisor of {self.cores_per_socket} cores")
        whole = self.cores_per_socket // self.llc_domains_per_socket % self.threads_per_core == 0
        self._require(whole, "cores_per_socket", "an even number in each LLC domain: threads_per_core is 2")
        inside = self.ddio_policy == "allocate" or (self.llc_policy == "victim" and self.llc_ways >= self.ddio_ways + 2)
        self._require(inside, "ddio_policy", "'allocate', or a 'victim' LLC with two ways beside the DDIO ways")
        if self.iio_gbps is not None:
            self._require(self.iio_gbps >= self.nic_gbps, "iio_gbps", f"at least one port of {self.nic_gbps:g} Gbit/s")
            most = int(self.iio_gbps / self.nic_gbps)
            if self.nic_ports is not None and self.nic_ports > most:
                raise InvalidValueError(
                    f"machine '{self.name}': nic_ports is {self.nic_ports} of {self.nic_gbps:g} Gbit/s, "
                    f"needed 1 to {most}: iio_gbps is {self.iio_gbps:g}",
                    hint="state fewer ports, a lower nic_gbps, or what the IIO really moves",
                )

    def _require(self, condition: bool, name: str, needed: str) -> None:
        if not condition:
            raise InvalidValueError(f"machine '{self.name}': {name} is {getattr(self, name)!r}, needed {needed}")

    def __repr__(self) -> str:
        return f"Machine({self.name}: {self.sockets} x {self.cores_per_socket} cores, {self.llc_mib:g} MiB LLC)"

    def _repr_html_(self) -> str:
        return html_table(f"{self.name}: {self.description}", (), list(asdict(self).items())[2:])

    @property
    def cores(self) -> int:
        """Number of cores of the whole machine."""
        return self.sockets * self.cores_per_socket

    @property
    def llc_domains(self) -> int:
        """Number of last-level caches of the whole machine."""
        return self.sockets * self.llc_domains_per_socket

    @property
    def full_way_mask(self) -> int:
        """Mask of all LLC ways."""
        return way_block(self.llc_ways)

    @property
    def ddio_way_mask(self) -> int:
        """Mask of the LLC ways in which devices allocate: the highest ones, Intel's default."""
        return way_block(self.ddio_ways, self.llc_ways - self.ddio_ways)

    @property
    def ddio_moved_way_mask(self) -> int:
        """Mask of the LLC ways to which lines move from the DDIO ways when cores read them; 0 if they stay."""
        return 0b11 if self.ddio_policy == "migrate" and self.ddio_ways else 0

    @property
    def usable_memory_gb_s(self) -> float:
        """Memory bandwidth of one socket available to mixed traffic [GB/s]."""
        return self.memory_peak_gb_s * self.memory_efficiency

    def socket_of(self, core: int) -> int:
        """Return the socket of a core.

        Examples
        --------
        >>> load_machine("e5-2620v4").socket_of(8)
        1
        """
        if not 0 <= core < self.cores:
            raise InvalidValueError(f"machine '{self.name}': core {core} asked for, it has cores 0 to {self.cores - 1}")
        return core // self.cores_per_socket

    def llc_domain_of(self, core: int) -> int:
        """Return the last-level cache of a core."""
        socket = self.socket_of(core)
        inside = (core % self.cores_per_socket) * self.llc_domains_per_socket // self.cores_per_socket
        return socket * self.llc_domains_per_socket + inside

    def line_rate_mpps(self, packet_size_b: int) -> float:
        """Return how many packets per second one port carries [Mpps].

        Examples
        --------
        >>> round(load_machine("e5-2620v4").line_rate_mpps(64), 2)
        59.52
        """
        return mpps_of_gbps(self.nic_gbps, packet_size_b)

    def shared_wire_gbps(self, port_gbps: float | None = None) -> float:
        """Return the bandwidth that all network functions share at the ports [Gbit/s].

        Examples
        --------
        >>> load_machine("e5-2620v4").shared_wire_gbps(), load_machine("e5-2620v4").shared_wire_gbps(400.0)
        (80.0, 160.0)
        """
        ports = math.inf if self.nic_ports is None else self.nic_ports * self.nic_gbps
        rate = ports if port_gbps is None else port_gbps
        return rate if self.iio_gbps is None else min(rate, self.iio_gbps)

    def capacities(self) -> Capacities:
        """Return the capacities of one socket, which limit combined counters."""
        llc_kib = self.llc_mib * 1024 * self.llc_domains_per_socket
        return Capacities(
            cores=self.cores_per_socket,
            llc_kib=llc_kib,
            ddio_kib=llc_kib * self.ddio_ways / self.llc_ways,
            memory_gb_s=self.usable_memory_gb_s,
            link_gb_s=self.link_gb_s,
            ports_gbps=self.shared_wire_gbps(),
            nic_socket=self.nic_socket,
        )

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of the machine's numbers, independent of its name: 16 hexadecimal digits.

        Examples
        --------
        >>> load_machine("e5-2620v4").fingerprint == load_machine("silver-4110").fingerprint
        False
        """
        numbers = {name: value for name, value in asdict(self).items() if name not in ("name", "description", "source")}
        for field in fields(self):
            if field.name in _NEWER_FIELDS and numbers[field.name] == field.default:  # as before there was the field
                del numbers[field.name]
        return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:16]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Machine":
        """Rebuild a machine from :meth:`to_dict`'s mapping."""
        field_names = {field.name for field in fields(cls)}
        missing = sorted({field.name for field in fields(cls) if field.default is MISSING} - set(data))
        if missing:
            raise ConfigurationError(f"machine '{data.get('name')}' lacks: {', '.join(missing)}")
        return cls(**{name: data[name] for name in field_names & set(data)})


_TYPES = get_type_hints(Machine, include_extras=True)
_NEEDED = [each.name for each in fields(Machine) if each.default is MISSING and each.name != "name"]
#: A machine's YAML file; without a name it is named after the file.
MachineFile = defstruct(
    "MachineFile",
    [
        *((name, _TYPES[name]) for name in _NEEDED),
        ("name", Annotated[str, Meta(min_length=1)] | UnsetType, UNSET),
        *((each.name, _TYPES[each.name], each.default) for each in fields(Machine) if each.default is not MISSING),
    ],
    namespace={"__doc__": "The file of a machine; without a name it is named after the file."},
    forbid_unknown_fields=True,
)


@functools.cache
def machine_names() -> tuple[str, ...]:
    """Return the names of the shipped machines, sorted."""
    files = resources.files("slomo.vocabulary") / "machines"
    return tuple(sorted(file.name[:-5] for file in files.iterdir() if file.name.endswith(".yaml")))


def load_machine(name_or_path: "str | Machine") -> Machine:
    """Load a shipped machine by name, or the user's own from a YAML file; a machine is returned as it is.

    Raises
    ------
    UnknownNameError
        For a name no machine has, with the nearest one.
    ConfigurationError
        For a file that is not a machine: names file, line and field.

    Examples
    --------
    >>> load_machine("silver-4110").llc_ways
    11
    """
    if isinstance(name_or_path, Machine):
        return name_or_path
    name = str(name_or_path)
    if name in machine_names():
        return _shipped(name)
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or "/" in name:
        return _parsed(read_text(path), name, path.stem)
    raise UnknownNameError("machine", name, machine_names(), also="One of your own: the path of its YAML file")


@functools.cache
def _shipped(name: str) -> Machine:
    text = (resources.files("slomo.vocabulary") / "machines" / f"{name}.yaml").read_text(encoding="utf-8")
    return _parsed(text, f"{name}.yaml", name)


@functools.lru_cache(maxsize=64)  # by what a file says, not where it lies: an edited file is another machine
def _parsed(text: str, file: str, name: str) -> Machine:
    document = parse(text, file)
    data = document.table()
    document.to(MachineFile)
    with in_document(file):
        return Machine.from_dict({"name": name, **data})
