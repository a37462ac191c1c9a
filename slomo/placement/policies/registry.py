"""The policies by name; each is imported when it is asked for."""

import importlib

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.placement.chains.registry import chain_policy_names
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.feasibility.mixes import Pieces
from slomo.placement.policies.base import Policy

_HOME = {
    "slomo": ("predicted", "PredictedBestFit"),
    "slomo-search": ("search", "MixSearch"),
    "resq-greedy": ("resq_greedy", "ResqGreedy"),
    "resq-milp": ("resq_milp", "ResqMilp"),
    "first-fit": ("baselines", "FirstFit"),
    "equal-partition": ("baselines", "EqualPartition"),
    "e2": ("baselines", "DynamicScaling"),
    "dobrescu": ("baselines", "DobrescuFirstFit"),
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
    InvalidValueError
        For a policy that places chains on NUMA nodes.

    Examples
    --------
    >>> policy_class("slomo").picks
    'best'
    """
    if name in chain_policy_names():
        raise InvalidValueError(
            f"policy '{name}' places chains with rates on NUMA nodes, not requests one by one",
            hint="`slomo place` does, and slomo.workflow.place_chains",
        )
    if name not in _HOME:
        raise UnknownNameError("placement policy", name, (*_HOME, *chain_policy_names()))
    module, attribute = _HOME[name]
    found: type[Policy] = getattr(importlib.import_module(f"slomo.placement.policies.{module}"), attribute)
    return found


def make_policy(policy: str | type[Policy], estimates: ThroughputEstimates, pieces: Pieces) -> Policy:
    """Return a policy of a name, or of a class of one's own."""
    kind = policy_class(policy) if isinstance(policy, str) else policy
    return kind(estimates, pieces)
