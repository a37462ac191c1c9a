"""Learn how an NF responds to running neighbours, from runs in which counters beside it were measured.

The runs are those of SLOMO (SIGCOMM'20) section 4.1; the pressure is that of the competitors, measured while the target
runs. Additive metrics are smooth functions of it (ridge over a saturating basis). Throughput comes from a smooth
monotone network, which was better than trees on calibration mixes (0.35 and 0.30 % against 0.44 and 0.32 % on SLOMO's
two machines).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.equilibrium.judgement import NAME
from slomo.equilibrium.mixes import MixRows, predict_mixes
from slomo.equilibrium.server import solve_joint
from slomo.equilibrium.settling import LOADED
from slomo.equilibrium.tables import flows_and_polled
from slomo.models.applicability import applicability
from slomo.models.base import Floats
from slomo.models.contentiousness import ContentiousnessProfile, pressure_basis
from slomo.models.functions.regression import ridge
from slomo.models.functions.smooth import SmoothSensitivity
from slomo.models.interval_ends import predicted_loss
from slomo.models.intervals import FLOOR, ConformalCalibration, calibrate
from slomo.models.library import ModelLibrary
from slomo.models.local_errors import NEAREST, LocalErrors
from slomo.models.nf_model import NFModel
from slomo.models.responses.arrivals import BUSIEST, arrival_scores
from slomo.models.responses.moved import most_moved
from slomo.models.responses.server_response import NEIGHBOURS, NOT_LEARNED, ServerResponse
from slomo.records.dataset import ProfileDataset
from slomo.training.calibration import ENOUGH_IN_ALL, calibrated_on, contradiction, distinct, mix_rows
from slomo.training.cross_validation import folds, held_out
from slomo.training.families.gaussian_process import SmoothFamily
from slomo.training.families.monotone_network import MonotoneFamily
from slomo.training.features import LINE_B, Subject, typical_values
from slomo.training.response_fit import PRESSURES, solo_vector
from slomo.training.waiting import FULL_CHANNEL, with_waiting
from slomo.vocabulary.wire import wire_gbps

#: Ridge strength for all functions but occupancy; with a weaker ridge, single rows fit better, but some servers do not
#: converge.
STRENGTH = 3e-4
#: In a full cache an NF holds what the others leave: with a slope of -1 in occupancy the division would be
#: undetermined. This ridge keeps it determined; that the cache is full is enforced afterwards (`full_kib`). Chosen on
#: calibration mixes.
OCCUPANCY_STRENGTH = 5e-2
#: Share of the largest total occupancy above which a cache counts as full; quantile of such rows' total occupancy that
#: is taken as the least of a full cache.
_FULL, _FULL_QUANTILE = 0.9, 0.25
#: Least numbers of rows for fitting a function, at full and at part load.
_FEWEST_ROWS, _FEWEST_IDLE = 24, 10
#: Least number of rows on a loaded memory channel from which a packet's traffic is learned.
_FEWEST_LOADED = 12
#: One in this many rows, but at least this number of rows, counts as losing little.
_MILD, _FEWEST_MILD = 8, 12


def fit_server_response(
    subject: Subject,
    seed: int,
    channel: tuple[float, float] = (0.0, np.inf),
    judged: ServerResponse | None = None,
) -> ServerResponse | None:
    """Return an NF's response to running neighbours; None if counters were not measured beside it.

    `channel` describes the memory channel as in `slomo.training.waiting`. The errors of `judged`, an earlier response
    of the same subject, are kept; otherwise cross-validation determines them.
    """
    names = tuple(name for name in PRESSURES if name in subject.beside_names and name in subject.own_names)
    if not names or not subject.own_names:
        return None
    pressure = pressures_of(subject, names, subject.beside, 1.0, channel)
    whole = np.isfinite(pressure).all(axis=1) & np.isfinite(subject.own).all(axis=1) & (subject.mpps > 0.0)
    if whole.sum() < _FEWEST_ROWS or not (subject.counts[whole] > 0).any():
        return None
    pressure, mpps = pressure[whole], subject.mpps[whole]
    own = _per_packet(subject.own_names, subject.own[whole], mpps)
    scale, limit = typical_values(pressure), pressure.max(axis=0)
    basis = pressure_basis(pressure, scale, limit)
    own, read_back = _with_long_queues(subject, whole, own, basis, channel[1])
    weights = ridge(basis, np.column_stack([own, mpps]), STRENGTH)
    held = subject.own_names.index("L3OCC") if "L3OCC" in subject.own_names else -1
    if held >= 0:
        weights[:, [held]] = ridge(basis, own[:, [held]], OCCUPANCY_STRENGTH)
    low, high = own.min(axis=0), own.max(axis=0)
    profile = ContentiousnessProfile(
        subject.own_names, names, solo_vector(subject), {}, scale, limit, weights[:, :-1], low, high
    )
    read, rows = (*names, NEIGHBOURS), np.column_stack([pressure, subject.counts[whole]])
    learn = partial(MonotoneFamily(name="equilibrium").fit, read, solo_mpps=subject.solo_mpps, seed=seed)

    def fit(seen: NDArray[np.bool_]) -> Callable[[NDArray[np.bool_]], Floats]:
        model = learn(rows[seen], mpps[seen])
        return lambda left_out: model.predict_mpps(rows[left_out])

    if judged is not None:
        calibration, arrivals = judged.calibration, judged.arrivals
    else:
        guess = held_out(fit, folds(subject.groups[whole], seed))
        calibration = calibrate(mpps, guess, subject.solo_mpps, "cross-validation")
        arrivals = _strays(
            subject,
            _repeats(mpps, guess, subject.solo_mpps),
            lambda beside: np.clip(
                pressure_basis(pressures_of(subject, names, beside, 1.0, channel), scale, limit) @ weights[:, -1],
                mpps.min(), mpps.max(),
            ),
        )  # fmt: skip
    return ServerResponse(
        profile=profile,
        speed=weights[:, -1],
        slowest_mpps=float(mpps.min()),
        fastest_mpps=float(mpps.max()),
        sensitivity=learn(rows, mpps),
        calibration=calibration,
        applicability=applicability(names, pressure),
        full_kib=full_kib(pressure[:, names.index("L3OCC")] + own[:, held]) if "L3OCC" in names else 0.0,
        arrivals=arrivals,
        most_moved=most_moved(subject.beside_names, subject.beside[whole]),
        part_load=_part_load(subject, names, float(mpps.max()), channel),
        full_channel_ns=channel[0] if "LLCMISSLAT" in subject.beside_names else 0.0,
        traffic=None if judged is None else _traffic(subject, whole, read, rows, own, channel[1], seed),
        read_back=read_back,
    )


def _with_long_queues(
    subject: Subject, whole: NDArray[np.bool_], own: Floats, basis: Floats, most: float
) -> tuple[Floats, Floats]:
    """Return counters per packet as with long queues, and the traffic that the card then reads back from memory.

    A card that writes packets ahead of the core misses at most their lines; other lines that it misses are those that
    it reads back from memory to send. A full channel slows the card down and makes its queue short, so that rows at a
    full channel lack this read-back traffic. Weights are empty if lines that cards miss were not measured, if they
    never read back a whole line of a packet, or if too few rows leave the channel free.
    """
    if not {"LMB", "PCIEMISS"} <= {*subject.own_names} or "LMB" not in subject.beside_names or np.isinf(most):
        return own, NOT_LEARNED
    column, lines = subject.own_names.index("LMB"), np.ceil(subject.workload.traffic.packet_size_b / LINE_B)
    moved = subject.own[whole][:, column] + subject.beside[whole][:, subject.beside_names.index("LMB")]
    free, line = moved <= FULL_CHANNEL * most, LINE_B * 1e6 / 2**20
    read = line * np.maximum(own[:, subject.own_names.index("PCIEMISS")] - lines, 0.0)
    if free.sum() < _FEWEST_ROWS or read.max() < line:
        return own, NOT_LEARNED
    weights = ridge(basis[free], read[free, np.newaxis], STRENGTH)[:, 0]
    own = own.copy()
    own[~free, column] += np.maximum(basis[~free] @ weights - read[~free], 0.0)
    return own, weights


def _traffic(
    subject: Subject,
    whole: NDArray[np.bool_],
    names: tuple[str, ...],
    pressure: Floats,
    own: Floats,
    most: float,
    seed: int,
) -> SmoothSensitivity | None:
    """Return the memory traffic per packet as a Gaussian process; None with few runs on a loaded channel.

    The ridge of the rounds cannot follow the step from a queue whose packets stay in the cache to one that leaks.
    """
    if not {"LMB"} <= {*names, *subject.own_names} or "LMB" not in subject.beside_names:
        return None
    column = subject.own_names.index("LMB")
    moved = subject.own[whole][:, column] + subject.beside[whole][:, subject.beside_names.index("LMB")]
    if (moved > LOADED * most).sum() < _FEWEST_LOADED or not own[:, column].max() > 0.0:
        return None
    family = SmoothFamily(name="traffic")
    return family.fit(names, pressure, own[:, column], solo_mpps=float(own[:, column].max()), seed=seed)


def pressures_of(
    subject: Subject, names: tuple[str, ...], beside: Floats, stretch: Floats | float, channel: tuple[float, float]
) -> Floats:
    """Return the pressures `names` of the given rows, with waiting for memory added."""
    pressure = beside[:, [subject.beside_names.index(name) for name in names]]
    return with_waiting(names, pressure * np.where(flows_and_polled(names)[0], stretch, 1.0), subject, beside, channel)


def _repeats(mpps: Floats, guess: Floats, solo_mpps: float) -> Floats:
    """Return the variation of measurements with little predicted loss.

    It replaces that of mixes at reduced load, whose NFs lose no throughput and therefore vary at most as much: as that
    at the largest load, where queues scatter most (`slomo.models.responses.arrivals`).
    """
    known = np.flatnonzero(np.isfinite(guess) & (guess > 0.0))
    mild = known[np.argsort(-guess[known], kind="stable")][: max(_FEWEST_MILD, len(known) // _MILD)]
    return arrival_scores(np.minimum(mpps[mild], solo_mpps), np.minimum(guess[mild], solo_mpps), BUSIEST)


def _strays(subject: Subject, repeats: Floats, possible_mpps: Callable[[Floats], Floats]) -> Floats:
    """Return the deviations of an NF's part-load runs from their offered loads, where its core could serve them.

    `possible_mpps` returns the throughput that the NF could reach beside what was measured.
    """
    rows = subject.part_load
    if rows is None:
        return repeats
    load = rows.offered_mpps / possible_mpps(rows.beside)
    if (known := load < BUSIEST).sum() < _FEWEST_IDLE:
        return repeats
    return arrival_scores(rows.mpps[known], rows.offered_mpps[known], load[known])


def _part_load(
    subject: Subject, names: tuple[str, ...], fastest_mpps: float, channel: tuple[float, float]
) -> ContentiousnessProfile | None:
    """Return an NF's counters below full load; None if there are too few such runs."""
    rows = subject.part_load
    if rows is None or len(rows.mpps) < _FEWEST_IDLE:
        return None
    stretch = (fastest_mpps / rows.mpps)[:, np.newaxis]
    pressure = pressures_of(subject, names, rows.beside, stretch, channel)
    own = _per_packet(subject.own_names, rows.own, rows.mpps)
    scale, limit = typical_values(pressure), pressure.max(axis=0)
    weights = ridge(pressure_basis(pressure, scale, limit), own, STRENGTH)
    low, high = own.min(axis=0), own.max(axis=0)
    return ContentiousnessProfile(subject.own_names, names, solo_vector(subject), {}, scale, limit, weights, low, high)


def _per_packet(names: Sequence[str], own: Floats, mpps: Floats) -> Floats:
    """Return events per packet instead of events per second."""
    return own / np.where(flows_and_polled(tuple(names))[0], mpps[:, np.newaxis], 1.0)


def full_kib(held_kib: Floats) -> float:
    """Return the least total occupancy of a full cache [KiB]; in an inclusive cache every line is occupied.

    >>> full_kib(np.array([100.0, 950.0, 960.0, 1000.0]))
    955.0
    """
    full = held_kib[held_kib > _FULL * held_kib.max()]
    return float(np.quantile(full, _FULL_QUANTILE))


def widened(models: Sequence[NFModel], rows: MixRows, held_out_mpps: Floats | None = None) -> list[NFModel]:
    """Return the models with interval widths for whole servers, which mixes determine if there are enough.

    All models are of one machine. Mixes with an NF that does not answer for whole servers are passed over: they are
    composed. Saturated targets set the width of what an NF can do, targets that serve all they are offered how far
    arrivals stray. `held_out_mpps` are predictions of mixes that the models learned, by models that did not; NaN
    for the others.
    """
    knows = np.array([model.response is not None for model in models], dtype=bool)
    members = np.column_stack([rows.target, rows.members])
    answered = np.logical_and.reduce(np.append(knows, True)[members], axis=1)
    jointly = rows.chosen(answered)
    if len(jointly.mpps) < ENOUGH_IN_ALL:
        return list(models)
    places = np.flatnonzero(knows).tolist()
    number = np.append(np.cumsum(knows) - 1, -1)  # index among models with a response; -1 is an empty place
    jointly = MixRows(
        number[jointly.target], number[jointly.members], jointly.mpps, jointly.offered_mpps, jointly.packed
    )
    held_out = np.full(len(jointly.mpps), np.nan) if held_out_mpps is None else held_out_mpps[answered]
    result = list(models)
    for place, model in zip(places, _calibrated([models[place] for place in places], jointly, held_out), strict=True):
        result[place] = model
    return result


def _calibrated(models: Sequence[NFModel], rows: MixRows, held_out_mpps: Floats) -> list[NFModel]:
    """Return models with known errors for whole servers, from measured mixes."""
    members = np.column_stack([rows.target, rows.members])
    offered = np.full(members.shape, np.nan) if rows.offered_mpps is None else rows.offered_mpps
    joint = solve_joint(models, members, offered)
    own_load, free = offered[:, 0], ~_behind_full_ports(models, members, joint.throughput_mpps)
    full, served = np.isnan(own_load) & free, np.isfinite(own_load) & (joint.load[:, 0] < BUSIEST) & free
    predicted = np.where(np.isnan(held_out_mpps), joint.throughput_mpps[:, 0], held_out_mpps)
    scored = calibrated_on(models, rows.chosen(full), predicted[full])
    result = list(models)
    if scored:
        once = np.flatnonzero(full & np.isfinite(predicted))
        once = once[distinct(rows.chosen(once))]
        local = _local_errors(models, rows.chosen(once), joint.pressure[once, 0], predicted[once])
        for number, model in enumerate(models):
            result[number] = _answering(model, calibration=replace(scored[number], local=local[number]))
    if served.sum() < ENOUGH_IN_ALL:
        return result
    scores = arrival_scores(rows.mpps[served], own_load[served], joint.load[served, 0])
    return [_answering(model, arrivals=scores) for model in result]


def _local_errors(
    models: Sequence[NFModel], rows: MixRows, pressure: Floats, predicted_mpps: Floats
) -> list[LocalErrors]:
    """Return the errors of each model by pressure, whose unit is the range that its profile covers.

    A carried model with fewer errors than are read near a question also has those of all others, in proportion to the
    loss that each predicts under the same pressure (normalised as in `slomo.models.error_shape.proportional`). Of
    models of the machine itself, `supported` answers were then no longer the more accurate ones.
    """
    solo_mpps = np.array([model.solo_mpps for model in models])[rows.target]
    off, loss = np.abs(predicted_mpps - rows.mpps) / solo_mpps, predicted_loss(predicted_mpps, solo_mpps)
    neighbours = (rows.members >= 0).sum(axis=1).astype(float)
    made = []
    for number, model in enumerate(models):
        assert model.response is not None
        own, span = rows.target == number, model.response.applicability.span
        if own.sum() >= NEAREST or "transfer" not in model.manifest:
            made.append(LocalErrors(pressure[own], off[own], span))
            continue
        here = predicted_loss(model.response.rows_mpps(pressure, neighbours), model.solo_mpps)
        sizes = off * np.where(own, 1.0, (here + FLOOR) / (loss + FLOOR))
        made.append(LocalErrors(pressure, sizes, span, of_all=True))
    return made


def _behind_full_ports(models: Sequence[NFModel], members: NDArray[np.int64], mpps: Floats) -> NDArray[np.bool_]:
    """Return the mixes whose NFs need more than the ports carry, so that ports limit them."""
    stated = [model.capacities.ports_gbps for model in models if model.capacities is not None]
    frames_b = np.array([*(float(model.workload.traffic.packet_size_b) for model in models), 0.0])
    demanded: NDArray[np.bool_] = wire_gbps(frames_b[members], mpps).sum(axis=1) > min(stated, default=np.inf)
    return demanded


def contradictions(models: Sequence[NFModel], rows: MixRows) -> list[dict[str, str]]:
    """Return, for each NF, the model families whose intervals fail on measured mixes, each with the reason.

    Tested are intervals that come from cross-validation of the profile, without mixes. The default family
    (`equilibrium`) is tested on those mixes whose NFs all have a trained response.
    """
    rows = rows.saturated()
    reasons: list[dict[str, str]] = [{} for _ in models]
    if not 0 < len(rows.mpps) < ENOUGH_IN_ALL:
        return reasons
    members = np.column_stack([rows.target, rows.members])
    knows = np.array([*(model.response is not None for model in models), True], dtype=bool)
    joint = np.full(len(rows.mpps), np.nan)
    if (jointly := np.logical_and.reduce(knows[members], axis=1)).any():
        joint[jointly] = solve_joint(models, members[jointly], first_only=True).throughput_mpps[:, 0]
    for number, model in enumerate(models):
        own = rows.target == number
        answers: dict[str, tuple[ConformalCalibration, Floats | None]]
        answers = {name: (calibration, None) for name, calibration in model.calibration.items()}
        if model.response is not None:
            answers[NAME] = (model.response.calibration, joint)
        for name, (calibration, answer) in answers.items():
            predicted = predict_mixes(models, rows.chosen(own), name) if answer is None else answer[own]
            if why := contradiction(calibration, model.solo_mpps, rows.chosen(own), predicted):
                reasons[number][name] = f"measured mixes contradict '{name}': {why}"
    return reasons


def recalibrated(library: ModelLibrary, dataset: ProfileDataset) -> ModelLibrary:
    """Return a library in which the mixes of `dataset` alone determine the intervals for whole servers.

    For shipped or older models, given mixes like those to be predicted, some at reduced load.

    >>> from slomo.records.dataset import ProfileDataset
    >>> len(recalibrated(ModelLibrary([]), ProfileDataset.from_records([])))
    0
    """
    finished: list[NFModel] = []
    for machine in library.machines:
        models = [library[owner, key] for owner, key in library if owner == machine]
        finished += widened(models, mix_rows(dataset, models, machine))
    return ModelLibrary(finished)


def _answering(model: NFModel, **changed: Any) -> NFModel:
    assert model.response is not None
    return replace(model, response=replace(model.response, **changed))
