"""Check running pods: each promise is kept, broken, or cannot be judged for a stated reason.

The extender judges requested placements; this module judges all bound pods, even if another scheduler bound them, slomo
was down when they were bound, or a label or model has changed since.
"""

import asyncio

from slomo.errors import SlomoError
from slomo.placement.feasibility.mixes import Host, Signature
from slomo.service.kubernetes.judging import NO_MODELS, NodeJudge
from slomo.service.kubernetes.pods import PodNeed
from slomo.service.kubernetes.view import ClusterView, NodeView
from slomo.service.servers import RunningNF, RunningServer

#: Number of nodes judged together; between two such batches, the scheduler is answered.
AT_A_TIME = 64
CROWDED = "more network functions than cores: nothing predicts those"
UNPROFILED = "no model of this network function"
_NEVER = (-1, RunningServer("", "", 0))


class Running:
    """Checks the promises of running pods on nodes that have changed."""

    def __init__(self, view: ClusterView, judge: NodeJudge) -> None:
        self._view, self._judge = view, judge
        self._servers: dict[str, tuple[int, RunningServer]] = {}

    async def servers(self) -> list[RunningServer]:
        """Return all nodes with their pods; during a long check, other requests are answered."""
        while self.refresh():
            await asyncio.sleep(0)
        return [self._servers[name][1] for name in sorted(self._view.nodes)]

    def refresh(self) -> bool:
        """Check the promises on some changed nodes; return False if no node has changed."""
        nodes = self._view.nodes
        if len(self._servers) > len(nodes):
            self._servers = {name: server for name, server in self._servers.items() if name in nodes}
        changed = [name for name, node in nodes.items() if self._servers.get(name, _NEVER)[0] != node.version]
        mixes: dict[Host, list[Signature]] = {}
        for name in changed[:AT_A_TIME]:
            host = self._judge.known_host(nodes[name])
            if host is not None:
                mixes.setdefault(host, []).append(self._judge.mix(host, nodes[name].tenants.values()))
        for host, here in mixes.items():
            try:
                self._judge.oracle.verdicts(host, here)
            except SlomoError:  # reported for each node
                continue
        for name in changed[:AT_A_TIME]:
            self._servers[name] = (nodes[name].version, self._server(name, nodes[name]))
        return bool(changed)

    def _server(self, name: str, node: NodeView) -> RunningServer:
        host = node.host
        fault = node.fault if host is None else ""
        if host is not None and self._judge.known_host(node) is None:
            fault = NO_MODELS.removeprefix("slomo: ")
        if host is None or fault:
            tenants = tuple(self._unjudged(uid, need, fault) for uid, need in node.tenants.items())
            return RunningServer(name, "" if host is None else host.machine, 0 if host is None else host.cores, tenants)
        try:
            tenants = self._judged(host, node)
        except SlomoError as error:
            tenants = tuple(self._unjudged(uid, need, error.message) for uid, need in node.tenants.items())
        return RunningServer(name, host.machine, host.cores, tenants)

    def _judged(self, host: Host, node: NodeView) -> tuple[RunningNF, ...]:
        verdict = self._judge.oracle.verdict(host, self._judge.mix(host, node.tenants.values()))
        tenants = []
        pieces = [self._judge.pieces[self._judge.number(need, host.machine)] for need in node.tenants.values()]
        for (uid, need), piece in zip(node.tenants.items(), pieces, strict=True):
            if not verdict.rates or self._judge.is_stranger(need, host.machine):
                tenants.append(self._unjudged(uid, need, UNPROFILED if verdict.rates else CROWDED))
                continue
            (workload,) = piece.workloads
            solo = self._judge.estimates.solo_mpps(host.machine, workload)
            name, needed = self._view.names.get(uid, uid), piece.needed_mpps
            item = RunningNF(name, workload, needed_mpps=needed, solo_mpps=solo, uid=uid)
            tenants.append(self._judge.predicted(host.machine, item, piece, verdict))
        return tuple(tenants)

    def _unjudged(self, uid: str, need: PodNeed, why: str) -> RunningNF:
        name, reason = self._view.names.get(uid, uid), need.fault or why
        if not need.has_promise:
            return RunningNF(name, need.nf, why=reason, uid=uid)
        return RunningNF(name, need.nf or "?", state="unjudged", why=reason, uid=uid)
