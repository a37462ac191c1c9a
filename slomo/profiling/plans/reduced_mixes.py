"""Plans in which network functions are offered less than they can serve.

SLOMO (SIGCOMM'20) profiles and evaluates at full load. On a real server some tenants are below saturation: their queues
are short, and packets are read and sent before they leak to memory. These tenants therefore exert less pressure on
others than at full load; runs beside the synthetic competitor measure this pressure. Their throughput equals their
arrival rate, and only mixes show how much this rate varies between measurements (`slomo.models.responses.arrivals`).
"""

from collections.abc import Sequence

import numpy as np

from slomo.errors import InvalidValueError, MissingMetricError
from slomo.profiling.plans.basic import Stream, random_mix, stream_of
from slomo.profiling.plans.designs import MOST_INSTANCES
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.profiling.plans.sources import DEFAULT_POINTS, sources
from slomo.records.dataset import ProfileDataset
from slomo.records.rows import SYNTHETIC
from slomo.records.schema import Plan, isolated
from slomo.units import plural
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.workload import Workload

#: Least and largest load of a network function at reduced load, over its solo throughput.
LOADS = (0.15, 0.95)
#: Least number of runs of a profile from which part-load runs are taken.
_FEWEST = 40
_DIGITS = 5  # of an offered load [Mpps]: ten packets per second
_DRAWS = 200  # tries for one mix that is in the stream


def part_load_runs(design: object, runs: int | None) -> int:
    """Return how many runs of a profile offer the target less than it can serve."""
    count = DEFAULT_POINTS if runs is None else runs
    return count // 4 if design == "sources" and count >= _FEWEST else 0


def part_load_plan(
    dataset: ProfileDataset,
    runs: int,
    *,
    machine: str | Machine | None = None,
    replicates: int = 1,
    seed: int = 0,
) -> ExperimentPlan:
    """Return the plan that runs targets at 15 to 95 % of their solo throughput beside the synthetic competitor.

    Arguments and errors are those of :func:`reduced_mixes_plan`; `runs`: points of design `sources` per network
    function, other ones than of the same seed at full load.
    """
    name, solo = _solo_mpps(dataset)
    chosen = load_machine(machine or name)
    draw = np.random.default_rng([seed, 0x70617274])
    points = sources(chosen, runs, int(draw.integers(2**31)), min(MOST_INSTANCES, chosen.cores_per_socket - 1))
    colocations = [
        Colocation(name, _offered(workload, float(draw.uniform(*LOADS)) * mpps), point.competitors)
        for workload, mpps in solo.items()
        for point in points
    ]
    return ExperimentPlan("pressure", tuple(dict.fromkeys(colocations)), replicates=replicates, seed=seed)


def reduced_mixes_plan(
    dataset: ProfileDataset,
    count: int,
    sizes: Sequence[int] = tuple(range(1, MOST_INSTANCES + 1)),
    *,
    machine: str | Machine | None = None,
    stream: Stream = "calibration",
    replicates: int = 1,
    seed: int = 0,
) -> ExperimentPlan:
    """Return a plan of random mixes in which about half the tenants are offered 15 to 95 % of their solo throughput.

    At least one tenant of every mix is; the others run at full load. Mixes are drawn as in `plans.mixes_plan`.

    `dataset`: solo runs at full load, on one machine. `machine`: where it is none of the shipped ones. `sizes`,
    `stream`, `replicates` and `seed`: as in `plans.mixes_plan`; a mix is in the same half at any load, and the seed
    also draws loads. Raises MissingMetricError without solo runs at full load; InvalidValueError for solo runs on
    several machines, or a number that is impossible.

    >>> from slomo.profiling.campaign.run import run_campaign
    >>> from slomo.profiling.plans.basic import solo_plan
    >>> from slomo.testbed.registry import make_testbed
    >>> solo = run_campaign(solo_plan(["lpm", "stats", "l2fwd"], "e5-2620v4"), make_testbed("simulated"))
    >>> plan = reduced_mixes_plan(solo, 6, sizes=(1, 2))
    >>> [any(tenant.traffic.offered_mpps for tenant in mix.tenants) for mix in plan.colocations]
    [True, True, True, True, True, True]
    """
    name, solo = _solo_mpps(dataset)
    chosen = load_machine(machine or name)
    fitting = [size for size in sizes if 1 <= size < chosen.cores_per_socket]
    if count < 1 or not fitting:
        raise InvalidValueError(
            f"mixes at reduced load: {count} of sizes {list(sizes)}, needed 1 or more of 1 to "
            f"{chosen.cores_per_socket - 1} competitors"
        )
    kinds = list(solo)
    generator = np.random.default_rng([seed, 0x6C6F6164])
    drawn_mixes: dict[str, Colocation] = {}
    while fitting and len(drawn_mixes) < count:
        for size in tuple(fitting)[: count - len(drawn_mixes)]:
            mixes = (random_mix(kinds, name, size, generator) for _ in range(_DRAWS))
            mix = next((mix for mix in mixes if stream_of(mix) == stream), None)
            if mix is None:
                fitting.remove(size)  # all mixes of this size are in the other stream
            else:
                loaded = _reduced(mix, solo, generator)
                drawn_mixes[loaded.key] = loaded
    if not drawn_mixes:
        raise InvalidValueError(
            f"mixes at reduced load: {plural(len(kinds), 'network function')} in sizes {list(sizes)} "
            f"give none for '{stream}'",
            hint="give more network functions or sizes",
        )
    return ExperimentPlan(f"reduced-{stream}", tuple(drawn_mixes.values()), replicates=replicates, seed=seed)


def _solo_mpps(dataset: ProfileDataset) -> tuple[str, dict[Workload, float]]:
    """Return the machine, and every network function's solo throughput [Mpps]."""
    frame = dataset.frame
    frame = frame[(frame["plan"] == Plan.SOLO) & frame["offered_mpps"].isna() & (frame["throughput_mpps"] > 0.0)]
    frame = frame[~isolated(frame) & ~frame["nf"].str.startswith(SYNTHETIC)]
    machines = [str(name) for name in frame["machine"].unique()]
    if not machines:
        raise MissingMetricError(
            "the dataset has no solo run at full load, so there is no load to offer", hint="profile it first"
        )
    if len(machines) > 1:
        raise InvalidValueError(
            f"mixes at reduced load are of one machine, the dataset has {', '.join(machines)}",
            hint="select one machine of it",
        )
    medians = frame.groupby("target", sort=False)["throughput_mpps"].median()
    return machines[0], {dataset.workload(str(key)): float(mpps) for key, mpps in medians.items()}


def _reduced(mix: Colocation, solo: dict[Workload, float], generator: np.random.Generator) -> Colocation:
    """Offer about half of the tenants, at least one, a random share of their solo throughput."""
    chosen = generator.random(len(mix.tenants)) < 0.5
    chosen[generator.integers(len(chosen))] = True
    shares = generator.uniform(*LOADS, len(chosen))
    tenants = [
        _offered(workload, float(share) * solo[workload]) if less else workload
        for workload, less, share in zip(mix.tenants, chosen, shares, strict=True)
    ]
    return Colocation(mix.machine, tenants[0], tuple(tenants[1:]))


def _offered(workload: Workload, mpps: float) -> Workload:
    return workload.offered(max(round(mpps, _DIGITS), 10.0**-_DIGITS))
