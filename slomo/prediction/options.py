"""Options of a prediction: method, model, composition rule, coverage of the interval."""

from collections.abc import Sequence
from dataclasses import dataclass

from slomo.errors import InvalidValueError
from slomo.models.nf_model import NFModel
from slomo.vocabulary.defaults import (
    DEFAULT_METHOD,
    DEFAULT_MODEL,
    AnswerOptions,
    Compat,
    Method,
    compat_named,
    method_named,
)
from slomo.vocabulary.numbers import positive_number, share_hint


class OptionFields(AnswerOptions, total=False):
    """The fields of :class:`PredictionOptions`, for functions that pass them on as keyword arguments."""

    explain: bool


@dataclass(frozen=True)
class PredictionOptions:
    """Options of a prediction.

    Raises UnknownNameError for an unknown method or rule; InvalidValueError for a coverage not strictly between 0 and
    1, and for a model or a rule of composition beside method ``"equilibrium"``, which uses neither.

    Examples
    --------
    >>> PredictionOptions().method, PredictionOptions(model="dobrescu").by_composing
    ('auto', True)
    """

    #: ``"equilibrium"`` solves all NFs of a server at once (`slomo.equilibrium.server`); ``"composed"`` is SLOMO's
    #: method, which predicts each NF from the composed vectors of the others. ``"auto"`` takes the equilibrium if all
    #: models involved support it and neither another model nor a composition rule is requested.
    method: Method = DEFAULT_METHOD
    #: Name of the sensitivity model for method ``"composed"``.
    model: str = DEFAULT_MODEL
    #: Whether to compose by the rule of SLOMO's published scripts.
    compat: Compat | None = None
    #: Nominal coverage of the intervals, above 0 and below 1.
    coverage: float = 0.9
    #: Whether to divide the loss over metrics and competitors.
    explain: bool = True
    #: Length of the measurement to which intervals at reduced load refer [s]; it matters since Poisson arrivals vary.
    #: By default it is the length of the calibration mixes at reduced load, or else of the profile's runs. On a shared
    #: core, a finite measurement contains incomplete rounds of time slices; there the default is infinite.
    window_s: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", method_named(self.method))
        object.__setattr__(self, "compat", compat_named(self.compat))
        if self.method == "equilibrium":
            for option, value, default in (("compat", self.compat, None), ("model", self.model, DEFAULT_MODEL)):
                if value != default:
                    what = f"{option} is '{value}', but method 'equilibrium' composes no vectors"
                    raise InvalidValueError(what, hint="leave one of them out, or name method 'composed'")
        check_coverage(self.coverage)
        if self.window_s is not None:
            positive_number("window_s", self.window_s, "s")

    @property
    def by_composing(self) -> bool:
        """Whether these options require the method "composed"."""
        if self.method == "auto":
            return self.model != DEFAULT_MODEL or self.compat is not None
        return self.method == "composed"

    def jointly(self, models: Sequence[NFModel]) -> bool:
        """Return whether the equilibrium predicts NFs with these models."""
        return not self.by_composing and None not in [model.response for model in models]


def check_coverage(coverage: float) -> None:
    """Raise InvalidValueError unless the coverage is strictly between 0 and 1.

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
        hint = share_hint(coverage, "0.9 is usual")
        raise InvalidValueError(f"coverage is {coverage}, needed above 0 and below 1", hint=hint)
