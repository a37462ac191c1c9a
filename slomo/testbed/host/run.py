"""Start the processes of one run; end them and remove all their files and groups, even if the run fails.

All processes and files of a run carry its mark, so that the next run finds those that a killed run left.
"""

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path

from slomo.host.marker import new_mark
from slomo.host.orphans import kill_marked, make_run_directory, remove_files_of
from slomo.host.places import cache_directory
from slomo.testbed.host.nf.command import Surroundings
from slomo.testbed.host.nf.definition import HostDefinition
from slomo.testbed.host.tenant import HostTenant, needs_pcap, needs_port
from slomo.testbed.host.traffic.base import TrafficGenerator
from slomo.testbed.host.traffic.pcap import cached_pcap, require_frames
from slomo.vocabulary.workload import Workload


class Run:
    """Context manager of one run, which starts and ends network functions as processes; `generator` feeds them."""

    def __init__(self, generator: TrafficGenerator | None = None) -> None:
        self._generator = generator
        self.mark = new_mark()
        self.tenants: list[HostTenant] = []
        self._started = 0
        self.directory = make_run_directory(self.mark.text, "this run")

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.ExitStack() as stack:  # callbacks run in reverse order, even if one fails
            stack.callback(remove_files_of, self.mark)
            stack.callback(kill_marked, self.mark)
            for tenant in self.tenants:
                stack.callback(tenant.stop)

    def start(self, definition: HostDefinition, workload: Workload, cores: Sequence[int]) -> HostTenant:
        """Start an NF on its cores and wait until it serves packets."""
        name = f"{self.mark.text}-{self._started}"
        where = Surroundings(
            cores=tuple(cores),
            directory=str(make_run_directory(f"{self.mark.text}/{self._started}", f"'{definition.nf}'")),
            file_prefix=name,
            pcap=_capture(definition, workload),
            port=_free_port() if needs_port(definition) else 0,
        )
        self._started += 1
        tenant = HostTenant(definition, workload, where, self.mark, self._generator)
        self.tenants.append(tenant)
        tenant.wait_ready()
        return tenant

    def command_of(self, tenant: HostTenant) -> list[str]:
        """Return a tenant's command without the parts that differ only between runs or users."""
        places = ((str(self.directory), "RUN"), (self.mark.text, "RUN"), (str(cache_directory()), "CACHE"))
        words = list(tenant.process.words)
        for place, stands_for in places:
            words = [word.replace(place, stands_for) for word in words]
        return words


def _capture(definition: HostDefinition, workload: Workload) -> str:
    if definition.section.traffic.pcap is not None:
        return str(require_frames(Path(definition.section.traffic.pcap).absolute()))
    return str(cached_pcap(workload.traffic, cache_directory() / "captures")) if needs_pcap(definition) else ""


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
