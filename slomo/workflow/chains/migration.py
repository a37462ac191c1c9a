"""Move the stages of running chains between memory nodes as a policy for chains on nodes decides from measured rates.

NUMASFP (COMSNETS'22) places chains anew in every interval by their present rates, and migrates the functions whose node
changes. The manager's node is that of the NIC: there packets arrive, and there are rings and packet buffers.
"""

from collections.abc import Mapping, Sequence

from slomo.errors import InvalidValueError, TestbedError
from slomo.placement.chains.nodes import Need, Node, Nodes, seated
from slomo.placement.chains.planner import place_chains
from slomo.placement.chains.policies import Judges
from slomo.placement.problem.chain import RatedChain
from slomo.placement.problem.request import Request
from slomo.testbed.host.chains.looks import ChainLook
from slomo.testbed.host.chains.moves import StageMove, require_movable
from slomo.vocabulary.service_chains import ChainSystem
from slomo.vocabulary.workload import Traffic, Workload


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
