"""Fill the placeholders of a network function's command for one process, without a shell.

Only placeholders of a fixed table and the NF's own settings are filled in, so an untrusted definition cannot access
anything else of this process.
"""

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slomo.errors import ConfigurationError, TestbedError
from slomo.testbed.host.build import slomo_nf_binary
from slomo.testbed.host.nf.definition import HostDefinition
from slomo.testbed.host.traffic.base import frame_without_checksum_b
from slomo.vocabulary.workload import Workload

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Surroundings:
    """Cores, directory, capture and ports given to one process of an NF."""

    #: CPUs to which the process is pinned.
    cores: tuple[int, ...]
    #: Directory of the process, deleted when the run ends.
    directory: str
    #: DPDK's `--file-prefix`, unique to this instance and recognisable as slomo's.
    file_prefix: str
    #: Path of the capture to replay; empty if the command uses none.
    pcap: str = ""
    #: A free local TCP port; 0 if not needed.
    port: int = 0

    @property
    def stats_file(self) -> str:
        """File to which the NF may write its statistics."""
        return f"{self.directory}/statistics"


def placeholders(texts: Iterable[str]) -> set[str]:
    """Return the names of all placeholders in the given texts.

    >>> sorted(placeholders(["--core={core}", "{pcap}"]))
    ['core', 'pcap']
    """
    return {name for text in texts for name in _PLACEHOLDER.findall(text)}


def values_for(definition: HostDefinition, workload: Workload, where: Surroundings) -> dict[str, str]:
    """Return the value of every placeholder this instance may use."""
    traffic = workload.traffic
    table = {
        "core": str(where.cores[0]),
        "cores": ",".join(map(str, where.cores)),
        "directory": where.directory,
        "file_prefix": where.file_prefix,
        "stats_file": where.stats_file,
        "pcap": where.pcap,
        "port": str(where.port),
        "packet_size_b": str(traffic.packet_size_b),
        "frame_b": str(frame_without_checksum_b(traffic)),
        "flow_count": str(traffic.flow_count),
        "offered_mpps": f"{traffic.offered_mpps or 0.0:g}",
    }
    settings = definition.configured(workload)
    table |= {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in settings.items()}
    used = placeholders((*definition.command, *definition.environment.values()))
    table |= {
        name: str(slomo_nf_binary(build))
        for name, build in (("slomo_nf", "portable"), ("slomo_nf_dpdk", "dpdk"))
        if name in used
    }
    if "functions" in used:
        folder = os.environ.get("SLOMO_FUNCTIONS", "")
        if not os.path.isdir(folder):
            raise TestbedError(
                f"network function '{definition.nf}': SLOMO_FUNCTIONS is '{folder}', needed a folder of programs",
                hint="set it; in a fleet write `functions: FOLDER` into the file of hosts",
            )
        table["functions"] = folder
    return table


def fill(text: str, table: Mapping[str, str], nf: str) -> str:
    """Replace the placeholders in one word; ConfigurationError for one that is neither built in nor a setting.

    >>> fill("--lcores={core}", {"core": "3"}, "x")
    '--lcores=3'
    """

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        if name not in table:
            fillable = ", ".join(f"{{{key}}}" for key in sorted(table))
            raise ConfigurationError(
                f"network function '{nf}': placeholder '{{{name}}}' in '{text}' has no value",
                hint=f"known: {fillable}",
            )
        return table[name]

    return _PLACEHOLDER.sub(replace, text)


def command_words(
    definition: HostDefinition, workload: Workload, where: Surroundings
) -> tuple[list[str], dict[str, str]]:
    """Return an instance's command as a list of words, and the variables of its environment."""
    table = values_for(definition, workload, where)
    words = [fill(word, table, definition.nf) for word in definition.command]
    return words, {name: fill(value, table, definition.nf) for name, value in definition.environment.items()}


def port_number(text: str, table: Mapping[str, str], nf: str) -> int:
    """Return the TCP port that a template gives. Raises ConfigurationError if the result is no port.

    >>> port_number("{port}", {"port": "7001"}, "x")
    7001
    """
    number = fill(text, table, nf)
    if not number.isdigit() or not 0 < int(number) < 1 << 16:
        raise ConfigurationError(
            f"network function '{nf}': '{number}' is no TCP port, needed 1 to 65535",
            hint="correct `port` in its `host:` section",
        )
    return int(number)


def require_program(definition: HostDefinition) -> None:
    """Raise TestbedError, with the command, if an NF's program is missing, before any process starts."""
    program = definition.command[0]
    if not placeholders([program]) and shutil.which(program) is None:
        raise TestbedError(
            f"network function '{definition.nf}': command '{program}' does not exist",
            hint="install it, or correct `command` in the NF's `host:` section",
        )
