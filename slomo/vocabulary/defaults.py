"""Names of the default machine, prediction method and model, the prediction methods, and the options of an answer."""

from typing import Literal, TypedDict

from slomo.errors import UnknownNameError

DEFAULT_MACHINE = "e5-2620v4"
#: Default sensitivity model: for each network function the family chosen in training (`NFModel.named`).
DEFAULT_MODEL = "default"
#: Default family of libraries trained before training made that choice.
FORMER_DEFAULT = "slomo-xgb"
#: The model of SLOMO's publication.
PUBLISHED_MODEL = "slomo-gbr"
#: How throughput is predicted: all NFs of a server at once, by composing the competitors' vectors, or automatically
#: chosen.
Method = Literal["auto", "equilibrium", "composed"]
METHODS: tuple[Method, ...] = ("auto", "equilibrium", "composed")
EQUILIBRIUM: Method = "equilibrium"
COMPOSED: Method = "composed"
DEFAULT_METHOD: Method = "auto"
#: An alternative composition rule: that of SLOMO's published scripts.
Compat = Literal["published"]
COMPATS: tuple[Compat, ...] = ("published",)


class AnswerOptions(TypedDict, total=False):
    """Options that every interface has, described by `slomo.prediction.options.PredictionOptions`."""

    method: Method
    model: str
    compat: Compat | None
    coverage: float
    window_s: float | None


def method_named(name: str) -> Method:
    """Return a method by its name; UnknownNameError with the nearest name."""
    if name not in METHODS:
        raise UnknownNameError("method", str(name), METHODS)
    return name


def method_hint(model: str) -> str:
    """Return what to write instead where a method is given as the name of a model, else nothing.

    >>> method_hint("composed"), method_hint("slomo-gp")
    ("'composed' is a method: --method composed, in Python method='composed'", '')
    """
    return f"'{model}' is a method: --method {model}, in Python method='{model}'" if model in METHODS else ""


def compat_named(name: str | None) -> Compat | None:
    """Return a composition rule by its name, None for the default. Raises UnknownNameError for an unknown name."""
    if name is not None and name not in COMPATS:
        raise UnknownNameError("composition rule", str(name), COMPATS)
    return name
