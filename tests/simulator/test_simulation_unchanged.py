"""NFs with a core each, as they were before cores could be shared: the same numbers to the last bit."""

import hashlib
from typing import Any

import pytest

from slomo.simulator.engine import Tenant, simulate
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import load_network_function
from slomo.vocabulary.workload_text import parse_workload

CASES: dict[str, tuple[str, list[tuple[str, int, dict[str, Any]]], str, str]] = {
    "inclusive": (
        "e5-2620v4",
        [("ip-router", 0, {}), ("snort", 1, {}), ("synthetic(data_size_mib=8)", 2, {})],
        "0x1.a2aa69f8d3428p+1",
        "8214e679bdefc844",
    ),
    "victim": (
        "silver-4110",
        [("stats@1500B,1000f", 0, {}), ("mazunat@64B,1000f,0.5Mpps", 1, {}), ("flow-monitor-regex", 2, {})],
        "0x1.0934ed166a0c1p+2",
        "5a9bb704c6880956",
    ),
    "remote": (
        "e5-2620v4",
        [("lpm", 8, {"memory_socket": 0, "mba_percent": 50.0}), ("vpn", 0, {"llc_way_mask": 0xF})],
        "0x1.d9e52bbfcdee6p+1",
        "2defdc97c125c67f",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_cores_of_their_own_give_the_same_bits(name: str) -> None:
    """Throughput, loss, latency and every metric of tenants, sockets and machine are those of before."""
    machine, seats, throughput, digest = CASES[name]
    tenants = []
    for text, core, extra in seats:
        workload = parse_workload(text)
        tenants.append(Tenant(workload, load_network_function(workload.nf), core, **extra))

    result = simulate(load_machine(machine), tenants, seed=3, accesses=60_000)

    everything = [
        (item.throughput_mpps, item.loss, sorted(item.latency_us.items()), sorted(item.vector.items()))
        for item in result.tenants
    ] + [sorted(item.items()) for item in (*result.sockets, result.system)]
    assert result.tenants[0].throughput_mpps.hex() == throughput
    assert hashlib.sha256(repr(everything).encode()).hexdigest()[:16] == digest
