"""Designs: the settings of the synthetic competitor beside which a network function is measured.

SLOMO (SIGCOMM'20, section 4.1) sweeps a grid of data sizes, accesses and instances. `slomo_grid` has its published
levels; `grid` spends the same budget on levels that include the mild pressure of real network functions.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.vocabulary.knobs import knob
from slomo.vocabulary.vector import Floats
from slomo.vocabulary.wire import mpps_of_gbps
from slomo.vocabulary.workload import Setting, Traffic, Workload

SYNTHETIC = "synthetic"
MOST_POINTS = 100_000  # of a Sobol design: days of simulation already
MOST_INSTANCES = 7  # SLOMO's machines have eight cores a socket, one of them the target's

#: SLOMO's published levels: 7 x 3 x 4 settings, by 7 numbers of instances, are 588 runs.
SLOMO_LEVELS: Mapping[str, Sequence[Setting]] = {
    "data_size_mib": (2, 4, 6, 8, 10, 15, 20),
    "reads_per_packet": (1000, 5000, 10000),
    "iterations": (1, 2, 5, 10),
}
#: Levels of the I/O path, which SLOMO varies separately: from buffers that fit into the DDIO ways to many times their
#: size.
IO_LEVELS: Mapping[str, Sequence[Setting]] = {
    "packet_buffers": (512, 2048, 8192, 32768),
    "packet_size_b": (64, 512, 1500),
}
#: The default, 7 x (7 x 3 x 3 + 7 x 3) = 588 runs too. At SLOMO's levels one core accesses the cache 130 million times
#: a second; network functions of ResQ's Table 1 do so 0.6 to 38 million times, over data that together fill the cache.
#: So these levels have fewer reads, at rates from very low to saturation (0), over sizes from a private L2's to far
#: beyond the LLC ...
LEVELS: Mapping[str, Sequence[Setting]] = {
    "data_size_mib": (0.5, 2, 4, 8, 16, 32, 64),
    "reads_per_packet": (2, 10, 50),
    "rate_mpps": (0.4, 1.6, 0),
}
#: ... and larger packets in more buffers than the DDIO ways hold, at a rate of which a 40 Gbit/s port carries seven
#: times.
PACKET_LEVELS: Mapping[str, Sequence[Setting]] = {
    "data_size_mib": (0.5, 2, 4, 8, 16, 32, 64),
    "reads_per_packet": (10,),
    "rate_mpps": (0.4,),
    "packet_buffers": (4096,),
    "packet_size_b": (256, 512, 1500),
}
#: Ranges of the Sobol design, all drawn on a logarithmic scale.
RANGES: Mapping[str, tuple[float, float]] = {
    "data_size_mib": (0.25, 64.0),
    "reads_per_packet": (1.0, 200.0),
    "writes_per_packet": (0.25, 20.0),
    "rate_mpps": (0.1, 20.0),
    "packet_buffers": (256.0, 8192.0),
    "packet_size_b": (64.0, 1500.0),
}
#: A Sobol competitor offers at most one eighth of a 40 Gbit/s port [Gbit/s].
_SHARE_GBPS = 5.0
DESIGNS = ("grid", "slomo-grid", "sobol", "sources", "farthest", "link")
#: Those which ask the machine: `slomo.profiling.plans.sources`, `slomo.profiling.plans.basic`.
OF_MACHINES = ("sources", "farthest", "link")


@dataclass(frozen=True)
class Pressure:
    """One setting of a design: a synthetic competitor, and how many instances of it run.

    Raises InvalidValueError for less than one instance.

    >>> Pressure(Workload("stats"), 2).competitors
    (Workload(...), Workload(...))
    """

    workload: Workload
    instances: int

    def __post_init__(self) -> None:
        if self.instances < 1:
            raise InvalidValueError(f"instances of '{self.workload.nf}' is {self.instances}, needed 1 or more")

    @property
    def competitors(self) -> tuple[Workload, ...]:
        """The competitors of the setting: one workload per instance."""
        return (self.workload,) * self.instances


Design = tuple[Pressure, ...]


def competitor(settings: Mapping[str, Setting]) -> Workload:
    """Return the synthetic competitor with these settings of its knobs.

    >>> competitor({"data_size_mib": 8.0, "packet_size_b": 512}).key
    'synthetic(data_size_mib=8)@512B,100000f'
    """
    checked = {name: _plain(knob(name).check(value)) for name, value in settings.items()}
    size_b = checked.pop("packet_size_b", Traffic().packet_size_b)
    return Workload(SYNTHETIC, checked, Traffic(packet_size_b=int(size_b)))


def grid(levels: Mapping[str, Sequence[Setting]] | None = None, instances: int = MOST_INSTANCES) -> Design:
    """Return every combination of knobs' levels, by default :data:`LEVELS`, with 1 to `instances` instances.

    >>> len(grid()), len(grid({"data_size_mib": [2, 4]}, instances=3))
    (588, 6)
    """
    blocks = (LEVELS, PACKET_LEVELS) if levels is None else (levels,)
    settings = [
        dict(zip(block, values, strict=True)) for block in blocks for values in itertools.product(*block.values())
    ]
    require_instances(instances)
    workloads = [competitor(setting) for setting in settings]
    return tuple(Pressure(workload, count) for workload in workloads for count in range(1, instances + 1))


def slomo_grid(instances: int = MOST_INSTANCES, io: bool = False) -> Design:
    """Return SLOMO's published grid, 588 settings; with `io` also 84 that vary packet buffers.

    >>> len(slomo_grid()), len(slomo_grid(io=True))
    (588, 672)
    """
    return grid(SLOMO_LEVELS, instances) + (grid(IO_LEVELS, instances) if io else ())


def sobol(points: int, seed: int = 0, instances: int = MOST_INSTANCES) -> Design:
    """Return a scrambled Sobol sequence over all settings that cause pressure.

    It spreads any number of points evenly, while a grid must drop whole levels (I. M. Sobol', 1967; Owen's scrambling).
    """
    if not 1 <= points <= MOST_POINTS:
        raise InvalidValueError(f"Sobol design: points is {points}, needed 1 to {MOST_POINTS}")
    require_instances(instances)
    return tuple(point_at(row, instances) for row in spread(points, len(RANGES) + 1, np.random.default_rng(seed)))


def spread(points: int, axes: int, draw: np.random.Generator) -> Floats:
    """Return points of the unit cube, shape (points, axes): a scrambled Sobol sequence."""
    from scipy.stats import qmc  # heavy, and only needed here

    sequence = qmc.Sobol(axes, scramble=True, rng=draw)
    return np.asarray(sequence.random_base2(max(1, math.ceil(math.log2(points))))[:points])


def point_at(place: Sequence[float], instances: int = MOST_INSTANCES) -> Pressure:
    """Return the setting at a point of the unit cube: knobs and instances on logarithmic scales, as their pressure is.

    >>> point_at([0.5] * 6 + [1.0]).workload.configuration["data_size_mib"], point_at([0.5] * 6 + [1.0]).instances
    (4, 7)
    """
    count = int((instances + 1) ** float(place[-1]))  # a third of all points has one instance, as questions do
    drawn = {
        name: low * (high / low) ** float(share)
        for (name, (low, high)), share in zip(RANGES.items(), place[:-1], strict=True)
    }
    drawn["rate_mpps"] = min(drawn["rate_mpps"], mpps_of_gbps(_SHARE_GBPS, drawn["packet_size_b"]))
    rounded = {name: round(value, 3) if knob(name).kind == "real" else round(value) for name, value in drawn.items()}
    return Pressure(competitor(rounded), min(instances, count))


def make_design(
    design: str | Design, runs: int | None = None, seed: int = 0, instances: int = MOST_INSTANCES
) -> Design:
    """Return a design (``"grid"``, ``"slomo-grid"``, ``"sobol"``, or one's own) with at most `instances` instances.

    A grid is thinned to `runs` points at random; a Sobol design is made of them (588 if not given).
    """
    if design == "sobol":
        return sobol(len(grid()) if runs is None else runs, seed, instances)
    if isinstance(design, str):
        if design not in DESIGNS or design in OF_MACHINES:
            raise UnknownNameError("design", design, DESIGNS)
        points = grid(instances=instances) if design == "grid" else slomo_grid(instances)
    else:
        points = tuple(point for point in design if point.instances <= instances)
    return points if runs is None else thinned(points, runs, seed)


def thinned(design: Design, runs: int, seed: int = 0) -> Design:
    """Return `runs` random settings of a design, in its order; InvalidValueError if it does not have so many."""
    if not 1 <= runs <= len(design):
        raise InvalidValueError(
            f"runs is {runs}, needed 1 to {len(design)}, the points of this design",
            hint="a Sobol design has any number of points",
        )
    chosen = np.random.default_rng(seed).choice(len(design), runs, replace=False)
    return tuple(design[index] for index in sorted(chosen))


def require_instances(instances: int) -> None:
    """Raise an error for less than one instance."""
    if instances < 1:
        raise InvalidValueError(f"instances is {instances}, needed 1 or more")


def _plain(value: Setting) -> Setting:
    """Return 4 for 4.0, so that equal settings have equal fingerprints."""
    return int(value) if isinstance(value, float) and value == int(value) else value
