"""Settings of a chain run, and the plan file that the native manager reads, one statement per line.

`synthetic_nf/src/chain_plan.h` defines the statements; this module refuses chains that cannot run on a host.

Only slomo's own functions can be stages, since a stage reads packets from slomo's ring.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slomo.errors import ConfigurationError, InvalidValueError, SlomoError, UnknownNameError
from slomo.host.cores import available_cores
from slomo.testbed.host.chains.moves import StageMove, require_movable
from slomo.testbed.host.nf.definition import HostDefinition, host_definition
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.service_chains import ChainStage, ChainSystem, ServiceChain
from slomo.vocabulary.workload import Workload

Scheduler = Literal["normal", "batch", "rr"]
#: Interval at which NFVnice (section 3) sets weights: 10 ms.
LOOK_MS = 10.0
_LONGEST_FRAME_B = 1514
_LONGEST_NAME = 31
#: An IP packet of 576 bytes, which every host accepts (RFC 791), and an Ethernet header.
_LEAST_TCP_FRAME_B = 590
#: Functions that rewrite addresses, so that the receiver of a TCP connection would not recognise its packets.
_REWRITE = ("nat", "maglev", "ipsec")


@dataclass(frozen=True)
class ChainRunSettings:
    """Scheduler, back-pressure, durations and reports of a run of chains."""

    #: Scheduler of the stages; one of 'normal', 'batch', 'rr'.
    scheduler: Scheduler = "normal"
    #: Whether a stage has one ring for all its chains, as in OpenNetVM and the simulator, instead of one for each. Then
    #: packets come in as there: 32 of each chain in turn, and the manager wakes stages and looks at rings in between.
    #: Under back-pressure the marks of the ring at the entry stop its chains, too.
    shared_rings: bool = False
    #: Whether overload drops packets at a chain's entry; `local`: whether stages wait at a full ring instead of
    #: dropping, with `shared_rings` only if all chains of the stage would wait.
    pressure: bool = False
    local: bool = False
    #: Whether TCP chains negotiate ECN and long rings mark their packets.
    ecn: bool = False
    #: Waiting time of packets above which a ring counts as overloaded [us].
    waiting_us: float = 100.0
    #: Measured time [s], and warm-up [ms].
    seconds: float = 2.0
    warm_up_ms: float = 300.0
    #: Interval of cost samples [us]; 0 for none.
    sample_us: float = 1000.0
    #: Directory of the files that stages write; None for the directory of temporary files.
    storage_dir: str | None = None
    #: Number of flows of each chain's traffic.
    flow_count: int = 1024
    #: CPU of the manager; None for a CPU without a stage.
    manager_core: int | None = None
    #: Build of the native program; one of 'portable', 'dpdk'.
    build: Literal["portable", "dpdk"] = "portable"
    #: Whether to report the stages every 10 ms.
    looks: bool = False
    #: Least time between two states of the result's series, in steps of 10 [ms]; 0 for no series.
    series_ms: float = 0.0
    #: Moves of stages during the run, and whether more of them are sent while it runs.
    moves: tuple[StageMove, ...] = ()
    live: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.seconds < float("inf"):
            raise InvalidValueError(f"chains would run for {self.seconds:g} s, needed above 0")
        if not 0.0 <= self.series_ms < float("inf"):
            raise InvalidValueError(f"a series with a state every {self.series_ms:g} ms, needed 0 or more")


def render_plan(
    system: ChainSystem,
    settings: ChainRunSettings,
    parent: Path | None = None,
    groups: Mapping[str, Path] | None = None,
) -> str:
    """Return the text of the plan file for a run. `parent`, `groups`: control groups of the run and of its stages.

    Raises InvalidValueError for a missing core, a directory with spaces, a stage that both moves and changes its cost,
    and a TCP chain that rewrites addresses, has small packets or has start or end times.
    """
    require_runnable(system)
    require_movable(settings.moves, system.stages)
    manager = settings.manager_core if settings.manager_core is not None else manager_core(system)
    look_ms = LOOK_MS if settings.looks or settings.series_ms else 1000.0
    lines = [
        f"ring {system.queue_capacity}",
        f"buffer {system.buffer_b}",
        f"shared {int(settings.shared_rings)}",
        f"high {system.high_water:g}",
        f"low {system.low_water:g}",
        f"wait_us {settings.waiting_us:g}",
        f"pressure {int(settings.pressure)}",
        f"local {int(settings.local)}",
        f"ecn {int(settings.ecn)}",
        f"live {int(settings.live)}",
        f"sample_us {settings.sample_us:g}",
        f"observe_ms {look_ms:g}",
        f"warm_up_ms {settings.warm_up_ms:g}",
        f"seconds {settings.seconds:g}",
        f"manager {manager}",
    ]
    if parent is not None and groups is not None:
        lines += [f"group {path}" for path in (parent, *groups.values())]
    for stage in system.stages:
        group = "-" if groups is None else str(groups[stage.name])
        words = " ".join(stage_flags(stage))
        lines.append(f"stage {stage.name} {stage.core} {settings.scheduler} {group} {words}")
    for stage in system.stages:
        if stage.storage is not None:
            way = "blocking" if stage.storage.blocking else "async"
            where = _storage_directory(settings)
            buffer_b = max(stage.storage.buffer_b, stage.storage.bytes_per_packet)
            lines.append(f"log {stage.name} {stage.storage.bytes_per_packet} {buffer_b:.0f} {way} {where}")
    for chain in system.chains:
        rate = offered_mpps(chain, system)
        path = ",".join(chain.stages)
        lines.append(f"chain {chain.name} {rate:g} {settings.flow_count} {chain.packet_size_b} {path}")
    lines += [f"tcp {chain.name} {chain.rtt_us:g}" for chain in system.chains if chain.responsive]
    lines += [
        f"when {chain.name} {chain.from_ms:.9g} {chain.to_ms:.9g}"
        for chain in system.chains
        if chain.from_ms > 0.0 or chain.to_ms < float("inf")
    ]
    lines += [move.statement for move in sorted(settings.moves, key=lambda move: move.at_s)]
    return "\n".join(lines)


def _storage_directory(settings: ChainRunSettings) -> str:
    directory = settings.storage_dir or tempfile.gettempdir()
    if len(directory.split()) != 1:
        raise InvalidValueError(f"storage directory '{directory}' has spaces", hint="--storage-dir /var/tmp")
    return directory


def offered_mpps(chain: ServiceChain, system: ChainSystem) -> float:
    """Return a chain's offered load [Mpps]; by default the line rate of the system's machine."""
    return load_machine(system.machine).line_rate_mpps(chain.packet_size_b) if chain.mpps is None else chain.mpps


def manager_core(system: ChainSystem) -> int:
    """Return the CPU for the manager: the lowest one without a stage, or the lowest of all."""
    cores, taken = available_cores(), {stage.core for stage in system.stages}
    return next((core for core in cores if core not in taken), cores[0])


def require_runnable(system: ChainSystem) -> None:
    """Raise InvalidValueError, naming stage or chain, for chains that a host cannot run."""
    cores = available_cores()
    for stage in system.stages:
        if stage.core not in cores:
            raise InvalidValueError(
                f"stages.{stage.name}.core is {stage.core}, this process may use {', '.join(map(str, cores))}",
                hint="stages may share a core; `taskset -p $$` shows the cores of this process",
            )
    for chain in system.chains:
        if chain.responsive:
            _require_tcp(chain, system)
        if chain.packet_size_b > _LONGEST_FRAME_B:
            raise InvalidValueError(
                f"chain '{chain.name}' sends {chain.packet_size_b} B, a frame here has at most {_LONGEST_FRAME_B} B"
            )
    for name in (*(stage.name for stage in system.stages), *(chain.name for chain in system.chains)):
        if len(name) > _LONGEST_NAME:
            raise InvalidValueError(f"name '{name}' is longer than {_LONGEST_NAME} letters")


def _require_tcp(chain: ServiceChain, system: ChainSystem) -> None:
    """Raise InvalidValueError if the kernel's TCP cannot send through a chain."""
    if chain.packet_size_b < _LEAST_TCP_FRAME_B:
        raise InvalidValueError(
            f"chain '{chain.name}' is tcp with packets of {chain.packet_size_b} B, "
            f"needed {_LEAST_TCP_FRAME_B} B or more",
            hint="packet_size_b: 1500",
        )
    if chain.from_ms > 0.0 or chain.to_ms < float("inf"):
        raise InvalidValueError(
            f"chain '{chain.name}' is tcp and has a start or end time, which a host supports only for udp",
            hint="give the times to other chains, or use slomo chain simulate",
        )
    for stage in system.stages:
        if stage.name in chain.stages and stage_flags(stage)[1] in _REWRITE:
            raise InvalidValueError(
                f"chain '{chain.name}' is tcp, and its stage '{stage.name}' ({stage_flags(stage)[1]}) rewrites "
                "addresses: on a host the receiver would not know the packets",
                hint="remove the stage, or use slomo chain simulate",
            )


#: Functions that `slomo-nf --list-nfs` prints; `ipsec` exists only in the DPDK build.
NATIVE = ("synthetic", "l2fwd", "router", "firewall", "flowstats", "nat", "maglev", "dpi", "ipsec", "compute")
_PROGRAMS = ("{slomo_nf}", "{slomo_nf_dpdk}")
#: Flags whose values the chain determines, not the network function's description.
_DECIDED = ("--cores", "--pcap", "--rate-mpps", "--interval-s", "--packet-size-b", "--packet-buffers", "--vdev")


def stage_flags(stage: ChainStage) -> tuple[str, ...]:
    """Return the command-line arguments of a stage, such as ``--nf compute --cycles 120,270``.

    Raises UnknownNameError for an unknown network function; ConfigurationError for one that is another program.
    """
    if stage.workload is None:
        words = ("--nf", "compute", "--cycles", ",".join(f"{cycles:g}" for cycles in stage.cycles))
        changes = ",".join(f"{at_s:g}:{cycles:g}" for at_s, cycles in stage.cycles_from)
        return (*words, "--cycles-from", changes) if changes else words
    described = _described(stage.workload)
    if described is not None and described.command[0] in _PROGRAMS:
        return _from_description(stage, described)
    if stage.workload.nf in NATIVE:
        return ("--nf", stage.workload.nf, *_settings(stage.workload))
    if described is None:
        raise UnknownNameError("network function", stage.workload.nf, NATIVE, where=f"of stage '{stage.name}'")
    raise ConfigurationError(
        f"stage '{stage.name}': '{stage.workload.nf}' is run by '{described.command[0]}', "
        "which takes no packets from a chain's ring",
        hint=f"take one of ours: {', '.join(NATIVE)}",
    )


def _described(workload: Workload) -> HostDefinition | None:
    try:
        return host_definition(workload.nf)
    except SlomoError:
        return None


def _settings(workload: Workload) -> tuple[str, ...]:
    return tuple(
        word
        for name, value in workload.configuration.items()
        for word in (f"--{name.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value))
    )


def _from_description(stage: ChainStage, described: HostDefinition) -> tuple[str, ...]:
    assert stage.workload is not None
    values = {f"{{{name}}}": value for name, value in described.configured(stage.workload).items()}
    words: list[str] = []
    pairs = iter(described.command[1:])
    for flag in pairs:
        text = next(pairs, "")
        if flag in _DECIDED:
            continue
        value = values.get(text, text)
        words += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
    return tuple(words)
