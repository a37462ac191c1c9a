"""Place requests on a cluster, check a placement on a testbed, compare policies.

Package `slomo.placement` itself knows no testbed; these functions give it one, the simulator by default.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.extras import need
from slomo.files.stored import Stored
from slomo.fleet.spread import spread
from slomo.models.library import ModelLibrary, load_library
from slomo.models.partition_profile import PartitionProfile, load_profiles
from slomo.placement.online.placer import Placer
from slomo.placement.online.settings import DecisionOptions
from slomo.placement.over_time.judge import Judge, asked_times
from slomo.placement.over_time.judgement import Judgement
from slomo.placement.policies.registry import policy_class
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.documents import read_cluster, read_requests
from slomo.placement.problem.request import Request
from slomo.records.run import RunRecord
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.defaults import DEFAULT_MODEL, method_hint
from slomo.vocabulary.machine import Machine, load_machine
from slomo.workflow.names import own_functions

if TYPE_CHECKING:
    from slomo.testbed.base import Testbed
    from slomo.vocabulary.network_function import NetworkFunction

#: Confidences tried when the price decides.
PRICED = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)


def place(
    cluster: Cluster | str | Path,
    requests: Iterable[Request] | str | Path,
    library: ModelLibrary | str | Path,
    policy: str = "predicted",
    *,
    profiles: Sequence[PartitionProfile] | str | Path = (),
    **options: Unpack[DecisionOptions],
) -> Placer:
    """Place requests on an empty cluster; the placer returned has decisions and layout, and can go on.

    `cluster`, `requests`, `library`, `profiles`: values, or files and folders that hold them. `options`: fields of
    `PlacerSettings`. Raises ConfigurationError, UnknownNameError and InvalidValueError for what makes no sense in them.
    """
    servers = read_cluster(cluster) if isinstance(cluster, (str, Path)) else cluster
    batch = read_requests(requests) if isinstance(requests, (str, Path)) else tuple(requests)
    opened = load_library(library) if isinstance(library, (str, Path)) else library
    curves = load_profiles(profiles) if isinstance(profiles, (str, Path)) else profiles
    check_model(opened, policy, options.get("model", DEFAULT_MODEL))
    placer = Placer(opened, servers, policy, profiles=curves, **options)
    placer.place_all(batch)
    return placer


@dataclass(frozen=True)
class Priced(Stored):
    """What a batch of requests costs if it is placed at one confidence: servers, and expected broken promises."""

    #: Probability with which all SLOs of a socket hold.
    confidence: float
    #: Requests that found a place.
    placed: int
    #: Cost of the servers in use.
    servers: float
    #: Expected number of servers with a broken promise (`Placer.breaking`).
    broken: float
    #: Cost of servers and broken promises together, in the unit of a server's cost.
    cost: float


def place_at_price(
    cluster: Cluster | str | Path,
    requests: Iterable[Request] | str | Path,
    library: ModelLibrary | str | Path,
    policy: str = "predicted",
    *,
    price_per_broken: float,
    profiles: Sequence[PartitionProfile] | str | Path = (),
    **options: Unpack[DecisionOptions],
) -> tuple[Placer, tuple[Priced, ...]]:
    """Place requests at the confidence with the lowest total cost of servers and broken promises.

    A plan is made for each confidence of :data:`PRICED`. Plans are ranked by requests placed, then by cost.

    Parameters
    ----------
    cluster, requests, library, policy, profiles, **options
        As for :func:`place`; `confidence` is chosen.
    price_per_broken : float
        Cost of a server that breaks a promise, as a multiple of a server whose `cost` is 1.

    Returns
    -------
    placer : Placer
        The cheapest.
    priced : tuple of Priced
        All that were planned, by confidence.

    Raises
    ------
    ConfigurationError, UnknownNameError, InvalidValueError
        As :func:`place`; for a price below 0, a confidence given, and a policy that does not predict.
    """
    if not price_per_broken >= 0.0:
        raise InvalidValueError(f"price_per_broken is {price_per_broken}, needed 0 or more", hint="in servers")
    if "confidence" in options:
        raise InvalidValueError("a confidence and a price: the price chooses the confidence", hint="give one of them")
    if not policy_class(policy).predicts:
        raise InvalidValueError(f"policy '{policy}' does not predict what breaks", hint="--policy predicted")
    servers = read_cluster(cluster) if isinstance(cluster, (str, Path)) else cluster
    batch = read_requests(requests) if isinstance(requests, (str, Path)) else tuple(requests)
    opened = load_library(library) if isinstance(library, (str, Path)) else library
    costs = {server.name: server.cost for server in servers.servers}
    made = []
    for confidence in PRICED:
        chosen: DecisionOptions = {**options, "confidence": confidence}
        placer = place(servers, batch, opened, policy, profiles=profiles, **chosen)
        cost, broken = sum(costs[name] for name in placer.layout()), sum(placer.breaking().values())
        total = cost + price_per_broken * broken
        made.append((placer, Priced(confidence, len(placer.requests), cost, broken, total)))
    best = min(made, key=lambda each: (-each[1].placed, each[1].cost, -each[1].confidence))
    return best[0], tuple(priced for _, priced in made)


def make_judge(
    testbed: "str | Testbed" = "simulated",
    own: "Iterable[NetworkFunction] | NetworkFunction" = (),
    *,
    machines: Iterable[Machine] = (),
    seed: int = 0,
    jobs: int | None = 1,
    scheduler: str | None = None,
) -> Judge:
    """Return a function that runs placed mixes on a testbed; `simulated` is a simulator of each machine type.

    `own`: additional network functions. `machines`: additional machine types; those of a cluster are
    `cluster.machine_types.values()`. `jobs`: processes that run mixes, on every core if None or 0; judgements do not
    depend on it. `scheduler`: address of a Dask scheduler whose workers run them instead.
    """
    if testbed == "simulated":
        need("pandas", "numba", extra="simulate")  # not `data` for the first of them
    run = _MixRunner(testbed, tuple(machines), own_functions(own), seed)
    each = partial(spread, jobs=jobs, scheduler=scheduler)
    return Judge(run, fingerprint=lambda name: run.machine(name).fingerprint, each=each)


@dataclass(frozen=True)
class _MixRunner:
    """Runs each mix on the testbed of its server's machine type."""

    testbed: "str | Testbed"
    machines: tuple[Machine, ...]
    own: "tuple[NetworkFunction, ...]"
    seed: int

    def machine(self, name: str) -> Machine:
        return next((machine for machine in self.machines if machine.name == name), None) or load_machine(name)

    def __call__(self, colocation: Colocation) -> RunRecord:
        opened = (
            _opened(self.testbed, self.machine(colocation.machine), self.own)
            if isinstance(self.testbed, str)
            else self.testbed
        )
        return opened.run(colocation, seed=self.seed)


@lru_cache(maxsize=16)
def _opened(testbed: str, machine: Machine, own: "tuple[NetworkFunction, ...]") -> "Testbed":
    from slomo.testbed.registry import make_testbed

    return make_testbed(testbed, machine, own)


def compare(
    cluster: Cluster,
    requests: Sequence[Request],
    library: ModelLibrary,
    policies: Sequence[str],
    *,
    profiles: Sequence[PartitionProfile] = (),
    judge: Judge | None = None,
    **options: Unpack[DecisionOptions],
) -> list[Judgement]:
    """Place the same requests by several policies, and run all placements on the same testbed.

    The other parameters are those of :func:`place`, as values. `judge` runs the mixes; by default `make_judge()` for
    the cluster's machines.
    """
    made = judge or make_judge(machines=cluster.machine_types.values())
    judgements = []
    for policy in policies:
        check_model(library, policy, options.get("model", DEFAULT_MODEL))
    for policy in policies:
        placer = Placer(library, cluster, policy, profiles=profiles, observe=made.throughput, **options)
        begun = time.perf_counter()
        placer.place_all(requests)
        took_s = time.perf_counter() - begun
        judged = made.judge(placer, requests=len(requests), decision_ms=asked_times(placer, requests))
        judgements.append(replace(judged, batch_s=took_s))
    return judgements


def check_model(library: ModelLibrary, policy: str, model: str) -> None:
    """Raise an error if no function in the library has a sensitivity model of this name."""
    kind = policy_class(policy)
    names = {name for model_of_nf in library.values() for name in model_of_nf.sensitivity}
    if kind.predicts and kind.model is None and names and model not in (*names, DEFAULT_MODEL):
        raise UnknownNameError("model in the library", model, names, also=method_hint(model))
