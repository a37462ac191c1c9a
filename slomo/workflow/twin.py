"""A twin: a simulated network function fitted to a dozen measured runs, so that what-ifs need no machine.

Simulation-based least squares over one structure's size, reads and parallelism (logarithms of them); the compute cycles
follow from the solo speed. The machine is the dataset's, or the one that `slomo doctor --machine` wrote.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from slomo.errors import InvalidValueError, MissingMetricError
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.workload import Workload

if TYPE_CHECKING:
    from slomo.records.dataset import ProfileDataset

Floats = NDArray[np.float64]

FEWEST_RUNS = 6
DEFAULT_RUNS = 12
#: Accesses per simulated run; a fit takes some hundred of them.
_ACCESSES = 150_000
_NAMES = ("size_mib", "reads", "mlp")
_BOUNDS = np.log([[0.25, 0.5, 1.0], [128.0, 64.0, 10.0]])
#: Where the search begins, on every combination: size [MiB], reads per packet, loads in flight.
_STARTS = ((1.0, 4.0, 12.0, 32.0), (2.0, 10.0), (1.0, 4.0))
_STEP = 0.15  # of a logarithm: smaller ones drown in the simulator's own scatter
_EVALUATIONS = 8
_FIRST_CYCLES = 300.0
_Z90 = 1.645
#: Shares of throughput are not known better than this.
_LEAST_NOISE = 0.005


@dataclass(frozen=True)
class FittedParameter:
    """One parameter of a twin, with its 90 % interval.

    Attributes
    ----------
    name : str
        ``size_mib``, ``reads`` (per packet), ``mlp`` (loads in flight) or ``compute_cycles``.
    value, low, high : float
        Fitted, and where it may lie.
    """

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Twin:
    """A fitted network function.

    Attributes
    ----------
    function : NetworkFunction
        To simulate, place and ask what-ifs with.
    parameters : tuple of FittedParameter
        What was fitted.
    runs : int
        Measured runs it was fitted to.
    error_points : float
        Mean absolute error of the share of solo throughput on them [points].
    """

    function: NetworkFunction
    parameters: tuple[FittedParameter, ...]
    runs: int
    error_points: float

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        fitted = {item.name: {"value": item.value, "low": item.low, "high": item.high} for item in self.parameters}
        stated = {"runs": self.runs, "error_points": self.error_points}
        return {"function": self.function.to_dict(), "parameters": fitted, **stated}


@dataclass(frozen=True)
class _Measured:
    """What the twin has to show."""

    machine: Machine
    workload: Workload
    solo_mpps: float
    competitions: Sequence[tuple[Workload, ...]]
    shares: Floats
    noise: Floats


def fit_twin(
    dataset: "ProfileDataset", nf: str, *, machine: str | Machine | None = None, runs: int = DEFAULT_RUNS
) -> Twin:
    """Fit a simulated network function to the runs of a dataset.

    Parameters
    ----------
    dataset : ProfileDataset
        Its solo and pressure rows are used.
    nf : str
        Name or workload key of the target.
    machine : str or Machine, optional
        Name, YAML file, or the machine itself; the dataset's own by default.
    runs : int
        Runs beside the synthetic competitor to fit to, spread evenly over their slowdowns.

    Raises
    ------
    MissingMetricError
        With fewer than six runs beside the synthetic competitor.
    UnknownNameError
        For a target the dataset does not have.
    InvalidValueError
        For fewer than six runs asked for.
    """
    from scipy.optimize import least_squares  # heavy, and only needed here

    measured = _measured(dataset, nf, machine, runs)

    def residuals(logarithms: Floats) -> Floats:
        return _residuals(np.exp(logarithms), measured)

    start = min(_starts(), key=lambda point: float(np.square(_residuals(point, _few(measured))).sum()))
    low, high = _BOUNDS
    inside = np.clip(np.log(start), low + 1e-3, high - 1e-3)
    fitted = least_squares(
        residuals, inside, bounds=(low, high), diff_step=_STEP, loss="soft_l1", max_nfev=_EVALUATIONS,
        x_scale=1.0,
    )  # fmt: skip
    values = np.exp(fitted.x)
    errors = np.abs(_residuals(values, measured) * measured.noise)
    function = _function(values, _cycles(values, measured), measured, nf)
    spread = _spread(fitted.jac, fitted.fun)
    parameters = tuple(
        FittedParameter(name, float(value), float(value * math.exp(-s)), float(value * math.exp(s)))
        for name, value, s in zip(_NAMES, values, _Z90 * spread, strict=True)
    )
    return Twin(function, parameters, len(measured.shares), float(100.0 * errors.mean()))


def _measured(dataset: "ProfileDataset", nf: str, machine: str | Machine | None, runs: int) -> _Measured:
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
        machine=_machine(dataset, pressed.machines[0], machine),
        workload=pressed.workload(target),
        solo_mpps=solo,
        competitions=[pressed.competitors(int(row)) for row in picked],
        shares=shares[picked],
        noise=np.maximum(np.median(noise), _LEAST_NOISE) * np.ones(len(picked)),
    )


def _machine(dataset: "ProfileDataset", name: str, given: str | Machine | None) -> Machine:
    if given is not None:
        return load_machine(given) if isinstance(given, str) else given
    described = dataset.environment.get("machines", {}).get(name)
    return Machine.from_dict(described) if isinstance(described, Mapping) else load_machine(name)


def _few(measured: _Measured) -> _Measured:
    """Return every third run: enough to tell good starts from bad ones."""
    return _Measured(
        measured.machine, measured.workload, measured.solo_mpps, measured.competitions[::3], measured.shares[::3],
        measured.noise[::3],
    )  # fmt: skip


def _starts() -> list[Floats]:
    sizes, reads, parallel = _STARTS
    return [np.array([size, read, mlp]) for size in sizes for read in reads for mlp in parallel]


def _residuals(values: Floats, measured: _Measured) -> Floats:
    """Return simulated less measured shares, in units of their noise."""
    function = _function(values, _cycles(values, measured), measured, measured.workload.nf)
    run = _runner(function, measured)
    solo = run(())
    shares = np.array([run(competitors) for competitors in measured.competitions]) / solo
    answer: Floats = (shares - measured.shares) / measured.noise
    return answer


def _cycles(values: Floats, measured: _Measured) -> float:
    """Return the compute cycles with which the twin alone is as fast as the function; at least one."""
    function = _function(values, _FIRST_CYCLES, measured, measured.workload.nf)
    missing_us = 1.0 / measured.solo_mpps - 1.0 / _runner(function, measured)(())
    return max(1.0, _FIRST_CYCLES + missing_us * 1e3 * measured.machine.frequency_ghz)


def _runner(function: NetworkFunction, measured: _Measured) -> Callable[[tuple[Workload, ...]], float]:
    testbed = SimulatedTestbed(measured.machine, [function], accesses=_ACCESSES)
    twin = Workload(function.name, {}, measured.workload.traffic)

    def run(competitors: tuple[Workload, ...]) -> float:
        colocation = Colocation(measured.machine.name, twin, competitors)
        return testbed.run(colocation, seed=1).target.throughput_mpps

    return run


def _function(values: Floats, cycles: float, measured: _Measured, nf: str) -> NetworkFunction:
    size, reads, mlp = (round(float(value), 4) for value in values)
    structure = {"name": "data", "size_mib": size, "reads": reads, "mlp": mlp}
    return NetworkFunction(
        name=f"{nf.partition('(')[0].partition('@')[0]}-twin",
        description=f"twin of {measured.workload.nf}, fitted to {len(measured.shares)} measured runs",
        source=f"slomo nf fit: {len(measured.shares)} runs on {measured.machine.name}",
        simulated={
            "compute_cycles": round(cycles, 2),
            "instructions": round(2.0 * cycles, 2),
            "packet": {"touch": "header", "written_lines": 1, "mlp": 6},
            "packet_buffers": 1024,
            "structures": [structure],
        },
    )


def _spread(jacobian: Floats, residuals: Floats) -> Floats:
    """Return the standard error of each parameter's logarithm; infinite where the runs do not tell it."""
    freedom = max(len(residuals) - jacobian.shape[1], 1)
    scale = max(float(np.square(residuals).sum()) / freedom, 1.0)
    information = jacobian.T @ jacobian
    covariance = scale * np.linalg.pinv(information + 1e-9 * np.eye(len(information)))
    answer: Floats = np.minimum(np.sqrt(np.maximum(np.diag(covariance), 0.0)), np.log(1e3))
    return answer
