"""Predict the effect of one more network function: promises that would break, and servers on which it would fit.

The prediction uses the scheduler extender's judge and confidence, so the page shows what the scheduler would decide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slomo.errors import SlomoError
from slomo.placement.feasibility.mixes import Host, Piece, Signature
from slomo.placement.feasibility.oracle import MixVerdict
from slomo.placement.feasibility.worst_case import STRANGER
from slomo.service.kubernetes.judging import NodeJudge
from slomo.service.kubernetes.pods import PodNeed
from slomo.service.servers import RunningNF, RunningServer

#: Largest number of other servers that are listed, and that are examined to find them.
MOST_NAMED, MOST_LOOKED_AT = 5, 2000


@dataclass(frozen=True)
class OneMore:
    """Prediction of a server with one more network function."""

    #: Tenants of the socket before and after the addition; the new tenant is last.
    before: tuple[RunningNF, ...]
    after: tuple[RunningNF, ...]
    #: Reason why the effect cannot be predicted; empty if it can.
    refusal: str
    #: Servers on which no promise would break.
    fits: tuple[str, ...]


def one_more(
    judge: NodeJudge, need: PodNeed, server: RunningServer, servers: Sequence[RunningServer], hosts: Mapping[str, Host]
) -> OneMore:
    """Predict a server with one more network function."""
    host, before = hosts[server.name], _roomiest(server, hosts[server.name])
    judge.estimates.worst(host.machine)  # computes the neighbour that stands for functions without a model
    number = judge.number(need, host.machine)
    verdict = judge.oracle.verdict(host, judge.pieces.grown(_mix(judge, before), number))
    newcomer = judge.pieces[number]
    tenant = RunningNF("the newcomer", newcomer.workloads[0], needed_mpps=newcomer.needed_mpps,
                    solo_mpps=judge.estimates.solo_mpps(host.machine, newcomer.workloads[0]))  # fmt: skip
    after = tuple(_then(judge, host.machine, item, verdict) for item in (*before, tenant))
    refusal = verdict.breach.why if verdict.breach is not None and not verdict.rates else ""
    return OneMore(before, after, refusal, _fits(judge, need, servers, hosts))


def _fits(
    judge: NodeJudge, need: PodNeed, servers: Sequence[RunningServer], hosts: Mapping[str, Host]
) -> tuple[str, ...]:
    """Return servers on which every promise is kept with one more function, fullest first."""
    mixes: dict[Host, dict[str, Signature]] = {}
    for server in servers[:MOST_LOOKED_AT]:
        host = hosts.get(server.name)
        if host is not None and host.machine in judge.library.machines:
            base = _mix(judge, _roomiest(server, host))
            mixes.setdefault(host, {})[server.name] = judge.pieces.grown(base, judge.number(need, host.machine))
    fitting: list[tuple[int, str]] = []
    for host, by_name in mixes.items():
        try:
            verdicts = judge.oracle.verdicts(host, list(by_name.values()))
        except SlomoError:
            continue
        fitting += [(-len(mix), name) for (name, mix), each in zip(by_name.items(), verdicts, strict=True) if each.ok]
    return tuple(name for _, name in sorted(fitting)[:MOST_NAMED])


def _roomiest(server: RunningServer, host: Host) -> tuple[RunningNF, ...]:
    """Return the tenants of the server's socket with the fewest tenants."""
    sockets: dict[int, list[RunningNF]] = {}
    for item in server.tenants:
        sockets.setdefault(item.socket, []).append(item)
    if len(sockets) * host.cores < server.cores:
        return ()
    return tuple(sorted(sockets.values(), key=len)[0]) if sockets else ()


def _mix(judge: NodeJudge, tenants: Sequence[RunningNF]) -> Signature:
    pieces = (
        Piece((STRANGER,)) if item.predicted_mpps is None else Piece((item.workload,), item.needed_mpps)
        for item in tenants
    )
    return tuple(sorted(map(judge.pieces.number, pieces)))


def _then(judge: NodeJudge, machine: str, item: RunningNF, verdict: MixVerdict) -> RunningNF:
    if item.workload not in verdict.rates:
        return replace(item, predicted_mpps=None, low_mpps=None, high_mpps=None)
    return judge.predicted(machine, item, Piece((item.workload,), item.needed_mpps), verdict)
