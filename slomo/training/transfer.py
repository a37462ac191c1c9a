"""Convert models to another machine by a physical model, and correct them by a few runs on that machine.

`slomo.adaptation.machines` converts and `slomo.training.corrections` corrects. Here the corrected predictions in many
situations on the new machine are fitted by the functions of any model, and held-out runs set the width of intervals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from slomo.adaptation.machines import Carried
from slomo.equilibrium.tables import flows_and_polled
from slomo.errors import ConfigurationError, InvalidValueError
from slomo.models.applicability import applicability
from slomo.models.base import Floats
from slomo.models.contentiousness import ContentiousnessProfile, pressure_basis
from slomo.models.error_shape import ErrorShape
from slomo.models.evidence import CARRIED, DOUBTS, FEWEST_OF_TRANSFER, TRANSFER
from slomo.models.functions.regression import ridge
from slomo.models.intervals import ConformalCalibration, symmetric
from slomo.models.library import ModelLibrary
from slomo.models.nf_model import SCHEMA_VERSION, NFModel
from slomo.models.responses.server_response import NEIGHBOURS, ServerResponse
from slomo.records.dataset import ProfileDataset
from slomo.training.calibration import mix_rows, summary
from slomo.training.corrections import Corrected, HeldOut, jointly
from slomo.training.families.monotone_network import MonotoneFamily
from slomo.training.features import Subject, subjects, typical_values
from slomo.training.mixes_fit import learned_from_mixes
from slomo.training.server_response_fit import OCCUPANCY_STRENGTH, STRENGTH, widened
from slomo.training.training import train
from slomo.vocabulary.identity import stated_fingerprint
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.metrics import METRICS, Scope
from slomo.vocabulary.vector import MetricVector

#: Number of runs beside others above which a function's own runs are a better estimate than a prior.
ENOUGH_RUNS = 40
#: Number of simulated situations on the new machine to which its models are fitted.
_SAMPLES = 640
#: Number of pressures, from none to the largest, at which the uncertainty is evaluated.
_STEPS = 12
#: Largest waiting traffic in these situations, in channels' traffic.
_MOST_WAITING = 2.0
#: For functions carried without a run: quantiles of the size of errors on mixes (in units of `intervals.calibrate`),
#: from the E5-2620 v4 to the Silver 4110 and back, twelve functions.
_UNSEEN = np.array([
    0.0, 0.002, 0.004, 0.008, 0.012, 0.016, 0.02, 0.024, 0.028, 0.033, 0.037, 0.042, 0.047, 0.051,
    0.055, 0.06, 0.067, 0.073, 0.079, 0.083, 0.089, 0.095, 0.102, 0.11, 0.117, 0.127, 0.138, 0.147,
    0.161, 0.179, 0.194, 0.21, 0.229, 0.263, 0.313, 0.457, 0.732, 0.891, 0.996, 1.275,
])  # fmt: skip


def transfer(
    library: ModelLibrary,
    machine: Machine,
    dataset: ProfileDataset | None = None,
    *,
    targets: Sequence[str] | None = None,
    seed: int = 0,
) -> ModelLibrary:
    """Return models for a machine, converted from another machine's models.

    `library`: models of one other machine, with what they were measured on. `dataset`: runs on the new machine, alone
    and beside the synthetic competitor; a handful per function, or none of some. `targets`: workload keys or NF names;
    all of the library and the dataset by default.

    Raises ConfigurationError for models of several machines, of this one, or of one that they do not describe, and for
    runs on another machine; MissingMetricError if a model lacks what is needed to carry it.
    """
    before = _measured_on(library, machine)
    runs = _runs_on(dataset, machine)
    environment = {**({} if runs is None else runs.environment), "machines": {machine.name: machine.to_dict()}}
    seen = {subject.workload.saturated.key: subject for subject in (() if runs is None else subjects(runs))}
    rich = {key for key, subject in seen.items() if int((subject.counts > 0).sum()) >= ENOUGH_RUNS}
    sources = [
        library[owner, key]
        for owner, key in library
        if key not in rich and (targets is None or key in targets or library[owner, key].workload.nf in targets)
    ]
    keys = {model.workload.key: model.workload.saturated.key for model in sources}
    known = {key: seen[saturated] for key, saturated in keys.items() if saturated in seen}

    def corrected(runs: Mapping[str, Subject]) -> list[Corrected]:
        return [Corrected.of(model, before, machine, runs.get(model.workload.key)) for model in sources]

    errors = HeldOut.of(corrected(known))

    def carry(runs: Mapping[str, Subject]) -> dict[str, NFModel]:
        """Return the converted models by workload key, each corrected by its runs on the new machine."""
        return {each.model.workload.key: _model(each, errors, environment, seed) for each in jointly(corrected(runs))}

    models = list(carry(known).values())
    others = sorted(rich | (seen.keys() - {model.workload.key for model in sources}))
    others = [key for key in others if targets is None or key in targets or seen[key].workload.nf in targets]
    if runs is not None and others:
        models += list(train(runs, targets=others, seed=seed).values())
    if runs is not None:
        mixes = mix_rows(runs, models, machine.name)
        models, held_out = learned_from_mixes(runs, known, models, mixes, carry, seed)
        models = widened(models, mixes, held_out)
    if not models:
        raise InvalidValueError(f"nothing to carry from {before.name} to {machine.name}: no such network function")
    return ModelLibrary(models)


def _measured_on(library: ModelLibrary, machine: Machine) -> Machine:
    """Return the machine on which a library was measured; it must be a single one."""
    if len(library.machines) != 1:
        machines = ", ".join(library.machines) or "none"
        raise ConfigurationError(f"models of one machine can be carried to {machine.name}, got those of: {machines}")
    name = library.machines[0]
    model = next(iter(library.values()))
    described = model.manifest.get("environment", {}).get("machines", {}).get(name)
    if not isinstance(described, Mapping):
        raise ConfigurationError(
            f"the models do not say what '{name}' is, on which they were measured",
            hint="profile on a testbed that knows its machine (`slomo doctor --out`), and train again",
        )
    before = Machine.from_dict(described)
    if before.fingerprint == machine.fingerprint or name == machine.name:
        raise ConfigurationError(
            f"the models are of '{name}' already, nothing to carry over",
            hint="train without --from-models, or name another",
        )
    return before


def _runs_on(dataset: ProfileDataset | None, machine: Machine) -> ProfileDataset | None:
    if dataset is None or not len(dataset):
        return None
    if dataset.machines != (machine.name,):
        raise ConfigurationError(
            f"runs on {', '.join(dataset.machines)}, needed: on {machine.name}", hint="one machine at a time"
        )
    return dataset.converged()


def _model(fitted: Corrected, errors: HeldOut, environment: Mapping[str, Any], seed: int) -> NFModel:
    """Return the model of one function on the new machine."""
    carried, before = fitted.carried, fitted.model
    names, machine = carried.names, carried.machine
    pressure, neighbours = _situations(carried, seed)
    state = carried.state(pressure, neighbours)
    mpps = np.minimum(fitted.mpps(pressure, neighbours), fitted.solo_mpps)
    mpps[0] = fitted.solo_mpps
    metric_names = carried.response.profile.metric_names
    own = fitted.own_vectors(fitted.places_of(pressure, state), fitted.with_leak(pressure, state.own))
    own = _possible(metric_names, own, machine)
    scale, limit = typical_values(pressure), pressure.max(axis=0)
    near, moved_near = _with_runs(fitted, pressure, np.column_stack([own, mpps]))
    everywhere, basis = pressure_basis(pressure, scale, limit), pressure_basis(near, scale, limit)
    weights = ridge(basis, moved_near, STRENGTH)
    held = metric_names.index("L3OCC")
    weights[:, [held]] = ridge(basis, moved_near[:, [held]], OCCUPANCY_STRENGTH)
    speed, rates = weights[:, -1], flows_and_polled(metric_names)[0]
    alone = own[0] * np.where(rates, mpps[0], 1.0)
    solo = MetricVector(dict(zip(metric_names, alone.tolist(), strict=True)), scope=Scope.CORE)
    profile = ContentiousnessProfile(
        metric_names, names, solo, {}, scale, limit, weights[:, :-1], own.min(axis=0), own.max(axis=0)
    )
    moved = own * np.where(rates, mpps[:, np.newaxis], 1.0)
    contentiousness = replace(
        profile,
        weights=ridge(everywhere, moved, STRENGTH),
        low=moved.min(axis=0),
        high=moved.max(axis=0),
    )
    calibration, read_back = _calibration(fitted, errors), carried.read_back(pressure)
    reads, rows = (*names, NEIGHBOURS), np.column_stack([pressure, neighbours])
    response = ServerResponse(
        profile=profile,
        speed=speed,
        slowest_mpps=float(mpps.min()),
        fastest_mpps=float(mpps.max()),
        sensitivity=MonotoneFamily(name="equilibrium").fit(reads, rows, mpps, solo_mpps=fitted.solo_mpps, seed=seed),
        calibration=calibration,
        applicability=applicability(names, np.vstack([pressure[: len(pressure) // 2], fitted.pressure])),
        full_kib=fitted.full_kib,
        most_moved=fitted.most_moved,
        full_channel_ns=carried.full_channel_ns(machine),
        read_back=ridge(everywhere, read_back[:, np.newaxis], STRENGTH)[:, 0] if len(read_back) else read_back,
    )
    family = "slomo-smooth"
    model = NFModel(
        workload=before.workload,
        machine=machine.name,
        capacities=machine.capacities(),
        solo_mpps=fitted.solo_mpps,
        solo_vector=solo,
        sensitivity={family: MonotoneFamily().fit(names, pressure, mpps, solo_mpps=fitted.solo_mpps, seed=seed)},
        contentiousness=contentiousness,
        calibration={family: calibration},
        applicability=response.applicability,
        manifest={},
        traffic=before.traffic,
        response=response,
        chosen=family,
    )
    return replace(model, manifest=_manifest(fitted, model, errors, environment, seed))


def _with_runs(fitted: Corrected, pressure: Floats, answers: Floats) -> tuple[Floats, Floats]:
    """Return the generated situations near measured ones, and the runs on the new machine.

    Without runs, return all situations.
    """
    if not len(fitted.pressure):
        return pressure, answers
    chosen = np.append(0, np.arange(2, len(pressure), 2))
    pressure, answers = pressure[chosen], answers[chosen]
    measured = np.column_stack([fitted.measured_own(), fitted.mpps_there])
    times = max(len(pressure) // len(measured) // 2, 1)
    return (
        np.vstack([pressure, np.repeat(fitted.pressure, times, axis=0)]),
        np.vstack([answers, np.repeat(measured, times, axis=0)]),
    )


def _situations(carried: Carried, seed: int) -> tuple[Floats, Floats]:
    """Return pressures on the new machine, with their numbers of neighbours, beginning with none.

    Every other one equals a pressure under which the function was measured; the rest cover the whole range, including a
    full memory channel.
    """
    draw, limit, seen = np.random.default_rng(seed), carried.limit(), carried.response.applicability
    pressure = draw.uniform(0.0, 1.0, (_SAMPLES, len(limit))) ** 2 * limit
    alike = draw.multivariate_normal(seen.centre, np.linalg.inv(seen.precision), _SAMPLES // 2)
    pressure[::2] = np.clip(alike, 0.0, 1.0) * limit
    neighbours = draw.integers(1, 8, _SAMPLES).astype(float)
    pressure[0], neighbours[0] = 0.0, 0.0
    if "LMB" in carried.names:
        traffic = carried.names.index("LMB")
        most = (1.0 + _MOST_WAITING) * carried.machine.capacities().limit(METRICS["LMB"])
        pressure[_SAMPLES // 2 + 1 :: 2, traffic] *= most / limit[traffic]
    return pressure, neighbours


def _possible(names: Sequence[str], own: Floats, machine: Machine) -> Floats:
    """Return counters limited to what the machine can reach."""
    capacities, answer = machine.capacities(), own.copy()
    for number, name in enumerate(names):
        most = {"L3OCC": capacities.llc_kib, "DDIOOCC": capacities.ddio_kib, "L2HIT": 1.0, "L3HIT": 1.0}.get(name)
        if most is not None:
            answer[:, number] = np.clip(answer[:, number], 0.0, most)
    return answer


def _calibration(fitted: Corrected, errors: HeldOut) -> ConformalCalibration:
    """Return the known errors: those of held-out runs or, without runs, those found on other pairs of machines.

    Their width over the loss follows from the correction's uncertainty; the error of composition is taken from the
    first machine.
    """
    key = fitted.model.workload.key
    if len(errors.each) < FEWEST_OF_TRANSFER or not len(errors.own[key]):
        return symmetric(_UNSEEN, CARRIED)
    before, carried = fitted.carried.response.calibration, fitted.carried
    pressure = carried.limit() * np.linspace(0.0, 1.0, _STEPS)[:, np.newaxis] ** 2
    state = carried.state(pressure, np.full(_STEPS, 3.0))
    places = fitted.places_of(pressure, state)
    share = np.minimum(fitted.mpps(pressure, np.full(_STEPS, 3.0)) / fitted.solo_mpps, 1.0)
    loss, first = np.unique(np.round(np.maximum.accumulate(1.0 - share), 3), return_index=True)
    size = errors.size_of(key) * (fitted.doubt(places) * share)[first]
    composing = np.array([before.usual_error(at) if before.source == "mixes" else 0.0 for at in loss.tolist()])
    size = np.hypot(np.hypot(size, (_moved_by(fitted, pressure, errors.off) * share)[first]), composing).astype(float)
    if len(loss) == 1:
        loss, size = np.append(loss, loss + 1.0), np.append(size, size)
    shape = ErrorShape(np.array(loss.tolist()), np.zeros(len(loss)), np.array(size.tolist()))
    return ConformalCalibration(errors.each, TRANSFER, shape)


def _moved_by(fitted: Corrected, pressure: Floats, off: Mapping[str, float]) -> Floats:
    """Return the change of throughput if pressures are wrong by a given share."""
    moved, neighbours = np.zeros(len(pressure)), np.full(len(pressure), 3.0)
    for column, name in enumerate(fitted.carried.names):
        share = off.get(name, 0.0)
        ends = np.repeat(pressure[np.newaxis], 2, axis=0)
        ends[:, :, column] *= np.array([[1.0 - min(share, 1.0)], [1.0 + share]])
        slower, faster = (np.log(np.minimum(fitted.mpps(each, neighbours), fitted.solo_mpps)) for each in ends)
        moved = np.hypot(moved, 0.5 * (slower - faster))
    return moved


def _manifest(
    fitted: Corrected, model: NFModel, errors: HeldOut, environment: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    runs = 0 if fitted.runs is None else int((fitted.runs.counts > 0).sum())
    covered = model.applicability
    return {
        "schema_version": SCHEMA_VERSION,
        "workload": model.workload.key,
        "machine": model.machine,
        "solo_mpps": model.solo_mpps,
        "solo_source": fitted.runs.solo_source if fitted.runs is not None and fitted.solo_is_measured else CARRIED,
        "rows": {"fitted": runs, "solo": int(fitted.solo_is_measured)},
        "features": list(covered.feature_names),
        "units": {name: METRICS[name].unit for name in covered.feature_names},
        "transfer": {
            "from": fitted.carried.measured_on.name,
            "fingerprint": fitted.carried.measured_on.fingerprint,
            "runs": runs,
            "held_out": len(errors.own[model.workload.key]),
            "held_out_of_all": len(errors.each),
            "correction_percent": round(100.0 * float(np.expm1(np.abs(fitted.residuals).mean())), 3) if runs else None,
        },
        "intervals": summary(model.calibration),
        DOUBTS: {},
        "versions": fitted.model.manifest.get("versions", {}),
        "seed": seed,
        "machine_fingerprint": stated_fingerprint(environment, model.machine),
        "environment": environment,
    }
