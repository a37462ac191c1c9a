"""Keep the latest report of each node's agent: counters of the node's network functions, and settings it has made."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from slomo.errors import InvalidValueError
from slomo.service.door.bodies import AgentReport
from slomo.service.metrics import Gauge, plain
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

#: Largest number of nodes whose reports are kept, and age above which a report is dropped, since its node may be gone
#: [s].
MOST_NODES, FORGOTTEN_S = 10_000, 3600.0
#: Largest number of counter series in the metrics.
MOST_SERIES = 500


class Agents:
    """Keeps the latest report of each Kubernetes node's agent."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._reports: dict[str, tuple[float, AgentReport]] = {}

    def tell(self, node: str, report: AgentReport) -> None:
        """Store a node's report; it replaces the node's previous report."""
        for item in report.tenants:
            item.counters = dict(MetricVector(item.counters or {}, scope=Scope.CORE)) or None
            if item.counters is None and not item.reason:
                hint = "leave out what was not read, and say why: an absent counter is unknown, not zero"
                raise InvalidValueError(f"tenant '{item.tenant}' has neither counters nor a reason", hint=hint)
        with self._lock:
            self._reports.pop(node, None)
            self._reports[node] = (self._clock(), report)
            while len(self._reports) > MOST_NODES:
                del self._reports[next(iter(self._reports))]

    def _fresh(self) -> dict[str, tuple[float, AgentReport]]:
        """Drop reports that are too old; return the others."""
        with self._lock:
            now_s = self._clock()
            self._reports = {key: entry for key, entry in self._reports.items() if now_s - entry[0] < FORGOTTEN_S}
            return dict(self._reports)

    def of(self, node: str) -> dict[str, Any] | None:
        """Return a node's latest report and its age [s]; None if there is no report."""
        entry = self._fresh().get(node)
        return None if entry is None else _told(node, entry, self._clock())

    def all(self) -> list[dict[str, Any]]:
        """Return the latest report of every node."""
        return [_told(node, entry, self._clock()) for node, entry in sorted(self._fresh().items())]

    def gauges(self) -> Iterable[Gauge]:
        """Yield Prometheus metrics of the reports: ages, counters and refused settings."""
        reports = self._fresh()
        counters: dict[tuple[str, ...], float] = {}
        for node, (_, report) in reports.items():
            for item in report.tenants:
                vector = item.counters or {}
                if len(counters) + len(vector) <= MOST_SERIES:
                    counters |= {(node, item.tenant, name): value for name, value in vector.items()}
        ages = [self._clock() - at_s for at_s, _ in reports.values()]
        blank = sum(item.counters is None for _, report in reports.values() for item in report.tenants)
        refusals = sum(len(report.enforcement.refusals) for _, report in reports.values() if report.enforcement)
        yield plain("slomo_agents", "Nodes whose agent has reported.", len(reports))
        yield plain("slomo_agent_oldest_report_seconds", "Since the agent silent for longest.", max(ages, default=0.0))
        yield "slomo_tenant_counter", "Latest counters, in the metric's unit.", ("node", "tenant", "metric"), counters
        yield plain("slomo_tenants_without_counters", "Tenants that no agent could count.", blank)
        yield plain("slomo_agent_refusals", "Settings of nodes' plans that agents did not carry out.", refusals)


def _told(node: str, entry: tuple[float, AgentReport], now_s: float) -> dict[str, Any]:
    return {"node": node, "age_s": round(now_s - entry[0], 1), **msgspec.to_builtins(entry[1])}
