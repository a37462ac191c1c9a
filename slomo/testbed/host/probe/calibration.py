"""Result of a calibration: the reporters (small programs that sense pressure) that suit this machine at present."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slomo.files.documents import read
from slomo.files.durable import write_durably
from slomo.files.ranges import PositiveRate, Rate
from slomo.files.stored import Stored
from slomo.host.places import cache_directory
from slomo.testbed.host.probe.reading import ProbedPressure
from slomo.testbed.host.probe.reporters import Reporter, extra_time
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import fingerprint_of

SCHEMA_VERSION = 2
_MOST_B = 1 << 20


@dataclass(frozen=True)
class Calibration(Stored, version=SCHEMA_VERSION):
    """The calibrated reporters (programs that sense pressure) of one machine."""

    #: Size of L2, and size of the shared cache that one core can use [MiB].
    l2_mib: PositiveRate
    llc_mib: PositiveRate
    #: Reporters that respond on this machine, one per metric.
    reporters: tuple[Reporter, ...]
    #: Metric of a reporter -> metric of a competitor's resource -> the reporter's relative extra time beside that
    #: competitor.
    felt: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    #: Relative extra time of the shared cache's reporter if none of its accesses hits; None if not measured.
    full: float | None = None
    #: Speed of each of the sentinel's programs at calibration [Mpps].
    sentinel: Mapping[str, float] = field(default_factory=dict)
    #: Relative difference between two successive readings of the sentinel.
    scatter: Rate = 0.0
    #: Identity of the machine and the program for which the calibration is valid.
    identity: str = ""

    def vector(self, pressure: ProbedPressure, scope: Scope = Scope.SOCKET) -> MetricVector:
        """Return the measured pressure as a vector; a metric without a reporter is missing."""
        ratios = pressure.ratios
        values = {item.metric: extra_time(ratios[item.name]) for item in self.reporters if item.name in ratios}
        return MetricVector(values, scope=scope)

    def stated(self) -> dict[str, Any]:
        """Return the fields that a dataset stores about the probe programs whose slowdown is measured."""
        programs = {item.metric: item.name for item in self.reporters}
        return {"programs": programs, "felt": {name: dict(row) for name, row in self.felt.items()}, "full": self.full}

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that identify the calibration."""
        return fingerprint_of(self.to_dict())

    def save(self, path: Path) -> None:
        """Write the calibration as JSON."""
        write_durably(path, json.dumps(self.to_dict(), indent=1, sort_keys=True) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Calibration":
        """Read a stored calibration. Raises ConfigurationError if the file is damaged."""
        return read(path, cls, limit=_MOST_B, hint="delete it; the next run calibrates again")


def calibration_path(identity: str) -> Path:
    """Return the path of the calibration for a machine and a program."""
    return cache_directory() / "probe" / f"{identity}-v{SCHEMA_VERSION}.json"
