"""Simulate requests that arrive and depart under a policy, and periodic new plans.

ResQ (NSDI'18) section 5: immediate admission and a new plan from time to time; E2 (SOSP'15) and NUMASFP (COMSNETS'22)
evaluate dynamic policies over time.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slomo.errors import InvalidValueError
from slomo.files.stored import Stored
from slomo.placement.online.placer import Placer
from slomo.placement.over_time.judge import Judge
from slomo.placement.over_time.reoptimise import Reoptimisation, reoptimise
from slomo.placement.over_time.repack import MoveBudget
from slomo.placement.policies.base import Policy
from slomo.placement.workloads import Event


@dataclass(frozen=True)
class Sample:
    """State of the cluster after an event."""

    #: Simulated time of the sample [s].
    time_s: float
    #: Requests placed; requests refused so far; servers in use; pieces moved so far.
    placed: int
    refused: int
    servers_used: int
    migrations: int
    #: Share of placed requests with a broken SLO, and aggregate normalised throughput, 0 to 1, if judged.
    violated_share: float | None = None
    anat: float | None = None


@dataclass(frozen=True)
class Timeline(Stored, derived=("mean_servers", "migrations", "anat", "refused")):
    """Result of a simulation over time."""

    #: Admission policy, and re-optimisation policy (empty: none).
    policy: str
    planner: str
    #: Samples in order of time.
    samples: tuple[Sample, ...]
    #: Times of re-optimisation [s], and results.
    reoptimisations: tuple[tuple[float, Reoptimisation], ...]
    #: Median and 99th percentile of an admission's time [ms].
    decision_ms: tuple[float, float]
    #: Time without service of a moved piece [s].
    outage_s: float = 0.0

    @property
    def migrations(self) -> int:
        """Number of moves during the simulation."""
        return self.samples[-1].migrations if self.samples else 0

    @property
    def anat(self) -> float | None:
        """Throughput over offered load of all requests, averaged over time, minus what moves lose (NUMASFP's ANAT).

        Its unit is request-seconds, one per placed request and second; a move loses `outage_s` of them.
        """
        judged = [sample.anat for sample in self.samples if sample.anat is not None]
        if not judged:
            return None
        times = np.diff([sample.time_s for sample in self.samples])
        placed_s = float((np.array([sample.placed for sample in self.samples[:-1]]) * times).sum())
        missed = min(self.migrations * self.outage_s / placed_s, 1.0) if placed_s else 0.0
        return float(np.mean(judged)) * (1.0 - missed)

    @property
    def refused(self) -> int:
        """Number of requests that were refused during the simulation."""
        return self.samples[-1].refused if self.samples else 0

    @property
    def mean_servers(self) -> float:
        """Number of servers in use, averaged over time."""
        times = np.array([sample.time_s for sample in self.samples])
        if times.size < 2 or times[-1] == times[0]:
            return float(self.samples[-1].servers_used) if self.samples else 0.0
        used = np.array([sample.servers_used for sample in self.samples[:-1]])
        return float((used * np.diff(times)).sum() / (times[-1] - times[0]))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a mapping that can be written as JSON."""
        listed = [{"time_s": when, **what.to_dict()} for when, what in self.reoptimisations]
        return {**super().to_dict(), "reoptimisations": listed}


def play(
    placer: Placer,
    events: Sequence[Event],
    *,
    every_s: float | None = None,
    threshold: float = 0.1,
    planner: str | type[Policy] | None = None,
    judge: Judge | None = None,
    moves: MoveBudget | None = None,
) -> Timeline:
    """Simulate arrivals and departures of requests, and make a new plan every `every_s` seconds.

    `events`: in order of time, for instance from `workloads.arrivals`; the departure of a refused request is passed
    over. `every_s`: time between two re-optimisations [s]; none by default. `threshold`, `planner`: as for
    `reoptimise`. `judge`: runs what is placed, `every_s` apart, or ten times in all. `moves`: what each re-optimisation
    may move, and what a move costs; one piece in twenty, and nothing, by default. Raises InvalidValueError for an
    interval that is not above 0, or so short that there were more than 10 000.
    """
    end = events[-1].time_s if events else 0.0
    if every_s is not None and not (math.isfinite(every_s) and every_s > 0.0 and end / every_s <= 10_000):
        raise InvalidValueError(
            f"re-optimisation every {every_s} s of {end:g} s, needed above 0 and at most 10 000 times"
        )
    run = _TimelineRun(placer, judge, moves or MoveBudget())
    step = every_s if every_s is not None else max(end, 1e-9) / 10
    ticks = step
    for event in events:
        while ticks <= event.time_s:
            run.tick(ticks, threshold, planner, plans=every_s is not None)
            ticks += step
        run.happen(event)
    name = "" if every_s is None else (planner if isinstance(planner, str) else (planner or type(placer.policy)).name)
    return run.timeline(name)


class _TimelineRun:
    """State and counts of a simulation over time."""

    def __init__(self, placer: Placer, judge: Judge | None, moves: MoveBudget) -> None:
        self._placer, self._judge, self._budget = placer, judge, moves
        self._samples: list[Sample] = []
        self._plans: list[tuple[float, Reoptimisation]] = []
        self._times_ms: list[float] = []
        self._refused = self._moved = 0
        self._left, self._since_s = 0.0, 0.0

    def happen(self, event: Event) -> None:
        """Process one event: admit the arriving request, or remove the departing one."""
        if event.arrives:
            begun = time.perf_counter()
            decision = self._placer.admit(event.request)
            self._times_ms.append(1e3 * (time.perf_counter() - begun))
            self._refused += not decision.accepted
        elif event.request.id in {request.id for request in self._placer.requests}:
            self._placer.remove(event.request.id)
        self._note(event.time_s)

    def tick(self, when_s: float, threshold: float, planner: str | type[Policy] | None, *, plans: bool) -> None:
        """Make a new plan, migrate if that is worth it, and run the result on the testbed."""
        if plans:
            most, cost = self._most(when_s), self._budget.cost_per_move
            reoptimisation = reoptimise(
                self._placer, threshold, planner, max_moves=most, cost_per_move=cost, max_share=1.0
            )
            self._left -= len(reoptimisation.moves)
            self._plans.append((when_s, reoptimisation))
            self._moved += len(reoptimisation.moves)
        self._note(when_s, judged=self._judge)

    def _most(self, when_s: float) -> int | None:
        """Return how many moves are allowed now; unused moves stay available for an hour."""
        pieces = sum(len(request["pieces"]) for request in self._placer.snapshot()["placed"])
        if self._budget.share_per_hour is None:
            return self._budget.most(pieces)
        hourly = self._budget.share_per_hour * pieces
        self._left = min(self._left + hourly * (when_s - self._since_s) / 3600.0, hourly)
        self._since_s = when_s
        return self._budget.most(pieces, max(self._left, 0.0))

    def _note(self, when_s: float, judged: Judge | None = None) -> None:
        placer = self._placer
        judgement = judged.judge(placer) if judged is not None and placer.servers_used else None
        self._samples.append(
            Sample(
                when_s,
                len(placer.requests),
                self._refused,
                placer.servers_used,
                self._moved,
                None if judgement is None else judgement.violated_share,
                None if judgement is None else judgement.anat,
            )
        )

    def timeline(self, planner: str) -> Timeline:
        """Return the counts as a `Timeline`."""
        spread = np.percentile(self._times_ms, [50, 99]) if self._times_ms else np.zeros(2)
        return Timeline(
            self._placer.policy.name,
            planner,
            tuple(self._samples),
            tuple(self._plans),
            (float(spread[0]), float(spread[1])),
            self._budget.outage_s,
        )
