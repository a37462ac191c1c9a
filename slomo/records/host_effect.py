"""Convert probe readings of several hosts to common units, by a factor per host and metric.

Each host's reporters (probe programs) are calibrated for that host (`slomo.testbed.host.probe`), so that two hosts'
readings beside the same competitors differ. Sets of competitors probed on all hosts give the factors between the hosts.
Readings are converted to common units by these factors, and the dataset's environment keeps calibrations and factors.
Throughput is not changed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

import slomo.records.schema as schema
from slomo.errors import IncompatibleMeasurementsError
from slomo.records.run import RunRecord
from slomo.vocabulary.metrics import FELT
from slomo.vocabulary.vector import Floats, MetricVector
from slomo.vocabulary.workload import fingerprint_of

#: Least number of sets of competitors that all hosts must have probed.
FEWEST = 4
#: Relative distance from the common readings above which a host is refused, since its reporters then measure something
#: else.
MOST_MISFIT = 0.25
#: Settings that are specific to one host.
OWN_SETTINGS = ("calibration", "reporters")
HOSTS = "hosts"


@dataclass(frozen=True)
class HostEffect:
    """Factors that convert one host's probe readings to common units."""

    #: Factor of each reporter metric.
    factors: Mapping[str, float]
    #: Relative distance between the converted readings and the common readings.
    misfit: float


def host_effects(readings: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, HostEffect]:
    """Return each host's factors to the medians over hosts, by least squares through 0: small readings count little.

    >>> seen = [{"FELTLLC": value} for value in (0.1, 0.5, 1.0, 2.0)]
    >>> double = [{"FELTLLC": 2.0 * value} for value in (0.1, 0.5, 1.0, 2.0)]
    >>> {host: round(effect.factors["FELTLLC"], 2) for host, effect in host_effects({"a": seen, "b": double}).items()}
    {'a': 1.5, 'b': 0.75}
    """
    names = [name for name in FELT if all(name in vector for rows in readings.values() for vector in rows)]
    read = {host: np.array([[row[name] for name in names] for row in rows]) for host, rows in readings.items()}
    common = np.median(np.stack(list(read.values())), axis=0)
    return {host: _effect(names, mine, common) for host, mine in read.items()}


def by_competition(frame: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """Return a dataset's mean probe readings beside each set of competitors."""
    reporters = [name for name in names if name in FELT]
    pressed = frame[frame[schema.COMPETITOR_COUNT] > 0]
    columns = {schema.metric_column("competition", name): name for name in reporters}
    return pressed.groupby(schema.COMPETITORS)[list(columns)].mean().rename(columns=columns)


def effect_of_shared(common: pd.DataFrame, mine: pd.DataFrame) -> HostEffect:
    """Return a host's factors, computed from sets of competitors that a reference host has probed, too."""
    if len(common) < FEWEST:
        raise IncompatibleMeasurementsError(
            f"the probes of the two hosts are calibrated differently, and both datasets share {len(common)} "
            f"competitions to compare them by, needed {FEWEST}",
            hint="profile the same competitions on both hosts, or keep the datasets apart",
        )
    names = [name for name in common.columns if name in mine.columns]
    effect = _effect(names, mine[names].to_numpy(), common[names].to_numpy())
    if effect.misfit > MOST_MISFIT:
        raise IncompatibleMeasurementsError(
            f"the reporters of the two hosts follow something else: {100 * effect.misfit:.0f} % apart over "
            f"{len(common)} competitions that both probed, limit {100 * MOST_MISFIT:g} %",
            hint="calibrate both hosts again, or keep the datasets apart",
        )
    return effect


def joined_hosts(first: Mapping[str, Any], second: Mapping[str, Any], effect: HostEffect) -> dict[str, dict[str, Any]]:
    """Return the hosts of two datasets by calibration; the second dataset's hosts get the factors of `effect`."""
    hosts: dict[str, dict[str, Any]] = {}
    for environment, factors, misfit in ((first, {}, 0.0), (second, effect.factors, effect.misfit)):
        alone = {calibration_of(environment): {"reporters": environment["settings"].get("reporters", {})}}
        for calibration, each in environment.get(HOSTS, alone).items():
            before = each.get("factors", {})
            names = {*before, *factors}
            through = {name: before.get(name, 1.0) * factors.get(name, 1.0) for name in sorted(names)}
            hosts[calibration] = {**each, "factors": through, "misfit": max(misfit, each.get("misfit", 0.0))}
    return hosts


def _effect(names: Sequence[str], mine: Floats, common: Floats) -> HostEffect:
    size = (mine**2).sum(axis=0)
    factors = np.where(size > 0.0, (mine * common).sum(axis=0) / np.where(size > 0.0, size, 1.0), 1.0)
    apart, whole = float(((factors * mine - common) ** 2).sum()), float((common**2).sum())
    return HostEffect(dict(zip(names, factors.tolist(), strict=True)), (apart / whole) ** 0.5 if whole else 0.0)


def in_common_units(record: RunRecord, factors: Mapping[str, float]) -> RunRecord:
    """Return a run with its probe readings converted to common units."""

    def converted(vector: MetricVector) -> MetricVector:
        return MetricVector({name: value * factors.get(name, 1.0) for name, value in vector.items()}, vector.scope)

    phases = (record.alone, record.beside)
    alone, beside = (None if phase is None else phase.with_vectors(converted) for phase in phases)
    return replace(record, alone=alone, beside=beside)


def joined_environment(environment: Mapping[str, Any], calibrated: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the common environment of runs from several hosts, given ``factors`` and ``reporters`` by calibration."""
    reporters = [(each.get("reporters") or {}, each["factors"]) for each in calibrated.values()]
    full = [each["full"] * factors.get(FELT[0], 1.0) for each, factors in reporters if each.get("full") is not None]
    settings = {
        **environment["settings"],
        "calibration": fingerprint_of(sorted(calibrated)),
        "reporters": {
            "programs": reporters[0][0].get("programs", {}),
            "full": float(np.median(full)) if full else None,
        },
    }
    return {**environment, "settings": settings, HOSTS: {name: dict(each) for name, each in calibrated.items()}}


def shared_environment(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return those entries of an environment that are the same on all hosts."""
    settings = {name: value for name, value in environment.get("settings", {}).items() if name not in OWN_SETTINGS}
    return {**environment, "settings": settings} if "settings" in environment else dict(environment)


def calibration_of(environment: Mapping[str, Any]) -> str:
    """Return the probe calibration behind a dataset's vectors; empty if they come from counters."""
    return str(environment.get("settings", {}).get("calibration", ""))


def measured_by(record: RunRecord) -> str:
    """Return the probe calibration of the host that made a run of a fleet."""
    return str(record.provenance.get("fleet", {}).get("calibration", ""))
