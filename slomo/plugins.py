"""Plug-ins of other packages, found by name through entry points and imported on first use.

A package with a model family declares it in its ``pyproject.toml``; the name then works wherever slomo takes one (the
convention of the Python packaging guide, as in pytest and fsspec)::

    [project.entry-points."slomo.models"]
    my-model = "my_package.my_module:MyFamily"

Built-in names take precedence: no plug-in can replace one.
"""

import functools
import importlib
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from slomo.errors import ConfigurationError, UnknownNameError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: group of entry points -> what its objects are
GROUPS: Mapping[str, str] = {
    "slomo.models": "model families: called without arguments, each gives a `slomo.models.base.ModelFamily`",
    "slomo.model_kinds": "readers of fitted models: called with (mapping, None), the name being the mapping's `kind`",
    "slomo.policies": "placement policies: classes derived from `slomo.placement.policies.base.Policy`",
    "slomo.counter_readers": "counter readers: called without arguments",
    "slomo.rate_readers": "readers of a pod's packet counters: called with (annotation, the pod's address)",
    "slomo.testbeds": "testbeds: called with (machine, network functions)",
}


@functools.cache
def plugins(group: str) -> "Mapping[str, EntryPoint]":
    """Return the entry points of a group by name; of two with the same name the first package's.

    >>> plugins("slomo.nothing-has-this")
    {}
    """
    from importlib.metadata import entry_points  # loads the e-mail parser; what is built in needs no look

    listed: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        listed.setdefault(point.name, point)
    return listed


def load_plugin(group: str, name: str) -> Callable[..., Any]:
    """Import and return the object of a plug-in by its name."""
    point = plugins(group)[name]
    package = point.dist.name if point.dist is not None else point.module
    try:
        made = point.load()
    except Exception as error:
        raise ConfigurationError(
            f"plug-in '{name}' of {package} cannot be imported: {type(error).__name__}: {error}",
            hint=f"mend or remove the package {package}; `slomo plugin list` shows all plug-ins",
        ) from error
    if not callable(made):
        raise ConfigurationError(f"plug-in '{name}' of {package} is {type(made).__name__}, needed {GROUPS[group]}")
    plugin: Callable[..., Any] = made
    return plugin


def imported(place: str) -> Any:
    """Import the object that ``"module:name"`` names, for slomo's own registries.

    >>> imported("slomo.plugins:imported") is imported
    True
    """
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def require_name(what: str, name: str, built_in: Collection[str], group: str) -> bool:
    """Return whether `name` is a plug-in's; False if it is built in.

    Raises UnknownNameError with the nearest name, plug-ins included.

    >>> require_name("model", "none", ("none", "mean"), "slomo.models")
    False
    """
    if name in built_in:
        return False
    if name not in plugins(group):
        raise UnknownNameError(what, name, (*built_in, *plugins(group)))
    return True
