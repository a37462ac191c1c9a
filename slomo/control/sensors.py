"""Detect readings that cannot be trusted because they are missing, frozen, implausible or late.

A silent, frozen or implausible sensor never counts as healthy. Real rates vary from window to window, so exactly equal
numbers mean a frozen sensor, unless no load is offered.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from slomo.control.observation import MachineReading, TenantReading

#: Age above which a reading is late: in periods, but at least this age [s].
LATE_PERIODS, LATE_S = 3.0, 3.0


@dataclass
class SensorHealth:
    """Keeps the last readings and checks new ones against them.

    Examples
    --------
    >>> health = SensorHealth(1.0)
    >>> health.faults(MachineReading(0.0, {"a": TenantReading(1.0)}), 0.0)
    {}
    >>> health.faults(MachineReading(1.0, {"a": TenantReading(float("nan"))}), 1.0)
    {'a': 'absurd: throughput is nan Mpps'}
    """

    #: Time between readings.
    period_s: float
    #: The last reading with a plausible time.
    last: MachineReading | None = None
    #: Tenants reported so far; a tenant that is no longer reported counts as missing.
    known: set[str] = field(default_factory=set)
    _clock_s: float = float("-inf")

    def faults(self, reading: MachineReading, now_s: float) -> dict[str, str]:
        """Return the faults by tenant at the plant's time `now_s`; ``"clock"`` holds a fault of the reading's time."""
        faults = self._clock(reading, now_s)
        before: Mapping[str, TenantReading] = {} if self.last is None else self.last.tenants
        for name, seen in reading.tenants.items():
            if seen.fault:
                faults[name] = f"absurd: {seen.fault}"
            elif seen == before.get(name) and seen.offered_mpps != 0.0:
                faults[name] = "frozen: exactly what it was before"
        faults.update((name, "missing") for name in self.known - set(reading.tenants))
        self.known |= set(reading.tenants)
        self.last = reading
        return faults

    def _clock(self, reading: MachineReading, now_s: float) -> dict[str, str]:
        if not abs(reading.time_s) < float("inf"):
            return {"clock": f"absurd: {reading.time_s:g} s"}
        latest, self._clock_s = self._clock_s, reading.time_s
        if reading.time_s < latest:
            return {"clock": f"went back by {latest - reading.time_s:g} s"}
        if now_s - reading.time_s > max(LATE_S, LATE_PERIODS * self.period_s):
            return {"clock": f"late: {now_s - reading.time_s:g} s old"}
        return {}
