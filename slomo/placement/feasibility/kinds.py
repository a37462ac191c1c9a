"""Give each workload of a machine (a model and an offered load) a number, for arrays of mixes."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from slomo.equilibrium.judgement import NAME
from slomo.models.evidence import groundless, too_few_of_profile
from slomo.models.intervals import ConformalCalibration
from slomo.models.nf_model import NFModel
from slomo.models.responses.latent import PAIRS, LatentSensitivity
from slomo.placement.feasibility.measured import MeasuredRates
from slomo.prediction.tenants import TenantModel
from slomo.vocabulary.defaults import DEFAULT_MODEL
from slomo.vocabulary.vector import Floats
from slomo.vocabulary.workload_text import parse_workload

Numbers = NDArray[np.int64]
_NO_ERRORS = ConformalCalibration(np.zeros(0), "none")


class Kinds:
    """Numbers of workloads, each of which is a model with an offered load."""

    def __init__(self, models: Sequence[NFModel]) -> None:
        self.models = list(models)
        self.measured = MeasuredRates(models)
        self.solo_mpps = np.array([model.solo_mpps for model in models])
        #: Whether the throughput alone was converted from another machine, and has an error; last: no model.
        self.is_carried = np.array([*(model.solo_is_carried for model in models), False])
        self._index = {model.workload.key: number for number, model in enumerate(models)}
        self._codes = dict(self._index)
        #: Tenant and model for which each number stands.
        self.tenants = [TenantModel(model.workload, model) for model in models]
        self._model = list(range(len(models)))
        self._strange = -2
        #: Number of the model whose sensitivity represents network functions without a model; -1 for none.
        self.sensitive = -1

    def name_worst(self, workload: str, contentious: str, sensitive: str) -> None:
        """Define a stand-in for functions without a model, as contentious as one workload, as sensitive as another."""
        self._strange = len(self._model)
        self._model.append(self._index[contentious])
        self.tenants.append(self.tenants[self._index[contentious]])
        self._codes[workload] = self._strange
        self.sensitive = self._index[sensitive]

    def strange(self, members: Numbers) -> NDArray[np.bool_]:
        """Return, for each place of `members`, whether its network function has no model."""
        return np.equal(members, self._strange)

    def code(self, workload: str) -> int:
        """Return the number of a workload. Raises KeyError if the workload has no model."""
        if workload not in self._codes:
            base, parsed = self._index[without_load(workload)], parse_workload(workload)
            self.tenants.append(TenantModel(parsed, self.models[base], parsed.traffic.offered_mpps))
            self._model.append(base)
            self._codes[workload] = len(self._model) - 1
        return self._codes[workload]

    def models_of(self, members: Numbers) -> Numbers:
        """Return the number of the model at each place of `members`; -1 for empty places."""
        return np.append(self._model, -1)[members]

    def loads_of(self, members: Numbers) -> Floats:
        """Return the offered load of the tenant at each place of `members` [Mpps]; NaN if it is saturated."""
        loads = [np.nan if tenant.offered_mpps is None else tenant.offered_mpps for tenant in self.tenants]
        return np.array([*loads, np.nan])[members]

    def factors_of(self, who: Numbers, factors: Mapping[str, float]) -> Floats:
        """Return the correction factor of each workload in `who`; 1 for workloads without one."""
        model_factors = [factors.get(model.workload.key, 1.0) for model in self.models]
        return np.array([*model_factors, 1.0])[who]

    def known_errors(self, jointly: bool, model: str) -> list[ConformalCalibration]:
        """Return the signed prediction errors of each model, whether they suffice for a verdict or not."""
        if jointly:
            return [_NO_ERRORS if each.response is None else each.response.calibration for each in self.models]
        return [each.calibration.get(each.named(model), _NO_ERRORS) for each in self.models]

    def calibrations(self, jointly: bool, model: str) -> list[ConformalCalibration]:
        """Return the signed prediction errors of each model; none if `slomo predict` answers `unknown`."""
        return [
            errors
            if groundless(each, NAME if jointly else each.named(model), errors) is None
            and too_few_of_profile(each, errors) is None
            else _NO_ERRORS
            for each, errors in zip(self.models, self.known_errors(jointly, model), strict=True)
        ]

    def families(self, who: Numbers, model: str) -> NDArray[np.str_]:
        """Return the family that answers on each server: ``pairs`` if an NF is known by name alone, else `model`.

        `who`, shape (servers, places): numbers of models, -1 for empty places.
        """
        by_name = np.array([*(each.chosen == PAIRS for each in self.models), False])[who].any(axis=1)
        return np.where(by_name & (model == DEFAULT_MODEL), PAIRS, model)

    def stretch(self, who: Numbers, model: str) -> Floats:
        """Return by which factor the error grows at each place: above 1 for models by name, beside more than measured.

        `who`, shape (servers, places): numbers of models, -1 for empty places.
        """
        factor, neighbours = np.ones(who.shape), (who >= 0).sum(axis=1) - 1
        for number, each in enumerate(self.models):
            family = each.sensitivity.get(each.named(model))
            if isinstance(family, LatentSensitivity):
                factor = np.where(who == number, family.stretch(neighbours)[:, np.newaxis], factor)
        return factor


@lru_cache(maxsize=65_536)
def without_load(workload: str) -> str:
    """Return a workload's key without its offered load."""
    if "pps" not in workload:
        return workload
    parsed = parse_workload(workload)
    return parsed.saturated.key
