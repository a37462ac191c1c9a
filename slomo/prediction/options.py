"""How an answer is to be made: by which method, model and rule, with which coverage."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from slomo.errors import InvalidValueError
from slomo.models.nf_model import NFModel
from slomo.vocabulary.defaults import (
    DEFAULT_METHOD,
    DEFAULT_MODEL,
    Compat,
    Method,
    compat_named,
    method_named,
)
from slomo.vocabulary.numbers import positive_number


class OptionFields(TypedDict, total=False):
    """What :class:`PredictionOptions` takes, for functions that pass it on by keyword."""

    method: str
    model: str
    compat: str | None
    coverage: float
    explain: bool
    window_s: float | None
    prove: bool


@dataclass(frozen=True)
class PredictionOptions:
    """How an answer is to be made.

    Raises UnknownNameError for a method or rule there is none of; InvalidValueError for a coverage that is no
    probability strictly between 0 and 1.

    Examples
    --------
    >>> PredictionOptions().method, PredictionOptions(model="dobrescu").by_composing
    ('auto', True)
    """

    #: All NFs of a server at once (`slomo.equilibrium.server`), or SLOMO's way, each NF beside the composed vectors of
    #: the others. ``"auto"`` takes the first where the models of all NFs asked about know it, and neither another model
    #: than the default nor a rule of composition is asked for; one of "auto", "equilibrium", "composed".
    method: Method = DEFAULT_METHOD
    #: Sensitivity model of method ``"composed"``.
    model: str = DEFAULT_MODEL
    #: Compose by the rule of SLOMO's published scripts.
    compat: Compat | None = None
    #: Nominal coverage of the intervals, above 0 and below 1.
    coverage: float = 0.9
    #: Divide the loss over metrics and competitors.
    explain: bool = True
    #: Length of the measurement that intervals of NFs at reduced load speak of [s]: arrivals vary (Poisson). By default
    #: that of the calibration mixes at reduced load, else that of the profile's runs. On a shared core a measurement
    #: cuts turns; by default it is endless there.
    window_s: float | None = None
    #: Prove how near the fixed point is (`slomo.equilibrium.bound`) instead of estimating it from the last two steps;
    #: about as long again. `Convergence.proven` says which it is.
    prove: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", method_named(self.method))
        object.__setattr__(self, "compat", compat_named(self.compat))
        check_coverage(self.coverage)
        if self.window_s is not None:
            positive_number("window_s", self.window_s, "s")

    @property
    def by_composing(self) -> bool:
        """Whether vectors are composed whatever the models know."""
        if self.method == "auto":
            return self.model != DEFAULT_MODEL or self.compat is not None
        return self.method == "composed"

    def jointly(self, models: Sequence[NFModel]) -> bool:
        """Return whether these NFs are predicted all at once."""
        return not self.by_composing and None not in [model.response for model in models]


def options_of(fields: OptionFields) -> PredictionOptions:
    """Return the options that keyword arguments ask for."""
    return PredictionOptions(**fields)  # type: ignore[arg-type]


def check_coverage(coverage: float) -> None:
    """Refuse a coverage that is no probability strictly between 0 and 1; InvalidValueError for any other number.

    Examples
    --------
    >>> check_coverage(90)
    Traceback (most recent call last):
    slomo.errors.InvalidValueError: coverage is 90, needed above 0 and below 1
    hint: a share, not a percentage: 0.9 for 90 %
    """
    if not isinstance(coverage, (int, float)):
        raise InvalidValueError(f"coverage is {coverage!r}, needed a number above 0 and below 1", hint="0.9 is usual")
    if not 0.0 < coverage < 1.0:
        meant = f"a share, not a percentage: {coverage / 100:g} for {coverage:g} %"
        hint = meant if 1.0 < coverage < 100.0 else "0.9 is usual"
        raise InvalidValueError(f"coverage is {coverage}, needed above 0 and below 1", hint=hint)
