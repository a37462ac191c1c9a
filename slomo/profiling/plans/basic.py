"""The three basic plans: network functions alone, beside the synthetic competitor, and in mixes.

SLOMO (SIGCOMM'20): solo and pressure runs train the models (section 4.1), mixes of different network functions test
them (section 6). No mix is used both to calibrate intervals and to test predictions.

Design `link` has all data on another socket's memory. SLOMO (SIGCOMM'20, section 5.1) selects metrics on the sources of
contention of one socket. A function whose memory is on the other node has two more sources. One is the link, which
tenants on the function's own socket use too; its pressure is the link's utilisation. The other is the memory channels
of the other node, which cores there use without the link; their pressure is the latency of misses.

Yala (ASPLOS'25) profiles every resource separately; the competitor here does not press on memory.
"""

import hashlib
from collections.abc import Sequence
from operator import attrgetter
from typing import Literal

import numpy as np

from slomo.errors import InvalidValueError
from slomo.profiling.plans.designs import MOST_INSTANCES, Design, make_design
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.profiling.plans.sources import DEFAULT_POINTS, FEW_POINTS, farthest, memory_pressures, sources
from slomo.records.importing.competitors import named_competitors
from slomo.units import plural
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.workload import Traffic, Workload

Stream = Literal["calibration", "test"]
Neighbours = Literal["unlike", "like", "packed"]
STREAMS: tuple[Stream, ...] = ("calibration", "test")
_DRAWS = 200  # tries for one mix that is new and in the stream
_MOST_KINDS = 3  # of a mix that repeats kinds
_SMALL = 2  # neighbours: the commonest questions, and few different mixes, of few rows each


def solo_plan(
    targets: Sequence[Workload | str], machine: str | Machine, *, replicates: int = 1, seed: int = 0
) -> ExperimentPlan:
    """Return the plan that runs every target alone.

    >>> len(solo_plan(["lpm", "stats"], "e5-2620v4"))
    2
    """
    name = load_machine(machine).name
    colocations = tuple(Colocation(name, workload) for workload in _workloads(targets))
    return ExperimentPlan("solo", colocations, replicates=replicates, seed=seed)


def pressure_plan(
    target: Workload | str | Sequence[Workload | str],
    machine: str | Machine,
    design: str | Design = "sources",
    *,
    runs: int | None = None,
    replicates: int = 1,
    seed: int = 0,
) -> ExperimentPlan:
    """Return the plan that runs targets beside settings of the synthetic competitor, and once alone.

    Parameters
    ----------
    target : Workload, str or sequence of them
        Network function or functions.
    machine : str or Machine
        Machine to run on, with cores for the target and the design's competitors.
    design : str or Design
        ``"sources"`` (`sources.sources`), ``"farthest"`` (`sources.farthest`), ``"link"`` (`link_plan`), or as in
        `designs.make_design`.
    runs : int, optional
        Points of the design per target.
    replicates, seed : int
        As in `ExperimentPlan`; the seed also thins or scrambles the design.

    Raises
    ------
    UnknownNameError, InvalidValueError
        For a machine or design there is not, or an impossible number.

    Examples
    --------
    >>> len(pressure_plan("lpm", "e5-2620v4")), len(pressure_plan("lpm", "silver-4110", "sobol", runs=64))
    (589, 65)
    """
    chosen = load_machine(machine)
    targets = _workloads([target] if isinstance(target, Workload | str) else target)
    if design == "link":
        return link_plan(targets, chosen, runs=runs, replicates=replicates, seed=seed)
    most = min(MOST_INSTANCES, chosen.cores_per_socket - 1)
    if design == "sources":
        points = sources(chosen, DEFAULT_POINTS if runs is None else runs, seed, most)
    elif design == "farthest":
        points = farthest(chosen, FEW_POINTS if runs is None else runs, seed, most)
    else:
        points = make_design(design, runs, seed, most)
    if not points:
        raise InvalidValueError(f"the design has no point that fits on '{chosen.name}' beside a target")
    beside = [(), *dict.fromkeys(point.competitors for point in points)]
    colocations = tuple(Colocation(chosen.name, workload, others) for workload in targets for others in beside)
    return ExperimentPlan("pressure", colocations, replicates=replicates, seed=seed)


def mixes_plan(
    nfs: Sequence[Workload | str],
    machine: str | Machine,
    count: int,
    sizes: Sequence[int] = tuple(range(1, MOST_INSTANCES + 1)),
    *,
    stream: Stream = "test",
    like: bool | None = None,
    replicates: int = 1,
    seed: int = 0,
) -> ExperimentPlan:
    """Return a plan of random mixes: each a target beside 1 to 7 competitors.

    Competitors of a mix differ in kind as long as there are enough kinds. If equal neighbours are included, about every
    second mix has neighbours of one kind, and mixes of one and two neighbours are twice as frequent. A fingerprint of
    its tenants (equal for each as target) decides whether a mix tests or calibrates, so the two streams share no mix,
    whatever the seeds.

    `sizes`: numbers of competitors, taken in turn; those the machine has no cores for are left out. `stream`: which
    half of all mixes to draw from. `like`: whether mixes with several neighbours of one kind are among them; by default
    where they calibrate, since errors beside like and few neighbours differ from those in a crowd. `replicates`,
    `seed`: as in `ExperimentPlan`; the seed also draws the mixes. Raises InvalidValueError if there are not that many
    different mixes, or a number is impossible.

    >>> plan = mixes_plan(["lpm", "stats", "ipsec", "snort"], "e5-2620v4", 6, sizes=(1, 2, 3))
    >>> [len(colocation.competitors) for colocation in plan.colocations]
    [1, 2, 3, 1, 2, 3]
    """
    drawn = drawn_mixes(nfs, machine, count, sizes, stream=stream, like=like, seed=seed)
    if len(drawn) == count:
        return ExperimentPlan(f"mixes-{stream}", tuple(drawn), replicates=replicates, seed=seed)
    raise InvalidValueError(
        f"mixes: {count} asked for, but {plural(len(_workloads(nfs)), 'network function')} in sizes {list(sizes)} "
        f"give only about {len(drawn)} different ones for '{stream}'",
        hint="ask for fewer, or give more network functions or sizes",
    )


def drawn_mixes(
    nfs: Sequence[Workload | str],
    machine: str | Machine,
    count: int,
    sizes: Sequence[int] = tuple(range(1, MOST_INSTANCES + 1)),
    *,
    stream: Stream = "test",
    like: bool | None = None,
    packed: bool = False,
    seed: int = 0,
) -> list[Colocation]:
    """Return the mixes of :func:`mixes_plan`, or all there are.

    With `packed`, some mixes repeat one to three kinds, as placement fills servers, and no two have the same tenants.
    """
    chosen = load_machine(machine)
    fitting = tuple(size for size in sizes if size < chosen.cores_per_socket)
    if count < 1 or not fitting or min(fitting) < 1 or stream not in STREAMS:
        raise InvalidValueError(
            f"mixes: {count} of sizes {list(sizes)} from stream '{stream}', needed 1 or more of "
            f"1 to {chosen.cores_per_socket - 1} competitors from one of: {', '.join(STREAMS)}"
        )
    kinds = _workloads(nfs)
    generator = np.random.default_rng([seed, 0x6D6978])
    drawn: dict[str, Colocation] = {}
    shapes = _shapes(fitting, like=stream == "calibration" if like is None else like)
    shapes += [(size, "packed") for size in fitting if packed and size > 1]
    same = tenants_key if packed else attrgetter("key")
    while shapes and len(drawn) < count:
        for size, neighbours in tuple(shapes)[: count - len(drawn)]:
            mixes = (random_mix(kinds, chosen.name, size, generator, neighbours) for _ in range(_DRAWS))
            fresh = next((mix for mix in mixes if stream_of(mix) == stream and same(mix) not in drawn), None)
            if fresh is None:
                shapes.remove((size, neighbours))  # (almost) all mixes of this shape are taken
            else:
                drawn[same(fresh)] = fresh
    return list(drawn.values())


def named_mixes_plan(
    mixes: Sequence[str], machine: str | Machine, *, replicates: int = 1, seed: int = 0
) -> ExperimentPlan:
    """Return the plan of the mixes that are named, such as ``2 x lpm + stats``.

    Raises InvalidValueError for a mix of fewer than two, or of more than a socket has cores.

    >>> [mix.label for mix in named_mixes_plan(["lpm + 2 x stats"], "e5-2620v4").colocations]
    ['lpm@64B,100000f + 2 x stats@64B,100000f on e5-2620v4']
    """
    chosen = load_machine(machine)
    colocations: dict[str, Colocation] = {}
    for text in mixes:
        tenants = named_competitors(text, Traffic())
        if not 2 <= len(tenants) <= chosen.cores_per_socket:
            raise InvalidValueError(
                f"mix '{text}' has {plural(len(tenants), 'network function')}, "
                f"needed 2 to {chosen.cores_per_socket} on '{chosen.name}'",
                hint="write for instance '2 x lpm + stats'",
            )
        mix = Colocation(chosen.name, tenants[0], tenants[1:])
        colocations[mix.key] = mix
    return ExperimentPlan("mixes-named", tuple(colocations.values()), replicates=replicates, seed=seed)


def stream_of(colocation: Colocation) -> Stream:
    """Return whether a mix is for calibration or for tests; its tenants alone decide that."""
    return STREAMS[hashlib.sha256(tenants_key(colocation).encode()).digest()[0] % len(STREAMS)]


def tenants_key(colocation: Colocation) -> str:
    """Return a key of the tenants of a mix, the same whichever of them is the target."""
    return "+".join(sorted(workload.saturated.key for workload in colocation.tenants))


def _shapes(sizes: Sequence[int], *, like: bool) -> list[tuple[int, Neighbours]]:
    """Return how many neighbours the drawn mixes have, and whether all neighbours of a mix are equal."""
    if not like:
        return [(size, "unlike") for size in sizes]
    small = [size for size in sizes if size <= _SMALL]
    both: tuple[Neighbours, ...] = ("unlike", "like")
    return [(size, each) for size in (*small, *sizes) for each in both[: 1 if size == 1 else 2]]


def random_mix(
    kinds: Sequence[Workload],
    machine: str,
    size: int,
    generator: np.random.Generator,
    neighbours: Neighbours = "unlike",
) -> Colocation:
    """Return one random mix of a target and `size` competitors.

    ``unlike`` competitors differ in kind as far as possible; ``like`` ones are of one kind, which may be the target's.
    ``packed`` tenants are of one to three kinds, the target's among them, in any numbers.
    """
    target = kinds[int(generator.integers(len(kinds)))]
    if neighbours == "like":
        return Colocation(machine, target, (kinds[int(generator.integers(len(kinds)))],) * size)
    if neighbours == "packed":
        few = generator.choice(len(kinds), int(generator.integers(1, _MOST_KINDS)))
        kinds = [target, *(kinds[int(index)] for index in few)]
    chosen = generator.choice(len(kinds), size, replace=neighbours == "packed" or size > len(kinds))
    others = sorted((kinds[int(index)] for index in chosen), key=lambda workload: workload.key)
    return Colocation(machine, target, tuple(others))


def _workloads(items: Sequence[Workload | str]) -> tuple[Workload, ...]:
    workloads = tuple(item if isinstance(item, Workload) else Workload(item) for item in items)
    if not workloads:
        raise InvalidValueError("no network function given", hint="name at least one; `slomo nf list` shows them")
    return tuple(dict.fromkeys(workloads))


#: Of every so many points one has competitors on the far socket.
_FAR = 2


def link_plan(
    targets: Sequence[Workload],
    machine: Machine,
    *,
    runs: int | None = None,
    replicates: int = 1,
    seed: int = 0,
) -> ExperimentPlan:
    """Return the plan that runs targets with their memory on another socket, beside competitors on both.

    Competitors beside the target are those of design ``sources``; in every second point others press on the memory from
    its own socket. All data are on that socket; the target alone runs so, too.
    """
    if machine.sockets < 2:
        raise InvalidValueError(
            f"design 'link' needs the memory of another socket, '{machine.name}' has {machine.sockets}",
            hint="choose a machine with two, or design 'sources'",
        )
    points = DEFAULT_POINTS if runs is None else runs
    near, far = machine.nic_socket, (machine.nic_socket + 1) % machine.sockets
    most = min(MOST_INSTANCES, machine.cores_per_socket - 1)
    beside = sources(machine, points, seed, most)
    beyond = memory_pressures(machine, points, seed + 1, most)
    mixes: list[tuple[tuple[Workload, ...], tuple[Workload, ...]]] = [((), ())]
    for number, (here, there) in enumerate(zip(beside, beyond, strict=True)):
        mixes.append((here.competitors, () if number % _FAR else there.competitors))
    colocations = tuple(
        Colocation(
            machine.name,
            target,
            (*here, *there),
            sockets=(near,) * (1 + len(here)) + (far,) * len(there),
            memory_node=far,
        )
        for target in targets
        for here, there in mixes
    )
    return ExperimentPlan("pressure", colocations, replicates=replicates, seed=seed)


#: Accelerators with a competitor `synthetic-<name>`.
ACCELERATORS = ("regex",)
#: Times per request of the competitor [ns], shorter and longer than those of shipped NFs, and numbers of instances.
SERVICES_NS, INSTANCES = (200.0, 500.0, 1000.0, 2000.0), (1, 2)


def accelerator_plan(
    targets: Sequence[Workload], machine: str | Machine, *, replicates: int = 1, seed: int = 0
) -> ExperimentPlan:
    """Return the plan: one run alone, and one per request time and number of instances of the competitor.

    >>> len(accelerator_plan([Workload("flow-monitor-regex")], "e5-2620v4"))
    9
    """
    host = load_machine(machine)
    if host.cores_per_socket < 1 + max(INSTANCES):
        raise InvalidValueError(
            f"machine '{host.name}' has {host.cores_per_socket} cores on a socket, needed {1 + max(INSTANCES)}"
        )
    beside: list[tuple[Workload, ...]] = [()]
    for name in ACCELERATORS:
        for service in SERVICES_NS:
            competitor = Workload(f"synthetic-{name}", {"service_ns": service})
            beside += [(competitor,) * count for count in INSTANCES]
    colocations = tuple(Colocation(host.name, target, others) for target in targets for others in beside)
    return ExperimentPlan("accelerator", colocations, replicates=replicates, seed=seed)
