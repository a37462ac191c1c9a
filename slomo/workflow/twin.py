"""Fit a twin: a simulated network function that behaves like a measured one, from a dozen runs.

The fit is simulation-based least squares over the logarithms of size, reads and parallelism of its data, and of the
reads of data just beyond L2. Compute cycles follow from solo throughput. The function's sensitivity is fitted to the
share of throughput it keeps beside others; its pressure on others is fitted to its own counters, if the dataset has
them. The machine is the dataset's, or one that `slomo doctor --out` wrote; its cache size, memory bandwidth and
latency can be fitted too.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slomo.errors import InvalidValueError, MissingMetricError, UnsupportedPredictionError
from slomo.extras import need
from slomo.records.dataset import ProfileDataset
from slomo.records.run import TenantSample
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.vector import Floats
from slomo.vocabulary.workload import Workload
from slomo.workflow.names import machine_named, machine_of_dataset

FEWEST_RUNS = 6
DEFAULT_RUNS = 12
#: Memory accesses per simulated run; a fit takes some hundred runs.
_ACCESSES = 150_000
_NAMES = ("size_mib", "reads", "mlp", "near_reads")
#: Prior of the machine's parameters if they are fitted: standard deviation of the logarithm. A virtual machine's share
#: of a cache is the most uncertain of them.
_MACHINE_SPREAD = {"llc_mib": 0.5, "memory_peak_gb_s": 0.2, "dram_local_ns": 0.1}
_BOUNDS = np.log([[0.25, 0.25, 1.0, 0.05], [1024.0, 1024.0, 16.0, 256.0]])
#: Distance of a logarithm from an end of these ranges at which the value is that end; largest ratio of an interval's
#: ends if the runs determine a parameter.
_AT_END, _DETERMINED = 0.05, 10.0
_MOST_SPREADS = 3.0
#: Size of the fixed data structure just beyond L2, of which only the number of reads is fitted.
_NEAR_OVER_L2 = 2.0
#: Starting points of the search, all combinations: size [MiB], reads per packet, loads in flight; share of the packet's
#: time that memory takes in one more start, if that is more reads than these.
_STARTS = ((1.0, 4.0, 12.0, 32.0), (2.0, 10.0), (1.0, 4.0))
_WAITING = 0.7
_STEP = 0.15  # of a logarithm: smaller ones drown in the simulator's own scatter
_EVALUATIONS = 8
_FIRST_CYCLES = 300.0
#: Steps to the compute cycles that match solo throughput; noise of the twin's solo throughput; largest mismatch; both
#: relative.
_SOLO_STEPS, _SOLO_NOISE, _MOST_SOLO_ERROR = 4, 0.005, 0.02
_Z90 = 1.645
#: Smallest noise assumed of measured shares of throughput.
_LEAST_NOISE = 0.005
#: The function's own counters that tell its pressure on others; their relative noise; the share of L2 misses below
#: which they are ignored.
_OWN, _OWN_NOISE, _OWN_FLOOR = ("L2MISS", "L3MISS", "L3OCC"), 0.1, 0.05


@dataclass(frozen=True)
class FittedParameter:
    """One parameter of a twin, with its 90 % interval."""

    #: ``size_mib``, ``reads`` (per packet), ``mlp`` (loads in flight), ``near_reads`` (of data just beyond L2), and
    #: where the machine was fitted its ``llc_mib``, ``memory_peak_gb_s`` and ``dram_local_ns``.
    name: str
    #: Fitted value, and its interval.
    value: float
    low: float
    high: float
    #: Whether the value is an end of the range of possible ones.
    at_end: bool = False

    @property
    def determined(self) -> bool:
        """Whether the runs determine the parameter: a narrow interval, away from the ends of its range."""
        return not self.at_end and self.high <= _DETERMINED * self.low


@dataclass(frozen=True)
class Twin:
    """A simulated network function fitted to measurements."""

    #: The twin, to simulate, place and ask what-if questions with.
    function: NetworkFunction
    #: What was fitted.
    parameters: tuple[FittedParameter, ...]
    #: Measured runs it was fitted to.
    runs: int
    #: Mean absolute error of the share of solo throughput in these runs [points].
    error_points: float
    #: Mean loss of the function in these runs [points]; runs that lose less than their noise determine nothing.
    lost_points: float
    #: Noise of one run [points].
    noise_points: float
    #: The machine of the fit, with fitted parameters if that was asked for.
    machine: Machine
    #: Solo throughput of the twin over that of the function, less 1; at most 2 % either way.
    solo_error: float = 0.0

    @property
    def tells(self) -> bool:
        """Whether the function lost more throughput than measurement noise; else any twin would fit the runs."""
        return self.lost_points > self.noise_points

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a mapping that can be written as JSON."""
        fitted = {
            item.name: {"value": item.value, "low": item.low, "high": item.high, "determined": item.determined}
            for item in self.parameters
        }
        names = ("runs", "error_points", "lost_points", "noise_points", "tells", "solo_error")
        stated = {name: getattr(self, name) for name in names}
        return {
            "function": self.function.to_dict(),
            "parameters": fitted,
            **stated,
            "machine": self.machine.to_dict(),
        }


@dataclass(frozen=True)
class _Measured:
    """The measurements that the twin is fitted to."""

    machine: Machine
    workload: Workload
    solo_mpps: float
    competitions: Sequence[tuple[Workload, ...]]
    shares: Floats
    noise: Floats
    own: Mapping[str, Floats]
    fits_machine: bool


def fit_twin(
    dataset: ProfileDataset, nf: str, *, machine: str | Machine | None = None, runs: int = DEFAULT_RUNS,
    fit_machine: bool = False,
) -> Twin:  # fmt: skip
    """Fit a simulated network function to the runs of a dataset.

    `dataset`: its solo and pressure rows are used. `nf`: name or workload key of the target. `machine`: the dataset's
    own by default. `runs`: runs beside the synthetic competitor to fit to, spread evenly over their slowdowns.
    `fit_machine`: whether the machine's cache, memory bandwidth and latency are fitted as well, near what is stated of
    them.
    """
    need("scipy")
    from scipy.optimize import least_squares  # heavy, and only needed here

    measured = _measured(dataset, nf, machine, runs, fit_machine)

    @functools.cache
    def remembered(values: tuple[float, ...]) -> Floats:
        return _residuals(np.array(values), measured)

    def residuals(logarithms: Floats) -> Floats:
        return remembered(tuple(np.exp(logarithms)))

    bounds = _bounds(measured)
    start = min(_starts(measured), key=lambda point: float(np.square(_residuals(point, _few(measured))).sum()))
    fitted = least_squares(
        residuals, np.clip(np.log(start), bounds[0] + 1e-3, bounds[1] - 1e-3), bounds=(bounds[0], bounds[1]),
        jac=lambda point: _slopes(residuals, point, bounds[1]), loss="soft_l1", max_nfev=_EVALUATIONS,
    )  # fmt: skip
    return _twin(np.exp(fitted.x), _spread(fitted.jac, fitted.fun), measured, nf)


def _twin(values: Floats, spread: Floats, measured: _Measured, nf: str) -> Twin:
    there = _on(values, measured)
    function = _function(values, _cycles(values, there), there, nf)
    alone_mpps = _runner(function, there)(()).throughput_mpps
    solo_error = alone_mpps / measured.solo_mpps - 1.0
    if abs(solo_error) > _MOST_SOLO_ERROR:
        raise UnsupportedPredictionError(
            f"no twin of '{nf}': alone it makes {alone_mpps:.4g} Mpps, measured are {measured.solo_mpps:.4g} "
            f"({100.0 * solo_error:+.0f} %), whatever its data and compute cycles",
            hint="fit the machine along (--fit-machine): its memory is slower or faster than stated, or check the unit "
            "of the measured rate",
        )
    errors = np.abs(_residuals(values, measured)[: len(measured.shares)] * measured.noise)
    stated = {name: getattr(measured.machine, name) for name in _MACHINE_SPREAD} if measured.fits_machine else {}
    units = dict.fromkeys(_NAMES, 1.0) | stated
    ends = np.abs(np.log(values) - _bounds(measured)).min(axis=0) < _AT_END
    parameters = tuple(
        FittedParameter(name, value * unit, value * unit * math.exp(-s), value * unit * math.exp(s), bool(end))
        for (name, unit), value, s, end in zip(units.items(), map(float, values), _Z90 * spread, ends, strict=True)
    )
    return Twin(
        function,
        parameters,
        runs=len(measured.shares),
        error_points=float(100.0 * errors.mean()),
        lost_points=float(100.0 * (1.0 - measured.shares).mean()),
        noise_points=float(100.0 * measured.noise.mean()),
        machine=there.machine,
        solo_error=solo_error,
    )


def _measured(
    dataset: ProfileDataset, nf: str, machine: str | Machine | None, runs: int, fits_machine: bool
) -> _Measured:
    if runs < FEWEST_RUNS:
        raise InvalidValueError(f"a twin is fitted to {runs} runs, needed {FEWEST_RUNS} or more")
    rows = dataset.select(target=nf)
    pressed = rows.select(plan="pressure") if "pressure" in set(rows.frame["plan"]) else None
    if pressed is None or len(pressed) < FEWEST_RUNS:
        count = 0 if pressed is None else len(pressed)
        raise MissingMetricError(
            f"'{nf}' was measured {count} times beside the synthetic competitor, a twin needs {FEWEST_RUNS}",
            hint="`slomo profile NF --plan pressure --runs 12` measures a dozen settings",
        )
    target = pressed.targets[0]
    pressed = pressed.select(target=target)
    solo = dataset.solo_mpps(target)
    shares = np.minimum(pressed.throughput / solo, 1.2)
    order = np.argsort(shares)
    picked = order[np.unique(np.linspace(0, len(order) - 1, min(runs, len(order))).round().astype(int))]
    noise = np.nan_to_num(pressed.frame["throughput_cv"].to_numpy(dtype=float)) * shares
    return _Measured(
        machine=machine_of_dataset(dataset, pressed.machines[0]) if machine is None else machine_named(machine),
        workload=pressed.workload(target),
        solo_mpps=solo,
        competitions=[pressed.competitors(int(row)) for row in picked],
        shares=shares[picked],
        noise=np.maximum(np.median(noise), _LEAST_NOISE) * np.ones(len(picked)),
        own=_own(rows.select(target=target, plan="solo"), pressed, picked),
        fits_machine=fits_machine,
    )


def _own(solo: ProfileDataset, pressed: ProfileDataset, picked: Floats) -> dict[str, Floats]:
    """Return the function's own counters: alone, then for each of the chosen runs."""
    values: dict[str, Floats] = {}
    for name in _OWN:
        alone, beside = (part.frame[f"own.{name}"].to_numpy(dtype=float) for part in (solo, pressed))
        counters = np.append(np.median(alone) if len(alone) else np.nan, beside[picked])
        if np.isfinite(counters).all() and counters.max() > 0.0:
            values[name] = counters
    return values


def _few(measured: _Measured) -> _Measured:
    """Return every third run, enough to compare starting points of the fit."""
    own = {name: np.append(values[:1], values[1::3]) for name, values in measured.own.items()}
    own = {name: values for name, values in own.items() if values.max() > 0.0}
    return replace(
        measured,
        competitions=measured.competitions[::3],
        shares=measured.shares[::3],
        noise=measured.noise[::3],
        own=own,
    )


def _starts(measured: _Measured) -> list[Floats]:
    sizes, reads, parallel = _STARTS
    stated = np.ones(len(_MACHINE_SPREAD) if measured.fits_machine else 0)
    points = [(size, read, mlp) for size in sizes for read in reads for mlp in parallel]
    waiting = _WAITING * 1e3 / (measured.solo_mpps * measured.machine.dram_local_ns)
    points += [(sizes[-1], waiting * mlp, mlp) for mlp in parallel if waiting * mlp > reads[-1]]
    return [np.array([*point, 1.0, *stated]) for point in points]


def _bounds(measured: _Measured) -> Floats:
    if not measured.fits_machine:
        return _BOUNDS
    most = _MOST_SPREADS * np.array(list(_MACHINE_SPREAD.values()))
    return np.concatenate([_BOUNDS, [-most, most]], axis=1)


def _on(values: Floats, measured: _Measured) -> _Measured:
    """Return the measurements, on a machine with the fitted values of its parameters."""
    if not measured.fits_machine:
        return measured
    factors = zip(_MACHINE_SPREAD, map(float, values[len(_NAMES) :]), strict=True)
    numbers = {name: round(getattr(measured.machine, name) * factor, 4) for name, factor in factors}
    return replace(measured, machine=replace(measured.machine, **numbers))


def _residuals(values: Floats, measured: _Measured) -> Floats:
    """Return how far the twin is from the measurements, in units of their noise."""
    there = _on(values, measured)
    run = _runner(_function(values, _cycles(values, there), there, measured.workload.nf), there)
    seen = [run(competitors) for competitors in ((), *measured.competitions)]
    shares = np.array([sample.throughput_mpps for sample in seen[1:]]) / seen[0].throughput_mpps
    parts = [(shares - measured.shares) / measured.noise]
    for name, counters in measured.own.items():
        floor = _OWN_FLOOR * counters.max()
        simulated = np.array([sample.vector[name] for sample in seen])
        parts.append(np.log((simulated + floor) / (counters + floor)) / _OWN_NOISE)
    parts.append(np.array([math.log(seen[0].throughput_mpps / measured.solo_mpps) / _SOLO_NOISE]))
    if measured.fits_machine:
        parts.append(np.log(values[len(_NAMES) :]) / np.array(list(_MACHINE_SPREAD.values())))
    return np.concatenate(parts)


def _slopes(residuals: Callable[[Floats], Floats], point: Floats, highest: Floats) -> Floats:
    """Return the Jacobian by steps of fixed size; scipy's are relative to the values, which may be 0."""
    steps = np.where(point + _STEP < highest, _STEP, -_STEP)
    here = residuals(point)
    columns = [
        (residuals(point + step * axis) - here) / step for step, axis in zip(steps, np.eye(len(point)), strict=True)
    ]
    return np.stack(columns, axis=1)


def _cycles(values: Floats, measured: _Measured) -> float:
    """Return the compute cycles at which the twin alone is as fast as the function; at least one.

    The search takes several steps: cycles overlap with loads in flight, so time per packet grows by less than a step's
    cycles.
    """
    cycles = _FIRST_CYCLES
    for _ in range(_SOLO_STEPS):
        function = _function(values, cycles, measured, measured.workload.nf)
        alone_mpps = _runner(function, measured)(()).throughput_mpps
        before, missing_us = cycles, 1.0 / measured.solo_mpps - 1.0 / alone_mpps
        cycles = max(1.0, cycles + missing_us * 1e3 * measured.machine.frequency_ghz)
        if abs(alone_mpps / measured.solo_mpps - 1.0) < _SOLO_NOISE or cycles == before:
            return before
    return cycles


def _runner(function: NetworkFunction, measured: _Measured) -> Callable[[tuple[Workload, ...]], TenantSample]:
    testbed = SimulatedTestbed(measured.machine, [function], accesses=_ACCESSES)
    twin = Workload(function.name, {}, measured.workload.traffic)

    def run(competitors: tuple[Workload, ...]) -> TenantSample:
        return testbed.run(Colocation(measured.machine.name, twin, competitors), seed=1).target

    return run


def _function(values: Floats, cycles: float, measured: _Measured, nf: str) -> NetworkFunction:
    size, reads, mlp, near_reads = (round(float(value), 4) for value in values[: len(_NAMES)])
    near_mib = round(_NEAR_OVER_L2 * measured.machine.l2_kib / 1024.0, 4)
    structures = [
        {"name": "data", "size_mib": size, "reads": reads, "mlp": mlp},
        {"name": "near", "size_mib": near_mib, "reads": near_reads, "mlp": mlp},
    ]
    return NetworkFunction(
        name=f"{nf.partition('(')[0].partition('@')[0]}-twin",
        description=f"twin of {measured.workload.nf}, fitted to {len(measured.shares)} measured runs",
        source=f"slomo nf fit: {len(measured.shares)} runs on {measured.machine.name}",
        simulated={
            "compute_cycles": round(cycles, 2),
            "instructions": round(2.0 * cycles, 2),
            "packet": {"touch": "header", "written_lines": 1, "mlp": 6},
            "packet_buffers": 1024,
            "structures": structures,
        },
    )


def _spread(jacobian: Floats, residuals: Floats) -> Floats:
    """Return the standard error of each parameter's logarithm; infinite if the runs do not determine it."""
    freedom = max(len(residuals) - jacobian.shape[1], 1)
    scale = max(float(np.square(residuals).sum()) / freedom, 1.0)
    information = jacobian.T @ jacobian
    covariance = scale * np.linalg.pinv(information + 1e-9 * np.eye(len(information)))
    return np.minimum(np.sqrt(np.maximum(np.diag(covariance), 0.0)), np.log(1e3))
