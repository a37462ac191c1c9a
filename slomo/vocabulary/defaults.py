"""Default names of machine, method and model, and the methods of prediction."""

from typing import Literal

from slomo.errors import UnknownNameError

DEFAULT_MACHINE = "e5-2620v4"
#: The sensitivity model: of each network function the family that training chose for it (`NFModel.named`).
DEFAULT_MODEL = "default"
#: What answered where nothing was chosen: libraries trained before training chose.
FORMER_DEFAULT = "slomo-xgb"
#: The model of SLOMO's publication.
PUBLISHED_MODEL = "slomo-gbr"
#: How throughput is found: all NFs of a server at once, by composing the competitors' vectors, or the first where the
#: models know it and nothing speaks for the second.
Method = Literal["auto", "equilibrium", "composed"]
METHODS: tuple[Method, ...] = ("auto", "equilibrium", "composed")
EQUILIBRIUM: Method = "equilibrium"
COMPOSED: Method = "composed"
DEFAULT_METHOD: Method = "auto"
#: A rule of composition other than ours: the one of SLOMO's published scripts.
Compat = Literal["published"]
COMPATS: tuple[Compat, ...] = ("published",)


def method_named(name: str) -> Method:
    """Return a method by its name; UnknownNameError with the nearest for one there is not.

    Examples
    --------
    >>> method_named("guess")
    Traceback (most recent call last):
    slomo.errors.UnknownNameError: unknown method 'guess'
    hint: Known: auto, composed, equilibrium
    """
    if name not in METHODS:
        raise UnknownNameError("method", str(name), METHODS)
    return name


def compat_named(name: str | None) -> Compat | None:
    """Return a rule of composition by its name, None for ours; UnknownNameError for one there is not."""
    if name is not None and name not in COMPATS:
        raise UnknownNameError("composition rule", str(name), COMPATS)
    return name
