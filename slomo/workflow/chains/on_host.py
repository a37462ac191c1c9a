"""Run service chains as processes on this machine under a policy: NFVnice's controller, or NUMASFP's migration.

As in NFVnice (SIGCOMM'17), every ten milliseconds the weights are computed from arrival rates and costs per packet. The
manager sets back-pressure marks and checks every ring within fifty microseconds.

NUMASFP (COMSNETS'22) places chains anew in every interval by their present rates, and migrates the functions whose node
changes. The manager's node is that of the NIC: there packets arrive, and there are rings and packet buffers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from slomo.control.cpu_shares import NFObservation, cpu_shares, cpu_weights
from slomo.errors import ConfigurationError, InvalidValueError, TestbedError, UnknownNameError
from slomo.host.cores import cores_by_node
from slomo.placement.chains.moves import INTERVAL_S
from slomo.placement.chains.nodes import Need, Node, Nodes, seated
from slomo.placement.chains.planner import place_chains
from slomo.placement.chains.policies import Judges, chain_policy, chain_policy_names
from slomo.placement.problem.chain import RatedChain
from slomo.placement.problem.request import Request
from slomo.testbed.host.chains.looks import ChainLook, HostChainResult
from slomo.testbed.host.chains.moves import MoveOutcome, StageMove, require_movable
from slomo.testbed.host.chains.plan import ChainRunSettings, manager_core, require_runnable
from slomo.testbed.host.chains.processor_groups import GroupWeights
from slomo.testbed.host.chains.run import run_on_host
from slomo.vocabulary.service_chains import ChainSystem, load_chains
from slomo.vocabulary.workload import Traffic, Workload

_SCHEDULERS: dict[str, Literal["normal", "batch", "rr"]] = {"cfs": "normal", "batch": "batch", "rr": "rr"}
#: Policies that choose the memory nodes of stages from measured rates; the others leave stages where they are.
NODE_POLICIES = tuple(name for name in chain_policy_names() if not chain_policy(name).predicts)
HOST_POLICIES = ("nfvnice", *_SCHEDULERS, *NODE_POLICIES)
#: Switches for single parts of a policy, to measure each part's effect.
Part = Literal["shares", "pressure", "local", "ecn"]
PARTS: tuple[Part, ...] = ("shares", "pressure", "local", "ecn")


class NodeMigration:
    """Decides at the end of every interval which stages move; every stage gets a CPU of its own.

    `nodes`: CPUs of each memory node. `manager`: CPU of the manager, which no stage gets. Only CPUs are counted: what a
    function needs of caches and memory bandwidth is not measured here.
    """

    def __init__(
        self, system: ChainSystem, policy: str, interval_s: float, nodes: Mapping[int, Sequence[int]], manager: int
    ) -> None:
        free = {node: [core for core in cores if core != manager] for node, cores in nodes.items()}
        near = next((node for node, cores in nodes.items() if manager in cores), None)
        #: Memory nodes with CPUs for stages, the manager's first, as policies expect the NIC's.
        self._nodes = sorted((node for node in free if free[node]), key=lambda node: (node != near, node))
        self._cores_of = {node: free[node] for node in self._nodes}
        if len(self._nodes) < 2:
            raise TestbedError(
                f"policy '{policy}' moves stages between memory nodes, and only {len(self._nodes)} of this machine's "
                f"{len(nodes)} has CPUs beside the manager's (CPU {manager}), needed 2 or more",
                hint="`numactl --hardware` lists nodes; nfvnice, cfs, batch and rr need one",
            )
        placed = [name for chain in system.chains for name in chain.stages]
        shared = next((name for name in placed if placed.count(name) > 1), None)
        room = sum(map(len, self._cores_of.values()))
        if shared is not None:
            raise InvalidValueError(
                f"stage '{shared}' is in {placed.count(shared)} chains, but '{policy}' places each chain by itself",
                hint="give each chain a stage of its own",
            )
        if len(placed) > room:
            raise InvalidValueError(f"chains have {len(placed)} stages, '{policy}' has {room} CPUs for them, one each")
        moves = (StageMove(stage.name, stage.core, 0.0) for stage in system.stages if stage.name in placed)
        require_movable(tuple(moves), system.stages)
        self._system, self._policy, self._interval_s = system, policy, interval_s
        self._decided_s, self._offered = 0.0, (0,) * len(system.chains)
        self._seats: Nodes | None = None

    def __call__(self, look: ChainLook) -> list[StageMove]:
        """Return the moves that the policy decides from the rates since its last decision; none within an interval."""
        elapsed_s = look.time_s - self._decided_s
        if elapsed_s < self._interval_s:
            return []
        counts = zip(look.offered, self._offered, strict=True)
        rates = {
            chain.name: (now - before) / elapsed_s / 1e6
            for chain, (now, before) in zip(self._system.chains, counts, strict=True)
        }
        self._decided_s, self._offered = look.time_s, look.offered
        chains = []
        for chain in self._system.chains:
            stages = tuple(Workload(stage, {}, Traffic(packet_size_b=chain.packet_size_b)) for stage in chain.stages)
            chains.append(RatedChain.at_mpps(Request(chain.name, stages), rates[chain.name]))
        nodes = [Node(len(cores), len(cores)) for cores in self._cores_of.values()]
        self._seats = place_chains(self._policy, chains, 0, nodes, Judges(_cores_alone), self._seats)
        order = ", ".join(f"{name} {mpps:.3g}" for name, mpps in sorted(rates.items(), key=lambda item: -item[1]))
        return self._moves(look, f"{self._policy} at {order} Mpps")

    def _moves(self, look: ChainLook, reason: str) -> list[StageMove]:
        assert self._seats is not None
        targets = {
            stage: self._nodes[seat]
            for chain in self._system.chains
            for stage, seat in zip(chain.stages, self._seats[chain.name], strict=True)
        }
        present = {stage.name: core for stage, core in zip(self._system.stages, look.cores, strict=True)}
        after = seated({name: present[name] for name in targets}, targets, self._cores_of)
        moves = [
            StageMove(name, core, look.time_s, node=targets[name], reason=f"{reason} to node {targets[name]}")
            for name, core in after.items()
            if core != present[name]
        ]
        return sorted(moves, key=lambda move: move.core in present.values())  # first to CPUs that no stage leaves


def _cores_alone(chain: RatedChain, _: float) -> Need:
    cores = len(chain.request.chain)
    return Need(cores, cores, 0.0)


def run_chains_on_host(
    system: ChainSystem | str,
    policy: str = "nfvnice",
    *,
    scheduler: str | None = None,
    without: tuple[str, ...] = (),
    settings: ChainRunSettings | None = None,
    interval_s: float | None = None,
    told: Callable[[MoveOutcome], None] | None = None,
) -> HostChainResult:
    """Run chains of processes on this machine under a policy.

    `system`: stages and chains, or the document that holds them. Policies ``cfs``, ``batch`` and ``rr`` are the
    kernel's schedulers SCHED_OTHER, SCHED_BATCH and SCHED_RR alone; ``nfvnice`` adds weights by arrivals and costs, and
    back-pressure, under `scheduler`, ``cfs`` by default. Under ``rr`` there are no weights. ``numasfp`` moves stages
    between memory nodes every `interval_s` (10 s, at most half of the run), by the rates measured since; ``octans`` and
    ``node-...`` do so once, after the first interval. `without`: parts of ``nfvnice`` to leave out: 'shares',
    'pressure', 'local', 'ecn'. `settings`: length of the run and so on; scheduler and back-pressure are the policy's.
    `told` is called when a stage has moved.
    """
    for kind, name, names in (
        ("policy", policy, HOST_POLICIES),
        ("scheduler", scheduler or "cfs", tuple(_SCHEDULERS)),
        *(("part of nfvnice", part, PARTS) for part in without),
    ):
        if name not in names:
            raise UnknownNameError(kind, name, names)
    if policy != "nfvnice" and (scheduler or without):
        named = f"scheduler '{scheduler}'" if scheduler else f"part '{without[0]}' to leave out"
        raise InvalidValueError(
            f"policy '{policy}' has no {named}; nfvnice has", hint="leave it out (--cpu-scheduler, --without)"
        )
    if interval_s is not None and policy not in NODE_POLICIES:
        raise InvalidValueError(
            f"policy '{policy}' decides nothing every {interval_s:g} s; {', '.join(NODE_POLICIES)} do",
            hint="leave it out (--interval-s)",
        )
    file, system = (system, load_chains(system)) if isinstance(system, str) else (None, system)
    nice = policy == "nfvnice"
    chosen = replace(
        settings or ChainRunSettings(),
        scheduler=_SCHEDULERS[scheduler or "cfs"] if nice else _SCHEDULERS.get(policy, "normal"),
        pressure=nice and "pressure" not in without,
        local=nice and "local" not in without,
        ecn=nice and "ecn" not in without,
    )
    with _told_with(file):
        require_runnable(system)
        migration = _migration(system, policy, interval_s, chosen) if policy in NODE_POLICIES else None
    watch = shares_loop(system) if nice and "shares" not in without else None
    return run_on_host(system, chosen, watch, migration, told)


def _migration(system: ChainSystem, policy: str, interval_s: float | None, settings: ChainRunSettings) -> NodeMigration:
    """Return what moves stages. Raises InvalidValueError for a run without a decision, or with moves of its own."""
    whole_s = settings.seconds + settings.warm_up_ms / 1e3
    interval_s = min(INTERVAL_S, whole_s / 2) if interval_s is None else interval_s
    if not 0.0 < interval_s < whole_s:
        raise InvalidValueError(
            f"'{policy}' decides every {interval_s:g} s, but the chains run for {whole_s:g} s, warm-up included",
            hint="make the run longer, or the interval shorter (--window-s, --interval-s)",
        )
    if settings.moves:
        raise InvalidValueError(f"'{policy}' moves stages itself, but {len(settings.moves)} moves are given, too")
    manager = manager_core(system) if settings.manager_core is None else settings.manager_core
    return NodeMigration(system, policy, interval_s, cores_by_node(), manager)


@contextmanager
def _told_with(file: str | None) -> Iterator[None]:
    """Name the document in errors about what it asks for."""
    try:
        yield
    except InvalidValueError as problem:
        if file is None:
            raise
        raise ConfigurationError(f"{file}: {problem.message}", hint=problem.hint) from None


def shares_loop(system: ChainSystem) -> Callable[[ChainLook, GroupWeights | None], None]:
    """Return NFVnice's controller, which computes CPU weights from measured loads and costs.

    The cost is CPU time over packets, not NFVnice's median of samples: a sample inside a burst misses the wake-up (65
    ns per packet for a function of 50 cycles) and the cache lines that other functions evicted.
    """

    def watch(look: ChainLook, weights: GroupWeights | None) -> None:
        if weights is None:
            return
        observations = [
            NFObservation(stage.name, core, seen.arrivals, seen.paid_cycles, stage.priority)
            for stage, core, seen in zip(system.stages, look.cores, look.stages, strict=True)
        ]
        scale = cpu_shares if weights.tree.version == 1 else cpu_weights
        for name, weight in scale(observations).items():
            weights.write(name, weight)

    return watch
