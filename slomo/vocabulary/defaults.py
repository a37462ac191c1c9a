"""What is used where nothing is named, the ways to ask for a prediction, and older spellings of them.

Once, "slomo" named a model, a method, a rule of composition and a policy. The model is ``"slomo-gbr"`` now (gradient
boosting regression), the method ``"composed"``, the rule ``"published"``, the policy ``"predicted"``; the old spelling
works for one release more, with a warning.
"""

import warnings
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
_OLD = "slomo"


def model_named(name: str) -> str:
    """Return a model's name, the new one for the old one.

    Examples
    --------
    >>> model_named("dobrescu")
    'dobrescu'
    """
    if name != _OLD:
        return name
    _renamed("model", PUBLISHED_MODEL)
    return PUBLISHED_MODEL


def method_named(name: str) -> Method:
    """Return a method by its name, the old one too.

    Raises
    ------
    UnknownNameError
        With the nearest.

    Examples
    --------
    >>> method_named("auto")
    'auto'
    >>> method_named("guess")
    Traceback (most recent call last):
    slomo.errors.UnknownNameError: unknown method 'guess'
    hint: Known: auto, composed, equilibrium
    """
    if name == _OLD:
        _renamed("method", "composed")
        return "composed"
    if name not in METHODS:
        raise UnknownNameError("method", str(name), METHODS)
    return name


def compat_named(name: str | None) -> Compat | None:
    """Return a rule of composition by its name, the old one too; None stays None.

    Raises
    ------
    UnknownNameError
        With the nearest.

    Examples
    --------
    >>> compat_named("published")
    'published'
    """
    if name == _OLD:
        _renamed("compat", "published")
        return "published"
    if name is not None and name not in COMPATS:
        raise UnknownNameError("composition rule", str(name), COMPATS)
    return name


def _renamed(what: str, now: str) -> None:
    warnings.warn(
        f"{what} 'slomo' is called '{now}' now; the old name goes with the next release",
        DeprecationWarning,
        stacklevel=4,
    )
