"""Measure how much the speed of this machine changes by itself: run short test programs several times.

It predicts the `stability` that a campaign's dataset would state.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from slomo.testbed.host.doctor.check import Finding, check, ok, warn
from slomo.testbed.host.nf.definition import host_definition
from slomo.testbed.host.probe.sentinel import Look, Sentinel, factor
from slomo.testbed.host.settings import HostSettings

_LOOKS, _PAUSE_S = 8, 0.4


@dataclass(frozen=True)
class MachineDrift:
    """Speeds of the test programs, measured several times."""

    #: Two or more readings, in order of time.
    looks: tuple[Look, ...]

    @property
    def spans(self) -> dict[str, float]:
        """Ratio of the highest to the lowest speed of each program."""
        names = [name for name in self.looks[0].rates if all(look.rates.get(name, 0.0) > 0.0 for look in self.looks)]
        seen = {name: [look.rates[name] for look in self.looks] for name in names}
        return {name: round(max(rates) / min(rates), 4) for name, rates in seen.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping with the field names of a dataset's `stability`."""
        changes = [factor(one.change(other)[1]) - 1.0 for one, other in pairwise(self.looks)]
        return {
            "looks": len(self.looks),
            "median_change": round(statistics.median(changes), 4),
            "largest_change": round(max(changes), 4),
            "fastest_over_slowest": self.spans,
        }

    @check("memory", "drift")
    def check(self, limit: float) -> Finding:
        """Return the finding: a warning if a program's speed changed by more than `limit`."""
        again = "stop other tasks, then `slomo doctor` again"
        if not self.spans:
            return warn("the sentinel hardly ran", again)
        changes = ", ".join(f"{name} {100 * (span - 1):.0f} %" for name, span in self.spans.items())
        finding = f"{changes} from slowest to fastest over {len(self.looks)} looks"
        if max(self.spans.values()) <= 1.0 + limit:
            return ok(finding)
        return warn(finding, f"{again}; campaigns repeat runs during which it moves")


def watch_drift(cores: Sequence[int], l2_mib: float, llc_mib: float) -> MachineDrift:
    """Run the test programs several times over about five seconds on the first of `cores` and return their speeds.

    Raises UnstableMeasurementError if they do not get their core; TestbedError if they cannot be built or started.
    """
    sentinel = Sentinel.on(host_definition("synthetic"), cores[0], HostSettings(), l2_mib=l2_mib, llc_mib=llc_mib)
    try:
        sentinel.look()  # not used: programs that have just started are slower
        looks = []
        for number in range(_LOOKS):
            time.sleep(_PAUSE_S if number else 0.0)
            looks.append(sentinel.look())
    finally:
        sentinel.standing.close()
    return MachineDrift(tuple(looks))
