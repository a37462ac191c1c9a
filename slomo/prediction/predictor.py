"""Predict a target beside competitors with which it was never run: look up names once, then predict many mixes.

The question is that of SLOMO (SIGCOMM'20) section 4. Predictions equal those of `slomo.prediction.question`; a
predictor also caches looked-up names and takes arrays of mixes. It needs only numpy.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import combinations_with_replacement, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from slomo.compose.composition import Composition
from slomo.errors import SlomoError
from slomo.models.library import ModelLibrary, opened
from slomo.models.neighbourhood import UNKNOWN
from slomo.models.nf_model import NFModel
from slomo.prediction.batch import predict_members
from slomo.prediction.composed import Case, family_of, read
from slomo.prediction.members import Members, from_indices, from_names
from slomo.prediction.options import PredictionOptions
from slomo.prediction.question import answer, require_supported
from slomo.prediction.result import Prediction, PredictionBatch
from slomo.prediction.tenants import Named, TenantModel, server_with, tenant_of
from slomo.vocabulary.defaults import DEFAULT_METHOD, DEFAULT_MODEL, Compat, Method
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload
from slomo.vocabulary.workload_text import each_instance

if TYPE_CHECKING:
    from slomo.vocabulary.machine import Machine

#: Largest number of mixes that are solved in advance, number of mixes per step, and number of steps for a machine with
#: more mixes, after which the loops of `equilibrium` are compiled.
MOST_AHEAD, CHUNK, WARMING = 20_000, 256, 4


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
        server = server_with(tuple(map(self._find, (target, *each_instance(competitors)))), self.machine)
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

        All further arguments are those of :meth:`predict`.

        Parameters
        ----------
        vector : mapping of str to float
            Metric -> value in the vocabulary's unit.
        traffic : mapping of str to float, optional
            Traffic attributes of the target that differ from its own.

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
        row = zip(subject.model(how.model).feature_names, inputs, strict=True)
        known = {**subject.traffic, **competition, **dict(row)}
        seen = [known.get(name, math.nan) for name in family_of(subject, how.model).covered.feature_names]
        case = Case(subject, subject.workload, (), UNKNOWN, how)
        prediction = read(case, inputs, seen, Composition(competition, dict.fromkeys(competition, "given")))
        if strict:
            require_supported(prediction)
        return prediction

    def predict_batch(
        self,
        targets: Sequence[Named] | NDArray[np.integer],
        mixes: Sequence[Sequence[Named]] | NDArray[np.integer],
        coverage: float = 0.9,
        *,
        keep: bool = False,
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
        keep : bool
            Whether to cache solved mixes for later calls, if :meth:`solves_in_arrays` knows all NFs.

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
        shared = self._shared(members) if keep else None
        return predict_members(shared or members, self.machine or "", how, keep=shared is not None)

    def solves_in_arrays(self, names: Iterable[str]) -> bool:
        """Return whether all names are of profiled NFs that arrays can solve; traffic and loads need the long way."""
        for name in names:
            if name not in self._tenants and any(sign in name for sign in "@(:"):
                return False
            try:
                tenant = self._find(name)
            except SlomoError:
                return False
            if self._number(tenant) < 0:
                return False
        return True

    def ahead(self) -> Iterator[Callable[[], object]]:
        """Yield steps, each of which solves some more mixes and caches them, small mixes first.

        If the machine has too many mixes, only small ones are solved, enough to compile the loops. One question by
        each method follows, to compile the code that only single questions use.
        """
        cores, how = self._cores, replace(self.how, coverage=PredictionOptions.coverage, explain=False)
        number = math.comb(len(self._solvable) + cores, cores)  # with the empty mix, which is left out
        every = combinations_with_replacement(range(-1, len(self._solvable)), cores)
        chosen = islice(every, 1, number if number <= MOST_AHEAD else 1 + WARMING * CHUNK)
        while mixes := list(islice(chosen, CHUNK)):
            who = np.array(mixes)[:, ::-1]  # empty places last
            members = Members(self._solvable, who[:, 0], who[:, 1:])
            yield partial(predict_members, members, self.machine or "", how, keep=True)
        yield self._ask_once

    def _ask_once(self) -> None:
        for method in ("equilibrium", "composed"):
            predictor = Predictor(self.library, self.machine, method=method)
            with suppress(SlomoError):  # some functions can be predicted by one method only
                predictor.predict(self.workloads[0], self.workloads[:1], explain=False)

    def _shared(self, members: Members) -> Members | None:
        """Return a batch in arrays of one width, NFs by their number; None if arrays cannot solve an NF of it."""
        numbers = np.array([*map(self._number, members.tenants), -1])
        if (numbers[:-1] < 0).any():
            return None
        beside = members.places.shape[1]
        places = np.full((len(members.target), max(self._cores - 1, beside)), -1)
        places[:, :beside] = numbers[members.places]
        return Members(self._solvable, numbers[members.target], places)

    def _number(self, tenant: TenantModel) -> int:
        """Return an NF's number in `_solvable`; -1 for others, and with a load or traffic that was not profiled."""
        return -1 if tenant.adapted or tenant.offered_mpps is not None else self._numbers.get(tenant.model, -1)

    @cached_property
    def _everybody(self) -> tuple[TenantModel, ...]:
        keys = self.library.workloads(self.machine) if self.machine is not None else ()
        return tuple(self._find(key) for key in keys)

    @cached_property
    def _solvable(self) -> tuple[TenantModel, ...]:
        """NFs whose servers arrays can solve."""
        every = self._everybody
        return tuple(each for each in every if each.model.response is not None and each.model.accelerator is None)

    @cached_property
    def _numbers(self) -> dict[NFModel, int]:
        return {tenant.model: number for number, tenant in enumerate(self._solvable)}

    @property
    def _cores(self) -> int:
        capacities = self._solvable[0].model.capacities if self._solvable else None
        return capacities.cores if capacities is not None else 16

    def _how(self, coverage: float, *, explain: bool) -> PredictionOptions:
        how = self.how  # other threads may ask for other intervals
        if coverage != how.coverage or explain != how.explain:
            how = self.how = replace(how, coverage=coverage, explain=explain)
        return how

    def _find(self, name: Named) -> TenantModel:
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = tenant_of(self.library, name, self.machine)
        return tenant
