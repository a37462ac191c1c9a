"""The rules by which counters of several competitors are combined, one per kind of counter.

SLOMO (SIGCOMM'20) section 6 composes each metric by its own operator; column `rule` of the vocabulary's table names it.
``compat="published"`` follows the published scripts (cmu-snap/SLOMO, e2e_parsing.py): they sum misses *per
instruction*, which is no socket's value, and average ratios without weights.

All operators reduce axis 0, the competitors. Sums are added in sorted order, so that the result does not depend on the
order of competitors, to the bit.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.vocabulary.metrics import METRICS, Rule
from slomo.vocabulary.vector import Floats

#: Metrics that the published scripts average over competitors; they divide EXEC and FREQ by the cores and sum the rest.
PUBLISHED_MEANS = frozenset({"IPC", "AFREQ", "L2HIT", "L3HIT"})
#: Cores per socket of both of SLOMO's machines, the divisor in its scripts; used if no capacities are given.
PUBLISHED_CORES = 8
#: Smallest miss ratio used to derive references from misses; smaller ones are rounding of the counter.
_SMALLEST_MISS_RATIO = 1e-9
#: Number of columns up to which sorting is faster than a sorting network.
_FEW = 256


def ordered_sum(values: Floats) -> Floats:
    """Add along axis 0 in ascending order, so that every order of the summands gives the same bits.

    NaN anywhere makes the sum NaN.
    """
    if not len(values):
        return np.zeros(values.shape[1:])
    if values[0].size <= _FEW:
        total: Floats = np.add.accumulate(np.sort(values, axis=0), axis=0)[-1]
        return total
    rows = [np.asarray(row) for row in values]
    # sorting network of element-wise minima and maxima: at most a dozen rows, but a hundred thousand columns
    for last in range(len(rows) - 1, 0, -1):
        for i in range(last):
            rows[i], rows[i + 1] = np.minimum(rows[i], rows[i + 1]), np.maximum(rows[i], rows[i + 1])
    total = rows[0].copy()
    for row in rows[1:]:
        total = total + row
    return np.asarray(total, dtype=np.float64)


def rule_of(name: str, compat: str | None = None) -> str:
    """Return the rule that composes metric `name`, in words.

    >>> rule_of("L3OCC"), rule_of("L3MPI"), rule_of("L3MPI", "published"), rule_of("IPC")
    ('sum', 'quotient of composed metrics: L3MISS/INST', 'sum', 'weighted mean: by FREQ')
    """
    definition = METRICS[name]
    if compat is not None:
        if name in PUBLISHED_MEANS:
            return "mean"
        return str(definition.rule) if definition.rule is Rule.PER_CORE else str(Rule.SUM)
    if definition.rule is Rule.WEIGHTED_MEAN:
        return f"{definition.rule}: by {definition.weight}"
    return f"{definition.rule}: {definition.weight}" if definition.rule is Rule.QUOTIENT else str(definition.rule)


def published(names: tuple[str, ...], values: Floats, present: NDArray[np.bool_] | None) -> Floats:
    """Combine all counters as SLOMO's scripts do.

    `values`, shape (competitors, mixes, metrics): of socket scope, NaN where not reported. `present`, shape
    (competitors, mixes): which places hold a competitor; None means all.
    """
    total = ordered_sum(values if present is None else np.where(present[:, :, np.newaxis], values, 0.0))
    count = np.full(values.shape[1], len(values)) if present is None else np.sum(present, axis=0)
    for i, name in enumerate(names):
        if name in PUBLISHED_MEANS:
            total[:, i] = _divided(total[:, i], count)
    return total


def physical(names: tuple[str, ...], values: Floats, present: NDArray[np.bool_] | None) -> Floats:
    """Combine all counters by slomo's own rules (the default).

    Parameters and result are those of :func:`published`. A ratio without reported weights is unknown, unless all
    competitors have the same value.
    """
    columns = values if present is None or present.all() else np.where(present[:, :, np.newaxis], values, 0.0)
    composed = ordered_sum(columns)
    if ratios := ratios_among(names):
        present = np.ones(values.shape[:2], dtype=bool) if present is None else present
        by_name = {name: columns[:, :, i] for i, name in enumerate(names)}
        for i in ratios:
            composed[:, i] = _ratio(names[i], by_name, present)
    return composed


@lru_cache(maxsize=1024)
def ratios_among(names: tuple[str, ...]) -> list[int]:
    """Return which of the metrics are ratios."""
    return [i for i, name in enumerate(names) if METRICS[name].rule in (Rule.WEIGHTED_MEAN, Rule.QUOTIENT)]


def _ratio(name: str, columns: Mapping[str, Floats], present: NDArray[np.bool_]) -> Floats:
    """Combine one ratio, such as a hit ratio, of all competitors."""
    definition, values = METRICS[name], columns[name]
    unknown = np.full(values.shape, np.nan)
    if definition.rule is Rule.QUOTIENT:
        above, below = (columns.get(part, unknown) for part in str(definition.weight).split("/"))
    elif definition.weight == "L2REF":
        # PCM does not count L2 references: they are misses over the miss ratio
        below = columns.get("L2MISS", unknown) / np.maximum(1.0 - values, _SMALLEST_MISS_RATIO)
        above = below * values
    else:
        below = columns.get(str(definition.weight), unknown)
        above = below * values
    return _mean(values, ordered_sum(above), ordered_sum(below), present)


def _mean(values: Floats, above: Floats, below: Floats, present: NDArray[np.bool_]) -> Floats:
    """Return above / below, limited to the range of the competitors' values.

    Clipping removes rounding errors, so that one vector composes to itself. If all weights are zero there were no
    events, and the plain mean is used.
    """
    low = np.where(present, values, np.inf).min(axis=0, initial=np.inf)
    high = np.where(present, values, -np.inf).max(axis=0, initial=-np.inf)
    plain = _divided(ordered_sum(values), present.sum(axis=0))
    composed = np.where(below == 0.0, plain, _divided(above, below))
    clipped = np.where(low == high, low, np.minimum(np.maximum(composed, low), high))
    return np.where(present.any(axis=0), clipped, np.nan)


def _divided(above: Floats, below: NDArray[Any]) -> Floats:
    """Divide two arrays; the result is NaN where the divisor is 0."""
    result = np.full(np.shape(above), np.nan)
    np.divide(above, below, out=result, where=np.asarray(below) > 0)
    return result
