"""Choose calibration mixes by the resource for which their functions compete: cache, I/O or memory.

Random mixes rarely fill the memory channel, and few contain only small packets. Models trained on the profile therefore
predict each candidate's load on the memory channel, and for every network function whether its packets could fill the
DDIO ways or the ports. If no candidate contends for a resource, its third goes to the others. Some mixes contain many
instances of few network functions, because placement fills servers like this.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from slomo.equilibrium.server import joint_vectors, solve_joint
from slomo.errors import MissingMetricError
from slomo.models.base import Floats
from slomo.models.nf_model import NFModel
from slomo.profiling.plans.basic import Stream, drawn_mixes
from slomo.profiling.plans.designs import MOST_INSTANCES
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.dataset import ProfileDataset
from slomo.training.training import train
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.metrics import METRICS
from slomo.vocabulary.wire import wire_gbps
from slomo.vocabulary.workload import Workload

#: Share of the memory channel, the DDIO ways or the ports from which a mix contends for them.
BUSY = 0.7
SOURCES = ("cache", "I/O", "memory")
#: Candidates drawn for each mix wanted.
_CANDIDATES = 8
_CHANNEL, _WAYS = "LMB", "DDIOOCC"


def mixes_by_source_plan(
    dataset: ProfileDataset,
    count: int,
    machine: Machine,
    *,
    stream: Stream = "calibration",
    replicates: int = 1,
    seed: int = 0,
) -> ExperimentPlan:
    """Return a plan of random mixes, a third for each resource: cache, I/O and memory.

    `dataset`: the profile, for its network functions, and for models that predict the loads of a mix. `count`: fewer if
    there are not so many different mixes. `seed`: also draws the mixes, and trains. Raises MissingMetricError if the
    profile has too few runs, or no counters of the competition beside its targets.
    """
    sorting = _Sorting.trained(dataset, machine, seed)
    every = [model.workload for model in sorting.models]

    def drawn(kinds: Sequence[Workload], most: int) -> list[Colocation]:
        return drawn_mixes(kinds, machine, most, stream=stream, packed=True, seed=seed)

    at_random = drawn(every, _CANDIDATES * count)
    pools: dict[str, list[Colocation]] = {}
    for source in SOURCES:
        own = sorting.kinds(source)
        more = drawn(own, _CANDIDATES * count) if own else []
        pairs = zip_longest(at_random, more if len(own) < len(every) else ())
        pool = {mix.key: mix for pair in pairs for mix in pair if mix is not None}
        sources = sorting.sources(tuple(pool.values()))
        pools[source] = [mix for mix, of_mix in zip(pool.values(), sources, strict=True) if of_mix == source]
    counts = shares(count, [len(pools[source]) for source in SOURCES])
    if max(counts) == sum(counts):  # nothing to choose
        pools[SOURCES[int(np.argmax(counts))]] = drawn(every, sum(counts))
    turns = zip_longest(*(pools[source][:most] for source, most in zip(SOURCES, counts, strict=True)))
    chosen = [mix for turn in turns for mix in turn if mix is not None]
    most_by_source = ", ".join(f"{most} contend for {source}" for source, most in zip(SOURCES, counts, strict=True))
    return ExperimentPlan(f"mixes by source: {most_by_source}", tuple(chosen), replicates=replicates, seed=seed)


def shares(count: int, available: Sequence[int]) -> list[int]:
    """Return equal shares of a number of mixes; mixes that one resource cannot supply are taken from the others.

    >>> shares(120, [500, 500, 500]), shares(120, [500, 500, 10]), shares(8, [3, 0, 2])
    ([40, 40, 40], [55, 55, 10], [3, 0, 2])
    """
    counts = [0] * len(available)
    while sum(counts) < min(count, sum(available)):
        least = min(here for here, most in zip(counts, available, strict=True) if here < most)
        place = next(place for place, most in enumerate(available) if counts[place] == least < most)
        counts[place] += 1
    return counts


@dataclass(frozen=True, eq=False)
class _Sorting:
    """Predicts for which resource the functions of a mix compete."""

    models: tuple[NFModel, ...]
    machine: Machine
    #: Of each model, whether a socket full of it contends for I/O, and for the memory.
    loads: Mapping[str, NDArray[np.bool_]]

    @classmethod
    def trained(cls, dataset: ProfileDataset, machine: Machine, seed: int) -> "_Sorting":
        library = train(dataset, models=[], seed=seed)
        by_target = {model.workload.key: model for model in map(library.__getitem__, library)}
        measured = dict.fromkeys(dataset.frame["target"])  # in this order the draw of `mixes_plan` has them
        models = tuple(by_target[target] for target in measured if target in by_target)
        for model in models:
            if model.response is None or _CHANNEL not in model.response.profile.metric_names:
                raise MissingMetricError(
                    f"the profile of '{model.workload.key}' does not tell which mixes contend for what: it has too few "
                    "runs, or no counters of the competition beside it"
                )
        places = min(MOST_INSTANCES + 1, machine.cores_per_socket)
        alike = np.repeat(np.arange(len(models))[:, None], places, axis=1)
        made = cls(models, machine, {})
        channel, ways, ports = made.shares_of(alike)
        return replace(made, loads={"I/O": (ways > BUSY) | (ports > BUSY), "memory": channel > BUSY})

    def kinds(self, source: str) -> list[Workload]:
        """Return the functions whose mixes compete for a resource."""
        chosen = ~self.loads["I/O"] if source == "cache" else self.loads[source]
        return [model.workload for model, mine in zip(self.models, chosen, strict=True) if mine]

    def sources(self, mixes: Sequence[Colocation]) -> list[str]:
        """Return for which resource each mix competes: memory, else I/O, else the cache."""
        number = {model.workload.key: place for place, model in enumerate(self.models)}
        members = np.full((len(mixes), MOST_INSTANCES + 1), -1, dtype=np.int64)
        for row, mix in enumerate(mixes):
            members[row, : len(mix.tenants)] = [number[tenant.key] for tenant in mix.tenants]
        memory = self.shares_of(members)[0] > BUSY
        packets = np.append(self.loads["I/O"], False)[members].any(axis=1)
        return [str(each) for each in np.where(memory, "memory", np.where(packets, "I/O", "cache"))]

    def shares_of(self, members: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
        """Return the loads of the memory channel, the DDIO ways and the ports, as shares."""
        if not len(members):
            return np.zeros(0), np.zeros(0), np.zeros(0)
        reported = [() if model.response is None else model.response.profile.metric_names for model in self.models]
        names = tuple(name for name in (_CHANNEL, _WAYS) if all(name in each for each in reported))
        joint, capacities = solve_joint(self.models, members), self.machine.capacities()
        vectors = joint_vectors(self.models, members, joint, names).sum(axis=1)
        channel, *ways = (vectors[:, at] / capacities.limit(METRICS[name]) for at, name in enumerate(names))
        frames = np.array([*(float(model.workload.traffic.packet_size_b) for model in self.models), 0.0])[members]
        ports = wire_gbps(frames, joint.throughput_mpps).sum(axis=1) / capacities.ports_gbps
        return channel, ways[0] if ways else np.zeros(len(members)), ports
