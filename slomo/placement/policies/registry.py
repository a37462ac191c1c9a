"""Find policies by name; each is imported on first use."""

from slomo.errors import InvalidValueError
from slomo.placement.chains.registry import chain_policy_names
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.feasibility.mixes import Pieces
from slomo.placement.policies.base import Policy
from slomo.plugins import imported, load_plugin, require_name

#: Entry-point group under which other packages register policies.
GROUP = "slomo.policies"

_POLICIES = {
    "predicted": "predicted:PredictedBestFit",
    "slomo-search": "search:MixSearch",
    "resq-greedy": "resq_greedy:ResqGreedy",
    "resq-milp": "resq_milp:ResqMilp",
    "first-fit": "baselines:FirstFit",
    "equal-partition": "baselines:EqualPartition",
    "e2": "baselines:DynamicScaling",
    "dobrescu": "baselines:DobrescuFirstFit",
}


def policy_names() -> tuple[str, ...]:
    """Return the names of all policies.

    Examples
    --------
    >>> "predicted" in policy_names()
    True
    """
    return tuple(_POLICIES)


def policy_class(name: str) -> type[Policy]:
    """Return the class of the policy called `name`.

    Raises UnknownNameError with the nearest name; InvalidValueError for a policy for chains on NUMA nodes.

    Examples
    --------
    >>> policy_class("predicted").picks
    'best'
    """
    if name in chain_policy_names():
        raise InvalidValueError(
            f"policy '{name}' places chains with rates on NUMA nodes, not requests one by one",
            hint="`slomo place` does, and slomo.workflow.chains.on_nodes",
        )
    if require_name("placement policy", name, (*_POLICIES, *chain_policy_names()), GROUP):
        policy = load_plugin(GROUP, name)
        if not (isinstance(policy, type) and issubclass(policy, Policy)):
            raise InvalidValueError(
                f"plug-in policy '{name}' is no class derived from slomo.placement.policies.base.Policy"
            )
        return policy
    built_in: type[Policy] = imported(f"slomo.placement.policies.{_POLICIES[name]}")
    return built_in


def make_policy(policy: str | type[Policy], estimates: ThroughputEstimates, pieces: Pieces) -> Policy:
    """Create the policy of a given name, or of the caller's own class."""
    kind = policy_class(policy) if isinstance(policy, str) else policy
    return kind(estimates, pieces)
