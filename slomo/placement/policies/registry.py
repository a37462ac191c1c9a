"""The policies by name; each is imported when it is asked for."""

import importlib

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.placement.knowledge import Knowledge
from slomo.placement.mixes import Pieces
from slomo.placement.nodes import ChainPolicy
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


#: Policies for chains on the NUMA nodes of servers; `slomo-numa` searches by predictions, see `placement.numa`.
_CHAIN_HOME = {
    "numasfp": ("numasfp", "numasfp"),
    "octans": ("octans", "octans"),
    "node-first": ("node_first", "node_first"),
    "node-balance": ("node_balance", "node_balance"),
    "slomo-numa": None,
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
    if name in _CHAIN_HOME:
        raise InvalidValueError(
            f"policy '{name}' places chains with rates on NUMA nodes, not requests one by one",
            hint="`slomo place` does, and slomo.workflow.place_chains",
        )
    if name not in _HOME:
        raise UnknownNameError("placement policy", name, (*_HOME, *_CHAIN_HOME))
    module, attribute = _HOME[name]
    found: type[Policy] = getattr(importlib.import_module(f"slomo.placement.policies.{module}"), attribute)
    return found


def make_policy(policy: str | type[Policy], knowledge: Knowledge, pieces: Pieces) -> Policy:
    """Return a policy of a name, or of a class of one's own."""
    kind = policy_class(policy) if isinstance(policy, str) else policy
    return kind(knowledge, pieces)


def chain_policy_names() -> tuple[str, ...]:
    """Return the names of the policies for chains on NUMA nodes.

    Examples
    --------
    >>> chain_policy_names()
    ('numasfp', 'octans', 'node-first', 'node-balance', 'slomo-numa')
    """
    return tuple(_CHAIN_HOME)


def chain_policy(name: str) -> ChainPolicy | None:
    """Return the policy for chains called `name`; None for `slomo-numa`, which `placement.numa` runs itself.

    Raises
    ------
    UnknownNameError
        With the nearest name.
    """
    if name not in _CHAIN_HOME:
        raise UnknownNameError("policy for chains on NUMA nodes", name, _CHAIN_HOME)
    home = _CHAIN_HOME[name]
    if home is None:
        return None
    found: ChainPolicy = getattr(importlib.import_module(f"slomo.placement.policies.{home[0]}"), home[1])
    return found
