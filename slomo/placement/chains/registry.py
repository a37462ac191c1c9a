"""The policies for chains on NUMA nodes by name; each is imported when it is asked for."""

import importlib
from dataclasses import dataclass

from slomo.errors import UnknownNameError
from slomo.placement.chains.judges import ChainPolicy


@dataclass(frozen=True)
class _Home:
    module: str
    function: str
    afresh: bool = False
    predicts: bool = False
    allocates: bool = False


_HOMES = {
    "numasfp": _Home("numasfp", "numasfp", afresh=True, allocates=True),
    "octans": _Home("static", "octans"),
    "octans-predicted": _Home("predicted", "slomo_numa", predicts=True),
    "node-first": _Home("static", "node_first"),
    "node-balance": _Home("static", "node_balance"),
    "slomo-numa": _Home("predicted", "slomo_numa", afresh=True, predicts=True),
}


def chain_policy_names() -> tuple[str, ...]:
    """Return the names of the policies for chains on NUMA nodes.

    Examples
    --------
    >>> chain_policy_names()
    ('numasfp', 'octans', 'octans-predicted', 'node-first', 'node-balance', 'slomo-numa')
    """
    return tuple(_HOMES)


def places_afresh(name: str) -> bool:
    """Return whether a policy places anew in every interval, by the rates of then.

    Examples
    --------
    >>> places_afresh("numasfp"), places_afresh("octans")
    (True, False)
    """
    return _home(name).afresh


def goes_by_predictions(name: str) -> bool:
    """Return whether a policy asks what whole nodes serve, and needs models for that.

    Examples
    --------
    >>> goes_by_predictions("octans-predicted"), goes_by_predictions("octans")
    (True, False)
    """
    return _home(name).predicts


def allocates(name: str) -> bool:
    """Return whether a policy gives chains cache ways and memory bandwidth to themselves.

    Examples
    --------
    >>> allocates("numasfp"), allocates("slomo-numa")
    (True, False)
    """
    return _home(name).allocates


def chain_policy(name: str) -> ChainPolicy:
    """Return the policy for chains called `name`.

    Raises
    ------
    UnknownNameError
        With the nearest name.

    Examples
    --------
    >>> chain_policy("octans").__name__
    'octans'
    """
    home = _home(name)
    policy: ChainPolicy = getattr(importlib.import_module(f"slomo.placement.chains.{home.module}"), home.function)
    return policy


def _home(name: str) -> _Home:
    if name not in _HOMES:
        raise UnknownNameError("policy for chains on NUMA nodes", name, _HOMES)
    return _HOMES[name]
