"""Read the `host:` section of a network function: how the program is started, read and stopped.

As in NPF and DPDK DTS, a command template replaces code for each NF. `host_section` checks the section, so that a wrong
field is reported with file and line before any process starts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from msgspec.structs import asdict

from slomo.errors import TestbedError, UnknownNameError
from slomo.files.documents import convert
from slomo.vocabulary.host_section import HostSection
from slomo.vocabulary.network_function import NetworkFunction, load_network_function, network_function_names
from slomo.vocabulary.workload import Setting, Workload, fingerprint_of


@dataclass(frozen=True)
class HostDefinition:
    """How to run one network function on this machine."""

    nf: str
    section: HostSection
    #: Settings that a workload may change, with defaults.
    settings: Mapping[str, Setting] = field(default_factory=dict)

    @property
    def command(self) -> tuple[str, ...]:
        """Words of the command, with placeholders."""
        return tuple(map(str, self.section.command))

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables to add; their values may hold placeholders."""
        return {name: str(value) for name, value in self.section.environment.items()}

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that identify the definition."""
        host = self.section
        stated = {
            "nf": self.nf,
            "settings": dict(self.settings),
            "command": self.command,
            "environment": self.environment,
            "throughput": asdict(host.throughput),
            "working_directory": host.working_directory,
            "pcap": host.traffic.pcap,
            "cores": host.cores,
            "polling": host.polling,
            "ready": {"kind": host.ready.kind, "value": host.ready.value, "limit_s": host.ready.limit_s},
            "stop_signal": host.stop.signal,
            "stop_limit_s": host.stop.limit_s,
            "steadiness": asdict(host.steady),
        }
        if host.is_fed:  # omitted if false, so that older fingerprints stay valid
            stated["generator"] = True
        return fingerprint_of(stated)

    def configured(self, workload: Workload) -> dict[str, Setting]:
        """Return the values of all settings for `workload`. Raises UnknownNameError for an unknown setting."""
        for name in workload.configuration:
            if name not in self.settings:
                raise UnknownNameError("setting", name, self.settings, where=f"of '{self.nf}'")
        return {**self.settings, **workload.configuration}


def parse_host(data: Mapping[str, Any], *, nf: str, settings: Mapping[str, Setting] | None = None) -> HostDefinition:
    """Check a `host:` section and convert it to a definition with the function's settings and their defaults."""
    whole = convert({"host": dict(data)}, dict[Literal["host"], HostSection], f"network function '{nf}'")
    return HostDefinition(nf, whole["host"], MappingProxyType(dict(settings or {})))


def host_definition(name_or_nf: str | NetworkFunction) -> HostDefinition:
    """Return the definition with which a network function (shipped name, YAML file, or value) runs on a real machine.

    Raises UnknownNameError and ConfigurationError as `load_network_function` does, with file, line and field for a
    wrong `host:` section; TestbedError if there is no such section.
    """
    nf = name_or_nf if isinstance(name_or_nf, NetworkFunction) else load_network_function(name_or_nf)
    if nf.host is None:
        raise TestbedError(
            f"network function '{nf.name}' cannot run on a real machine: it has no `host:` section",
            hint=f"add one (docs/guides/your-own-nf.md), or take one that has it: {', '.join(runnable_names())}",
        )
    return parse_host(nf.host, nf=nf.name, settings=nf.settings)


def runnable_names() -> tuple[str, ...]:
    """Return the shipped network functions that can run on a real machine, sorted."""
    return tuple(name for name in network_function_names() if load_network_function(name).host is not None)
