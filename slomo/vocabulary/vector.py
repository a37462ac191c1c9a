"""A vector of counters: how much one core, socket or system uses shared resources.

SLOMO (SIGCOMM'20) section 4.1: the vector V of PCM metrics. A metric that was not reported is absent, never zero (PCM
prints 0 for counters that it could not read, which would teach a model that an NF uses nothing).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from slomo.errors import InvalidValueError, MissingMetricError
from slomo.vocabulary.display import html_table
from slomo.vocabulary.metrics import METRICS, Scope, metric

SCHEMA_VERSION = 1
Floats = NDArray[np.float64]
#: Largest value of a metric, in any unit; trees read single precision, which overflows beyond 3e38.
_MOST = 1e30


@dataclass(frozen=True, eq=True)
class MetricVector(Mapping[str, float]):
    """Values of counters of one core, socket or system; one that was not reported is absent.

    Parameters
    ----------
    values : mapping of str to float
        Metric name (or alias) -> value in the metric's unit. ``None`` and NaN count as not reported.
    scope : Scope
        What the values describe.

    Raises
    ------
    UnknownNameError
        For a name that is no metric.
    InvalidValueError
        For an infinite or negative value; no metric of the vocabulary can be negative.

    Examples
    --------
    >>> v = MetricVector({"CAR": 41.5, "L3OCC": 2048.0, "IPC": float("nan")}, scope=Scope.CORE)
    >>> v["L2MISS"], "IPC" in v, v.get("IPC")
    (41.5, False, None)
    """

    values_: tuple[tuple[str, float], ...]
    scope: Scope

    def __init__(self, values: Mapping[str, float | None], scope: Scope = Scope.SOCKET) -> None:
        if not isinstance(values, Mapping):
            raise InvalidValueError(f"metrics are {values!r}, needed a mapping", hint="write {'L3OCC': 512}")
        checked = {
            metric(name).name: _checked(name, value)
            for name, value in values.items()
            if value is not None and value == value  # not NaN
        }
        object.__setattr__(self, "values_", tuple((name, checked[name]) for name in METRICS if name in checked))
        object.__setattr__(self, "scope", Scope(scope))
        object.__setattr__(self, "_table", MappingProxyType(dict(self.values_)))

    def __getitem__(self, name: str) -> float:
        table: Mapping[str, float] = self._table  # type: ignore[attr-defined]
        key = metric(name).name
        if key not in table:
            raise MissingMetricError(
                f"{key} was not reported in this {self.scope} vector, which has: {', '.join(table) or 'nothing'}",
                hint="a missing counter is unknown, not zero; see which counters the testbed can read",
            )
        return table[key]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and metric(name).name in self._table  # type: ignore[attr-defined]

    def get(self, name: str, default: float | None = None) -> float | None:  # type: ignore[override]
        """Return the value of `name`, or `default` if it was not reported."""
        table: Mapping[str, float] = self._table  # type: ignore[attr-defined]
        return table[name] if name in table else table.get(metric(name).name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return len(self.values_)

    def __reduce__(self) -> tuple[object, ...]:
        return (MetricVector, (dict(self.values_), self.scope))

    def to_array(self, names: tuple[str, ...]) -> Floats:
        """Return the values of `names` in order, NaN if not reported, shape ``(len(names),)``."""
        return np.array([self.get(name, math.nan) for name in names], dtype=np.float64)

    def towards(self, other: "MetricVector", share: float) -> "MetricVector":
        """Interpolate linearly towards another vector by `share`, 0 to 1, for the metrics that both have.

        Examples
        --------
        >>> dict(MetricVector({"CAR": 4.0, "IPC": 1.0}).towards(MetricVector({"CAR": 8.0}), 0.25))
        {'L2MISS': 5.0}
        """
        names = [name for name in self if name in other]
        return MetricVector({n: (1.0 - share) * self[n] + share * other[n] for n in names}, scope=self.scope)

    def scaled(self, factors: Mapping[str, float], added: Mapping[str, float]) -> "MetricVector":
        """Return the vector with metrics multiplied by their factors, then increased by an amount, never below 0.

        Examples
        --------
        >>> dict(MetricVector({"L3OCC": 4.0, "IPC": 1.0}).scaled({"L3OCC": 2.0}, {"L3OCC": 1.0}))
        {'IPC': 1.0, 'L3OCC': 9.0}
        """
        values = {name: max(value * factors.get(name, 1.0) + added.get(name, 0.0), 0.0) for name, value in self.items()}
        return MetricVector(values, scope=self.scope)

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-ready mapping that :meth:`from_dict` reads back."""
        return {"schema_version": SCHEMA_VERSION, "scope": str(self.scope), "values": dict(self.values_)}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> "MetricVector":
        """Rebuild a vector from :meth:`to_dict`'s mapping."""
        values, scope = (data.get("values"), data.get("scope")) if isinstance(data, Mapping) else (None, None)
        if not isinstance(values, Mapping) or scope not in tuple(Scope):
            raise InvalidValueError(
                f"a vector: values are {type(values).__name__}, of scope {str(scope)[:40]!r}",
                hint=f"needed a mapping of metrics to numbers, of scope {', '.join(Scope)}",
            )
        return cls(values, scope=Scope(str(scope)))

    def _repr_html_(self) -> str:
        rows = [(name, f"{value:.4g}", METRICS[name].unit) for name, value in self.values_]
        return html_table(f"{self.scope}-level vector", (), rows)


def _checked(name: str, value: float | None) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InvalidValueError(f"{name} is {str(value)[:40]!r}, needed a number [{metric(name).unit}]") from None
    if not 0.0 <= number <= _MOST:
        raise InvalidValueError(
            f"{name} is {number:g} {metric(name).unit}, needed 0 to {_MOST:g}",
            hint="drop the sample it came from; PCM prints such values in the first second of a run",
        )
    return number
