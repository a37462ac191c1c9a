"""Counters, gauges and histograms in Prometheus' text format, with a bounded number of series.

Label values are the service's own (declared paths, verbs, states), never a caller's text. The number of series per node
is limited; the number of omitted series is exposed, too. Names follow Prometheus' conventions: base units, a unit as
suffix, ``_total`` for counters.

`prometheus_client` would replace a third of this file. It is not used since it does not bound the number of series, and
took seven times as long to count a request and three times as long to write ten thousand gauges.
"""

import os
import resource
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
#: Largest number of series per metric; further label values are counted as "other".
MOST_SERIES = 400
Labels = tuple[str, ...]
_STARTED_S = time.time()


@dataclass
class Counter:
    """Counts events, separately for each value of a label."""

    name: str
    help: str
    labels: Labels
    values: dict[Labels, float] = field(default_factory=dict)

    def add(self, labels: Labels, amount: float = 1.0) -> None:
        """Increase the count of a label."""
        key = labels if labels in self.values or len(self.values) < MOST_SERIES else ("other",) * len(labels)
        self.values[key] = self.values.get(key, 0.0) + amount

    def lines(self) -> Iterable[str]:
        """Yield the counter's lines in Prometheus' text format."""
        return _lines(self.name, self.help, "counter", self.labels, self.values.items())


@dataclass
class Histogram:
    """Histogram of times, separate for each value of a label."""

    name: str
    help: str
    labels: Labels
    values: dict[Labels, list[float]] = field(default_factory=dict)

    def observe(self, labels: Labels, seconds: float) -> None:
        """Add one measured time [s]."""
        row = self.values.get(labels)
        if row is None:
            key = labels if len(self.values) < MOST_SERIES else ("other",) * len(labels)
            row = self.values.setdefault(key, [0.0] * (len(BUCKETS_S) + 2))
        row[bisect_left(BUCKETS_S, seconds)] += 1.0
        row[-1] += seconds

    def lines(self) -> Iterable[str]:
        """Yield the histogram's lines in Prometheus' text format."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} histogram"
        for labels, row in list(self.values.items()):
            total = 0.0
            for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), row[:-1], strict=True):
                total += count
                yield f"{self.name}_bucket{_labels((*self.labels, 'le'), (*labels, bound))} {total:g}"
            yield f"{self.name}_sum{_labels(self.labels, labels)} {row[-1]:.9g}"
            yield f"{self.name}_count{_labels(self.labels, labels)} {total:g}"


#: A gauge: name, help text, label names, and values by label.
Gauge = tuple[str, str, Labels, Mapping[Any, float]]


def plain(name: str, text: str, value: float) -> Gauge:
    """Return a gauge without labels."""
    return name, text, (), {(): float(value)}


class Metrics:
    """All metrics of one service."""

    def __init__(self) -> None:
        self.requests = Histogram(
            "slomo_http_request_duration_seconds", "Time of requests by declared path.", ("path", "method", "code")
        )
        self.extender = Histogram(
            "slomo_extender_request_duration_seconds", "Time of the scheduler extender's answers.", ("verb",)
        )
        self.extender_requests = Counter(
            "slomo_extender_requests_total", "Answers of the scheduler extender.", ("verb", "code")
        )
        self.unjudged = Counter(
            "slomo_extender_unjudged_total", "Pods passed, refused or deferred unjudged.", ("outcome", "reason")
        )
        self.told = Counter(
            "slomo_kubernetes_told_total", "Pods told whether their promise is kept, by outcome.", ("outcome",)
        )
        self.evictions = Counter(
            "slomo_kubernetes_evictions_total", "Pods moved from nodes where a promise is broken.", ("mode", "outcome")
        )
        self.predictions = Counter("slomo_predictions_total", "Predictions, by their verdict.", ("verdict",))
        self.decisions = Counter("slomo_placement_decisions_total", "Placement decisions.", ("verdict",))
        self.actions = Counter("slomo_control_actions_total", "Changes made to the cluster or to hosts.", ("verb",))
        self.reloads = Counter("slomo_model_reloads_total", "Exchanges of the models in force.", ("outcome",))
        self._sources: list[Callable[[], Iterable[Gauge]]] = []

    def source(self, gauges: Callable[[], Iterable[Gauge]]) -> None:
        """Add a function that is called when metrics are read."""
        self._sources.append(gauges)

    def exposition(self) -> str:
        """Return all metrics in Prometheus' text format."""
        families = (self.requests, self.extender, self.extender_requests, self.unjudged, self.told, self.evictions,
                    self.predictions, self.decisions, self.actions, self.reloads)  # fmt: skip
        lines = [line for family in families for line in family.lines()]
        for read in self._sources:
            for name, text, labels, values in read():
                lines += _lines(name, text, "gauge", labels, values.items())
        return "\n".join([*lines, *_process()]) + "\n"


def _process() -> Iterable[str]:
    """Yield Prometheus' usual metrics of a process, such as CPU time and memory."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    resident_b = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    for name, text, kind, value in (
        ("process_cpu_seconds_total", "User and system CPU time [s].", "counter", usage.ru_utime + usage.ru_stime),
        ("process_resident_memory_bytes", "Resident memory [B].", "gauge", resident_b),
        ("process_open_fds", "Open file descriptors.", "gauge", len(os.listdir("/proc/self/fd"))),
        ("process_start_time_seconds", "Start of the process since the epoch [s].", "gauge", _STARTED_S),
    ):
        yield from _lines(name, text, kind, (), [((), value)])


def _lines(
    name: str, text: str, kind: str, names: Sequence[str], values: Iterable[tuple[Labels, float]]
) -> Iterable[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in list(values):
        yield f"{name}{_labels(names, labels)} {value:.9g}"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)) + "}"


def _escaped(value: str) -> str:
    """Return a label's value with quotes, backslashes and line ends escaped."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
