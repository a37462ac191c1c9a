"""Choose calibration mixes of the kind that placement puts on servers.

A packer fills a server until one more network function would break a promise. It prefers mixes of few kinds, and among
mixes that fit it picks those whose predictions are too high (winner's curse). Errors in random mixes therefore
understate those on full servers. Here requests with random promises are packed by a first model, trained on the profile
alone; the mixes of the servers in use are then measured, and learned and calibrated on like all others.
"""

import numpy as np

from slomo.equilibrium.server import solve_joint
from slomo.errors import InvalidValueError, MissingMetricError
from slomo.models.nf_model import NFModel
from slomo.placement.online.placer import Placer
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.request import SLO, Request
from slomo.profiling.plans.basic import Stream, stream_of, tenants_key
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.dataset import ProfileDataset
from slomo.records.schema import Plan
from slomo.training.training import train
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.vector import Floats
from slomo.vocabulary.workload_text import parse_workload

#: Requests packed for each mix wanted: three to five share a server, and many servers have the same mix.
_REQUESTS = 40


def packed_mixes_plan(
    dataset: ProfileDataset,
    count: int,
    machine: Machine,
    *,
    stream: Stream = "calibration",
    replicates: int = 1,
    seed: int = 0,
) -> ExperimentPlan:
    """Return a plan of at most `count` mixes from servers that placement filled with random requests.

    Each request promises a random share of solo throughput, between the least that any neighbours leave and all of it.

    `dataset`: the profile, on this machine. `stream`, `replicates`, `seed`: as for
    `slomo.profiling.plans.mixes_by_source.mixes_by_source_plan`. Raises MissingMetricError if the profile does not
    suffice for a model of whole servers; InvalidValueError if placement puts no two network functions on one server.
    """
    library = train(dataset.select(plan=[Plan.SOLO, Plan.PRESSURE]), seed=seed)  # families answer where nothing settles
    models = [model for model in library.values() if model.response is not None]
    if len(models) < len(library):
        raise MissingMetricError(
            "mixes as placement fills servers need a model of whole servers of every network function: the profile has "
            "too few runs, or no counters of the competition beside it",
            hint="60 runs of the default design do; what was measured stays in the store, if there is one: the same "
            "command without packed mixes writes it as a dataset",
        )
    least, draw = _least_shares(models, machine.cores_per_socket), np.random.default_rng([seed, 0x7061636B])
    kinds = draw.integers(len(models), size=_REQUESTS * count)
    shares = least[kinds] + (1.0 - least[kinds]) * draw.random(len(kinds))
    requests = [
        Request(str(number), models[kind].workload, SLO(min_share=max(round(share, 2), 0.01)))
        for number, (kind, share) in enumerate(zip(kinds.tolist(), shares.tolist(), strict=True))
    ]
    servers = tuple(Server(str(number), machine) for number in range(len(requests)))  # type: ignore[arg-type]
    placer = Placer(library, Cluster(servers), "predicted", confidence=0.5)  # as far as predictions allow
    placer.place_all(requests)
    mixes: dict[str, Colocation] = {}
    for placed in placer.layout().values():
        target, *others = [parse_workload(item.workload) for item in placed]
        mix = Colocation(machine.name, target, tuple(others))
        if others and stream_of(mix) == stream:
            mixes.setdefault(tenants_key(mix), mix)
    if not mixes:
        raise InvalidValueError("placement puts no two of these network functions on one server", hint="profile others")
    chosen = [list(mixes.values())[place] for place in draw.permutation(len(mixes))[:count]]
    return ExperimentPlan(f"packed-{stream}", tuple(chosen), replicates=replicates, seed=seed)


def _least_shares(models: list[NFModel], cores: int) -> Floats:
    """Return each function's share of solo throughput on a socket full of its worst neighbour."""
    kinds, solo = np.arange(len(models)), np.array([model.solo_mpps for model in models])
    members = np.array([[target, *[other] * (cores - 1)] for target in kinds for other in kinds])
    mpps = solve_joint(models, members, first_only=True).throughput_mpps[:, 0].reshape(len(kinds), -1)
    least: Floats = np.minimum(mpps.min(axis=1) / solo, 1.0)
    return least
