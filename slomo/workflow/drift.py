"""Compare new measurements with trained models (drift), and correct models by a few new runs.

SLOMO (SIGCOMM'20) section 4.1: a model is valid for one version, configuration, traffic and machine of an NF.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slomo.drift.monitor import DriftMonitor, DriftReport
from slomo.drift.refit import refit
from slomo.errors import InvalidValueError
from slomo.models.library import ModelLibrary, opened
from slomo.records.dataset import ProfileDataset
from slomo.training.plausibility import plausible_rows
from slomo.vocabulary.defaults import DEFAULT_MODEL
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector
from slomo.workflow.names import host_of


@dataclass(frozen=True)
class DriftCheck:
    """The result of checking live measurements against models."""

    #: Alarms, and the workloads to profile again.
    report: DriftReport
    #: Rows that were checked, and rows skipped because a workload has no model.
    read: int
    passed_over: int


def check_drift(
    library: ModelLibrary | str | Path,
    readings: ProfileDataset,
    *,
    machine: str | Machine | None = None,
    model: str = DEFAULT_MODEL,
    false_alarm_every: float = 1000.0,
    noise: float = 0.02,
    reference: ProfileDataset | None = None,
    seed: int = 0,
) -> DriftCheck:
    """Compare measurements of mixes, in the order in which they were made, with the models' predictions.

    `readings`: network functions alone or beside each other; one row is one reading. `machine`: needed where the
    library has models of several machines. The other parameters are those of `slomo.drift.monitor.DriftMonitor`.
    """
    models = opened(library)
    if machine is None or (isinstance(machine, str) and machine in models.machines):
        host = models.require_machine(machine)  # of a machine of your own no description is needed
    else:
        host = host_of(models, machine).name
    models.require_recorded_on(readings.environment, [host])
    watched = [models.find(key, host) for key in models.workloads(host)]
    monitor = DriftMonitor(
        watched, model, false_alarm_every=false_alarm_every, noise=noise, reference=reference, seed=seed
    )
    here = plausible_rows(readings).select(machine=host)
    keys, read, throughput_mpps = {item.workload.key for item in watched}, 0, here.throughput.tolist()
    own, beside = _vectors(here, "own", Scope.CORE), _vectors(here, "beside", Scope.SOCKET)
    for row, target in enumerate(map(str, here.frame["target"])):
        competitors = [workload.key for workload in here.competitors(row)]
        if keys.issuperset((target, *competitors)):
            read += 1
            try:
                monitor.observe(target, competitors, throughput_mpps[row], own=own[row], beside=beside[row])
            except InvalidValueError as absurd:
                warnings.warn(f"row {row} on {host} was passed over: {absurd.message}", stacklevel=2)
                read -= 1
    if not read:
        raise InvalidValueError(
            f"none of {len(here)} rows on {host} is of and beside workloads with models: {', '.join(sorted(keys))}",
            hint="measure mixes of them: slomo profile NF NF --plan mixes",
        )
    return DriftCheck(monitor.report(), read, len(here) - read)


def refit_models(
    library: ModelLibrary | str | Path, runs: ProfileDataset, *, targets: Sequence[str] | None = None
) -> ModelLibrary:
    """Return the models that the new runs improve, corrected (`slomo.drift.refit`); others are left out.

    `library`: models that no longer hold. `runs`: new runs: of each workload one alone, and a few beside the synthetic
    competitor. `targets`: workload keys or NF names; all that were run and have a model by default.
    """
    models = opened(library)
    models.require_recorded_on(runs.environment, runs.machines)
    runs = plausible_rows(runs)
    selected = [key for name in targets or (None,) for key in runs.select(target=name).profiled_targets]
    known = [models[machine, key] for machine in runs.machines for key in selected if (machine, key) in models]
    if not known:
        raise InvalidValueError(
            f"none of the workloads that were run has a model: {', '.join(selected)} on {', '.join(runs.machines)}",
            hint="a refit brings a trained model up to date; train one with slomo train",
        )
    updated = [refit(model, runs.select(machine=model.machine, target=model.workload.key)) for model in known]
    return ModelLibrary(new for new, old in zip(updated, known, strict=True) if new is not old)


def _vectors(readings: ProfileDataset, prefix: str, scope: Scope) -> list[MetricVector | None]:
    """Return each row's measured counters; None for a row in which none was measured."""
    columns = readings.vectors(prefix)
    names = [str(name) for name in columns]
    rows = columns.to_numpy(dtype=float).tolist()
    measured = ({name: value for name, value in zip(names, row, strict=True) if value == value} for row in rows)
    return [MetricVector(values, scope=scope) if values else None for values in measured]
