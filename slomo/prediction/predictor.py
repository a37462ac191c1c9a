"""Predict a target beside competitors with which it was never run: look up names once, then predict many mixes.

The question is that of SLOMO (SIGCOMM'20) section 4. Predictions equal those of `slomo.prediction.question`; a
predictor also caches looked-up names and takes arrays of mixes. It needs only numpy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from slomo.compose.composition import Composition
from slomo.models.library import ModelLibrary, opened
from slomo.models.neighbourhood import UNKNOWN
from slomo.prediction.batch import predict_members
from slomo.prediction.composed import Case, read
from slomo.prediction.members import from_indices, from_names
from slomo.prediction.options import PredictionOptions
from slomo.prediction.question import answer, require_supported
from slomo.prediction.result import Prediction, PredictionBatch
from slomo.prediction.tenants import Named, TenantModel, listed, server_with, tenant_of
from slomo.vocabulary.defaults import DEFAULT_METHOD, DEFAULT_MODEL, Compat, Method
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload
from slomo.vocabulary.workload_text import each_instance

if TYPE_CHECKING:
    from slomo.vocabulary.machine import Machine


class Predictor:
    """Predicts with the models of one machine.

    Parameters
    ----------
    library : ModelLibrary or path
        Trained models, or the directory in which they were saved.
    machine : str or Machine, optional
        Machine on which the NFs run; needed if the library has models of several machines.
    model : str
        Name of the sensitivity model in the registry.
    compat : {"published"}, optional
        Compose by the rule of SLOMO's published scripts.
    method : {"auto", "equilibrium", "composed"}
        As in `slomo.prediction.options.PredictionOptions`.
    window_s : float, optional
        As in `slomo.prediction.options.PredictionOptions` [s].

    Examples
    --------
    >>> Predictor(ModelLibrary([]), "silver-4110").predict("lpm", ["nat"])
    Traceback (most recent call last):
    slomo.errors.UnknownNameError: unknown machine with models 'silver-4110'
    hint: there are models for none; profile and train on 'silver-4110' first
    """

    def __init__(
        self,
        library: ModelLibrary | str | Path,
        machine: "str | Machine | None" = None,
        model: str = DEFAULT_MODEL,
        compat: Compat | None = None,
        *,
        method: Method = DEFAULT_METHOD,
        window_s: float | None = None,
    ) -> None:
        library = opened(library)
        self.library = library
        self.machine = library.name_of(machine)
        self.how = PredictionOptions(method, model, compat, window_s=window_s)
        self._tenants: dict[Named, TenantModel] = {}

    @property
    def model(self) -> str:
        """Name of the sensitivity model, if one was chosen."""
        return self.how.model

    @cached_property
    def workloads(self) -> tuple[Workload, ...]:
        """Workloads with models on this machine; the indices of :meth:`predict_batch` refer to them."""
        return tuple(tenant.workload for tenant in self._everybody)

    def predict(
        self,
        target: Named,
        competitors: Sequence[Named] = (),
        coverage: float = 0.9,
        *,
        strict: bool = False,
        explain: bool = True,
    ) -> Prediction:
        """Predict the throughput of a target beside competitors.

        Parameters
        ----------
        target : Workload or str
            Workload, its key, or the name of an NF.
        competitors : sequence of Workload or str
            One entry per instance, in any order; a text may include a count, ``"stats:3"``.
        coverage : float
            Nominal coverage of the interval, above 0 and below 1.
        strict : bool
            Whether to raise an error if the measurements do not support the prediction.
        explain : bool
            Whether to divide the loss over metrics.

        Returns
        -------
        Prediction
            Without competitors, the measured solo throughput.

        Raises
        ------
        UnknownNameError
            For an unknown target, competitor, machine or model; the message names the most similar name.
        InvalidValueError
            For a coverage outside 0 to 1, or a mix that needs more cores than the machine has.
        UnsupportedPredictionError
            If a competitor lacks a metric that the model needs; with `strict`, for every unsupported prediction.
        """
        server = server_with(tuple(map(self._find, (target, *each_instance(listed(competitors))))), self.machine)
        return answer(server, self._how(coverage, explain=explain), strict=strict)

    def predict_vector(
        self,
        target: Named,
        vector: Mapping[str, float],
        traffic: Mapping[str, float] | None = None,
        coverage: float = 0.9,
        *,
        strict: bool = False,
        explain: bool = True,
    ) -> Prediction:
        """Predict a target beside competitors given by their socket's counters, as in measured tables.

        Parameters
        ----------
        target : Workload or str
            As for :meth:`predict`.
        vector : mapping of str to float
            Metric -> value in the vocabulary's unit.
        traffic : mapping of str to float, optional
            Traffic attributes of the target that differ from its own.
        coverage, strict, explain
            As for :meth:`predict`.

        Returns
        -------
        Prediction
            Its competitors have no names, since only their vector is known.

        Raises
        ------
        MissingMetricError
            If the vector lacks a metric that the model needs.
        """
        subject, competition = self._find(target).model, MetricVector(vector)
        how = self._how(coverage, explain=explain)
        inputs = subject.inputs(how.model, competition, traffic)[0].tolist()
        row = dict(zip(subject.model(how.model).feature_names, inputs, strict=True))
        seen = {**subject.traffic, **competition, **row}
        case = Case(subject, subject.workload, (), UNKNOWN, how)
        prediction = read(case, row, seen, Composition(competition, dict.fromkeys(competition, "given")))
        if strict:
            require_supported(prediction)
        return prediction

    def predict_batch(
        self,
        targets: Sequence[Named] | NDArray[np.integer],
        mixes: Sequence[Sequence[Named]] | NDArray[np.integer],
        coverage: float = 0.9,
    ) -> PredictionBatch:
        """Predict many mixes in one call; equal to :meth:`predict`.

        Parameters
        ----------
        targets : sequence of Workload or str, or ndarray of int, shape (n,)
            One target per mix; integers are indices into :attr:`workloads`.
        mixes : sequence of sequences of Workload or str, or ndarray of int, shape (n, most competitors)
            The competitors of each mix, as in :meth:`predict`; -1 marks an empty place.
        coverage : float
            Nominal coverage of the intervals, above 0 and below 1.

        Returns
        -------
        PredictionBatch
            Throughput is NaN if a competitor lacks a metric that the model needs.

        Raises
        ------
        UnknownNameError, InvalidValueError
            As for :meth:`predict`.
        """
        how = self._how(coverage, explain=False)
        if isinstance(mixes, np.ndarray) and isinstance(targets, np.ndarray):
            members = from_indices(targets, mixes, self._everybody)
        else:
            members = from_names(list(targets), list(mixes), self._find)
        return predict_members(members, self.machine or "", how)

    @cached_property
    def _everybody(self) -> tuple[TenantModel, ...]:
        keys = self.library.workloads(self.machine) if self.machine is not None else ()
        return tuple(self._find(key) for key in keys)

    def _how(self, coverage: float, *, explain: bool) -> PredictionOptions:
        if coverage != self.how.coverage or explain != self.how.explain:
            self.how = replace(self.how, coverage=coverage, explain=explain)
        return self.how

    def _find(self, name: Named) -> TenantModel:
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = tenant_of(self.library, name, self.machine)
        return tenant
