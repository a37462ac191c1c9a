"""All that was trained about one NF on one machine: sensitivity, contentiousness, known errors.

SLOMO (SIGCOMM'20) section 4.1: one model per NF type, configuration, traffic and architecture.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from slomo.errors import ConfigurationError, MissingMetricError, UnknownNameError
from slomo.files.stored import Stored
from slomo.models.applicability import Applicability
from slomo.models.base import TRAFFIC_PREFIX, Floats, SensitivityModel
from slomo.models.contentiousness import ContentiousnessProfile
from slomo.models.intervals import ConformalCalibration
from slomo.models.noise import MeasurementNoise
from slomo.models.responses.accelerator import AcceleratorUse
from slomo.models.responses.latency import LatencyModel
from slomo.models.responses.latent import PAIRS
from slomo.models.responses.partition import AllocationModel
from slomo.models.responses.server_response import ServerResponse
from slomo.units import plural
from slomo.vocabulary.capacities import Capacities
from slomo.vocabulary.defaults import DEFAULT_MODEL, FORMER_DEFAULT, method_hint
from slomo.vocabulary.display import html_table
from slomo.vocabulary.identity import stated_fingerprint
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload

#: 7: neighbours below full load are a kind of neighbourhood. Models of earlier versions cannot be converted.
SCHEMA_VERSION = 7


@dataclass(frozen=True)
class MeasuredMix(Stored):
    """Throughput of one function beside neighbours at full load."""

    #: Workload keys of the neighbours, in ascending order.
    competitors: tuple[str, ...]
    #: Mean throughput of each instance [Mpps].
    mpps: Annotated[float, Meta(ge=0.0)]
    #: Standard deviation of one further run around that mean [Mpps].
    error_mpps: Annotated[float, Meta(gt=0.0)]
    #: Degrees of freedom of the standard deviation: number of repeated runs behind it. 1, which gives the widest
    #: bounds, if unknown.
    freedom: Annotated[int, Meta(ge=1)] = 1


@dataclass(frozen=True, eq=False)
class NFModel(Stored, readers={"sensitivity": dict, "manifest": dict}):
    """Everything trained for one NF on one machine.

    Attributes
    ----------
    workload : Workload
        The NF, its configuration and its traffic.
    machine : str
        Name of the machine on which the NF was measured.
    capacities : Capacities or None
        Cores, cache and memory bandwidth of one socket of that machine; None for measured tables of unknown machines.
    solo_mpps : float
        Throughput without competitors [Mpps].
    solo_vector : MetricVector
        Core-level vector without competitors.
    sensitivity : mapping of str to SensitivityModel
        One model per family.
    contentiousness : ContentiousnessProfile
        Pressure that the NF puts on others.
    calibration : mapping of str to ConformalCalibration
        Interval widths per family.
    applicability : Applicability
        Range of pressures under which the NF was profiled.
    manifest : mapping
        What was measured, where, units, ranges, errors, versions.
    traffic : mapping of str to float
        Values of the ``traffic.*`` features that stand for :attr:`workload`.
    response : ServerResponse or None
        The NF's counters and throughput beside running neighbours, for whole servers; None where they were not measured
        beside it.
    latency : LatencyModel or None
        Latency of its packets, over load and pressure; None where it was not profiled at several loads.
    accelerator : AcceleratorUse or None
        Requests to an accelerator; None where the NF uses none, or was not profiled beside a competitor for it.
    allocation : AllocationModel or None
        Its throughput with a part of the cache and of the memory bandwidth; None where it was not profiled over these.
    measured : tuple of MeasuredMix
        Mixes that were measured; for these, placement uses the measurements instead of predictions.
    chosen : str
        Family that answers where none is named (`slomo.training.choice`); empty where nothing was chosen.
    """

    workload: Workload
    machine: str
    capacities: Capacities | None
    solo_mpps: Annotated[float, Meta(gt=0.0)]
    solo_vector: MetricVector
    sensitivity: Mapping[str, SensitivityModel]
    contentiousness: ContentiousnessProfile
    calibration: Mapping[str, ConformalCalibration]
    applicability: Applicability
    manifest: Mapping[str, Any]
    traffic: Mapping[str, float] = field(default_factory=dict)
    response: ServerResponse | None = None
    latency: LatencyModel | None = None
    accelerator: AcceleratorUse | None = None
    allocation: AllocationModel | None = None
    measured: tuple[MeasuredMix, ...] = ()
    chosen: str = ""

    @cached_property
    def machine_fingerprint(self) -> str:
        """Fingerprint of the machine of the measurements (`Machine.fingerprint`); empty if unknown."""
        told = self.manifest.get("machine_fingerprint")
        return told if isinstance(told, str) else stated_fingerprint(self.manifest.get("environment", {}), self.machine)

    @cached_property
    def sockets(self) -> int | None:
        """Number of sockets of the machine of the measurements; None if unknown."""
        machines = self.manifest.get("environment", {}).get("machines")
        described = machines.get(self.machine) if isinstance(machines, Mapping) else None
        sockets = described.get("sockets") if isinstance(described, Mapping) else None
        return sockets if isinstance(sockets, int) and sockets > 0 else None

    @property
    def solo_is_carried(self) -> bool:
        """Whether the NF was never measured alone on this machine, so that solo throughput is converted."""
        return self.manifest.get("solo_source") == "carried"

    @cached_property
    def throughput_unit(self) -> str:
        """Unit of all throughputs: ``"Mpps"``, or ``"share"`` of solo throughput (0 to 1) if only that was imported."""
        stated = self.manifest.get("environment", {}).get("throughput_units", {}).get(self.machine, {})
        return str(stated.get(self.workload.nf, "Mpps"))

    @property
    def knows_pressure(self) -> bool:
        """Whether the NF was measured beside competitors; runs alone do not show their effect."""
        return self.response is not None or any(family.composition != "none" for family in self.sensitivity.values())

    @property
    def noise(self) -> MeasurementNoise | None:
        """Noise of the NF's measurements; None if no run was repeated."""
        stated, rows = self.manifest.get("noise"), self.manifest.get("rows", {})
        if not stated:
            return None
        return MeasurementNoise(float(stated["row"]), float(stated["next_measurement"]), int(rows.get("fitted", 1)))

    def alone_reach(self, coverage: float) -> float:
        """Return how far a row alone may be from solo throughput, as a share; 0 if its noise is unknown."""
        return 0.0 if self.noise is None else self.noise.reach(coverage)

    def named(self, name: str) -> str:
        """Return the model family that a name selects: the name itself, or the family chosen by training.

        Libraries trained before training made that choice (and those that lack the chosen family) use the former
        default, or else their first family.
        """
        if name != DEFAULT_MODEL or DEFAULT_MODEL in self.sensitivity:
            return name
        usual = (self.chosen, FORMER_DEFAULT)
        return next((family for family in (*usual, *self.sensitivity) if family in self.sensitivity), FORMER_DEFAULT)

    def named_beside(self, name: str, others: Iterable["NFModel"]) -> str:
        """Return the family that a name selects beside others: ``pairs`` if one of them is known by name alone."""
        by_name = name == DEFAULT_MODEL and PAIRS in self.sensitivity and any(model.chosen == PAIRS for model in others)
        return PAIRS if by_name else name

    def model(self, name: str) -> SensitivityModel:
        """Return the trained model of the family `name`.

        Raises
        ------
        MissingMetricError
            Where training left the family out because a metric was not measured.
        ConfigurationError
            Where it is of a kind that only a plug-in reads, which is not installed.
        UnknownNameError
            With the families that were trained.
        """
        name = self.named(name)
        if reason := self.manifest.get("left_out", {}).get(name):
            raise MissingMetricError(
                f"'{self.workload.nf}' has no model '{name}': {reason}",
                hint=f"measure it and train again, or ask another model: {', '.join(self.sensitivity)}",
            )
        if kind := self.manifest.get("skipped", {}).get(name):
            raise ConfigurationError(
                f"model '{name}' of '{self.workload.nf}' is of kind '{kind}', which nothing installed here reads",
                hint=f"install the plug-in that trained it, or ask another model: {', '.join(self.sensitivity)}",
            )
        if name not in self.sensitivity:
            raise UnknownNameError(
                "trained model", name, self.sensitivity, where=f"of '{self.workload.nf}'", also=method_hint(name)
            )
        return self.sensitivity[name]

    def inputs(self, name: str, vector: Mapping[str, float], traffic: Mapping[str, float] | None = None) -> Floats:
        """Return the inputs of family `name`, shape ``(1, features)``, for given counters of the competition.

        Parameters
        ----------
        name : str
            Family.
        vector : mapping of str to float
            Socket-level vector of the competition.
        traffic : mapping of str to float, optional
            Values of traffic attributes (with or without the prefix ``traffic.``) that differ from :attr:`traffic`.

        Raises
        ------
        MissingMetricError
            Where the vector lacks a metric that the model reads.
        """
        values = {
            key if key.startswith(TRAFFIC_PREFIX) else TRAFFIC_PREFIX + key: value
            for key, value in (traffic or {}).items()
        }
        unknown = [key for key in values if key not in self.traffic]
        if unknown:
            raise UnknownNameError("traffic attribute", unknown[0], self.traffic, where=f"of '{self.workload.nf}'")
        traffic_values = {**self.traffic, **values}
        names = self.model(name).feature_names
        missing = [
            item
            for item in names
            if item not in traffic_values and (item.startswith(TRAFFIC_PREFIX) or item not in vector)
        ]
        if missing:
            raise MissingMetricError(
                f"the competition's vector lacks {', '.join(missing)}, "
                f"which model '{name}' of '{self.workload.nf}' reads",
                hint="missing is not zero; give the value, or train without it",
            )
        return np.array([[float(traffic_values[item] if item in traffic_values else vector[item]) for item in names]])

    def predict_vector(
        self, name: str, vector: Mapping[str, float], traffic: Mapping[str, float] | None = None
    ) -> float:
        """Return the throughput [Mpps] beside a competition given by its socket's counters."""
        return float(self.model(name).predict_mpps(self.inputs(name, vector, traffic))[0])

    def __repr__(self) -> str:
        alone = f"{self.solo_mpps:.4g} Mpps solo"
        return f"NFModel({self.workload.key} on {self.machine}, {alone}, {plural(len(self.sensitivity), 'model')})"

    def _repr_html_(self) -> str:
        errors = self.manifest.get("cross_validation", {})
        rows = (
            (name, f"{errors.get(name, {}).get('mape_percent', float('nan')):.2f}", len(model.feature_names))
            for name, model in self.sensitivity.items()
        )
        head = ("model", "error in cross-validation [%]", "features")
        return html_table(f"{self.workload.key} on {self.machine}: {self.solo_mpps:.3f} Mpps solo", head, rows)
