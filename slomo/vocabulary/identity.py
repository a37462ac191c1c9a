"""Check whether two machines are the same by their fingerprints, never by their names."""

from collections.abc import Mapping
from typing import Any

from slomo.errors import ConfigurationError, SlomoError


def stated_fingerprint(environment: Mapping[str, Any], machine: str) -> str:
    """Return the fingerprint of the machine that an environment describes under a name; empty without one."""
    from slomo.vocabulary.machine import Machine  # reads YAML, which predicting does without

    machines = environment.get("machines")
    described = machines.get(machine) if isinstance(machines, Mapping) else None
    try:
        return Machine.from_dict(described).fingerprint if isinstance(described, Mapping) else ""
    except (SlomoError, TypeError, ValueError):
        return ""  # a table's own description


def require_same(
    machine: str, measured: str, other: str, what: str, source: str = "the models were measured on"
) -> None:
    """Raise an error if data and models are from different machines."""
    if measured and other and measured != other:
        raise ConfigurationError(
            f"{source} a machine '{machine}' with fingerprint {measured}, {what} is of another "
            f"'{machine}', with fingerprint {other}",
            hint="give the machine a name of its own, then profile and train on it",
        )
