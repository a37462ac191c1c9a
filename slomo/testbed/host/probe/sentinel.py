"""Detect changes of the machine's speed: three small programs (the sentinel) run briefly between experiments.

The neighbours of a virtual machine change, so its share of the LLC can vary tenfold within hours. A change during an
experiment would look like pressure, so the experiment is then repeated.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

from msgspec import structs

from slomo.errors import UnstableMeasurementError
from slomo.testbed.host.interleaving import WindowTaker
from slomo.testbed.host.nf.definition import HostDefinition
from slomo.testbed.host.probe.reporters import stream_mib
from slomo.testbed.host.probe.standing import StandingPrograms
from slomo.testbed.host.settings import HostSettings
from slomo.vocabulary.workload import Workload

T = TypeVar("T")
#: Time between a program's reports, for windows of a twentieth of a second [s].
_INTERVAL_S = 0.01
_WINDOW_S, _SETTLE_S = 0.06, 0.015
_INSIDE = 0.6  # working set as a share of the shared cache; it fits while no neighbour uses the cache
_ATTEMPTS = 4
_JUST_S = 0.5
_SCATTERS = 4.0  # multiples of the sentinel's own scatter below which a change counts as none
#: Ratio of a sentinel speed to that at calibration above which the cache counts as another one.
ANOTHER = 1.5


@dataclass(frozen=True)
class Look:
    """One reading of the sentinel: the speed of each of its programs [Mpps]."""

    rates: Mapping[str, float] = field(default_factory=dict)

    def change(self, later: "Look") -> tuple[str, float]:
        """Return the program whose speed changed most until a later reading, and its ratio of old to new speed.

        >>> Look({"cache": 2.0, "memory": 1.0}).change(Look({"cache": 1.0, "memory": 1.1}))
        ('cache', 0.5)
        """
        both = {name: later.rates[name] / rate for name, rate in self.rates.items() if name in later.rates and rate > 0}
        return max(both.items(), key=lambda item: factor(item[1]), default=("", 1.0))


def factor(ratio: float) -> float:
    """Return `ratio` or its inverse, whichever is at least 1."""
    return max(ratio, 1.0 / max(ratio, 1e-9))


def sentinel_programs(l2_mib: float, llc_mib: float) -> dict[str, Workload]:
    """Return the sentinel's programs by the resource to which each is sensitive."""
    sizes = {
        "cache": (max(1.5 * l2_mib, _INSIDE * llc_mib), "chain"),
        "memory": (stream_mib(llc_mib), "chain"),
        "stream": (stream_mib(llc_mib), "sequential"),
    }
    return {
        name: Workload(
            "synthetic", {"data_size_mib": round(size, 3), "pattern": pattern, "reads_per_packet": 64, "burst": 1}
        )
        for name, (size, pattern) in sizes.items()
    }


@dataclass
class Sentinel:
    """Runs the programs that show changes of the machine's speed."""

    #: Programs of the sentinel, kept on one core.
    standing: StandingPrograms
    #: Workloads of the programs, by resource.
    programs: Mapping[str, Workload]
    #: Settings, of which it uses the minimum CPU share.
    settings: HostSettings

    @classmethod
    def on(
        cls, definition: HostDefinition, core: int, settings: HostSettings, *, l2_mib: float, llc_mib: float
    ) -> "Sentinel":
        """Return the sentinel of a machine with these caches, which keeps `core`."""
        after = pairwise(("", *definition.command))
        words = [f"{_INTERVAL_S:g}" if before == "--interval-s" else word for before, word in after]
        quick = replace(definition, section=structs.replace(definition.section, command=words))
        return cls(StandingPrograms(quick, core), sentinel_programs(l2_mib, llc_mib), settings)

    def look(self) -> Look:
        """Run the programs and return their speeds; raise UnstableMeasurementError if they do not get their core."""
        attempts = _ATTEMPTS + 2 * self.settings.attempts
        taker = WindowTaker(replace(self.settings, settle_s=_SETTLE_S, attempts=attempts), _WINDOW_S)
        rates = {}
        for name, workload in self.programs.items():
            with self.standing.awake(workload) as tenant:
                rates[name] = taker.take([tenant])[0].rate_mpps
        return Look(rates)


def scatter_of(looks: Sequence[Look]) -> float:
    """Return the relative difference between successive readings of the sentinel.

    >>> round(scatter_of([Look({"cache": 1.0}), Look({"cache": 1.1}), Look({"cache": 1.1})]), 3)
    0.05
    """
    changes = [factor(one.change(other)[1]) - 1.0 for one, other in pairwise(looks)]
    return statistics.median(changes) if changes else 0.0


@dataclass
class DriftWatch:
    """Repeats an experiment if the machine's speed changed during it."""

    #: The sentinel, which measures the machine's speed.
    look: Callable[[], Look]
    #: Largest relative change that is tolerated.
    limit: float
    #: Largest number of repetitions.
    attempts: int
    #: Reading at calibration; empty if unknown.
    calibrated: Look = field(default_factory=Look)
    _last: tuple[float, Look] = (float("-inf"), Look())

    def around(self, measure: Callable[[], T], label: str) -> tuple[T, dict[str, Any]]:
        """Repeat `measure` until the machine's speed does not change during it."""
        seen_s, look = self._last
        before = look if time.monotonic() - seen_s < _JUST_S else self.look()
        for repeated in range(self.attempts + 1):
            result = measure()
            after = self.look()
            self._last = (time.monotonic(), after)
            what, change = before.change(after)
            if factor(change) <= 1.0 + self.limit:
                self.require_same_cache(after)
                return result, {"change": change, "of": what, "repeated": repeated, "rates": dict(after.rates)}
            before = after
        raise UnstableMeasurementError(
            f"{label}: the machine changed while this was measured, {self.attempts + 1} times in a row: the sentinel's "
            f"'{what}' ran at {change:.2f} times its speed afterwards (limit {self.limit:.0%})",
            hint="other virtual machines use this hardware: wait, see `slomo doctor`; the same command then continues",
        )

    def require_same_cache(self, seen: Look) -> None:
        """Raise an error if the sentinel's speeds differ too much from those at calibration."""
        what, change = self.calibrated.change(seen)
        if factor(change) > ANOTHER:
            raise UnstableMeasurementError(
                f"this machine has changed since the reporters were calibrated: the sentinel's '{what}' runs at "
                f"{change:.2f} times its speed at calibration (needed {1.0 / ANOTHER:.2f} to {ANOTHER:.2f})",
                hint="finished runs are kept; a new campaign calibrates again",
            )


def drift_limit(settings: HostSettings, scatter: float) -> float:
    """Return the tolerated relative change of speed: the setting, or several times the sentinel's scatter if larger."""
    return max(settings.drift_limit, _SCATTERS * scatter)
