"""Whether readings of a machine can be trusted: missing, frozen, absurd or late ones cannot.

A silent, frozen or absurd sensor never reads as "healthy" (design law 16). Real rates vary in every window: a tenant
that shows exactly the same numbers again has a sensor that stands still, unless it is offered nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from slomo.control.observation import MachineReading, TenantReading

#: A reading is late when it is older than so many periods, and never before so many seconds.
LATE_PERIODS, LATE_S = 3.0, 3.0


@dataclass
class SensorHealth:
    """Remembers the last readings, and says what is wrong with a new one.

    Examples
    --------
    >>> health = SensorHealth(1.0)
    >>> health.faults(MachineReading(0.0, {"a": TenantReading(1.0)}), 0.0)
    {}
    >>> health.faults(MachineReading(1.0, {"a": TenantReading(float("nan"))}), 1.0)
    {'a': 'absurd: throughput is nan Mpps'}
    """

    #: Between readings.
    period_s: float
    #: The last one whose time could be believed.
    last: MachineReading | None = None
    #: Tenants seen so far: one that is not seen any more is missing.
    known: set[str] = field(default_factory=set)
    _clock_s: float = float("-inf")

    def faults(self, reading: MachineReading, now_s: float) -> dict[str, str]:
        """Return what cannot be believed, by tenant; under ``"clock"`` what is wrong with the time.

        `reading`: what was seen. `now_s`: the plant's time [s].
        """
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
