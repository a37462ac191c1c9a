"""The verdict on a prediction by the equilibrium: whether the NF's profile covers the pressure in the equilibrium.

If neighbours write more to memory than any competitor of the profile, or their devices move more lines (leaky DMA;
ResQ, NSDI'18, section 4.2), the prediction is an extrapolation at any pressure. If a memory channel is full, each NF's
share depends on the waiting time of requests, which traffic counters do not show. With measured memory latency, the
prediction is then an extrapolation with errors of tens of per cent for large packets; without it, there is no
prediction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from slomo.equilibrium.lanes import code_for, judge_one
from slomo.equilibrium.rounds import in_order, waited
from slomo.equilibrium.server import FixedPoints, Joint, joint_vectors
from slomo.equilibrium.settling import response_table
from slomo.models.applicability import VERDICTS, Verdict
from slomo.models.base import Floats
from slomo.models.evidence import COVERAGE, VerdictErrors, caution, doubt
from slomo.models.interval_ends import interval_of_one
from slomo.models.intervals import ConformalCalibration, scores_between
from slomo.models.local_errors import NEAREST
from slomo.models.neighbourhood import UNKNOWN, beside
from slomo.models.nf_model import NFModel
from slomo.models.responses.moved import MOVED, moved_in
from slomo.models.responses.server_response import ServerResponse

#: Name of this method in predictions.
NAME = "equilibrium"
#: Share of a channel's bandwidth above which its latency rises steeply (ResQ, NSDI'18, Fig. 3).
FULL = 0.9
#: Metric of the lines that an NF's card misses; without it, the traffic that the card reads back is unknown.
_CARDS_MISS = "PCIEMISS"
#: Compiled for a single question.
_VERDICT = (judge_one,)
_NAMES = tuple(name for amount in MOVED for name in amount.metrics)


def moved_by_each(models: Sequence[NFModel], members: NDArray[np.integer], at_rest: FixedPoints) -> Floats:
    """Return how much data of each kind in :data:`MOVED` every NF moves; unknown amounts are 0."""
    return moved_in(_NAMES, joint_vectors(models, members, at_rest, _NAMES))


def moved_beside(each: Floats, place: int) -> Floats:
    """Return how much data all NFs move except the one at `place`.

    The result does not depend on the order of the NFs.
    """
    others = np.sort(np.delete(each, place, axis=1), axis=1)
    total: Floats = in_order(others)[:, 0]
    return total


def channel_load(models: Sequence[NFModel], members: NDArray[np.integer], at_rest: FixedPoints) -> Floats:
    """Return the used share of each server's memory bandwidth, shape ``(servers,)``.

    The pressure on an NF is the traffic of the others, so the sum of all pressures counts each NF once per neighbour.
    The result is 0 for an NF without neighbours, and if the share is unknown.
    """
    socket = response_table(tuple(models)).socket
    if socket.channel is None:
        return np.zeros(len(members))
    moved = (at_rest.pressure - waited(socket, at_rest.waiting))[:, :, [socket.channel]] * (members >= 0)[:, :, None]
    beside = in_order(np.sort(moved, axis=1))[:, 0, 0]
    neighbours = np.maximum((np.asarray(members) >= 0).sum(axis=1) - 1, 1)
    load: Floats = beside / neighbours / socket.caps[socket.channel]
    return load


def division(models: Sequence[NFModel]) -> str:
    """Return the rule by which the rounds divide a full memory channel among NFs (`slomo.equilibrium.rounds`)."""
    responses = [model.response for model in models if model.response is not None]
    if any(len(each.read_back) for each in responses):
        return "queues of network cards become short first, then requests wait"
    if all(_CARDS_MISS in each.profile.metric_names for each in responses):
        return "requests wait (network cards read nothing back)"
    return f"requests wait; whether network cards are held back first was not measured (no {_CARDS_MISS} per core)"


def judged(
    response: ServerResponse,
    felt: Floats,
    moved: Sequence[float],
    channel: float = 0.0,
    kept: float | None = None,
    kind: int = UNKNOWN,
    models: Sequence[NFModel] = (),
) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict on the prediction of one NF beside neighbours, with its reasons.

    `response`: response of the NF. `felt`, shape (pressures,): pressure on the NF. `moved`: data moved by its
    neighbours together, by :data:`MOVED`; empty if this cannot exceed the measured amounts. `channel`: used share of
    the memory bandwidth (:func:`channel_load`). `kept`: share of solo throughput that it keeps if saturated; if None,
    held-out errors do not count. `kind`: kind of its neighbourhood. `models`: models of all NFs of the server.
    """
    verdict = Verdict.SUPPORTED
    reasons: tuple[str, ...] = ()
    covered, near = _beside(response, felt)
    if not covered:
        verdicts, why = response.applicability.check(felt[np.newaxis])
        verdict, reasons = verdicts[0], why[0]
    more = response.most_moved.exceeded(moved) if moved else ()
    calibration = response.calibration
    held_out = None if kept is None or not calibration.count else _errors(calibration, kept, kind, near)
    if why_not := caution(calibration, held_out):
        more = (*more, why_not)
    if channel > FULL:
        known = f"is predicted: {division(models)}" if response.knows_waiting else "is unknown"
        full = f"the memory channel is {100.0 * channel:.0f} % full; above {100.0 * FULL:.0f} % its division {known}"
        more = (*more, full)
        if not response.knows_waiting:
            return Verdict.UNSUPPORTED, (*reasons, *more)
    return Verdict.EXTRAPOLATED if more and verdict is Verdict.SUPPORTED else verdict, (*reasons, *more)


def _beside(response: ServerResponse, felt: Floats) -> tuple[bool, tuple[float, float] | None]:
    """Return whether a profile covers the pressure on an NF, and mean and largest error of the mixes nearest to it.

    The errors are None if they are not known. Compiled code, where it is loaded, returns the same bits.
    """
    covered, local = response.applicability, response.calibration.local
    if code := code_for(_VERDICT):
        inside, *near = code[0](felt, covered.inside, local.row, NEAREST)
        return inside, (near[0], near[1]) if local.suffice else None
    mean, largest = local.near(felt) if local.suffice else (np.nan, np.nan)
    return covered.covers(felt.tolist()), (float(mean), float(largest)) if local.suffice else None


def _errors(
    calibration: ConformalCalibration, kept: float, kind: int, near: tuple[float, float] | None
) -> VerdictErrors:
    """Return the held-out errors that decide the verdict on one prediction, some of which must be known."""
    if near is None:
        return VerdictErrors(calibration.usual_error(max(1.0 - kept, 0.0), kind))
    scores_low, scores_high = scores_between(calibration, COVERAGE)
    low, high = interval_of_one(kept, 1.0, calibration.shape, (scores_low[kind], scores_high[kind]))
    return VerdictErrors(*near, (high - low) / 2.0)


def _errors_of_all(
    calibration: ConformalCalibration, kept: Floats, kinds: NDArray[np.int64], pressure: Floats
) -> VerdictErrors:
    """Return :func:`_errors` for many predictions."""
    if not calibration.local.suffice:
        return VerdictErrors(calibration.usual_errors(np.maximum(1.0 - kept, 0.0), kinds))
    low, high = calibration.interval_mpps(kept, 1.0, COVERAGE, kinds)
    return VerdictErrors(*calibration.local.near(pressure), (high - low) / 2.0)


@lru_cache(maxsize=4096)
def doubted(model: NFModel, coverage: float) -> str | None:
    """Return the reason why an NF's prediction error beside others is unknown; None if it is known.

    `slomo.models.evidence` gives the reasons.
    """
    return None if model.response is None else doubt(model, NAME, model.response.calibration, coverage)


@dataclass(frozen=True)
class _OfModels:
    """Values of the models that do not depend on neighbours, one row per model."""

    #: Largest amount that the NF moves, and that its neighbours moved together in its profile.
    own_most: Floats
    limits: Floats
    #: Whether predictions beside others cannot be judged, whether the NF was never measured alone on this machine, and
    #: whether the waiting time at a full channel is known.
    doubted: NDArray[np.bool_]
    carried: NDArray[np.bool_]
    waits: NDArray[np.bool_]


@lru_cache(maxsize=16)
def _of_models(models: tuple[NFModel, ...], coverage: float) -> _OfModels:
    responses = [model.response for model in models]
    nothing, unlimited = (0.0,) * len(MOVED), (np.inf,) * len(MOVED)
    return _OfModels(
        np.array([*(nothing if item is None else item.moves_at_most for item in responses), nothing]),
        np.array([unlimited if item is None else item.most_moved.limits for item in responses]),
        np.array([doubted(model, coverage) is not None for model in models], dtype=bool),
        np.array([model.solo_is_carried for model in models], dtype=bool),
        np.array([item is not None and item.knows_waiting for item in responses], dtype=bool),
    )


def codes_of_first(
    models: Sequence[NFModel], members: NDArray[np.integer], at_rest: Joint, coverage: float
) -> NDArray[np.int8]:
    """Return the verdict on the first NF of every server, as an index into `VERDICTS`.

    All NFs must be saturated. For an NF without neighbours, the prediction is a measurement. The verdicts are those of
    :func:`judged` and :func:`doubted`.
    """
    codes = np.zeros(len(members), dtype=np.int8)
    known, firsts, others = _of_models(tuple(models), coverage), members[:, 0], members[:, 1:]
    company, kinds = (others >= 0).any(axis=1), beside(others)
    for number in np.unique(firsts[company]).tolist():
        response = models[number].response
        if response is None:
            continue
        rows = np.flatnonzero((firsts == number) & company)
        pressure = at_rest.pressure[rows, 0]
        codes[rows] = response.applicability.codes(pressure)
        if caution(response.calibration):
            codes[rows] = np.maximum(codes[rows], VERDICTS.index(Verdict.EXTRAPOLATED))
        elif response.calibration.count:
            kept = at_rest.throughput_mpps[rows, 0] / models[number].solo_mpps
            held_out = _errors_of_all(response.calibration, kept, kinds[rows], pressure)
            codes[rows] = np.maximum(codes[rows], held_out.too_large(response.calibration))
    doubtful = np.flatnonzero(company & (known.own_most[others].sum(axis=1) > known.limits[firsts]).any(axis=1))
    if len(doubtful):
        there = FixedPoints(at_rest.pressure[doubtful], at_rest.load[doubtful], at_rest.waiting[doubtful])
        moved = moved_beside(moved_by_each(models, members[doubtful], there), 0)
        codes[doubtful] = np.maximum(codes[doubtful], (moved > known.limits[firsts[doubtful]]).any(axis=1))
    full = company & (channel_load(models, members, at_rest) > FULL)
    codes[full] = np.maximum(codes[full], np.where(known.waits[firsts[full]], 1, 2))
    company |= known.carried[firsts]
    codes[company & known.doubted[firsts]] = VERDICTS.index(Verdict.UNKNOWN)
    return codes


def reasons_of_first(
    models: Sequence[NFModel], members: NDArray[np.integer], at_rest: Joint, coverage: float
) -> list[tuple[str, ...]]:
    """Return the reasons for the verdict on the first NF of every server.

    All of them are saturated.
    """
    if not len(members):
        return []
    moved = moved_beside(moved_by_each(models, members, at_rest), 0).tolist()
    channel, kinds = channel_load(models, members, at_rest).tolist(), beside(members[:, 1:]).tolist()
    possible = at_rest.throughput_mpps[:, 0].tolist()
    reasons: list[tuple[str, ...]] = []
    for row, number in enumerate(members[:, 0].tolist()):
        model, why = models[number], tuple[str, ...]()
        assert model.response is not None
        if members[row, 1:].max(initial=-1) >= 0:
            kept = possible[row] / model.solo_mpps
            tenants = [models[each] for each in members[row].tolist() if each >= 0]
            felt, kind = at_rest.pressure[row, 0], kinds[row]
            _, why = judged(model.response, felt, moved[row], channel[row], kept, kind, tenants)
        doubt = doubted(model, coverage)
        reasons.append(why if doubt is None else (doubt, *why))
    return reasons
