"""Read the pressure of a competition: run each reporter beside it, by turns with the competition paused.

The reporters stand on the target's core before the target starts, so SLOMO's first phase (SIGCOMM'20, section 4.1) is
kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slomo.testbed.host.interleaving import WindowTaker, take_pairs
from slomo.testbed.host.nf.definition import HostDefinition
from slomo.testbed.host.probe.reporters import Reporter
from slomo.testbed.host.run import Run
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.tenant import HostTenant, paused


@dataclass(frozen=True)
class ProbedPressure:
    """What the reporters felt.

    Attributes
    ----------
    ratios : mapping of str to float
        Reporter -> its throughput beside the competition over that without.
    dispersions : mapping of str to float
        Reporter -> scaled median absolute deviation of the ratios, relative.
    rejected : int
        Windows taken again.
    """

    ratios: Mapping[str, float]
    dispersions: Mapping[str, float]
    rejected: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return what the provenance keeps."""
        return {"ratios": dict(self.ratios), "dispersions": dict(self.dispersions), "rejected_windows": self.rejected}


def read_pressure(
    run: Run,
    competition: Sequence[HostTenant],
    reporters: Sequence[Reporter],
    definition: HostDefinition,
    core: int,
    settings: HostSettings,
) -> ProbedPressure:
    """Run every reporter beside a competition that serves already.

    Parameters
    ----------
    run : Run
        Owns the processes.
    competition : sequence of Tenant
        Its members; running again afterwards.
    reporters : sequence of Reporter
        What to run, one after another.
    definition : HostDefinition
        Of the synthetic NF.
    core : int
        Where; the target's core.
    settings : HostSettings
        Windows and pairs.
    """
    taker = WindowTaker(replace(settings, attempts=settings.attempts * 2), settings.probe_window_s)
    ratios: dict[str, float] = {}
    dispersions: dict[str, float] = {}
    try:
        for reporter in reporters:
            tenant = run.start(definition, reporter.workload, (core,))
            try:
                found = take_pairs(tenant, competition, taker, settings.probe_pairs).ratio
            finally:
                run.stop(tenant)
            ratios[reporter.name], dispersions[reporter.name] = found.median, found.dispersion
    finally:
        paused(competition, False)
    return ProbedPressure(ratios, dispersions, taker.rejected)
