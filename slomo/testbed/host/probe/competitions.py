"""Measure and remember the pressure of each set of competitors; measure again after a while, since machines drift.

In SLOMO (SIGCOMM'20, section 4.1), the vector V depends only on the competitors, not on the target. On a machine whose
speed drifts, it also depends on the time.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from slomo.testbed.host.nf.definition import HostDefinition
from slomo.testbed.host.probe.calibration import Calibration
from slomo.testbed.host.probe.reading import read_pressure
from slomo.testbed.host.probe.sentinel import DriftWatch, Look, Sentinel, drift_limit
from slomo.testbed.host.probe.standing import StandingPrograms
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.tenant import HostTenant
from slomo.vocabulary.vector import MetricVector


@dataclass(frozen=True)
class _Reading:
    vector: MetricVector
    details: dict[str, Any]
    taken_s: float


@dataclass
class Probe:
    """The reporters, the check for drift, and the pressure measured for each set of competitors."""

    #: Calibration of this machine.
    calibration: Calibration
    #: Definition of the synthetic NF.
    definition: HostDefinition
    #: Number and length of windows.
    settings: HostSettings
    #: Core of reporters and sentinel: the core that the target uses later.
    core: int
    readings: dict[tuple[str, ...], _Reading] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = self.calibration
        self._standing = StandingPrograms(self.definition, self.core)
        self._sentinel = Sentinel.on(
            self.definition, self.core, self.settings, l2_mib=known.l2_mib, llc_mib=known.llc_mib
        )
        limit = drift_limit(self.settings, known.scatter)
        self.watch = DriftWatch(self._sentinel.look, limit, self.settings.drift_attempts, Look(known.sentinel))

    def of(self, workloads: Sequence[str]) -> tuple[MetricVector, dict[str, Any]] | None:
        """Return the last measured pressure of a set of competitors, of whatever age; None if it was never measured."""
        reading = self.readings.get(tuple(sorted(workloads)))
        return None if reading is None else (reading.vector, reading.details)

    def measure(self, competition: Sequence[HostTenant]) -> tuple[MetricVector, dict[str, Any]]:
        """Measure the pressure of running competitors and return it as counters of the socket."""
        keys = tuple(sorted(tenant.workload.key for tenant in competition))
        reading = self.readings.get(keys)
        if reading is None or time.monotonic() - reading.taken_s > self.settings.probe_fresh_s:
            pressure = read_pressure(self._standing, competition, self.calibration.reporters, self.settings)
            details = {"source": "probe", "calibration": self.calibration.fingerprint, **pressure.to_dict()}
            reading = self.readings[keys] = _Reading(self.calibration.vector(pressure), details, time.monotonic())
        return reading.vector, reading.details

    def fresh(self, workloads: Sequence[str]) -> bool:
        """Return whether the pressure of a set of competitors was measured recently."""
        reading = self.readings.get(tuple(sorted(workloads)))
        return reading is not None and time.monotonic() - reading.taken_s <= self.settings.probe_fresh_s

    def forget(self) -> None:
        """Mark all results as outdated; called when the machine's speed has changed."""
        self.readings = {
            keys: _Reading(item.vector, item.details, float("-inf")) for keys, item in self.readings.items()
        }

    def close(self) -> None:
        """Stop all probe programs and the drift check."""
        self._standing.close()
        self._sentinel.standing.close()
