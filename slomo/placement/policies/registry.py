"""The policies by name; each is imported when it is asked for."""

import importlib

from slomo.errors import UnknownNameError
from slomo.placement.knowledge import Knowledge
from slomo.placement.mixes import Pieces
from slomo.placement.policies.base import Policy

_HOME = {
    "slomo": ("predicted", "PredictedBestFit"),
    "slomo-search": ("search", "MixSearch"),
    "resq-greedy": ("resq_greedy", "ResqGreedy"),
    "resq-milp": ("resq_milp", "ResqMilp"),
    "first-fit": ("first_fit", "FirstFit"),
    "equal-partition": ("equal_partition", "EqualPartition"),
    "e2": ("e2", "DynamicScaling"),
    "dobrescu": ("dobrescu", "DobrescuFirstFit"),
}


def policy_names() -> tuple[str, ...]:
    """Return the names of all policies.

    Examples
    --------
    >>> "slomo" in policy_names()
    True
    """
    return tuple(_HOME)


def policy_class(name: str) -> type[Policy]:
    """Return the policy called `name`.

    Raises
    ------
    UnknownNameError
        With the nearest name.

    Examples
    --------
    >>> policy_class("slomo").picks
    'best'
    """
    if name not in _HOME:
        raise UnknownNameError("placement policy", name, _HOME)
    module, attribute = _HOME[name]
    found: type[Policy] = getattr(importlib.import_module(f"slomo.placement.policies.{module}"), attribute)
    return found


def make_policy(policy: str | type[Policy], knowledge: Knowledge, pieces: Pieces) -> Policy:
    """Return a policy of a name, or of a class of one's own."""
    kind = policy_class(policy) if isinstance(policy, str) else policy
    return kind(knowledge, pieces)
