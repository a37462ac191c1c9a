"""A library of models, one per machine and workload (NF with traffic), found by name and stored as data.

Loading reads only an index. An NF's files are read when first asked for, and each sensitivity model is built and
checked on first use. None of it needs scikit-learn or xgboost.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slomo.errors import ConfigurationError, InvalidValueError, UnknownNameError, UsageError, listed
from slomo.models import storage
from slomo.models.nf_model import NFModel
from slomo.units import plural
from slomo.vocabulary.display import frame_of, html_table
from slomo.vocabulary.identity import require_same, stated_fingerprint
from slomo.vocabulary.workload import Workload

if TYPE_CHECKING:
    from slomo.vocabulary.display import DataFrame
    from slomo.vocabulary.machine import Machine

Key = tuple[str, str]


class ModelLibrary(Mapping[Key, NFModel]):
    """Trained models, found by machine and workload key.

    Parameters
    ----------
    models : iterable of NFModel
        In any order.

    Examples
    --------
    >>> len(ModelLibrary([]))
    0
    """

    def __init__(self, models: Iterable[NFModel] = ()) -> None:
        self._models: dict[Key, NFModel | storage.Entry] = {(m.machine, m.workload.key): m for m in models}

    def __getitem__(self, key: Key) -> NFModel:
        try:
            model = self._models[key]
        except KeyError:
            example = next(iter(self), ("e5-2620v4", "lpm@64B,100000f"))
            raise KeyError(f"no model {key!r}; a key names machine and workload, for instance {example}") from None
        if isinstance(model, storage.Entry):
            model = self._models[key] = storage.read_model(model)
        return model

    def __iter__(self) -> Iterator[Key]:
        return iter(sorted(self._models))

    def __len__(self) -> int:
        return len(self._models)

    @cached_property
    def machines(self) -> tuple[str, ...]:
        """Names of the machines for which the library has models."""
        return tuple(sorted({machine for machine, _ in self._models}))

    @property
    def _only_machine(self) -> str | None:
        """Name of the machine if all models are of one."""
        return self.machines[0] if len(self.machines) == 1 else None

    def workloads(self, machine: str) -> tuple[str, ...]:
        """Return the keys of the workloads that have models on `machine`."""
        return tuple(key for owner, key in self if owner == machine)

    def fingerprint_of(self, machine: str) -> str:
        """Return the fingerprint of the machine on which models of this name were measured; empty if unknown."""
        own = (item.machine_fingerprint for (owner, _), item in self._models.items() if owner == machine)
        return next(filter(None, own), "") or self[machine, self.workloads(machine)[0]].machine_fingerprint

    def require_measured_on(self, machine: "Machine", what: str = "the one asked about") -> None:
        """Raise ConfigurationError if a machine differs from the one of its name on which models were measured."""
        if machine.name not in self.machines:
            return
        measured = self.fingerprint_of(machine.name)
        require_same(machine.name, measured, machine.fingerprint, what)
        there = None if measured else self[machine.name, self.workloads(machine.name)[0]].capacities
        here = machine.capacities().to_dict()
        for name, value in ({} if there is None else there.to_dict()).items():
            if value != here.get(name):
                raise ConfigurationError(
                    f"the models were measured on a machine '{machine.name}' (fingerprint not recorded) with {name} "
                    f"{value}, {what}, with fingerprint {machine.fingerprint}, has {here.get(name)}",
                    hint="give the machine a name of its own, then profile and train on it",
                )

    def name_of(self, machine: "str | Machine | None") -> str | None:
        """Return a machine's name; by default that of the only one, or None if there are several.

        Raises ConfigurationError if the library's machine of this name is a different one.
        """
        if machine is None:
            return self._only_machine
        if isinstance(machine, str):
            return machine
        if not hasattr(machine, "fingerprint"):
            raise InvalidValueError(f"machine is {machine!r}, needed a name or a Machine", hint="write 'e5-2620v4'")
        self.require_measured_on(machine)
        return machine.name

    def require_recorded_on(self, environment: Mapping[str, Any], machines: Iterable[str]) -> None:
        """Raise ConfigurationError for measurements from other machines than the models of the same names."""
        for machine in machines:
            if machine in self.machines:
                known = self.fingerprint_of(machine)
                require_same(machine, known, stated_fingerprint(environment, machine), "the dataset")

    def find(self, workload: Workload | str, machine: str | None = None) -> NFModel:
        """Return the model of a workload, which is given as a `Workload`, by its key, or by its NF's name.

        An NF name means the only workload of that NF or, of several, the one with default traffic and configuration.

        Raises
        ------
        UnknownNameError
            With the nearest name, or with the machines that have the NF.
        UsageError
            Where the machine or the traffic is left open and several would do.
        """
        machine = self.require_machine(machine)
        name = workload.key if isinstance(workload, Workload) else str(workload)
        if (machine, name) in self._models:
            return self[machine, name]
        nf = workload.nf if isinstance(workload, Workload) else name
        same = [key for _, key in self._by_nf.get((machine, nf), ())]
        if len(same) == 1 and (not isinstance(workload, Workload) or self[machine, same[0]].traffic):
            return self[machine, same[0]]
        if same and not isinstance(workload, Workload) and Workload(nf).key in same:
            return self[machine, Workload(nf).key]
        raise self._not_found(name, nf, machine, same, exact=isinstance(workload, Workload))

    def profiles(self, nf: str, machine: str | None = None) -> tuple[NFModel, ...]:
        """Return all models of a network function on a machine, in the order of their keys.

        Raises
        ------
        UnknownNameError, UsageError, listed
            As :meth:`find`.
        """
        machine = self.require_machine(machine)
        same = self._by_nf.get((machine, nf))
        if same is None:
            raise self._not_found(nf, nf, machine, [], exact=True)
        return tuple([self[key] for key in same])

    @cached_property
    def _by_nf(self) -> dict[Key, list[Key]]:
        """Return the keys of each NF on each machine, in order."""
        keys: dict[Key, list[Key]] = {}
        for machine, key in self:
            keys.setdefault((machine, nf_of(key)), []).append((machine, key))
        return keys

    def require_machine(self, machine: str | None) -> str:
        """Return the name of a machine for which there are models; by default that of the only one.

        Raises UsageError if several machines are possible; UnknownNameError for one without models.
        """
        machine = self._only_machine if machine is None else machine
        if machine is None:
            raise UsageError(
                f"the models are for several machines: {', '.join(self.machines) or 'none'}",
                hint=f"name one as machine, on the command line --machine {next(iter(self.machines), 'NAME')}",
            )
        if machine not in self.machines:
            raise _unknown_machine(machine, self.machines)
        return machine

    def _not_found(self, name: str, nf: str, machine: str, same: list[str], *, exact: bool) -> UsageError:
        if same and not exact:
            return UsageError(
                f"'{name}' was profiled as {len(same)} workloads on {machine}: {', '.join(same)}",
                hint="name one of them in full",
            )
        if same:
            return UnknownNameError("profiled workload", name, same)
        from slomo.vocabulary.network_function import network_function_names  # reads YAML: only for the hint

        elsewhere = sorted({owner for owner, key in self._models if nf_of(key) == nf})
        hint = None
        if elsewhere:
            hint = (
                f"it has models on {', '.join(elsewhere)}: --machine {elsewhere[0]}, or profile it on {machine} first"
            )
        nf_names = {nf_of(key) for key in self.workloads(machine)}
        if meant := _mix_meant(nf, nf_names):
            hint = f"did you mean '{meant}'? {nf} would be one function"
        elif not elsewhere and nf in network_function_names():
            hint = f"it was never profiled there; run slomo profile {nf}, then slomo train. Known: {listed(nf_names)}"
        return UnknownNameError("network function", nf, nf_names, hint=hint, where=f"among the models of {machine}")

    def save(self, directory: str | Path) -> Path:
        """Write every model as JSON into a folder of its own below `directory`, and an index.

        Raises
        ------
        StoreError
            Where the directory cannot be written.
        ConfigurationError
            Where a model of a plug-in cannot be saved as data.
        """
        return storage.write_library(Path(directory), [self[key] for key in self])

    @classmethod
    def load(cls, directory: str | Path) -> "ModelLibrary":
        """Read a library's index; models themselves are read on first use.

        Raises
        ------
        ConfigurationError
            For a folder that is no library, a damaged file, or another schema version.
        """
        library = cls()
        library._models.update(
            {(entry.machine, entry.workload): entry for entry in storage.read_index(Path(directory))}
        )
        return library._of_one_machine_each()

    def merge(self, other: "ModelLibrary") -> "ModelLibrary":
        """Return both libraries as one; a model in both is taken from `other`."""
        return ModelLibrary([*(self[key] for key in self if key not in other), *other.values()])._of_one_machine_each()

    def _of_one_machine_each(self) -> "ModelLibrary":
        """Return this library, after checking that all models of a machine name are of one machine."""
        fingerprints: dict[str, str] = {}
        for (machine, _), item in self._models.items():
            if item.machine_fingerprint:
                first = fingerprints.setdefault(machine, item.machine_fingerprint)
                require_same(machine, first, item.machine_fingerprint, "another of these models")
        return self

    def __repr__(self) -> str:
        return f"ModelLibrary({plural(len(self), 'model')} for {', '.join(self.machines) or 'no machine'})"

    def to_frame(self) -> "DataFrame":
        """Return machine, workload and solo throughput of every model as a pandas DataFrame."""
        return frame_of(
            {
                "machine": [machine for machine, _ in self],
                "workload": [key for _, key in self],
                "solo_mpps": [model.solo_mpps for model in self.values()],
            }
        )

    def _repr_html_(self) -> str:
        rows = ((*pair, f"{self[pair].solo_mpps:.3f}") for pair in self)
        return html_table(plural(len(self), "model"), ("machine", "workload", "solo [Mpps]"), rows)


def load_library(directory: str | Path) -> ModelLibrary:
    """Load the models that were saved in a directory.

    Raises
    ------
    ConfigurationError
        Where there are none, or a file is damaged.

    Examples
    --------
    >>> load_library("/nowhere/at/all")
    Traceback (most recent call last):
    slomo.errors.ConfigurationError: there are no models at '/nowhere/at/all'
    hint: train on a shipped dataset: slomo train slomo-e5-2620v4 --models /nowhere/at/all, or on your own: slomo ...
    """
    if not isinstance(directory, (str, os.PathLike)):
        what = type(directory).__name__
        raise InvalidValueError(f"{what} is no library of models", hint="give the folder they were saved in, 'models'")
    if Path(directory).is_file():
        raise ConfigurationError(f"'{directory}' is a file, needed a folder of models", hint="name what `train` wrote")
    if not Path(directory).is_dir():
        steps = (
            f"slomo train slomo-e5-2620v4 --models {directory}, or on your own: slomo profile NF --out profile.parquet"
        )
        raise ConfigurationError(f"there are no models at '{directory}'", hint=f"train on a shipped dataset: {steps}")
    return ModelLibrary.load(directory)


def opened(library: ModelLibrary | str | Path) -> ModelLibrary:
    """Return the library itself, or load it if a directory is given.

    Raises InvalidValueError for anything else.
    """
    return library if isinstance(library, ModelLibrary) else load_library(library)


def _unknown_machine(machine: str, modelled: tuple[str, ...]) -> UnknownNameError:
    from slomo.vocabulary.machine import machine_names

    if machine in machine_names():
        hint = f"there are models for {listed(modelled)}; profile and train on '{machine}' first"
        return UnknownNameError("machine with models", machine, modelled, hint=hint)
    return UnknownNameError("machine", machine, {*modelled, *machine_names()})


def _mix_meant(wrong: str, names: Iterable[str]) -> str:
    """Return the mix that a name of another grammar may mean; empty if it names functions without models."""
    count, times, one = wrong.partition("x")
    if times and count.isdigit() and one in names:
        return f"{count} x {one}"
    stages = wrong.split("+")
    return " + ".join(stages) if len(stages) > 1 and set(stages) <= set(names) else ""


def nf_of(key: str) -> str:
    """Return the NF's name in a workload key.

    >>> nf_of("synthetic(data_size_mib=8)@64B,100000f")
    'synthetic'
    """
    return key.split("@", 1)[0].split("(", 1)[0]
