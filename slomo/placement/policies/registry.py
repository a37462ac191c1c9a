"""Find policies by name; each is imported on first use.

A file of this folder is the policy of its name: `emptiest_first.py` has the class `EmptiestFirst`, policy
``emptiest-first``. The table lists the policies of this package in the order in which they are shown.
"""

import functools
from collections.abc import Mapping
from pathlib import Path

from slomo.errors import InvalidValueError
from slomo.placement.chains.policies import chain_policy_names
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


@functools.cache
def _policies() -> Mapping[str, str]:
    """Return name -> file and class of each policy: those of the table, then those of files that it does not name."""
    listed = {place.partition(":")[0] for place in _POLICIES.values()}
    others = sorted({path.stem for path in Path(__file__).parent.glob("[a-z]*.py")} - listed - {"base", "registry"})
    return _POLICIES | {stem.replace("_", "-"): f"{stem}:{stem.title().replace('_', '')}" for stem in others}


def policy_names() -> tuple[str, ...]:
    """Return the names of all policies."""
    return tuple(_policies())


def policy_class(name: str) -> type[Policy]:
    """Return the class of the policy called `name`.

    Raises UnknownNameError with the nearest name; InvalidValueError for a policy for chains on NUMA nodes.
    """
    if name in chain_policy_names():
        raise InvalidValueError(
            f"policy '{name}' places chains with rates on NUMA nodes, not requests one by one",
            hint="`slomo place` does, and slomo.workflow.chains.on_nodes",
        )
    if require_name("placement policy", name, (*_policies(), *chain_policy_names()), GROUP):
        policy = load_plugin(GROUP, name)
        if not (isinstance(policy, type) and issubclass(policy, Policy)):
            raise InvalidValueError(
                f"plug-in policy '{name}' is no class derived from slomo.placement.policies.base.Policy"
            )
        return policy
    built_in: type[Policy] = imported(f"slomo.placement.policies.{_policies()[name]}")
    return built_in
