"""Whether what shares a machine's name is of one machine: told by `Machine.fingerprint`, never by the name."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from slomo.errors import ConfigurationError, SlomoError

if TYPE_CHECKING:
    from slomo.models.library import ModelLibrary
    from slomo.vocabulary.machine import Machine


def stated_fingerprint(environment: Mapping[str, Any], machine: str) -> str:
    """Return the fingerprint of the machine that an environment describes under a name; empty where it describes none.

    Examples
    --------
    >>> from slomo.vocabulary.machine import load_machine
    >>> here = load_machine("silver-4110")
    >>> stated_fingerprint({"machines": {"mine": here.to_dict()}}, "mine") == here.fingerprint
    True
    """
    from slomo.vocabulary.machine import Machine  # reads YAML, which predicting does without

    machines = environment.get("machines")
    described = machines.get(machine) if isinstance(machines, Mapping) else None
    try:
        return Machine.from_dict(described).fingerprint if isinstance(described, Mapping) else ""
    except (SlomoError, TypeError, ValueError):
        return ""  # a table's own description


def require_same(machine: str, measured: str, other: str, what: str) -> None:
    """Refuse what is of another machine than models; an unknown fingerprint (empty) says nothing.

    Raises
    ------
    ConfigurationError
        With both fingerprints.
    """
    if measured and other and measured != other:
        raise ConfigurationError(
            f"the models were measured on a machine '{machine}' with fingerprint {measured}, {what} is of another "
            f"'{machine}', with fingerprint {other}",
            hint="give the machine a name of its own, then profile and train on it",
        )


def require_measured_on(library: "ModelLibrary", machine: "Machine", what: str = "the one asked about") -> None:
    """Refuse a machine that a library's models of its name were not measured on; no models of it is no fault here.

    Raises
    ------
    ConfigurationError
        With both fingerprints; where the models tell none, with what a socket has.
    """
    if machine.name not in library.machines:
        return
    measured = library.fingerprint_of(machine.name)
    require_same(machine.name, measured, machine.fingerprint, what)
    if measured:
        return
    first = library[machine.name, library.workloads(machine.name)[0]]
    there, here = first.capacities, machine.capacities().to_dict()
    for name, value in ({} if there is None else there.to_dict()).items():
        if value != here.get(name):
            raise ConfigurationError(
                f"the models were measured on a machine '{machine.name}' (fingerprint not told) with {name} {value}, "
                f"{what}, with fingerprint {machine.fingerprint}, has {here.get(name)}",
                hint="give the machine a name of its own, then profile and train on it",
            )


def require_recorded_on(library: "ModelLibrary", environment: Mapping[str, Any], machines: Iterable[str]) -> None:
    """Refuse measurements that were made on other machines than a library's models of these names.

    Raises
    ------
    ConfigurationError
        With both fingerprints.
    """
    for machine in machines:
        if machine in library.machines:
            stated = stated_fingerprint(environment, machine)
            require_same(machine, library.fingerprint_of(machine), stated, "the dataset")
