"""NUMASFP's lookup table as a document: resources that a network function needs to serve a traffic rate.

NUMASFP (COMSNETS'22), "VNF profiler": VNF x traffic rate -> cores, LLC ways, memory bandwidth. `slomo profile --plan
resource-table` measures it (`slomo.workflow.chains.resource_table`), policy `numasfp` places and allocates by it.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from slomo.errors import UnknownNameError
from slomo.files.documents import read
from slomo.files.durable import write_durably
from slomo.files.ranges import Name, Percent, PositiveCount, PositiveRate, Rate, Ways
from slomo.files.stored import stored
from slomo.placement.feasibility.kinds import without_load

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ResourceRow:
    """Resources that one network function requires at one rate."""

    #: Workload key.
    workload: Name
    #: The rate on the wire, with preamble and gap [Gbit/s], and in packets [Mpps].
    gbps: PositiveRate
    mpps: PositiveRate
    #: Number of instances, each with one core and an equal part of the rate.
    cores: PositiveCount
    #: LLC ways of each.
    ways: Ways
    #: Memory bandwidth throttle (MBA) of each instance [%].
    memory_percent: Percent
    #: Memory traffic of each instance at that rate [GB/s].
    memory_gb_s: Rate = 0.0


class ResourceTable:
    """Lookup table of required resources for one machine type.

    Examples
    --------
    >>> rows = (ResourceRow("lpm", 1.0, 0.5, 1, 2, 10), ResourceRow("lpm", 4.0, 2.0, 1, 6, 40))
    >>> table = ResourceTable("e5-2620v4", (*rows, ResourceRow("lpm", 8.0, 4.0, 2, 6, 40)))
    >>> [table.row("lpm", mpps).ways for mpps in (0.4, 0.6, 9.0)]
    [2, 6, 6]
    """

    def __init__(self, machine: str, rows: Iterable[ResourceRow]) -> None:
        self.machine, self.rows = machine, tuple(rows)
        self._by_nf: dict[str, list[ResourceRow]] = {}
        for row in sorted(self.rows, key=lambda each: each.mpps):
            if row.cores == 1:  # a stage has one core: beyond what that serves it needs what its most needs
                self._by_nf.setdefault(without_load(row.workload), []).append(row)

    def row(self, workload: str, mpps: float) -> ResourceRow:
        """Return the first one-core row of a function whose rate is at least `mpps` [Mpps], else the last row.

        Raises UnknownNameError for a network function missing from the table.
        """
        key = without_load(workload)
        if key not in self._by_nf:
            raise UnknownNameError(f"network function in the resource table of '{self.machine}'", key, self._by_nf)
        rows = self._by_nf[key]
        return next((row for row in rows if row.mpps >= mpps), rows[-1])

    def to_dict(self) -> dict[str, Any]:
        """Return the document that :func:`load_resource_table` reads."""
        return {"schema_version": SCHEMA_VERSION, "machine": self.machine, "rows": stored(self.rows)}


class ResourceTableFile(Struct, forbid_unknown_fields=True):
    """The file of a resource table."""

    machine: Name
    rows: tuple[ResourceRow, ...]
    schema_version: Literal[1] = 1


def save_resource_table(table: ResourceTable, path: str | Path) -> Path:
    """Write a table as JSON; return the path."""
    return write_durably(path, json.dumps(table.to_dict(), indent=1) + "\n")


def load_resource_table(path: str | Path) -> ResourceTable:
    """Read a table. Raises ConfigurationError for an invalid file or another schema version."""
    table = read(path, ResourceTableFile, hint="slomo profile NF... --plan resource-table --out FILE")
    return ResourceTable(table.machine, table.rows)
