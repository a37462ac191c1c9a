"""Learn a correction factor for each NF from predicted and measured throughputs, within a bound.

A bias beyond its bound means that the model no longer predicts the NF: the NF must be profiled again.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from slomo.errors import InvalidValueError

#: Limit of one pair's effect, in bounds, so that an outlier decays like any other.
MOST_BOUNDS = 3.0


@dataclass(frozen=True)
class Bias:
    """What is known about the error of one NF's predictions."""

    #: Smoothed observed over predicted throughput; each pair is limited to three bounds around 1.
    ratio: float = 1.0
    #: Smoothed absolute relative error after correction.
    error: float = 0.0
    #: How many were seen.
    pairs: int = 0


@dataclass(frozen=True)
class OnlineCorrection:
    """Correction factors of NFs; `seen` returns the updated ones.

    >>> correction = OnlineCorrection()
    >>> for _ in range(30):
    ...     correction = correction.seen("lpm", predicted_mpps=5.0, measured_mpps=4.8)
    >>> round(correction.factor("lpm"), 2), correction.refit_asked
    (0.96, ())
    """

    #: Largest correction, as a share.
    bound: float = 0.1
    #: Weight of a new pair, above 0 and at most 1.
    weight: float = 0.2
    #: By NF.
    biases: Mapping[str, Bias] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if not 0.0 < self.bound < 1.0 or not 0.0 < self.weight <= 1.0:
            raise InvalidValueError(f"bound {self.bound:g} and weight {self.weight:g}, needed between 0 and 1")

    def seen(self, name: str, *, predicted_mpps: float, measured_mpps: float) -> "OnlineCorrection":
        """Return the correction after one more pair; the prediction is that before correction."""
        if not 0.0 < predicted_mpps < math.inf or not 0.0 <= measured_mpps < math.inf:
            raise InvalidValueError(f"'{name}': predicted {predicted_mpps:g}, measured {measured_mpps:g} Mpps")
        old = self.biases.get(name, Bias())
        most = MOST_BOUNDS * self.bound
        ratio = min(max(measured_mpps / predicted_mpps, 1.0 - most), 1.0 + most)
        weight = max(self.weight, 1.0 / (old.pairs + 1))
        miss = abs(self.factor(name) / ratio - 1.0) if ratio > 0.0 else 1.0
        fresh = Bias(old.ratio + weight * (ratio - old.ratio), old.error + weight * (miss - old.error), old.pairs + 1)
        return replace(self, biases=MappingProxyType({**self.biases, name: fresh}))

    def factor(self, name: str) -> float:
        """Return the factor for an NF's predictions, within the bound."""
        ratio = self.biases.get(name, Bias()).ratio
        return min(1.0 + self.bound, max(1.0 - self.bound, ratio))

    @property
    def factors(self) -> Mapping[str, float]:
        """Correction factors of all NFs of which measurements were seen."""
        return {name: self.factor(name) for name in self.biases}

    @property
    def refit_asked(self) -> tuple[str, ...]:
        """NFs whose error exceeds the bound after ten measurements: profile them again."""
        return tuple(
            name for name, bias in self.biases.items() if bias.pairs >= 10 and abs(bias.ratio - 1.0) > self.bound
        )
