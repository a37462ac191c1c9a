"""A plan: which network functions to run together, how often, and the seed.

A plan is a value independent of its testbed, so that it can be shown, estimated, stored and run elsewhere (SLOMO,
SIGCOMM'20, section 4.1: the offline profiling runs of one network function).
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from slomo.errors import InvalidValueError
from slomo.files.stored import Stored
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.workload import fingerprint_of

SCHEMA_VERSION = 1
#: Upper limit of runs of a plan.
MOST_RUNS = 10_000_000
_SEED_BITS = 53  # a seed must survive JSON readers and float64 columns unchanged


@dataclass(frozen=True)
class PlannedRun:
    """One run of a plan: which network functions, which repetition, which seed."""

    #: What runs.
    colocation: Colocation
    #: 0 for the first run of this co-location, 1 for its first repetition, ...
    replicate: int
    #: Seed of everything random in it, from the plan's seed, the co-location and the replicate.
    seed: int

    @property
    def label(self) -> str:
        """A short description of the run, for people."""
        return self.colocation.label + (f" (repetition {self.replicate})" if self.replicate else "")


@dataclass(frozen=True)
class ExperimentPlan(Stored, version=SCHEMA_VERSION):
    """The runs of one campaign.

    Raises InvalidValueError for an empty plan, a co-location asked for twice, or a count or limit out of range.

    >>> from slomo.vocabulary.workload import Workload
    >>> plan = ExperimentPlan("solo", (Colocation("silver-4110", Workload("lpm")),), replicates=2)
    >>> [run.replicate for run in plan.runs()]
    [0, 1]
    """

    #: For people.
    name: str
    #: All different; their order is the order of the dataset's rows.
    colocations: tuple[Colocation, ...]
    #: Runs of each co-location, 1 or more.
    replicates: int = 1
    #: A co-location whose throughput disperses beyond `dispersion_limit` is run again up to this often; None means
    #: `replicates`.
    maximum_replicates: int | None = None
    #: Largest standard deviation over mean that counts as stable, above 0.
    dispersion_limit: float = 0.05
    #: Seed that all runs' seeds are derived from.
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "colocations", tuple(self.colocations))
        if not self.colocations:
            raise InvalidValueError(f"plan '{self.name}' has no co-location to measure")
        if len({colocation.key for colocation in self.colocations}) < len(self.colocations):
            raise InvalidValueError(
                f"plan '{self.name}' asks for the same co-location twice", hint="raise `replicates` instead"
            )
        if self.replicates < 1 or self.most_replicates < self.replicates:
            raise InvalidValueError(
                f"plan '{self.name}': replicates are {self.replicates} to {self.most_replicates}, "
                "needed 1 or more, and the maximum not below"
            )
        if self.least_runs > MOST_RUNS:
            raise InvalidValueError(f"plan '{self.name}' has {self.least_runs} runs, needed at most {MOST_RUNS}")
        if not self.dispersion_limit > 0.0:
            raise InvalidValueError(f"plan '{self.name}': dispersion limit is {self.dispersion_limit}, needed above 0")

    def __len__(self) -> int:
        return len(self.colocations)

    @property
    def least_runs(self) -> int:
        """Number of runs that are made whatever they measure."""
        return len(self.colocations) * self.replicates

    @property
    def most_replicates(self) -> int:
        """How often one co-location may run at most."""
        return self.replicates if self.maximum_replicates is None else self.maximum_replicates

    @property
    def machine(self) -> str:
        """Names of the machines the plan needs, comma separated."""
        return ", ".join(dict.fromkeys(colocation.machine for colocation in self.colocations))

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the plan's content: 16 hexadecimal digits."""
        return fingerprint_of(self.to_dict())

    def run(self, colocation: Colocation, replicate: int) -> PlannedRun:
        """Return run number `replicate` of `colocation`."""
        return PlannedRun(colocation, replicate, run_seed(self.seed, colocation.key, replicate))

    def runs(self) -> tuple[PlannedRun, ...]:
        """Return every run that is made whatever others measure, in order."""
        return tuple(
            self.run(colocation, replicate) for colocation in self.colocations for replicate in range(self.replicates)
        )


def run_seed(seed: int, colocation_key: str, replicate: int) -> int:
    """Return the seed of one run, which depends only on plan seed, co-location and replicate."""
    digest = hashlib.sha256(f"{seed}:{colocation_key}:{replicate}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - _SEED_BITS)


def combine(name: str, plans: Iterable[ExperimentPlan]) -> ExperimentPlan:
    """Join plans of equal seed and replicates into one; a run that several plans contain is made once."""
    parts = tuple(plans)
    settings = {(p.replicates, p.maximum_replicates, p.dispersion_limit, p.seed) for p in parts}
    if len(settings) != 1:
        raise InvalidValueError(f"plan '{name}': its parts differ in seed or replicates: {sorted(settings, key=str)}")
    replicates, maximum, limit, seed = settings.pop()
    colocations = {colocation.key: colocation for part in parts for colocation in part.colocations}
    return ExperimentPlan(name, tuple(colocations.values()), replicates, maximum, limit, seed)
