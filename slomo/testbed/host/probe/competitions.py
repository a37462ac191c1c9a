"""The probes, and what they found about competitions seen before: each competition is probed once per campaign.

SLOMO (SIGCOMM'20, section 4.1): the vector V belongs to the competition, whatever target is measured beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from slomo.testbed.host.nf.definition import HostDefinition
from slomo.testbed.host.probe.calibration import Calibration
from slomo.testbed.host.probe.reading import read_pressure
from slomo.testbed.host.run import Run
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.tenant import HostTenant
from slomo.vocabulary.vector import MetricVector


@dataclass
class Probe:
    """Reporter probes, and what they found about competitions seen before.

    Parameters
    ----------
    calibration : Calibration
        Of this machine.
    definition : HostDefinition
        Of the synthetic NF.
    settings : HostSettings
        Windows and pairs.
    """

    calibration: Calibration
    definition: HostDefinition
    settings: HostSettings
    known: dict[tuple[str, ...], tuple[MetricVector, dict[str, Any]]] = field(default_factory=dict)

    def of(self, workloads: Sequence[str]) -> tuple[MetricVector, dict[str, Any]] | None:
        """Return what is known about a competition, by the keys of its workloads."""
        return self.known.get(tuple(sorted(workloads)))

    def measure(self, run: Run, competition: Sequence[HostTenant], core: int) -> tuple[MetricVector, dict[str, Any]]:
        """Return the socket-level vector of a competition that runs, and how it was found; measured once."""
        keys = tuple(sorted(tenant.workload.key for tenant in competition))
        if keys not in self.known:
            pressure = read_pressure(run, competition, self.calibration.reporters, self.definition, core, self.settings)
            details = {"source": "probe", "calibration": self.calibration.fingerprint, **pressure.to_dict()}
            self.known[keys] = (self.calibration.vector(pressure), details)
        return self.known[keys]
