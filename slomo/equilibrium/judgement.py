"""The verdict on a prediction by the equilibrium: whether the NF's profile covers the pressure in the equilibrium.

If neighbours write more to memory than any competitor of the profile, or their devices move more lines (leaky DMA;
ResQ, NSDI'18, section 4.2), the prediction is an extrapolation at any pressure. If a memory channel is full, each NF's
share depends on the waiting time of requests, which traffic counters do not show. With measured memory latency, the
prediction is then an extrapolation with errors of tens of per cent for large packets; without it, there is no
prediction.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slomo.equilibrium.one_question import judge_one
from slomo.equilibrium.rounds import IterationState, in_order, waited
from slomo.equilibrium.server import FixedPoints, Joint, joint_vectors
from slomo.equilibrium.settling import ResponseTable, response_table, socket_numbers
from slomo.models.applicability import VERDICTS, Verdict
from slomo.models.base import Floats
from slomo.models.evidence import COVERAGE, VerdictErrors, caution, doubt
from slomo.models.functions.compilation import code_for
from slomo.models.local_errors import NEAREST
from slomo.models.neighbourhood import beside
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


class VerdictInputs(NamedTuple):
    """What the verdict on one NF reads of its server."""

    #: Whether a profile covers the pressure on the NF.
    covered: bool
    #: Mean and largest held-out error of the mixes nearest in pressure; None if not known.
    near: tuple[float, float] | None = None
    #: Used share of the memory bandwidth (:func:`channel_load`).
    channel: float = 0.0
    #: Whether the neighbours may move more data past the cache than in the NF's profile.
    may_move_more: bool = False


def moved_by_each(models: Sequence[NFModel], members: NDArray[np.integer], solved: FixedPoints) -> Floats:
    """Return how much data of each kind in :data:`MOVED` every NF moves; unknown amounts are 0."""
    return moved_in(_NAMES, joint_vectors(models, members, solved, _NAMES))


def moved_beside(each: Floats, place: int) -> Floats:
    """Return how much data all NFs move except the one at `place`, whatever their order."""
    others = np.sort(np.delete(each, place, axis=1), axis=1)
    return in_order(others)[:, 0]


def channel_load(models: Sequence[NFModel], members: NDArray[np.integer], solved: FixedPoints) -> Floats:
    """Return the used share of each server's memory bandwidth, shape ``(servers,)``.

    The pressure on an NF is the traffic of the others, so the sum of all pressures counts each NF once per neighbour.
    The result is 0 for an NF without neighbours, and if the share is unknown.
    """
    socket = response_table(tuple(models)).socket
    if socket.channel is None:
        return np.zeros(len(members))
    moved = (solved.pressure - waited(socket, solved.waiting))[:, :, [socket.channel]] * (members >= 0)[:, :, None]
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
    pressure: Floats,
    inputs: VerdictInputs,
    moved: Sequence[float],
    held_out: VerdictErrors[float] | None,
    models: Sequence[NFModel],
) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict on the prediction of one NF beside neighbours, with its reasons.

    `response`: response of the NF. `pressure`, shape (pressures,): pressure on the NF. `moved`: data moved by its
    neighbours together, by :data:`MOVED`; empty if this cannot exceed the measured amounts. `held_out`: held-out errors
    that count; None if there are none. `models`: models of all NFs of the server.
    """
    verdict = Verdict.SUPPORTED
    reasons: tuple[str, ...] = ()
    if not inputs.covered:
        verdicts, why = response.applicability.check(pressure[np.newaxis])
        verdict, reasons = verdicts[0], why[0]
    more = response.most_moved.exceeded(moved) if moved else ()
    if why_not := caution(response.calibration, held_out):
        more = (*more, why_not)
    if (channel := inputs.channel) > FULL:
        known = f"is predicted: {division(models)}" if response.knows_waiting else "is unknown"
        full = f"the memory channel is {100.0 * channel:.0f} % full; above {100.0 * FULL:.0f} % its division {known}"
        more = (*more, full)
        if not response.knows_waiting:
            return Verdict.UNSUPPORTED, (*reasons, *more)
    return Verdict.EXTRAPOLATED if more and verdict is Verdict.SUPPORTED else verdict, (*reasons, *more)


def verdict_inputs(
    nfs: ResponseTable, members: NDArray[np.integer], solved: FixedPoints | IterationState, row: int, place: int
) -> VerdictInputs:
    """Return what the verdict on the NF at `place` of the server `row` reads; compiled code has the same bits."""
    response = nfs.responses[members[row, place]]
    covered, local = response.applicability, response.calibration.local
    if code := code_for(_VERDICT):
        server = members, solved.pressure, solved.waiting, socket_numbers(nfs.socket), nfs.moves
        inside, mean, largest, channel, more = code[0](row, place, *server, covered.inside, local.row, NEAREST)
        return VerdictInputs(inside, (mean, largest) if local.suffice else None, channel, more)
    pressure, own, others = solved.pressure[row, place], members[row, place], np.delete(members[row], place)
    mean, largest = map(float, local.near(pressure) if local.suffice else (0.0, 0.0))
    here = FixedPoints(solved.pressure[[row]], np.ones(1), solved.waiting[[row]])
    more = (nfs.moves[0, others[others >= 0]].sum(axis=0) > nfs.moves[1, own]).any()
    channel = channel_load(nfs.models, members[[row]], here)[0]
    near = (mean, largest) if local.suffice else None
    return VerdictInputs(covered.covers(pressure.tolist()), near, float(channel), bool(more))


def held_out_errors(
    model: NFModel, near: tuple[float, float] | None, possible_mpps: float, kind: int, ends_mpps: tuple[float, float]
) -> VerdictErrors[float] | None:
    """Return the held-out errors that decide the verdict on one prediction; None if none are known.

    `possible_mpps`: throughput of the NF if saturated [Mpps]. `kind`: kind of its neighbourhood. `ends_mpps`: ends of
    its interval at :data:`COVERAGE`.
    """
    assert model.response is not None
    calibration = model.response.calibration
    if not calibration.count:
        return None
    if near is None:
        return VerdictErrors(calibration.usual_error(max(1.0 - possible_mpps / model.solo_mpps, 0.0), kind))
    return VerdictErrors(*near, (ends_mpps[1] - ends_mpps[0]) / model.solo_mpps / 2.0)


@lru_cache(maxsize=4096)
def doubted(model: NFModel, coverage: float) -> str | None:
    """Return the reason why an NF's prediction error beside others is unknown; None if it is known."""
    return None if model.response is None else doubt(model, NAME, model.response.calibration, coverage)


def codes_of_first(
    models: Sequence[NFModel], members: NDArray[np.integer], solved: Joint, coverage: float
) -> NDArray[np.int8]:
    """Return the verdict on the first NF of every server, as an index into `VERDICTS`.

    All NFs must be saturated. For an NF without neighbours, the prediction is a measurement. The verdicts are those of
    :func:`judged` and :func:`doubted`.
    """
    codes, nfs = np.zeros(len(members), dtype=np.int8), response_table(tuple(models))
    firsts, others = members[:, 0], members[:, 1:]
    company, kinds = (others >= 0).any(axis=1), beside(others)
    full = company & (channel_load(models, members, solved) > FULL)
    for number in np.unique(firsts[company]).tolist():
        response = nfs.responses[number]
        rows = np.flatnonzero((firsts == number) & company)
        pressure = solved.pressure[rows, 0]
        codes[rows] = response.applicability.codes(pressure)
        codes[rows] = np.maximum(codes[rows], np.where(full[rows], 1 if response.knows_waiting else 2, 0))
        if caution(response.calibration):
            codes[rows] = np.maximum(codes[rows], VERDICTS.index(Verdict.EXTRAPOLATED))
        elif response.calibration.count:
            mpps, solo_mpps = solved.throughput_mpps[rows, 0], models[number].solo_mpps
            calibration, low, high = response.calibration, solved.low_mpps[rows, 0], solved.high_mpps[rows, 0]
            if not calibration.local.suffice:
                loss = np.maximum(1.0 - mpps / solo_mpps, 0.0)
                held_out = VerdictErrors(calibration.usual_errors(loss, kinds[rows]))
            else:
                if coverage != COVERAGE:
                    low, high = calibration.interval_mpps(mpps, solo_mpps, COVERAGE, kinds[rows])
                mean, largest = calibration.local.near(pressure)
                held_out = VerdictErrors(mean, largest, (high - low) / solo_mpps / 2.0)
            codes[rows] = np.maximum(codes[rows], held_out.too_large(calibration))
    own_most, limits = np.vstack([nfs.moves[0], np.zeros(len(MOVED))]), nfs.moves[1]  # last: an empty place
    doubtful = np.flatnonzero(company & (own_most[others].sum(axis=1) > limits[firsts]).any(axis=1))
    if len(doubtful):
        moved = moved_beside(moved_by_each(models, members[doubtful], solved.only(doubtful)), 0)
        codes[doubtful] = np.maximum(codes[doubtful], (moved > limits[firsts[doubtful]]).any(axis=1))
    company |= nfs.is_carried[firsts]
    for number in np.unique(firsts[company]).tolist():
        if doubted(models[number], coverage) is not None:
            codes[company & (firsts == number)] = VERDICTS.index(Verdict.UNKNOWN)
    return codes


def reasons_of_first(
    models: Sequence[NFModel], members: NDArray[np.integer], solved: Joint, coverage: float
) -> list[tuple[str, ...]]:
    """Return the reasons for the verdict on the first NF of every server, all of them saturated."""
    if not len(members):
        return []
    moved = moved_beside(moved_by_each(models, members, solved), 0).tolist()
    nfs, kinds = response_table(tuple(models)), beside(members[:, 1:]).tolist()
    possible = solved.throughput_mpps[:, 0].tolist()
    reasons: list[tuple[str, ...]] = []
    for row, number in enumerate(members[:, 0].tolist()):
        model, response, why = models[number], nfs.responses[number], tuple[str, ...]()
        if members[row, 1:].max(initial=-1) >= 0:
            tenants = [models[each] for each in members[row].tolist() if each >= 0]
            inputs = verdict_inputs(nfs, members, solved, row, 0)
            ends = response.calibration.one_interval_mpps(possible[row], model.solo_mpps, COVERAGE, kinds[row])
            held_out = held_out_errors(model, inputs.near, possible[row], kinds[row], ends)
            _, why = judged(response, solved.pressure[row, 0], inputs, moved[row], held_out, tenants)
        doubt = doubted(model, coverage)
        reasons.append(why if doubt is None else (doubt, *why))
    return reasons
