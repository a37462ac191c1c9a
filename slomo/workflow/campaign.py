"""Settings of a campaign as values: what it measures and how it is run, the same for every verb that measures."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.profiling.plans.latency_plans import LOADS, check_loads
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.numbers import path_of, positive_number, whole_number

if TYPE_CHECKING:
    from slomo.profiling.adaptive.outcome import AdaptiveOutcome
    from slomo.profiling.campaign.progress import Progress
    from slomo.profiling.plans.basic import Stream
    from slomo.profiling.plans.designs import Design
    from slomo.testbed.base import Testbed

#: The design that chooses further runs from the results so far.
ADAPTIVE = "adaptive"
PLANS = ("all", "pressure", "solo", "mixes", "accelerator")


@dataclass(frozen=True)
class PlanSettings:
    """What is measured.

    Raises UnknownNameError for an unknown plan.

    Examples
    --------
    >>> PlanSettings("pressure", runs=20).adaptive
    False
    """

    #: ``pressure``: solo runs and runs beside the synthetic competitor. ``all``: the same and, with two or more network
    #: functions, mixes that calibrate intervals. One of "all", "pressure", "solo", "mixes", "accelerator".
    plan: str = "all"
    #: ``sources``, ``grid``, ``slomo-grid``, ``sobol``, or ``adaptive``.
    design: "str | Design" = "sources"
    #: Points of the design per network function; the design's own number by default. Of ``adaptive``, the most runs.
    runs: int | None = None
    #: Mixes to run; by default up to 200. With plan ``mixes`` also the very mixes, as ``2 x lpm + stats``.
    mixes: int | Sequence[str] | None = None
    #: Which half of all mixes to draw from: calibration with plan ``all``, else test; one of "calibration", "test".
    stream: "Stream | None" = None
    #: Runs of every experiment.
    replicates: int = 1
    #: Seed of everything random.
    seed: int = 0
    #: Held-out error at which ``adaptive`` stops, as a share of solo throughput.
    target_error: float | None = None

    def __post_init__(self) -> None:
        if self.plan not in PLANS:
            raise UnknownNameError("plan", self.plan, PLANS)
        if self.named_mixes and self.plan != "mixes":
            raise InvalidValueError(f"plan '{self.plan}' draws its mixes, some were named", hint="name plan 'mixes'")
        for name in ("runs", "mixes", "replicates", "seed"):
            if (number := getattr(self, name)) is not None and not (name == "mixes" and self.named_mixes):
                whole_number(name, number)
        if self.target_error is not None:
            positive_number("target_error", self.target_error, "share of solo throughput")
        if not isinstance(self.design, (str, Sequence)):
            raise InvalidValueError(f"design is {self.design!r}, needed a name or points", hint="'sources' is usual")

    @property
    def named_mixes(self) -> tuple[str, ...]:
        """The very mixes, where they are given and not how many."""
        return (
            ()
            if self.mixes is None or isinstance(self.mixes, int)
            else (self.mixes,)
            if isinstance(self.mixes, str)
            else tuple(self.mixes)
        )

    @property
    def mix_count(self) -> int | None:
        """How many mixes to draw; None for the default."""
        return self.mixes if isinstance(self.mixes, int) else None

    @property
    def adaptive(self) -> bool:
        """Whether the design chooses runs from earlier results."""
        return self.design == ADAPTIVE and self.plan in ("all", "pressure")


@dataclass(frozen=True)
class RunSettings:
    """How a campaign's runs are made, and which runs are added afterwards.

    Examples
    --------
    >>> RunSettings(latency=(0.5, 0.9)).loads("solo")
    (0.5, 0.9)
    """

    #: Where the experiments run; the simulator by default.
    testbed: "str | Testbed" = "simulated"
    #: The caller's own network functions, for the simulator.
    own: Iterable[NetworkFunction] = ()
    #: File that keeps every finished run; repeating the call resumes from it.
    store: str | Path | None = None
    #: Number of parallel runs; all cores by default.
    jobs: int | None = None
    #: Listener that is told the campaign's progress.
    progress: "Progress | None" = None
    #: Called, with design ``adaptive``, with the reason why each network function's profile stopped and the runs it
    #: saved.
    report: "Callable[[AdaptiveOutcome], object] | None" = None
    #: Also measure latency at several loads, alone and beside five of the competitions (48 runs per network function).
    #: A sequence gives the loads, as shares of the throughput served there.
    latency: bool | Sequence[float] = False
    #: Also run this many mixes in which about half of the network functions are offered 15 to 95 % of their solo
    #: throughput. They calibrate the intervals of `solve_server` at reduced load; 60 are enough.
    reduced_mixes: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "own", tuple(self.own))

    def check(self, plan: str) -> None:
        """Refuse settings that do not fit the plan, before anything is measured.

        Raises InvalidValueError for invalid loads, an invalid number of mixes, or one that the plan has no use for.
        """
        self.loads(plan)
        if self.store is not None:
            path_of("store", self.store)
        if self.jobs is not None:
            whole_number("jobs", self.jobs)
        for function in self.own:
            if not isinstance(function, NetworkFunction):
                raise InvalidValueError(
                    f"own: {function!r} is no NetworkFunction", hint="load_network_function('mirror.yaml') reads one"
                )
        if whole_number("reduced_mixes", self.reduced_mixes) < 0:
            raise InvalidValueError(
                f"{self.reduced_mixes} mixes at reduced load were asked for, needed 0 or more", hint="60 do"
            )
        if self.reduced_mixes and plan not in ("all", "pressure", "solo"):
            raise InvalidValueError(
                f"mixes at reduced load were asked for with plan '{plan}', which does not measure what 100 % is",
                hint="use plan solo, pressure or all",
            )

    def loads(self, plan: str) -> tuple[float, ...] | None:
        """Return the loads to measure latency at, or None.

        Raises InvalidValueError for invalid loads, or for latency with plan ``mixes``.
        """
        if self.latency is False:
            return None
        if plan == "mixes":
            raise InvalidValueError(
                "latency at several loads was asked for with plan 'mixes'", hint="use plan solo, pressure or all"
            )
        return check_loads(LOADS if self.latency is True else self.latency)
