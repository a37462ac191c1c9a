"""Service chains on cores: stages that may share a core, and chains through them.

As in NFVnice (SIGCOMM'17), NFs are processes pinned to cores, several per core. A chain is a path of NFs, and chains
may share NFs. Packets wait in a ring before each NF. The same descriptions are simulated and run on a host.
"""

from dataclasses import dataclass, field

from slomo.errors import ConfigurationError, InvalidValueError, UnknownNameError, UsageError
from slomo.files.documents import parse
from slomo.files.opening import read_text
from slomo.vocabulary.chain_file import (
    DEFAULT_BUFFER_B,
    DEFAULT_CAPACITY,
    DEFAULT_HIGH_WATER,
    DEFAULT_LOW_WATER,
    DEFAULT_SHARES,
    ChainEntry,
    ChainsFile,
    StageEntry,
    StorageDevice,
)
from slomo.vocabulary.wire import mpps_of_gbps
from slomo.vocabulary.workload import Traffic, Workload
from slomo.vocabulary.workload_text import parse_workload

#: Limits of a CPU cgroup's ``cpu.shares`` (version 1), kernel/sched/sched.h.
LEAST_SHARES, MOST_SHARES = 2, 262_144
_MOST_CHANGES = 16


@dataclass(frozen=True)
class StorageWrites:
    """What an NF writes to storage: bytes per packet, size of a batch, and whether it waits."""

    bytes_per_packet: int
    blocking: bool = False
    buffer_b: float = 64 * 1024


@dataclass(frozen=True)
class ChainStage:
    """One NF of one or more chains."""

    #: Unique among the stages.
    name: str
    #: CPU it runs on; several stages may share it.
    core: int
    #: Its network function; None for pure work of `cycles`.
    workload: Workload | None = None
    #: Work per packet [cycles]; of several, one is drawn for each packet. Empty with a workload.
    cycles: tuple[float, ...] = ()
    #: Times since the first packet [s] and the cycles per packet from then on, in order; on a host only.
    cycles_from: tuple[tuple[float, float], ...] = ()
    #: Factor on its share under NFVnice.
    priority: float = 1.0
    #: Fixed CPU shares, for policies that set none.
    shares: int = DEFAULT_SHARES
    #: What it writes to storage.
    storage: StorageWrites | None = None

    def __post_init__(self) -> None:
        if (self.workload is None) == (not self.cycles):
            raise InvalidValueError(f"stage '{self.name}' needs either an nf or cycles", hint="write cycles: 270")
        if self.core < 0 or not 0.0 < self.priority < float("inf"):
            raise InvalidValueError(
                f"stage '{self.name}': core {self.core}, priority {self.priority:g}, needed 0 or more, and above 0"
            )
        times = [0.0, *(at_s for at_s, _ in self.cycles_from)]
        if self.cycles_from and (not self.cycles or times != sorted(set(times)) or len(times) > _MOST_CHANGES + 1):
            raise InvalidValueError(
                f"stage '{self.name}': cycles_from has times {', '.join(f'{at:g}' for at in times[1:])} s, "
                f"needed at most {_MOST_CHANGES} above 0 in their order, and cycles to begin with",
                hint="cycles: 550, cycles_from: {15: 1650}",
            )
        checked_shares(self.name, self.shares)


@dataclass(frozen=True)
class ServiceChain:
    """A path of packets through stages, and its traffic."""

    #: Unique among the chains.
    name: str
    #: Names of stages in order, none twice.
    stages: tuple[str, ...]
    #: Offered rate, for a responsive source the largest rate [Mpps]; None is line rate.
    mpps: float | None = None
    #: Size of its packets [B].
    packet_size_b: int = 64
    #: Whether the source halves its rate on a loss or an ECN mark, like TCP; otherwise the rate is constant.
    responsive: bool = False
    #: Round trip outside this server [us].
    rtt_us: float = 200.0
    #: Start and end of sending [ms].
    from_ms: float = 0.0
    to_ms: float = float("inf")

    def __post_init__(self) -> None:
        repeated = sorted({name for name in self.stages if self.stages.count(name) > 1})
        if repeated:
            raise InvalidValueError(
                f"chain '{self.name}' comes back to {', '.join(repeated)}: {' -> '.join(self.stages)}",
                hint="a chain has no cycle: give the second visit a stage of its own",
            )
        if not self.stages:
            raise InvalidValueError(f"chain '{self.name}' has no stages")
        Traffic(packet_size_b=self.packet_size_b, offered_mpps=self.mpps)
        if not self.to_ms > self.from_ms:
            raise InvalidValueError(f"chain '{self.name}' sends from {self.from_ms:g} to {self.to_ms:g} ms")


@dataclass(frozen=True)
class ChainSystem:
    """Stages and chains of one machine.

    Raises UnknownNameError for a chain through an unknown stage; InvalidValueError for an invalid ring size, watermarks
    out of order, or packets that no buffer holds.
    """

    #: Who runs where.
    stages: tuple[ChainStage, ...]
    #: What passes whom.
    chains: tuple[ServiceChain, ...]
    #: Name or file of the machine; a host uses its own.
    machine: str = "e5-2620v4"
    #: Capacity of the ring before each stage [packets], a power of two.
    queue_capacity: int = DEFAULT_CAPACITY
    #: Marks as shares of it.
    high_water: float = DEFAULT_HIGH_WATER
    low_water: float = DEFAULT_LOW_WATER
    #: Bytes of a packet buffer.
    buffer_b: int = DEFAULT_BUFFER_B
    #: Socket of the buffers' memory; None is the NIC's.
    memory_socket: int | None = None
    #: What stages write to.
    storage: StorageDevice = field(default_factory=StorageDevice)

    def __post_init__(self) -> None:
        names = [stage.name for stage in self.stages]
        for chain in self.chains:
            for name in chain.stages:
                if name not in names:
                    raise UnknownNameError("stage", name, names, where=f"of chain '{chain.name}'")
            if chain.packet_size_b > self.buffer_b:
                raise InvalidValueError(
                    f"chain '{chain.name}' sends packets of {chain.packet_size_b} B, a buffer holds {self.buffer_b} B",
                    hint=f"set buffer_b: to {max(chain.packet_size_b for chain in self.chains)} or more",
                )
        if self.queue_capacity < 2 or self.queue_capacity & (self.queue_capacity - 1):
            raise InvalidValueError(
                f"a ring of {self.queue_capacity} packets, needed a power of two",
                hint=f"{1 << max(self.queue_capacity - 1, 1).bit_length()} would do",
            )
        if not 0.0 < self.low_water < self.high_water <= 1.0:
            raise InvalidValueError(
                f"water marks are {self.low_water:g} (low) and {self.high_water:g} (high) of a queue, "
                "needed 0 < low < high <= 1"
            )

    @property
    def paths(self) -> dict[str, tuple[str, ...]]:
        """Stages of each chain, in order; the key is the chain's name."""
        return {chain.name: chain.stages for chain in self.chains}


def load_chains(path: str) -> ChainSystem:
    """Read a document of service chains."""
    return parse_chains(read_text(path), str(path))


def parse_chains(text: str, file: str = "chains.yaml") -> ChainSystem:
    """Parse a document of service chains; ConfigurationError naming file and field."""
    document = parse(text, file)
    document.table()
    read = document.to(ChainsFile)
    try:
        return ChainSystem(
            stages=tuple(_stage(name, entry) for name, entry in read.stages.items()),
            chains=tuple(_chain(name, entry) for name, entry in read.chains.items()),
            machine=read.machine,
            queue_capacity=read.queue.capacity,
            high_water=read.queue.high_water,
            low_water=read.queue.low_water,
            buffer_b=read.buffer_b,
            memory_socket=read.memory_socket,
            storage=read.storage,
        )
    except UsageError as problem:
        raise ConfigurationError(f"{file}: {problem.message}", hint=problem.hint) from None


def _stage(name: str, entry: StageEntry) -> ChainStage:
    cycles, writes = entry.cycles, entry.storage
    return ChainStage(
        name=name,
        core=entry.core,
        workload=None if entry.nf is None else parse_workload(entry.nf),
        cycles=() if cycles is None else tuple(cycles) if isinstance(cycles, list) else (cycles,),
        cycles_from=tuple(sorted(entry.cycles_from.items())),
        priority=entry.priority,
        shares=checked_shares(name, entry.shares),
        storage=None
        if writes is None
        else StorageWrites(writes.bytes_per_packet, writes.mode == "blocking", 1024.0 * writes.buffer_kib),
    )


def _chain(name: str, entry: ChainEntry) -> ServiceChain:
    mpps = entry.mpps
    if entry.gbps is not None:
        if mpps is not None:
            raise ConfigurationError(f"chain '{name}' has both mpps and gbps", hint="leave one out")
        mpps = mpps_of_gbps(entry.gbps, entry.packet_size_b)
    if entry.rtt_us is not None and entry.kind != "tcp":
        raise ConfigurationError(
            f"chains.{name}.rtt_us is {entry.rtt_us:g}, but a chain of kind '{entry.kind}' waits for no answers",
            hint="leave it out, or set kind: tcp",
        )
    return ServiceChain(
        name=name,
        stages=entry.stages,
        mpps=mpps,
        packet_size_b=entry.packet_size_b,
        responsive=entry.kind == "tcp",
        rtt_us=200.0 if entry.rtt_us is None else entry.rtt_us,
        from_ms=entry.from_ms,
        to_ms=float("inf") if entry.to_ms is None else entry.to_ms,
    )


def checked_shares(name: str, shares: float) -> int:
    """Return `shares` if a cgroup (version 1) accepts them; InvalidValueError outside 2 to 262 144."""
    if shares != int(shares) or not LEAST_SHARES <= shares <= MOST_SHARES:
        raise InvalidValueError(
            f"stage '{name}': {shares:.10g} CPU shares, a cgroup takes {LEAST_SHARES} to {MOST_SHARES}",
            hint="only the ratios on a core matter: divide all of them by the same number",
        )
    return int(shares)
