"""Policies for chains on NUMA nodes by name; each is imported on first use."""

from dataclasses import dataclass

from slomo.errors import UnknownNameError
from slomo.placement.chains.judges import ChainPolicy
from slomo.plugins import imported


@dataclass(frozen=True)
class ListedChainPolicy:
    """A chain policy's module, and whether it moves chains, uses predictions, and gives exclusive resources."""

    home: str
    places_afresh: bool = False
    predicts: bool = False
    allocates: bool = False

    @property
    def decide(self) -> ChainPolicy:
        """The function by which the policy chooses nodes."""
        policy: ChainPolicy = imported(f"slomo.placement.chains.{self.home}")
        return policy


_POLICIES = {
    "numasfp": ListedChainPolicy("numasfp:numasfp", places_afresh=True, allocates=True),
    "octans": ListedChainPolicy("static:octans"),
    "octans-predicted": ListedChainPolicy("predicted:best_nodes", predicts=True),
    "node-first": ListedChainPolicy("static:node_first"),
    "node-balance": ListedChainPolicy("static:node_balance"),
    "slomo-numa": ListedChainPolicy("predicted:best_nodes", places_afresh=True, predicts=True),
}


def chain_policy_names() -> tuple[str, ...]:
    """Return the names of the policies for chains on NUMA nodes."""
    return tuple(_POLICIES)


def chain_policy(name: str) -> ListedChainPolicy:
    """Return a policy for chains by its name. Raises UnknownNameError, with the nearest name, if there is none.

    Examples
    --------
    >>> chain_policy("octans").decide.__name__, chain_policy("numasfp").allocates
    ('octans', True)
    """
    if name not in _POLICIES:
        raise UnknownNameError("policy for chains on NUMA nodes", name, _POLICIES)
    return _POLICIES[name]
