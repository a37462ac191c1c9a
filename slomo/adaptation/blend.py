"""Combine two models of one NF: interpolate time per packet and counters, take the wider interval."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slomo.adaptation.interpolation import InterpolationPath
from slomo.adaptation.routes import Point, ProfiledPoint
from slomo.errors import UnsupportedPredictionError
from slomo.models.base import CompositionKind, Floats, SensitivityModel
from slomo.models.contentiousness import pressure_basis, pressures_up_to
from slomo.models.functions.regression import ridge
from slomo.models.nf_model import NFModel
from slomo.models.responses.server_response import NOT_LEARNED, ServerResponse
from slomo.vocabulary.workload import Workload


class DerivedSensitivity:
    """A sensitivity model derived from profiled ones."""

    base: SensitivityModel

    @property
    def name(self) -> str:
        """Name of the model family."""
        return self.base.name

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns that the model reads, in order."""
        return self.base.feature_names

    @property
    def composition(self) -> CompositionKind:
        """By which rule the counters of several competitors are combined."""
        return self.base.composition

    def to_dict(self) -> dict[str, Any]:
        """Raise UnsupportedPredictionError: it is made from profiles each time and not saved."""
        raise UnsupportedPredictionError(f"model '{self.name}' is made on request", hint="save the profiled models")


@dataclass(frozen=True, eq=False)
class Blended(DerivedSensitivity):
    """Time per packet interpolated between models of one NF.

    >>> from slomo.models.responses.sensitivity import ConstantSensitivity
    >>> way = InterpolationPath((0.0, 1.0), (1.0, 1.0 / 3.0), 0.5, 2.0 / 3.0, 0.5, curved=False)
    >>> half = Blended((ConstantSensitivity("none", 1.0), ConstantSensitivity("none", 3.0)), way)
    >>> half.predict_mpps(np.zeros((1, 0))).round(6).tolist()
    [1.5]
    """

    models: tuple[SensitivityModel, ...]
    way: InterpolationPath

    @property
    def base(self) -> SensitivityModel:  # type: ignore[override]  # read alone
        """The first of the models, which all have one family's name and input."""
        return self.models[0]

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps]; 0 if a model gives 0."""
        return self.way.between_mpps([model.predict_mpps(vectors) for model in self.models])


def model_at(point: Point, profiles: Sequence[NFModel], requested: Workload) -> NFModel:
    """Return the model at a point: a profile itself, or a blend of the models at its ends."""
    if isinstance(point, ProfiledPoint):
        return profiles[point.number]
    models = [model_at(end, profiles, requested) for end in point.ends]
    return blend(models, point.path, requested)


def blend(models: Sequence[NFModel], way: InterpolationPath, requested: Workload) -> NFModel:
    """Return the model for `requested`, interpolated between two models along one attribute."""
    first, second = models[way.below], models[way.below + 1]
    calibration, other = first.calibration, second.calibration
    sensitivity = {name: Blended(families, way) for name in first.sensitivity if (families := _alike(models, name))}
    response = _response([model.response for model in models], way)
    return replace(
        first if way.share < 0.5 else second,
        workload=requested,
        solo_mpps=1.0 / way.alone_us,
        solo_vector=first.solo_vector.towards(second.solo_vector, way.share),
        sensitivity=sensitivity,
        contentiousness=first.contentiousness.blended_with(second.contentiousness, way.share),
        calibration={name: calibration[name].or_wider(other[name]) for name in calibration if name in other},
        response=response,
        allocation=None,
    )


def _alike(models: Sequence[NFModel], name: str) -> tuple[SensitivityModel, ...]:
    """Return one family of every model; empty if a model lacks it, or reads other counters."""
    families = tuple(model.sensitivity[name] for model in models if name in model.sensitivity)
    same = len(families) == len(models) and len({family.feature_names for family in families}) == 1
    return families if same else ()


def _response(profiled: Sequence[ServerResponse | None], way: InterpolationPath) -> ServerResponse | None:
    responses = [response for response in profiled if response is not None]
    if len(responses) < len(profiled) or len({response.sensitivity.feature_names for response in responses}) > 1:
        return None
    one, other = responses[way.below], responses[way.below + 1]
    profile = one.profile.blended_with(other.profile, way.share)
    pressure = pressures_up_to(profile.limit)
    basis = pressure_basis(pressure, profile.scale, profile.limit)

    def fitted(values: Floats) -> Floats:
        return ridge(basis, values[:, np.newaxis], 1e-6)[:, 0]

    def between(below: Floats, above: Floats) -> Floats:
        return (1.0 - way.share) * below + way.share * above

    read_back = NOT_LEARNED
    if len(one.read_back) and len(other.read_back):
        ends = [pressure_basis(pressure, of.profile.scale, of.profile.limit) @ of.read_back for of in (one, other)]
        read_back = fitted(between(*ends))
    return replace(
        one if way.share < 0.5 else other,
        profile=profile,
        speed=fitted(way.between_mpps([response.speed_mpps(pressure) for response in responses])),
        slowest_mpps=min(one.slowest_mpps, other.slowest_mpps),
        fastest_mpps=max(one.fastest_mpps, other.fastest_mpps),
        sensitivity=Blended(tuple(response.sensitivity for response in responses), way),
        calibration=one.calibration.or_wider(other.calibration),
        part_load=None,
        holding=between(one.holding, other.holding) if len(one.holding) == len(other.holding) else NOT_LEARNED,
        read_back=read_back,
    )
