"""The nine network functions of synthetic_nf/ for `host.py`: two table sizes where there are tables, and a paced form.

Those that ship are used as they are; `dpi`, `compute` and (in the DPDK build) `ipsec` get a `host:` section here. A
paced function is offered a fixed rate, so that competitors press at less than full speed, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from slomo.errors import SlomoError
from slomo.testbed.host.build import slomo_nf_binary
from slomo.vocabulary.network_function import NetworkFunction, load_network_function
from slomo.vocabulary.workload import Setting, Traffic, Workload

SHIPPED = ("l2fwd", "ip-router", "stateless-firewall", "flowstats", "mazunat", "maglev")
PACED = "-paced"
#: function -> settings and flows of its small and its large table; one entry where it has none
TABLES: Mapping[str, Sequence[tuple[Mapping[str, Setting], int]]] = {
    "l2fwd": (({}, 10_000),),
    "ip-router": (({"routes": 16_384}, 20_000), ({"routes": 131_072}, 100_000)),
    "stateless-firewall": (({"rules": 50}, 20_000), ({"rules": 500}, 20_000)),
    "flowstats": (({"flow_capacity": 32_768}, 20_000), ({"flow_capacity": 262_144}, 150_000)),
    "mazunat": (({"flow_capacity": 32_768}, 20_000), ({"flow_capacity": 262_144}, 50_000)),
    "maglev": (({"flow_capacity": 32_768}, 20_000), ({"flow_capacity": 262_144}, 150_000)),
    "dpi": (({"patterns": 300}, 5_000), ({"patterns": 3_000}, 5_000)),
    "compute": (({"cycles": 600}, 5_000),),
    "ipsec-native": (({}, 5_000),),
}
_OWN: Mapping[str, tuple[str, str, Mapping[str, Setting]]] = {
    "dpi": ("slomo_nf", "dpi", {"patterns": 3_000}),
    "compute": ("slomo_nf", "compute", {"cycles": 600}),
    "ipsec-native": ("slomo_nf_dpdk", "ipsec", {}),
}


def functions() -> dict[str, NetworkFunction]:
    """Return the functions that can run here, by name; ipsec is left out where DPDK cannot be built against."""
    local = {name: load_network_function(name) for name in SHIPPED}
    for name, (program, nf, settings) in _OWN.items():
        if program == "slomo_nf" or _dpdk():
            local[name] = NetworkFunction(name, f"{nf} of synthetic_nf/", settings=settings,
                                          host=_host(program, nf, settings))  # fmt: skip
    return local


def paced(function: NetworkFunction) -> NetworkFunction:
    """Return a function that is offered a rate of its own, as a setting."""
    assert function.host is not None
    command = [{"{offered_mpps}": "{pace_mpps}"}.get(word, word) for word in function.host["command"]]
    return replace(function, name=function.name + PACED, settings={**function.settings, "pace_mpps": 0.0},
                   host={**function.host, "command": command, "polling": False})  # fmt: skip


def workloads(names: Sequence[str]) -> list[Workload]:
    """Return every function with every table size."""
    return [
        Workload(name, dict(settings), Traffic(flow_count=flows)) for name in names for settings, flows in TABLES[name]
    ]


def at_pace(workload: Workload, mpps: float) -> Workload:
    """Return the paced form of a workload."""
    return Workload(workload.nf + PACED, {**workload.configuration, "pace_mpps": round(mpps, 4)}, workload.traffic)


def _host(program: str, nf: str, settings: Mapping[str, Setting]) -> dict[str, Any]:
    shipped = load_network_function("l2fwd").host
    assert shipped is not None
    flags = [word for name in settings for word in (f"--{name}", f"{{{name}}}")]
    common = ["--cores", "{core}", "--pcap", "{pcap}", "--rate-mpps", "{offered_mpps}", "--interval-s", "0.05"]
    extra = ["--no-huge", "--file-prefix", "{file_prefix}"] if program == "slomo_nf_dpdk" else []
    return {**shipped, "command": [f"{{{program}}}", "--nf", nf, *common, *flags, *extra]}


def _dpdk() -> bool:
    try:
        slomo_nf_binary("dpdk")
    except SlomoError:
        return False
    return True
