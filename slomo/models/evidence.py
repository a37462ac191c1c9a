"""The measurements behind a prediction, and when they are too few for a verdict.

Distribution-free bounds are valid for questions like those of the calibration errors (Vovk et al., Algorithmic Learning
in a Random World, 2005). Without such errors, with a constant instead of a model, or if measured mixes contradict the
stated width, the error of an answer is unknown, and so is its verdict.
"""

import math
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from slomo.files.stored import Stored
from slomo.models.applicability import Applicability
from slomo.models.base import Floats
from slomo.models.intervals import ConformalCalibration
from slomo.models.local_errors import NEAREST
from slomo.models.nf_model import NFModel
from slomo.units import plural

#: Key of the manifest: model -> reason why its answers can never be judged.
DOUBTS = "doubts"
#: Least number of a profile's held-out errors that may replace those of mixes. Intervals were evaluated with 60 runs or
#: more (`benchmarks/interval_coverage.py`), some of which do not converge; fewer were not tested.
FEWEST_OF_PROFILE = 50
#: Sources of errors of models carried over from another machine: held-out runs here, or measurements on other machines.
TRANSFER, CARRIED = "transfer", "carried"
#: Least number of runs on this machine, over all functions, from which the errors of carried models count as known
#: (`benchmarks/transfer.py`).
FEWEST_OF_TRANSFER = 15
#: The held-out error behind a supported answer is at most this many times the average one of the machine, or negligible
#: as a share of solo. Chosen among 0.5 to 2 and 0 to 1 % on profiles and mixes of `benchmarks/three_sources.py`, seeds
#: 31 and 32 (`benchmarks/verdicts.py` judges others): supported answers were twice as accurate in every set.
USUAL, NEGLIGIBLE = 1.25, 0.005
#: Where the mixes nearest in pressure are known, their mean error is negligible up to a larger share of solo, and none
#: of their errors exceeds so many times half the width of the interval at this coverage.
NEGLIGIBLE_NEAR, FAR_OFF, COVERAGE = 0.01, 2.0, 0.9


@dataclass(frozen=True)
class Evidence(Stored):
    """How many known errors support one prediction, how large they are, and how far it is from measurements.

    Examples
    --------
    >>> Evidence("slomo-gp", "mixes", 160, 20, 0.012, 0.4).text
    'slomo-gp: 160 held-out errors (mixes), 20 with such neighbours; near it 1.2 % of solo; pressure 0.4 of profiled'
    """

    #: What answered.
    model: str
    #: Source of its held-out errors: ``"mixes"``, ``"pairs"``, ``"repeats"`` of a co-location, ``"cross-validation"``,
    #: ``"measured"`` for a run that was made, ``"transfer"`` for runs on a machine to which models were carried,
    #: ``"carried"`` without runs there, ``"none"``.
    source: str
    #: Number of held-out errors, and of those for this kind of neighbourhood (`slomo.models.neighbourhood`).
    scores: int = 0
    near: int = 0
    #: Mean held-out error as a share of solo throughput: of the mixes nearest in pressure (`slomo.models.local_errors`)
    #: where these are known, else at this predicted loss; None without errors.
    error: float | None = None
    #: Distance from the centre of the measurements relative to the farthest one: above 1 is outside. None if the model
    #: reads no pressure.
    distance: float | None = None

    @property
    def text(self) -> str:
        """The evidence as one line of text."""
        if self.source == "measured":
            return f"{self.model}: measured"
        parts = (
            f"{self.model}: {plural(self.scores, 'held-out error')} ({self.source}), {self.near} with such neighbours"
        )
        parts += "" if self.error is None else f"; near it {100.0 * self.error:.2g} % of solo"
        return parts + ("" if self.distance is None else f"; pressure {self.distance:.2g} of profiled")


def evidence_of(
    model: str,
    calibration: ConformalCalibration,
    kind: int,
    loss: float,
    covered: tuple[Applicability, Floats] | None = None,
) -> Evidence:
    """Return the number and size of known errors behind one prediction, and its distance from measurements.

    `model`: what answered. `calibration`: its held-out errors. `kind`: kind of neighbourhood asked about. `loss`:
    predicted loss, as a share of solo throughput. `covered`, shape (features,): what was measured, and the pressure of
    the question.
    """
    distance = covered[0].distance_share(covered[1]) if covered is not None and covered[0].feature_names else None
    error = calibration.usual_error(loss, kind) if calibration.count else None
    if covered is not None and calibration.local.suffice:
        error = float(calibration.local.near(covered[1])[0])
    return Evidence(
        model,
        calibration.source,
        calibration.count,
        int((calibration.kinds == kind).sum()) if len(calibration.kinds) else calibration.count,
        error,
        distance if distance is not None and np.isfinite(distance) else None,
    )


#: A share of solo throughput, or an array of them.
E = TypeVar("E", bound="float | Floats")


class VerdictErrors(NamedTuple, Generic[E]):
    """Held-out errors that decide the verdict on one prediction, or on an array of them, as shares of solo throughput.

    >>> calibration = ConformalCalibration(np.array([-1.0, 1.0]), "mixes", average=0.02)
    >>> [VerdictErrors(0.02, largest, half_width=0.01).too_large(calibration) for largest in (0.02, 0.03)]
    [False, True]
    """

    #: Mean error: of the mixes nearest in pressure if these are known, else at this predicted loss.
    mean: E
    #: Largest error of the mixes nearest in pressure, and half the width of the interval; None if these are not known.
    largest: E | None = None
    half_width: E | None = None

    def too_large(self, calibration: ConformalCalibration) -> bool | NDArray[np.bool_]:
        """Return whether the errors are too large for a `supported` prediction.

        The mean of errors of all NFs says little about this one beside their average.
        """
        if self.largest is None or self.half_width is None:
            return self.mean > trusted(calibration)
        far_off = self.largest > FAR_OFF * self.half_width
        return far_off if calibration.local.of_all else far_off | (self.mean > trusted(calibration, NEGLIGIBLE_NEAR))


def caution(calibration: ConformalCalibration, held_out: VerdictErrors[float] | None = None) -> str | None:
    """Return why a prediction's verdict is at most `extrapolated`; None if it may be `supported`.

    Runs beside the synthetic competitor do not measure how hard a carried function presses on others on this machine.
    And where held-out errors are large, measurements support an answer less than elsewhere, however near they are.

    `calibration`: held-out errors of the model that answers. `held_out`: those of this prediction.
    """
    if calibration.source == TRANSFER:
        return "carried over from another machine: no mix measured here tells how hard its neighbours press"
    if held_out is None or not held_out.too_large(calibration):
        return None
    mean, over_all = (
        f"{100.0 * held_out.mean:.2g} % of solo on average",
        f"over all {100.0 * calibration.average:.2g} %",
    )
    if held_out.largest is None or held_out.half_width is None:
        return f"held-out errors at this loss beside such neighbours are {mean}, {over_all}"
    of_all = " on any function" if calibration.local.of_all else ""
    return (
        f"held-out errors in the {NEAREST} mixes nearest in pressure{of_all} are {mean} and up to "
        f"{100.0 * held_out.largest:.2g} %, {over_all}; half the interval is {100.0 * held_out.half_width:.2g} %"
    )


def trusted(calibration: ConformalCalibration, negligible: float = NEGLIGIBLE) -> float:
    """Return the largest mean held-out error behind a `supported` prediction, as a share of solo throughput.

    It is at most solo throughput itself: with a larger error, the answer 0 would be nearer. An error up to `negligible`
    is trusted however small the machine's average is.

    >>> trusted(ConformalCalibration(np.array([-1.0, 1.0]), "mixes", average=0.02))
    0.025
    >>> trusted(ConformalCalibration(np.array([-1.0, 1.0]), "mixes", average=84.0))
    1.0
    """
    return min(max(USUAL * calibration.average, negligible), 1.0) if calibration.average > 0.0 else math.inf


def doubt(subject: NFModel, model: str, calibration: ConformalCalibration, coverage: float) -> str | None:
    """Return why a prediction beside others cannot be judged; None if it can.

    `subject`: the target. `model`: what answers: a family of the subject, or another model's name. `calibration`: its
    held-out errors. `coverage`: coverage asked for.
    """
    if (reason := groundless(subject, model, calibration)) is not None:
        return reason
    if (reason := too_few(model, calibration, coverage)) is not None:
        return reason
    if (own := too_few_of_profile(subject, calibration)) is not None:
        return (
            f"{own} held-out errors of the profile and none of mixes stand behind '{model}', needed {FEWEST_OF_PROFILE}"
        )
    return None


def too_few(model: str, calibration: ConformalCalibration, coverage: float) -> str | None:
    """Return that fewer errors are known than an interval of this coverage needs; None if there are enough."""
    if not (lacking := calibration.missing(coverage)):
        return None
    return (
        f"{calibration.count} held-out errors stand behind '{model}', "
        f"an interval of {100.0 * coverage:g} % needs {calibration.count + lacking}"
    )


def too_few_of_profile(subject: NFModel, calibration: ConformalCalibration) -> int | None:
    """Return the number of a profile's held-out errors if these are too few to replace those of mixes; else None."""
    if calibration.source != "cross-validation" or subject.manifest.get("table"):
        return None  # rows of a table are what is asked about: no composition is left out
    own = len(np.unique(np.abs(calibration.scores)))
    return own if own < FEWEST_OF_PROFILE else None


def groundless(subject: NFModel, model: str, calibration: ConformalCalibration) -> str | None:
    """Return why known errors, however many, do not show how wrong a prediction is; None if they do.

    Parameters are those of :func:`doubt`.
    """
    if calibration.source == CARRIED:
        transfer = subject.manifest.get("transfer", {})
        origin = transfer.get("from", "another machine")
        return (
            f"'{model}' is carried over from {origin}; to know how far it is off takes runs "
            f"beside others here: of it {transfer.get('held_out', 0)} (needed 1), of all functions together "
            f"{transfer.get('held_out_of_all', 'an unknown number')} of {FEWEST_OF_TRANSFER}"
        )
    family = subject.sensitivity.get(model)
    if family is not None and family.composition == "none":
        measured = "nothing was measured beside others" if not subject.knows_pressure else "it reads no pressure"
        return f"'{model}' stands in place of a model: {measured}"
    doubt = subject.manifest.get(DOUBTS, {}).get(model)
    return None if doubt is None else str(doubt)
