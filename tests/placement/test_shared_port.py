"""Network functions behind one NIC port: placed by what the port leaves each, and judged behind it."""

import pytest

from slomo.errors import InvalidValueError
from slomo.placement.online.placer import Placer
from slomo.placement.over_time.judge import Judge
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.request import SLO, Request
from slomo.records.run import Phase, RunRecord, TenantSample
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

from .conftest import MACHINE

#: 14.88 Mpps of 64 B.
PORT = 10.0


def routers(count: int, share: float = 0.8) -> list[Request]:
    return [Request(f"r{number}", "lpm", SLO(min_share=share)) for number in range(count)]


@pytest.mark.parametrize("policy", ["first-fit", "predicted"])
def test_a_port_takes_no_more_than_it_can_carry(library, policy) -> None:
    """4 Mpps each of 14.88: the fourth goes to another server, also in a batch, and the refusal says why."""
    shared = Placer(library, Cluster.uniform(MACHINE, 2, port_gbps=PORT), policy, confidence=0.5)
    wide = Placer(library, Cluster.uniform(MACHINE, 2), policy, confidence=0.5)
    decisions = shared.place_all(routers(7))
    wide.place_all(routers(7))

    assert [len(items) for items in shared.layout().values()] == [3, 3]
    assert "share of the NIC port" in decisions[6].refused.text
    assert len(wide.requests) == 7


def test_predictions_are_cut_off_at_the_share(library) -> None:
    """Four unpromised functions of 5 Mpps behind 14.88: 3.72 each, at most."""
    placer = Placer(library, Cluster.uniform(MACHINE, 1, port_gbps=PORT), confidence=0.5)
    placer.place_all([Request(f"r{number}", "lpm", SLO(min_mpps=1.0)) for number in range(4)])
    (item,) = placer.decision("r0").assignments

    assert item.predicted_mpps == item.high_mpps == pytest.approx(PORT * 1e3 / 8 / 84 / 4, rel=1e-5)


def test_the_judge_runs_behind_the_port(library) -> None:
    """What is simulated has the server's port; other servers have their machine's; a port has one socket."""
    ports = []

    def run(colocation):
        ports.append(colocation.port_gbps)
        sample = TenantSample(9.0, MetricVector({}, scope=Scope.CORE))
        phase = Phase((sample,) * len(colocation.tenants), MetricVector({}))
        alone = phase if colocation.target is None else None
        return RunRecord(colocation, 0, alone, None if alone else phase, {})

    cluster = Cluster((Server("a", MACHINE, port_gbps=PORT), Server("b", MACHINE)))
    placer = Placer(library, cluster, "first-fit")
    placer.place_all(routers(11))
    Judge(run).judge(placer)

    assert sorted(map(str, ports)) == ["10.0", "None"]
    assert Cluster.from_dict(cluster.to_dict()) == cluster
    with pytest.raises(InvalidValueError, match="port_gbps is 0"):
        Server("c", MACHINE, port_gbps=0.0)
    with pytest.raises(InvalidValueError, match="needed None with several nic_sockets"):
        Server("c", MACHINE, nic_sockets=(0, 1), port_gbps=PORT)
