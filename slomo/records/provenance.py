"""Provenance of measurements, and the fields that must agree before datasets are merged.

A merge of unlike measurements is refused, with a readable list of differences, as by pyperf's metadata check and DPDK
DTS's testbed fingerprints.
"""

import platform
from collections.abc import Iterable, Mapping
from typing import Any

from slomo.errors import IncompatibleMeasurementsError
from slomo.vocabulary.colocation import Colocation

SCHEMA_VERSION = 1

#: Fields of an environment that must agree if both sides have them.
MUST_MATCH: tuple[str, ...] = (
    "testbed", "machine", "settings", "environment", "simulator", "noise", "protocol", "source",
    "machines", "network_functions",
)  # fmt: skip

#: Fields that are tables of named entries; only entries whose names are on both sides are compared.
BY_NAME: tuple[str, ...] = ("machines", "network_functions")

_PACKAGES = ("slomo", "numpy", "pandas", "pyarrow", "numba")


def versions(packages: Iterable[str] = _PACKAGES) -> dict[str, str]:
    """Return the version of the interpreter, and of each of `packages` that is installed."""
    from importlib.metadata import PackageNotFoundError, version  # loads the e-mail parser

    installed = {"python": platform.python_version()}
    for name in packages:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def platform_fingerprint() -> dict[str, str]:
    """Return properties that identify the kind of host, without its name or address."""
    return {"system": platform.system(), "kernel": platform.release(), "architecture": platform.machine()}


def describe_environment(
    testbed: str,
    settings: Mapping[str, Any] | None = None,
    *,
    machines: Mapping[str, Any] | None = None,
    network_functions: Mapping[str, Any] | None = None,
    host: bool = True,
) -> dict[str, Any]:
    """Return the description of how a dataset was measured: machine, testbed, settings, versions.

    `settings`: properties that must be equal for runs to be comparable. `host`: whether to include versions and
    platform; False if results do not depend on them, as in the simulator.
    """
    stated: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "testbed": testbed, "settings": dict(settings or {})}
    stated |= {"machines": dict(machines)} if machines else {}
    stated |= {"network_functions": dict(network_functions)} if network_functions else {}
    return stated | ({"versions": versions(), "platform": platform_fingerprint()} if host else {})


def describe_run(
    colocation: Colocation, seed: int, testbed: str, settings: Mapping[str, Any] | None = None, *, host: bool = True
) -> dict[str, Any]:
    """Return the description of how one run was made."""
    what = colocation.to_dict()
    stated = {
        "schema_version": SCHEMA_VERSION,
        "run_key": colocation.key,
        "machine": colocation.machine,
        "target": what["target"],
        "competitors": what["competitors"],
        "seed": seed,
        "testbed": testbed,
        "settings": dict(settings or {}),
    }
    return stated | ({"versions": versions(), "platform": platform_fingerprint()} if host else {})


def require_felt(environment: Mapping[str, Any]) -> None:
    """Raise an error for old probe measurements, which were converted by a rule that was later found wrong."""
    settings = environment.get("settings")
    if not isinstance(settings, Mapping) or environment.get("testbed") != "host":
        return
    if settings.get("counters") == "probe" and "reporters" not in settings:
        raise IncompatibleMeasurementsError(
            "the dataset has slowdowns of reporters as equivalents of counters (L3OCC, READ, ...), which were off by "
            "36 to 85 %; needed: extra times of the reporters themselves (FELTLLC, FELTREAD, ...)",
            hint="measure it again: `slomo profile NF ... --testbed host` with this version",
        )


def difference(left: Mapping[str, Any], right: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the differences between two environments in fields that must agree, one line each."""
    lines: list[str] = []
    for key in MUST_MATCH:
        if key not in left or key not in right:
            continue
        mine, yours = left[key], right[key]
        if key in BY_NAME and isinstance(mine, Mapping) and isinstance(yours, Mapping):
            shared = mine.keys() & yours.keys()
            mine, yours = ({name: side[name] for name in shared} for side in (mine, yours))
        lines += _compare(key, mine, yours)
    return tuple(lines)


def merge_environments(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment of a merged dataset: tables are united; of differing values, both sides' are listed.

    >>> merge_environments({"seed": 1, "machines": {"a": 1}}, {"seed": 2, "machines": {"b": 2}})
    {'seed': [1, 2], 'machines': {'a': 1, 'b': 2}}
    """
    if lines := difference(left, right):
        raise IncompatibleMeasurementsError(
            "these measurements must not be merged, their environments differ (first | second):\n  "
            + "\n  ".join(lines),
            hint="keep them as two datasets, or measure one of them again in the other's environment",
        )
    return _united(left, right)


def _united(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(left)
    for key, value in right.items():
        mine = merged.get(key)
        if key not in merged or mine == value:
            merged[key] = value
        elif isinstance(mine, Mapping) and isinstance(value, Mapping):
            merged[key] = _united(mine, value)
        else:
            left_items = list(mine) if isinstance(mine, list) else [mine]
            merged[key] = left_items + [
                item for item in (value if isinstance(value, list) else [value]) if item not in left_items
            ]
    return merged


def _compare(path: str, left: Any, right: Any) -> list[str]:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        keys = sorted({*map(str, left), *map(str, right)})
        return [
            line
            for key in keys
            for line in _compare(f"{path}.{key}", left.get(key, _NOT_STATED), right.get(key, _NOT_STATED))
        ]
    return [] if left == right else [f"{path}: {_short(left)} | {_short(right)}"]


_NOT_STATED = "not stated"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def holds_shares(environment: Mapping[str, Any]) -> bool:
    """Return whether the rates of an imported table are shares of solo throughput instead of Mpps.

    >>> holds_shares({"import": {"unit": "share"}}), holds_shares({"import": {"unit": "kpps"}}), holds_shares({})
    (True, False, False)
    """
    imported = environment.get("import")
    return isinstance(imported, Mapping) and imported.get("unit") in ("share", "%")
