"""Settings of a campaign (a series of runs): what is measured, and how runs are made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.profiling.plans.latency_plans import LOADS, check_loads
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.numbers import MOST_SEED, path_of, positive_number, whole_number

if TYPE_CHECKING:
    from slomo.profiling.adaptive.outcome import AdaptiveOutcome
    from slomo.profiling.campaign.progress import Progress
    from slomo.profiling.plans.basic import Stream
    from slomo.profiling.plans.designs import Design
    from slomo.testbed.base import Testbed

#: The design that chooses further runs from the results so far.
ADAPTIVE = "adaptive"
#: The design with tenants on two sockets and all memory on the other.
LINK = "link"
PLANS = ("all", "pressure", "solo", "mixes", "accelerator")


class SeedFields(TypedDict):
    """How often and from which seed the runs of a plan are made."""

    replicates: int
    seed: int


@dataclass(frozen=True)
class PlanSettings:
    """What a campaign measures; :func:`slomo.workflow.profile.profile` describes the fields.

    Raises UnknownNameError for an unknown plan.
    """

    plan: str = "all"
    design: "str | Design" = "sources"
    runs: int | None = None
    mixes: int | Sequence[str] | None = None
    stream: "Stream | None" = None
    replicates: int = 1
    seed: int = 0
    target_error: float | None = None

    @property
    def seeded(self) -> "SeedFields":
        """Replicates and seed of every plan."""
        return {"replicates": self.replicates, "seed": self.seed}

    def __post_init__(self) -> None:
        if self.plan not in PLANS:
            raise UnknownNameError("plan", self.plan, PLANS)
        if self.named_mixes and self.plan != "mixes":
            raise InvalidValueError(f"plan '{self.plan}' draws its mixes, some were named", hint="name plan 'mixes'")
        if self.design == LINK and self.plan == "all":
            raise InvalidValueError(
                "design 'link' has every tenant's memory on another socket, plan 'all' adds mixes that have not",
                hint="use plan pressure",
            )
        whole_number("seed", self.seed, 0, MOST_SEED)
        for name in ("runs", "mixes", "replicates"):
            if (number := getattr(self, name)) is not None and not (name == "mixes" and self.named_mixes):
                whole_number(name, number)
        if self.target_error is not None:
            positive_number("target_error", self.target_error, "share of solo throughput")
        if not isinstance(self.design, (str, Sequence)):
            raise InvalidValueError(f"design is {self.design!r}, needed a name or points", hint="'sources' is usual")

    @property
    def named_mixes(self) -> tuple[str, ...]:
        """The mixes to measure, if they are given by name and not as a number."""
        if self.mixes is None or isinstance(self.mixes, int):
            return ()
        return (self.mixes,) if isinstance(self.mixes, str) else tuple(self.mixes)

    @property
    def mix_count(self) -> int | None:
        """Number of mixes to choose at random; None for the default."""
        return self.mixes if isinstance(self.mixes, int) else None

    @property
    def adaptive(self) -> bool:
        """Whether each run is chosen by the results of earlier runs."""
        return self.design == ADAPTIVE and self.plan in ("all", "pressure")


@dataclass(frozen=True)
class RunSettings:
    """How a campaign makes its runs, and which runs it adds; fields as in `slomo.workflow.profile.profile`."""

    testbed: "str | Testbed" = "simulated"
    own: tuple[NetworkFunction, ...] = ()
    store: str | Path | None = None
    jobs: int | None = None
    progress: "Progress | None" = None
    report: "Callable[[AdaptiveOutcome], object] | None" = None
    latency: bool | Sequence[float] = False
    reduced_mixes: int = 0
    packed_mixes: int = 0

    def check(self, plan: str) -> None:
        """Raise an error if these settings do not fit the plan, before anything is measured."""
        self.loads(plan)
        if self.store is not None:
            path_of("store", self.store)
        if self.jobs is not None:
            whole_number("jobs", self.jobs)
        for name, count in (("reduced_mixes", self.reduced_mixes), ("packed_mixes", self.packed_mixes)):
            if whole_number(name, count) < 0:
                raise InvalidValueError(f"{name} is {count}, needed 0 or more", hint="60 do")
        if self.packed_mixes and plan not in ("all", "pressure"):
            raise InvalidValueError(
                f"mixes of packed servers were asked for with plan '{plan}', from which no model can pack",
                hint="use plan pressure or all",
            )
        if self.reduced_mixes and plan not in ("all", "pressure", "solo"):
            raise InvalidValueError(
                f"mixes at reduced load were asked for with plan '{plan}', which does not measure what 100 % is",
                hint="use plan solo, pressure or all",
            )

    def loads(self, plan: str) -> tuple[float, ...] | None:
        """Return the loads at which latency is measured; None if it is not measured."""
        if self.latency is False:
            return None
        if plan == "mixes":
            raise InvalidValueError(
                "latency at several loads was asked for with plan 'mixes'", hint="use plan solo, pressure or all"
            )
        return check_loads(LOADS if self.latency is True else self.latency)
