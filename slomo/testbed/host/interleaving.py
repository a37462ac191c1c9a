"""Measure alternately with and without competitors, by pausing and resuming their processes.

Throughput changes by 3 to 8 % between two starts of the same NF, so a slowdown is measured without a restart: the
competitors are paused and resumed, neighbouring windows are paired, and the order within pairs alternates so that a
linear drift cancels.

In real runs, throughput rises for up to half a minute and dips every few seconds. Comparing the medians of two
successive stretches of time detects the rise and ignores the dips. Dispersion is the scaled median absolute deviation,
which one bad window does not distort.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from slomo.errors import MeasurementError, UnstableMeasurementError
from slomo.testbed.host.nf.readings import FunctionReadings
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.tenant import HostTenant, Window, paused, take_windows
from slomo.vocabulary.host_section import Steadiness

_FEWEST = 2  # least number of rates in a stretch for a comparison of medians
_POLL_S = 0.02
_MAD_TO_SIGMA = 1.4826  # for a normal distribution
_MEDIAN_TO_MEAN = 1.2533  # standard error of a median over that of a mean


def is_steady(before: Sequence[float], after: Sequence[float], tolerance: float) -> bool:
    """Return whether the median throughputs of two successive stretches of time, two values or more each, agree.

    >>> is_steady([1, 2, 3], [4, 5, 6], 0.05), is_steady([5, 5, 5], [5, 1, 5], 0.05)
    (False, True)
    """
    if min(len(before), len(after)) < _FEWEST:
        return False
    was, now = statistics.median(before), statistics.median(after)
    return now > 0.0 and abs(now - was) <= tolerance * now


def wait_steady(readings: FunctionReadings, steadiness: Steadiness, check: Callable[[], None]) -> bool:
    """Wait until throughput is steady; False if the time limit passed. `check` raises an error if a process ended."""
    start_s = time.monotonic()
    stretch_s = steadiness.stretch_s
    while (now_s := time.monotonic()) < start_s + steadiness.limit_s:
        check()
        middle_s = now_s - stretch_s
        before = readings.rates_mpps(middle_s - stretch_s, middle_s)
        after = readings.rates_mpps(middle_s, now_s)
        if middle_s - stretch_s >= start_s and is_steady(before, after, steadiness.tolerance):
            return True
        time.sleep(_POLL_S)
    return False


@dataclass(frozen=True)
class Summary:
    """The median of measured values, their spread, and the median's standard error."""

    #: Median of the values.
    median: float
    #: Scaled median absolute deviation divided by the median.
    dispersion: float
    #: Relative standard error of the median; infinite for a single value.
    standard_error: float
    #: Number of values.
    count: int


def summarise(values: Sequence[float]) -> Summary:
    """Return the median of repeated values, their spread, and the standard error of the median."""
    middle = statistics.median(values)
    deviation = statistics.median(abs(value - middle) for value in values)
    spread = _MAD_TO_SIGMA * deviation / middle if middle > 0.0 else math.inf
    error = _MEDIAN_TO_MEAN * spread / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return Summary(middle, spread, error, len(values))


@dataclass(frozen=True)
class Paired:
    """Throughputs of a target, measured alternately with competitors paused and running."""

    #: Throughput of the target with the competitors paused and running [Mpps], pair by pair.
    solo_mpps: tuple[float, ...]
    beside_mpps: tuple[float, ...]
    #: Throughput of each competitor in the windows beside the target [Mpps].
    competitors_mpps: tuple[tuple[float, ...], ...] = ()
    #: Number of windows repeated because an NF did not get its cores.
    rejected: int = 0
    #: Measured time with all tenants running [s].
    duration_s: float = 0.0
    #: The last windows with all tenants running, the target's first.
    latest: tuple[Window, ...] = ()
    #: Throughput of a single competitor with the target paused, pair by pair; empty if not requested.
    others_solo_mpps: tuple[float, ...] = ()

    @property
    def ratios(self) -> tuple[float, ...]:
        """Throughput with competitors running divided by that with competitors paused, by pair of windows."""
        return tuple(beside / solo for solo, beside in zip(self.solo_mpps, self.beside_mpps, strict=True) if solo > 0.0)

    @property
    def ratio(self) -> Summary:
        """Median ratio with its precision; raises an error if the target had no throughput alone."""
        require_served(self.solo_mpps)
        return summarise(self.ratios)

    @property
    def competitor_ratio(self) -> Summary | None:
        """Median ratio of a single competitor's throughputs (target running to paused), with its precision."""
        pairs = zip(self.others_solo_mpps, self.competitors_mpps, strict=False)
        ratios = [beside[0] / solo for solo, beside in pairs if solo > 0.0]
        return summarise(ratios) if ratios else None

    def to_dict(self) -> dict[str, Any]:
        """Return the values to store in the provenance."""
        ratio, other = self.ratio, self.competitor_ratio
        mutual = {} if other is None else {
            "competitor_ratio": other.median,
            "competitor_dispersion": other.dispersion,
            "competitor_solo_mpps": list(self.others_solo_mpps),
        }  # fmt: skip
        return {
            **mutual,
            "solo_mpps": list(self.solo_mpps),
            "beside_mpps": list(self.beside_mpps),
            "ratio": ratio.median,
            "dispersion": ratio.dispersion,
            "pairs": ratio.count,
            "rejected_windows": self.rejected,
        }


@dataclass
class WindowTaker:
    """Measures windows, and repeats those in which an NF did not get enough CPU time."""

    #: Settings, of which it uses the minimum CPU share and the number of attempts.
    settings: HostSettings
    #: Length of a window [s].
    window_s: float
    rejected: int = 0
    starved: dict[str, float] = field(default_factory=dict)

    def take(self, tenants: Sequence[HostTenant]) -> list[Window]:
        """Return one valid window of every tenant."""
        silence: MeasurementError | None = None
        for _ in range(self.settings.attempts + 1):
            time.sleep(self.settings.settle_s)
            try:
                windows = take_windows(tenants, self.window_s)
            except MeasurementError as error:
                silence = error
            else:
                if self._valid(tenants, windows):
                    return windows
            self.rejected += 1
        if silence is not None:
            raise silence
        name, share = min(self.starved.items(), key=lambda item: item[1])
        raise UnstableMeasurementError(
            f"'{name}' got {share:.0%} of its cores in {self.settings.attempts + 1} windows in a row, "
            f"needed {self.settings.minimum_cpu_share:.0%}",
            hint="end other programs on these cores; for an NF that does not poll, write `polling: false`",
        )

    def _valid(self, tenants: Sequence[HostTenant], windows: Sequence[Window]) -> bool:
        self.starved = {
            tenant.definition.nf: window.cpu_share
            for tenant, window in zip(tenants, windows, strict=True)
            if tenant.definition.section.polling and window.cpu_share < self.settings.minimum_cpu_share
        }
        return not self.starved


def require_served(solo_mpps: Sequence[float]) -> None:
    """Raise MeasurementError, with possible causes, if the target's solo throughput [Mpps] is zero."""
    if not any(rate > 0.0 for rate in solo_mpps):
        raise MeasurementError(
            f"the target served no packets in {len(solo_mpps)} windows in which it ran alone",
            hint="does it get packets? check generator, link and addresses, or start its command by hand",
        )


def alternate(
    target: HostTenant, competitors: Sequence[HostTenant], settings: HostSettings, label: str, *, mutual: bool = False
) -> Paired:
    """Measure a target alternately without and with its competitors, until the ratio is precise enough.

    With `mutual`, the target is paused too, so that a single competitor's ratio is also measured without a restart.
    Raises UnstableMeasurementError if the ratio's standard error stays above the limit.
    """
    taker = WindowTaker(settings, settings.window_s)
    pairs = Paired((), ())
    try:
        while len(pairs.solo_mpps) < settings.most_pairs:
            pairs = one_more(pairs, target, competitors, taker, mutual=mutual)
            if len(pairs.solo_mpps) >= settings.pairs and pairs.ratio.standard_error <= settings.precision:
                break
    finally:
        paused([target, *competitors], False)
    if settings.most_pairs > 1 and pairs.ratio.standard_error > settings.limit:
        values = ", ".join(f"{ratio:.3f}" for ratio in pairs.ratios)
        raise UnstableMeasurementError(
            f"throughput of {label} relative to running alone is known to {pairs.ratio.standard_error:.0%} only "
            f"after {pairs.ratio.count} pairs of windows "
            f"(limit {settings.limit:.0%}): {values}",
            hint="quieten the machine (see `slomo doctor`), or allow more pairs or longer windows",
        )
    return pairs


def one_more(
    pairs: Paired, target: HostTenant, competitors: Sequence[HostTenant], taker: WindowTaker, *, mutual: bool = False
) -> Paired:
    """Measure one more pair of windows; in every second pair, the window with competitors paused comes first."""
    solo_mpps, together = 0.0, pairs.latest
    for alone in (True, False) if len(pairs.solo_mpps) % 2 == 0 else (False, True):
        paused(competitors, alone)
        if alone:
            solo_mpps = taker.take([target])[0].rate_mpps
        else:
            together = tuple(taker.take([target, *competitors]))
    others_solo = pairs.others_solo_mpps
    if mutual:
        paused(competitors, False)
        paused([target], True)
        others_solo = (*others_solo, taker.take(competitors)[0].rate_mpps)
        paused([target], False)
    return Paired(
        others_solo_mpps=others_solo,
        solo_mpps=(*pairs.solo_mpps, solo_mpps),
        beside_mpps=(*pairs.beside_mpps, together[0].rate_mpps),
        competitors_mpps=(*pairs.competitors_mpps, tuple(window.rate_mpps for window in together[1:])),
        rejected=taker.rejected,
        duration_s=pairs.duration_s + taker.window_s,
        latest=together,
    )
