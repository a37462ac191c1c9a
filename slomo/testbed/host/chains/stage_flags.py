"""Build a stage's command line for the native program from the network function's description.

Only slomo's own functions can be stages, since a stage reads packets from slomo's ring.
"""

from slomo.errors import ConfigurationError, SlomoError, UnknownNameError
from slomo.testbed.host.nf.definition import HostDefinition, host_definition
from slomo.vocabulary.service_chains import ChainStage
from slomo.vocabulary.workload import Workload

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
        raise UnknownNameError(f"network function of stage '{stage.name}'", stage.workload.nf, NATIVE)
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
