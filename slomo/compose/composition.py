"""Combine the counters of several competitors into those of the socket on which they run together.

SLOMO (SIGCOMM'20) section 6: core-level vectors of the competitors in, the socket-level vector V that PCM would report
for all of them out. Each competitor contributes its own vector.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from slomo.compose.operators import PUBLISHED_CORES, physical, published, ratios_among, rule_of
from slomo.compose.saturation import limits_of, saturate
from slomo.errors import InvalidValueError
from slomo.files.stored import Stored
from slomo.vocabulary.capacities import Capacities
from slomo.vocabulary.defaults import Compat, compat_named
from slomo.vocabulary.display import html_table
from slomo.vocabulary.metrics import METRICS, Rule, Scope, canonical_names
from slomo.vocabulary.vector import MetricVector

SCHEMA_VERSION = 1
#: Number of mixes per pass: their values stay in the L2 cache.
_CHUNK_MIXES = 2048


@dataclass(frozen=True)
class Composition(Stored, version=SCHEMA_VERSION):
    """The combined counters of several competitors, and the rule for each counter."""

    #: Socket-level vector.
    vector: MetricVector
    #: Metric -> rule that composed it.
    rules: Mapping[str, str]
    #: Metrics lowered to what the machine has.
    capped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", MappingProxyType(dict(self.rules)))

    def __reduce__(self) -> tuple[object, ...]:
        return (Composition, (self.vector, dict(self.rules), self.capped))

    def _repr_html_(self) -> str:
        rows = (
            (name, f"{value:.4g}", METRICS[name].unit, f"{self.rules[name]}{', capped' if name in self.capped else ''}")
            for name, value in self.vector.items()
        )
        return html_table("Composed vector", (), rows)


def compose(
    vectors: Sequence[MetricVector], capacities: Capacities | None = None, compat: Compat | None = None
) -> Composition:
    """Return the socket's counters if these competitors run together.

    Parameters
    ----------
    vectors : sequence of MetricVector
        One per tenant, in any order (the order cannot change a bit of the result). Core-level vectors are brought to
        the socket's scope: EXEC and FREQ are divided by its cores. Socket-level ones are taken to be so already.
    capacities : Capacities, optional
        What the socket has: caps, and the number of cores. Without it nothing is capped and EXEC and FREQ stay in units
        of one core.
    compat : {"published"}, optional
        Compose as the published scripts do: plain means of IPC, AFREQ, L2HIT and L3HIT, EXEC and FREQ over the cores
        (8 where no capacities are given), plain sums of the rest, misses per instruction too, no caps.

    Returns
    -------
    Composition
        A metric that any of the vectors lacks is missing. No vectors at all compose to 0 for everything that adds up.

    Raises
    ------
    UnknownNameError
        For a `compat` there is none of.

    Examples
    --------
    >>> stats = MetricVector({"CAR": 40.0, "L3OCC": 2048.0, "L3HIT": 0.9}, scope=Scope.CORE)
    >>> snort = MetricVector({"CAR": 10.0, "L3OCC": 8192.0, "L3HIT": 0.5}, scope=Scope.CORE)
    >>> dict(compose([stats, snort]).vector)
    {'L3HIT': 0.82, 'L3OCC': 10240.0, 'L2MISS': 50.0}
    >>> round(compose([stats, snort], compat="published").vector["L3HIT"], 3)
    0.7

    References
    ----------
    SLOMO (SIGCOMM'20), section 6; published rule: cmu-snap/SLOMO, ``e2e_parsing.py``.
    """
    compat = compat_named(compat)
    if not vectors:
        zeros = [name for name, definition in METRICS.items() if definition.rule is Rule.SUM]
        return Composition(MetricVector(dict.fromkeys(zeros, 0.0)), {name: rule_of(name, compat) for name in zeros})
    names = canonical_names(name for name in METRICS if all(name in vector for vector in vectors))
    reported = canonical_names(name for vector in vectors for name in vector)
    values = np.array([[v.to_array(reported) / _divisors(reported, v.scope, capacities, compat) for v in vectors]])
    composed, capped = _composed(values, reported, capacities, compat, None)
    row = {name: float(composed[0, reported.index(name)]) for name in names}
    vector = MetricVector(row)
    return Composition(
        vector,
        {name: rule_of(name, compat) for name in vector},
        tuple(name for name in vector if capped[0, reported.index(name)]),
    )


def compose_arrays(
    values: NDArray[np.float64],
    names: tuple[str, ...],
    capacities: Capacities | None = None,
    compat: Compat | None = None,
    present: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    """Combine the counters of many mixes at once; the bits equal those of :func:`compose`.

    `values`, shape (mixes, competitors, metrics): in the vocabulary's units, NaN where not reported. `present`, shape
    (mixes, competitors): which places hold a competitor; all by default, so that mixes of several sizes share one
    rectangle. The result, shape (mixes, metrics), is NaN where a competitor did not report the metric, and for means
    over no competitors. Raises InvalidValueError for shapes that do not belong together.
    """
    compat = compat_named(compat)
    values = np.asarray(values, dtype=np.float64)
    expected = values.shape[:2]
    mask = expected if present is None else present.shape
    if values.shape[2:] != (len(names),) or mask != expected:
        raise InvalidValueError(
            f"values {values.shape}, {len(names)} names and a mask {mask} do not belong together",
            hint="needed: (mixes, competitors, metrics), one name per metric, mask (mixes, competitors)",
        )
    divisors = _divisors(names, Scope.CORE, capacities, compat)
    return _composed(values / divisors, names, capacities, compat, present)[0]


def _composed(
    values: NDArray[np.float64],
    names: tuple[str, ...],
    capacities: Capacities | None,
    compat: Compat | None,
    present: NDArray[np.bool_] | None,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Combine counters; return the results, and which were limited."""
    operator, parts = physical if compat is None else published, []
    for begin in range(0, max(len(values), 1), _CHUNK_MIXES):
        part = slice(begin, begin + _CHUNK_MIXES)
        parts.append(operator(names, values[part].swapaxes(0, 1), None if present is None else present[part].T))
    composed = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if compat is not None:
        return composed, np.zeros(composed.shape, dtype=bool)
    return saturate(composed, names, capacities)


@lru_cache(maxsize=1024)
def plain_limits(names: tuple[str, ...], capacities: Capacities | None, width: int) -> NDArray[np.float64] | None:
    """Return the limits of sums: divisors, largest values, and which two counters share a limit.

    Shape (3, width); the limit is -1 if there is none. None if a metric is a ratio, which is not a sum.
    """
    if ratios_among(names):
        return None
    limits, shared = limits_of(names, capacities)
    table = np.ones((3, width))
    table[0, : len(names)], table[1, : len(names)] = _divisors(names, Scope.CORE, capacities, None), limits
    table[2, :3] = (*shared[0][0], shared[0][1]) if shared else (0.0, 0.0, -1.0)
    return table


@lru_cache(maxsize=1024)
def _divisors(
    names: tuple[str, ...], scope: Scope, capacities: Capacities | None, compat: Compat | None
) -> NDArray[np.float64]:
    """Return by what each counter is divided: the number of cores for EXEC and FREQ, else 1."""
    unknown = 1 if compat is None else PUBLISHED_CORES
    cores = capacities.cores if capacities is not None else unknown
    shared = scope is Scope.CORE
    return np.array(
        [cores if shared and METRICS[name].rule is Rule.PER_CORE else 1 for name in names], dtype=np.float64
    )
