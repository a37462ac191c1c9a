"""Describe workloads of one NF by numbers: packet size, flow count, and every numeric setting.

SLOMO (SIGCOMM'20) section 7 extrapolates over flow counts only; Yala (ASPLOS'25) section 5 names packet size, flow
count and match density as the attributes that matter. A rule-set size is a setting like any other.
"""

from slomo.adaptation.routes import FLOWS, SIZE, ZIPF, Position
from slomo.vocabulary.workload import Setting, Workload


def position_of(workload: Workload) -> Position:
    """Return a workload's numbers; settings that it does not state have the NF's defaults.

    Examples
    --------
    >>> dict(position_of(Workload("ip-router", {"routes": 65536})).numbers)["routes"]
    65536.0
    >>> position_of(Workload("ip-router", {"routes": 131072})) == position_of(Workload("ip-router"))
    True
    """
    traffic = workload.traffic
    settings = {**_defaults(workload.nf), **workload.configuration}
    numbers = {FLOWS: float(traffic.flow_count), SIZE: float(traffic.packet_size_b)}
    if traffic.flow_distribution != "uniform":
        numbers[ZIPF] = traffic.zipf_exponent
    numbers |= {name: float(value) for name, value in sorted(settings.items()) if _numeric(value)}
    rest = tuple((name, value) for name, value in sorted(settings.items()) if not _numeric(value))
    return Position((workload.nf, traffic.flow_distribution, rest), numbers)


def _numeric(value: Setting) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _defaults(nf: str) -> dict[str, Setting]:
    """Return a shipped NF's default settings, including the sizes of its data structures."""
    # descriptions are YAML, read only for workloads that were not profiled
    from slomo.vocabulary.network_function import load_network_function, network_function_names, stage_names

    if not {*stage_names(nf)} <= {*network_function_names()}:
        return {}
    function = load_network_function(nf)
    structures = (function.simulated or {}).get("structures", ())
    sizes = {f"{item['name']}_mib": item["size_mib"] for item in structures if _numeric(item.get("size_mib", ""))}
    return {**sizes, **function.settings}
