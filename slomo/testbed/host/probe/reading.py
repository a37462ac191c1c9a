"""Measure the pressure of competitors: run each reporter while the competitors are alternately running and paused.

The reporters run on the target's core before the target starts, as in SLOMO's first phase (SIGCOMM'20, section 4.1).
The reporter with the least precise ratio runs the next pair of windows, until all ratios are precise enough or the time
limit is reached.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from slomo.files.stored import Stored
from slomo.testbed.host.interleaving import Paired, WindowTaker, one_more
from slomo.testbed.host.probe.reporters import Reporter
from slomo.testbed.host.probe.standing import StandingPrograms
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.tenant import HostTenant, paused

_Z90 = 1.645
_MEDIAN_TO_MEAN = 1.2533


@dataclass(frozen=True)
class ProbedPressure(Stored):
    """How much each reporter slows down beside a set of competitors."""

    #: Reporter -> its throughput beside the competitors divided by its solo throughput.
    ratios: Mapping[str, float]
    #: Reporter -> width of the ratio's 90 % interval.
    widths: Mapping[str, float] = field(default_factory=dict)
    #: Reporter -> number of pairs of windows.
    pairs: Mapping[str, int] = field(default_factory=dict)
    #: Number of windows that were repeated.
    rejected_windows: int = 0


def read_pressure(
    standing: StandingPrograms, competition: Sequence[HostTenant], reporters: Sequence[Reporter], settings: HostSettings
) -> ProbedPressure:
    """Run every reporter beside the competitors, which run again afterwards; return how much each one slows down."""
    taker = WindowTaker(replace(settings, attempts=settings.attempts * 2), settings.probe_window_s)
    measured = {reporter.name: Paired((), ()) for reporter in reporters}
    by_name = {reporter.name: reporter for reporter in reporters}
    ends_s = time.monotonic() + settings.probe_budget_s

    def look(name: str) -> None:
        with standing.awake(by_name[name].workload) as tenant:
            measured[name] = one_more(measured[name], tenant, competition, taker)

    try:
        for _ in range(settings.probe_pairs):
            for name in by_name:
                look(name)
        while measured and time.monotonic() < ends_s:
            widths = interval_widths(measured)
            widest = max(widths, key=widths.__getitem__)
            if widths[widest] <= settings.probe_precision:
                break
            look(widest)
    finally:
        paused(competition, False)
    ratios = {name: pairs.ratio.median for name, pairs in measured.items()}
    counts = {name: len(pairs.solo_mpps) for name, pairs in measured.items()}
    return ProbedPressure(ratios, interval_widths(measured), counts, taker.rejected)


def interval_widths(measured: Mapping[str, Paired]) -> dict[str, float]:
    """Return the width of the 90 % interval of each reporter's ratio.

    A few pairs can agree by chance, so each reporter's scatter is assumed to be at least half of the reporters' median
    scatter.

    >>> calm, wild = Paired((1.0, 1.0), (0.5, 0.5)), Paired((1.0, 1.0, 1.0), (0.5, 0.6, 0.7))
    >>> {name: round(width, 2) for name, width in interval_widths({"calm": calm, "wild": wild}).items()}
    {'calm': 0.18, 'wild': 0.35}
    """
    scatter = {name: pairs.ratio.dispersion for name, pairs in measured.items()}
    least = 0.5 * statistics.median_high(scatter.values()) if scatter else 0.0
    return {
        name: 2.0 * _Z90 * _MEDIAN_TO_MEAN * max(scatter[name], least) * pairs.ratio.median / pairs.ratio.count**0.5
        for name, pairs in measured.items()
    }
