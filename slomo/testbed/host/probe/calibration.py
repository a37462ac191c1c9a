"""Calibrate the reporters, once per machine, beside the synthetic competitor, whose pressure is known.

What the competitor does to the shared resources follows from what it is: so many lines per second out of so much
data. The share that misses is that of a cache of the measured size under random access, or all of it under a stream.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slomo.errors import ConfigurationError
from slomo.testbed.host.build import cache_directory
from slomo.testbed.host.probe.reading import ProbedPressure
from slomo.testbed.host.probe.reporters import Reporter, occupancy_reporter, reporters, stream_mib
from slomo.testbed.host.probe.response import Response, fit_response
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload, canonical_json

SCHEMA_VERSION = 1
_LINE_B = 64
_MOST_B = 1 << 20


@dataclass(frozen=True)
class Calibration:
    """How slowdowns of the reporters read as metrics on one machine.

    Attributes
    ----------
    l2_mib, llc_mib, occupancy_mib : float
        Caches, the shared one as one core can use it, and the working set of the occupancy reporter [MiB].
    responses : mapping of str to Response
        Reporter -> law; a reporter without one tells nothing here.
    identity : str
        Of machine and program it holds for.
    """

    l2_mib: float
    llc_mib: float
    occupancy_mib: float
    responses: Mapping[str, Response] = field(default_factory=dict)
    identity: str = ""

    @property
    def reporters(self) -> tuple[Reporter, ...]:
        """The reporters that tell something here."""
        found = reporters(self.l2_mib, self.llc_mib, self.occupancy_mib)
        return tuple(reporter for reporter in found if reporter.name in self.responses)

    def vector(self, pressure: ProbedPressure, scope: Scope = Scope.SOCKET) -> MetricVector:
        """Return the pressure as a vector; a metric whose reporter tells nothing is missing."""
        metrics = {reporter.name: reporter.metric for reporter in self.reporters}
        values = {
            metrics[name]: law.metric(pressure.ratios[name])
            for name, law in self.responses.items()
            if name in pressure.ratios
        }
        return MetricVector(values, scope=scope)

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change with the calibration."""
        return hashlib.sha256(canonical_json(self.to_dict()).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping that :meth:`from_dict` reads back."""
        return {
            "schema_version": SCHEMA_VERSION,
            "identity": self.identity,
            "l2_mib": self.l2_mib,
            "llc_mib": self.llc_mib,
            "occupancy_mib": self.occupancy_mib,
            "responses": {name: dict(law.to_dict()) for name, law in self.responses.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Calibration":
        """Rebuild from :meth:`to_dict`'s mapping."""
        if data["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema version {data['schema_version']!r}, needed {SCHEMA_VERSION}")
        laws = {
            str(name): Response(float(law["scale"]), float(law["exponent"]), int(law["points"]), float(law["error"]))
            for name, law in data["responses"].items()
        }
        return cls(
            float(data["l2_mib"]), float(data["llc_mib"]), float(data["occupancy_mib"]), laws, str(data["identity"])
        )

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".part")
        draft.write_text(json.dumps(self.to_dict(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
        draft.replace(path)

    @classmethod
    def load(cls, path: Path) -> "Calibration":
        """Read one back.

        Raises
        ------
        ConfigurationError
            If the file is damaged.
        """
        try:
            return cls.from_dict(json.loads(path.read_bytes()[:_MOST_B]))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as problem:
            raise ConfigurationError(
                f"calibration '{path}' cannot be read: {problem!r}", hint="delete it; the next run calibrates again"
            ) from None


def calibration_path(identity: str) -> Path:
    """Return where the calibration of one machine and program is kept."""
    return cache_directory() / "probe" / f"{identity}.json"


def calibration_settings(llc_mib: float) -> tuple[Workload, ...]:
    """Return the competitor's settings of the calibration, weak to strong, for a shared cache of this size [MiB].

    Examples
    --------
    >>> len(calibration_settings(14.0))
    14
    """
    stream = stream_mib(llc_mib)
    shapes: list[dict[str, Any]] = [
        {"data_size_mib": round(share * llc_mib, 3), "pattern": "random"} for share in (0.25, 0.5, 0.75, 1.0, 1.5, 3.0)
    ]
    shapes += [{"data_size_mib": round(share * llc_mib, 3), "pattern": "sequential"} for share in (0.5, 1.0, 1.5)]
    shapes += [
        {"data_size_mib": stream, "pattern": "sequential", "writes_per_packet": writes} for writes in (0, 64, 256)
    ]
    shapes += [
        {"data_size_mib": round(share * llc_mib, 3), "pattern": "random", "writes_per_packet": 256}
        for share in (1.5, 3.0)
    ]
    return tuple(Workload("synthetic", {"reads_per_packet": 256, **shape}) for shape in shapes)


def known_pressure(workload: Workload, rate_mpps: float, l2_mib: float, llc_mib: float) -> dict[str, float]:
    """Return what a setting of the competitor does to the shared resources, from its knobs and its rate.

    Parameters
    ----------
    workload : Workload
        The setting.
    rate_mpps : float
        Its throughput [Mpps].
    l2_mib, llc_mib : float
        Caches [MiB].

    Examples
    --------
    >>> stream = Workload("synthetic", {"data_size_mib": 64, "pattern": "sequential", "reads_per_packet": 100})
    >>> known_pressure(stream, 2.0, 2.0, 14.0)["READ"]
    12.8
    """
    knobs = workload.configuration
    size, random = float(knobs["data_size_mib"]), knobs.get("pattern", "random") == "random"
    repeats = float(knobs.get("iterations", 1))
    reads = rate_mpps * float(knobs.get("reads_per_packet", 16)) * repeats
    writes = rate_mpps * float(knobs.get("writes_per_packet", 0)) * repeats
    beyond_l2, beyond_llc = (_missing(size, cache, random) for cache in (l2_mib, llc_mib))
    return {
        "L3OCC": 1024.0 * min(size, llc_mib),
        "L2MISS": (reads + writes) * beyond_l2,
        "READ": (reads + writes) * beyond_llc * _LINE_B / 1e3,  # a written line is read first
        "WRITE": writes * beyond_llc * _LINE_B / 1e3,
    }


def _missing(size_mib: float, cache_mib: float, random: bool) -> float:
    if random:
        return max(0.0, 1.0 - cache_mib / size_mib)
    return 1.0 if size_mib > cache_mib else 0.0


@dataclass(frozen=True)
class CalibrationPoint:
    """One setting of the competitor: its rate beside idle reporters [Mpps], and what the reporters felt."""

    workload: Workload
    rate_mpps: float
    pressure: ProbedPressure


def fit_calibration(
    points: Sequence[CalibrationPoint], l2_mib: float, llc_mib: float, occupancy_mib: float, identity: str
) -> Calibration:
    """Fit one law per reporter.

    Parameters
    ----------
    points : sequence of CalibrationPoint
        Measured settings.
    l2_mib, llc_mib, occupancy_mib : float
        As in `Calibration`.
    identity : str
        Of machine and program.
    """
    laws: dict[str, Response] = {}
    for reporter in reporters(l2_mib, llc_mib, occupancy_mib):
        known = [known_pressure(point.workload, point.rate_mpps, l2_mib, llc_mib)[reporter.metric] for point in points]
        law = fit_response([point.pressure.ratios[reporter.name] for point in points], known)
        if (
            law is None
        ):  # nothing to fit, but the reporter may still tell competitions apart: an arbitrary unit would lie
            continue
        laws[reporter.name] = law
    return Calibration(l2_mib, llc_mib, occupancy_mib, laws, identity)


def occupancy_candidates(llc_mib: float, shares: Sequence[float]) -> tuple[Reporter, ...]:
    """Return occupancy reporters of several sizes, to choose the most sensitive one from."""
    return tuple(Reporter(f"{share:g}", "L3OCC", occupancy_reporter(share * llc_mib).workload) for share in shares)
