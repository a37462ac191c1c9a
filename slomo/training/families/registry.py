"""Find model families (learning methods) by name; each is imported on first use.

The registry is lazy, like fsspec's: looking a name up imports only that family. Families of other packages are found by
name too (`slomo.plugins`); only slomo's are trained by default.
"""

import importlib
from collections.abc import Iterable

from slomo.errors import InvalidValueError
from slomo.models.base import ModelFamily
from slomo.plugins import load_plugin, require_name

#: Entry points under which other packages register families.
GROUP = "slomo.models"
_FOLDER = "slomo.training.families"
#: Name -> (file in this folder, factory, description).
_FAMILIES: dict[str, tuple[str, str, str]] = {
    "slomo-gbr": ("gradient_boosting", "PublishedFamily", "gradient boosting over all metrics, as published"),
    "slomo-xgb": ("xgb", "XgbFamily", "xgboost, monotone over the pressures that add up"),
    "slomo-smooth": ("monotone_network", "MonotoneFamily", "a smooth network, monotone over the same"),
    "slomo-gp": ("gaussian_process", "SmoothFamily", "a Gaussian process over the same, for few rows"),
    "slomo-additive": ("additive", "AdditiveFamily", "extra times that add up, shrunk, for few noisy rows"),
    "dobrescu": ("single_metric", "SingleMetricFamily", "a line over the competitors' solo cache access rate"),
    "bubbleup": ("single_metric", "SingleMetricFamily", "a line over the competitors' solo cache occupancy"),
    "dobrescu-curve": ("single_metric", "CurveFamily", "a falling curve over the competitors' solo access rate"),
    "bubbleup-curve": ("single_metric", "CurveFamily", "a falling curve over the competitors' solo occupancy"),
    "mean": ("no_interference", "MeanFamily", "the mean of what was measured beside others"),
    "none": ("no_interference", "NoInterferenceFamily", "no interference: solo throughput"),
}
#: Counter of the competitors that a baseline reads, and reporter (probe program) of that resource.
_READS = {
    "dobrescu": ("L2MISS", "FELTL3"),
    "bubbleup": ("L3OCC", "FELTLLC"),
    "dobrescu-curve": ("L2MISS", "FELTL3"),
    "bubbleup-curve": ("L3OCC", "FELTLLC"),
}
#: Families whose inputs are all columns, for tables measured elsewhere.
_FOR_TABLES: dict[str, tuple[str, str, str]] = {
    "extra-trees": ("every_column", "ExtraTreesFamily", "extra trees over every column of an imported table"),
    "boosted-trees": ("every_column", "BoostedTreesFamily", "xgboost over every column, of no forced shape"),
    "linear": ("every_column", "LinearFamily", "least squares over every column"),
}
_KNOWN = _FAMILIES | _FOR_TABLES


def model_names() -> tuple[str, ...]:
    """Return the names of all families."""
    return tuple(_FAMILIES)


def table_model_names() -> tuple[str, ...]:
    """Return the names of the additional families for imported tables."""
    return tuple(_FOR_TABLES)


def describe(name: str) -> str:
    """Return a description of a family in one line."""
    require_name("model", name, _KNOWN, GROUP)
    return _KNOWN[name][2] if name in _KNOWN else "a plug-in"


def make_family(alias_or_instance: str | ModelFamily) -> ModelFamily:
    """Return the model family of a name, or the given family itself.

    Raises UnknownNameError for a name that no family has; InvalidValueError for an object that is no family.
    """
    if isinstance(alias_or_instance, str):
        name = alias_or_instance
        require_name("model", name, _KNOWN, GROUP)
        if name not in _KNOWN:
            return make_family(load_plugin(GROUP, name)())
        module, factory, _ = _KNOWN[name]
        arguments = (name, *_READS[name]) if name in _READS else ()
        family: ModelFamily = getattr(importlib.import_module(f"{_FOLDER}.{module}"), factory)(*arguments)
        return family
    lacking = [
        part for part in ("name", "composition", "select_features", "fit") if not hasattr(alias_or_instance, part)
    ]
    if lacking:
        raise InvalidValueError(
            f"a {type(alias_or_instance).__name__} is no model family: it lacks {', '.join(lacking)}",
            hint="see `slomo.models.base.ModelFamily`; `slomo.testing.model_contract` checks one",
        )
    return alias_or_instance


def make_families(models: Iterable[str | ModelFamily] | None = None) -> tuple[ModelFamily, ...]:
    """Return the requested model families; by default all of slomo's."""
    chosen = model_names() if models is None else ([models] if isinstance(models, str) else list(models))
    families = tuple(make_family(model) for model in chosen)
    names = [family.name for family in families]
    if len(set(names)) < len(names):
        raise InvalidValueError(f"two models share a name: {', '.join(names)}", hint="give each its own")
    return families
