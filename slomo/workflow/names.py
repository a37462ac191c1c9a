"""Convert names that people write to workloads, machines, datasets and model libraries."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.vocabulary.numbers import whole_number
from slomo.vocabulary.workload import Workload
from slomo.vocabulary.workload_text import MOST_INSTANCES, instances_of, parse_workload

if TYPE_CHECKING:
    from slomo.models.library import ModelLibrary
    from slomo.records.dataset import ProfileDataset
    from slomo.vocabulary.machine import Machine
    from slomo.vocabulary.network_function import NetworkFunction


def sequence_of(items: Iterable[Workload | str] | Mapping[str, int] | Workload | str) -> list[Workload | str]:
    """Return a list; a single text or workload becomes a list of one, a mapping gives the count of each.

    Raises InvalidValueError for anything else.
    """
    if isinstance(items, (str, Workload)):
        return [items]
    if isinstance(items, Mapping):
        counts = {name: whole_number(f"instances of {name}", each, 0, MOST_INSTANCES) for name, each in items.items()}
        return [name for name, count in counts.items() for _ in range(count)]
    if not isinstance(items, Iterable):
        raise InvalidValueError(
            f"{items!r} is neither a workload nor a list of them", hint="write for instance ['stats', 'nat:2']"
        )
    return list(items)


def dataset_of(dataset: "ProfileDataset | str | Path | Sequence[ProfileDataset | str | Path]") -> "ProfileDataset":
    """Return a dataset; a path or the name of a shipped dataset is loaded, several datasets are merged."""
    from slomo.records.catalog import find_dataset  # pandas

    if isinstance(dataset, (str, Path)):
        return find_dataset(str(dataset))
    if isinstance(dataset, Sequence):
        if not dataset:
            raise InvalidValueError("a list without a dataset", hint="give what `profile` returned, or paths to it")
        whole, *others = [dataset_of(part) for part in dataset]
        for other in others:
            whole = whole.merge(other)
        return whole
    if not hasattr(dataset, "frame"):
        shown = repr(dataset) if isinstance(dataset, (int, float)) else f"a {type(dataset).__name__}"
        hint = "give what `profile` returned or a path to it; `import_table` makes one of a table measured elsewhere"
        raise InvalidValueError(f"{shown} is no dataset", hint=hint)
    return dataset


def named(texts: Iterable[Workload | str] | Mapping[str, int] | Workload | str) -> list[Workload | str]:
    """Read one or several names of workloads as people write them, with counts.

    A plain name stays a name, and the library decides which workload it means.

    >>> named("stats:2"), named("2 x stats + nat"), named({"nat": 1, "lpm": 2})
    (['stats', 'stats'], ['stats', 'stats', 'nat'], ['nat', 'lpm', 'lpm'])
    """
    tenants: list[Workload | str] = []
    for item in sequence_of(texts):
        if isinstance(item, Workload):
            tenants.append(item)
        else:
            texts_of_item = instances_of(item, MOST_INSTANCES - len(tenants))
            tenants += [parse_workload(text) if "(" in text or "@" in text else text for text in texts_of_item]
    return tenants


def own_functions(own: "Iterable[NetworkFunction] | NetworkFunction") -> "tuple[NetworkFunction, ...]":
    """Return the user's additional network functions, given as one or several."""
    from slomo.vocabulary.network_function import NetworkFunction  # reads YAML, which predicting does without

    functions = tuple(own) if isinstance(own, Iterable) and not isinstance(own, str) else (own,)
    for function in functions:
        if not isinstance(function, NetworkFunction):
            raise InvalidValueError(
                f"own: {function!r} is no NetworkFunction", hint="load_network_function('mirror.yaml') reads one"
            )
    return functions


def target_named(target: Workload | str) -> Workload | str:
    """Read one target as people write it. Raises InvalidValueError for a count, which a target has not."""
    instances = named([target])
    if len(instances) > 1:
        raise InvalidValueError(
            f"target '{target}' is {len(instances)} instances, needed one",
            hint="ask about one and name the others among its competitors",
        )
    return instances[0]


def workloads_of(workloads: Sequence[Workload | str] | Workload | str) -> tuple[Workload, ...]:
    """Return one workload or several, given as values or as text, without duplicates."""
    items = sequence_of(workloads)
    return tuple(dict.fromkeys(item if isinstance(item, Workload) else parse_workload(item) for item in items))


def machine_named(machine: "str | Machine") -> "Machine":
    """Return a machine; a name or a YAML file is loaded."""
    from slomo.vocabulary.machine import load_machine  # reads YAML, which predicting does without

    return load_machine(machine) if isinstance(machine, str) else machine


def machine_given(machine: "str | Machine") -> "str | Machine":
    """Return a machine as given, but the machine itself instead of the name of its file."""
    is_file = isinstance(machine, str) and machine.endswith((".yaml", ".yml"))
    return machine_named(machine) if is_file else machine


def machine_of_dataset(dataset: "ProfileDataset", name: str) -> "Machine":
    """Return a dataset's machine as described when it was measured, or else the shipped one of its name."""
    from slomo.vocabulary.machine import Machine

    described = dataset.environment.get("machines", {}).get(name)
    return Machine.from_dict(described) if isinstance(described, Mapping) else machine_named(name)


def host_of(library: "ModelLibrary", machine: "str | Machine | None") -> "Machine":
    """Return the machine asked for, or the library's only one.

    Raises an error if the library has another machine of this name.
    """
    asked = library.require_machine(None) if machine is None else machine
    try:
        where = machine_named(asked)
    except UnknownNameError:
        if asked not in library.machines:
            raise
        hint = f"the models are for a machine of your own: give its description with --machine {asked}.yaml"
        raise UnknownNameError("machine", str(asked), (), hint=hint) from None
    library.require_measured_on(where, *([f"the one that ships as '{where.name}'"] if machine is None else []))
    return where
