"""What a policy knows about network functions: solo rates, predicted rates in a mix, profiles over cache ways.

The confidence is the probability with which all SLOs of a socket hold. Conformal intervals are two-sided: the lower
end of the interval of coverage c is exceeded with probability (1 + c) / 2 or more, so that n promises kept together
with probability r ask for c = 1 - 2 (1 - r) / n (union bound).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from slomo.errors import (
    InvalidValueError,
    PredictionError,
    SlomoError,
    UnknownNameError,
    UnsupportedPredictionError,
)
from slomo.placement.feasibility.identity import (
    check_measured_on,
    check_profiled_on,
    joined_fingerprint,
    model_fingerprint,
)
from slomo.placement.problem.request import Request
from slomo.placement.problem.way_profiles import InstanceProfile, ProfileKey
from slomo.vocabulary.defaults import DEFAULT_METHOD, DEFAULT_MODEL, method_named
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.workload import canonical_json

if TYPE_CHECKING:
    from slomo.models.library import ModelLibrary
    from slomo.models.nf_model import NFModel
    from slomo.prediction.predictor import Predictor

#: Predicted throughput, and the ends of its interval [Mpps].
Rate = tuple[float, float, float]
Tenants = tuple[str, ...]
Floats = NDArray[np.float64]


class ThroughputEstimates:
    """Models and profiles, asked by machine and workload key.

    Parameters
    ----------
    library : ModelLibrary
        Trained models; may be empty for policies that use profiles only.
    model : str
        Sensitivity model.
    confidence : float
        Probability with which all SLOs of a socket must hold, 0.5 (by the predictions themselves) up to below 1.
    profiles : sequence of InstanceProfile
        Throughput over cache ways and latency over load.
    method : {"auto", "composed", "equilibrium"}
        Predict each tenant of a mix by `model` beside the vectors of the others ("composed"), or all tenants at their
        fixed point (`slomo.equilibrium.server`), which needs profiles with the competition beside the target. "auto"
        takes the fixed point where all models of a machine know it and the default model is asked.
    slo_grid : float
        What is promised is rounded up to multiples of this share of solo throughput; 0 for no rounding.
    reference_machine : str, optional
        Machine type whose solo throughput `min_share` is a share of; that of the server by default.

    Raises
    ------
    InvalidValueError
        For a confidence outside 0.5 to 1, or another method.

    Examples
    --------
    >>> from slomo.models.library import ModelLibrary
    >>> ThroughputEstimates(ModelLibrary([]), confidence=2.0)
    Traceback (most recent call last):
    slomo.errors.InvalidValueError: confidence is 2.0, needed at least 0.5 and below 1
    hint: 0.95: an SLO is kept with a probability of 95 %
    """

    def __init__(
        self,
        library: "ModelLibrary",
        model: str = DEFAULT_MODEL,
        confidence: float = 0.95,
        profiles: Sequence[InstanceProfile] = (),
        method: str = DEFAULT_METHOD,
        slo_grid: float = 0.0,
        reference_machine: str | None = None,
    ) -> None:
        if not 0.5 <= confidence < 1.0:
            raise InvalidValueError(
                f"confidence is {confidence}, needed at least 0.5 and below 1",
                hint="0.95: an SLO is kept with a probability of 95 %",
            )
        self.library, self.model, self.confidence, self.method = library, model, confidence, method_named(method)
        self.profiles: Mapping[ProfileKey, InstanceProfile] = {(p.machine, p.workload): p for p in profiles}
        self.slo_grid, self.reference_machine = slo_grid, reference_machine
        self._predictors: dict[str, Predictor] = {}
        self._fingerprints: dict[tuple[str, ...], str] = {}
        self._index: dict[str, dict[str, int]] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._solo: dict[tuple[str, str], float | None] = {}
        self._reached: dict[str, float] = {}
        self._jointly: dict[str, bool] = {}

    def profile(self, machine: str, workload: str) -> InstanceProfile | None:
        """Return the profile over ways and load, or None."""
        return self.profiles.get((machine, workload))

    def solo_mpps(self, machine: str, workload: str) -> float | None:
        """Return the solo throughput [Mpps], or None where nothing is known on this machine."""
        key = (machine, workload)
        if key not in self._solo:
            found, profile = self._find(machine, workload), self.profile(machine, workload)
            self._solo[key] = found.solo_mpps if found else (profile.solo_mpps if profile else None)
        return self._solo[key]

    def predictable(self, machine: str, workload: str) -> bool:
        """Say whether a mix with this workload can be predicted on this machine."""
        found = self._find(machine, workload)
        if found is None or self.jointly(machine):
            return found is not None and found.response is not None
        return self.model in found.sensitivity

    def jointly(self, machine: str) -> bool:
        """Say whether mixes on a machine are predicted at their fixed point."""
        if machine not in self._jointly:
            models = [self.library[key] for key in self.library if key[0] == machine]
            known = bool(models) and all(model.response is not None for model in models)
            asked = self.method == "auto" and self.model == DEFAULT_MODEL and known
            self._jointly[machine] = asked or self.method == "equilibrium"
        return self._jointly[machine]

    def said(self, machine: str) -> str:
        """Return what predicts on a machine, for people."""
        return "equilibrium" if self.jointly(machine) else self.model

    def needed_mpps(self, request: Request, machine: str) -> float | None:
        """Return what the request is promised [Mpps]; None where a share of an unknown solo rate is asked."""
        return 0.0 if request.slo.kind == "on-demand" else self.wanted_mpps(request, machine)

    def wanted_mpps(self, request: Request, machine: str) -> float | None:
        """Return what the request asks for, promised or not [Mpps]; None as for :meth:`needed_mpps`."""
        if request.slo.min_share is None:
            return request.slo.needed_mpps(0.0)
        solos = [self.solo_mpps(self.reference_machine or machine, workload.key) for workload in request.chain]
        known = [solo for solo in solos if solo is not None]
        return request.slo.needed_mpps(min(known)) if len(known) == len(solos) else None

    def rounded(self, request: Request, machine: str, mpps: float) -> float:
        """Return a throughput rounded up to the grid of SLOs, but not beyond what one instance can [Mpps]."""
        solos = [self.solo_mpps(machine, workload.key) for workload in request.chain]
        solo = min((solo for solo in solos if solo is not None), default=0.0)
        if not (self.slo_grid and solo and mpps):
            return mpps
        step = self.slo_grid * solo
        up = math.ceil(mpps / step - 1e-9) * step
        return max(min(up, solo), mpps) if mpps <= solo else up

    def check_machines(self, machines: Mapping[str, Machine]) -> None:
        """Refuse models and profiles that were measured on other machines of the same names.

        Raises
        ------
        ConfigurationError
            Naming what differs.
        """
        for machine, key in self.library:
            if machine in machines:
                check_measured_on(self.library[machine, key], machines[machine])
                break  # the models of one machine come from one dataset
        for profile in self.profiles.values():
            if profile.machine in machines:
                check_profiled_on(profile, machines[profile.machine])

    def fingerprint(self, machines: tuple[str, ...]) -> str:
        """Return what models and profiles say about some machines as 16 hexadecimal digits."""
        if machines not in self._fingerprints:
            parts = [model_fingerprint(self.library[key], self.model) for key in self.library if key[0] in machines]
            parts += [canonical_json(p.to_dict()) for p in self.profiles.values() if p.machine in machines]
            self._fingerprints[machines] = joined_fingerprint(parts)
        return self._fingerprints[machines]

    def rates(
        self, machine: str, mixes: Sequence[Tenants], promises: Sequence[int] | None = None
    ) -> list[dict[str, Rate]]:
        """Predict every tenant of every mix, in one batch per number of promises; tenants alike have the same rate.

        Parameters
        ----------
        machine : str
            Machine type.
        mixes : sequence of tuples of str
            Workload keys, one per core.
        promises : sequence of int, optional
            How many tenants of each mix are promised something; their intervals share the confidence (Bonferroni).

        Returns
        -------
        list of dict
            Workload key -> predicted, low, high [Mpps]; predicted NaN where a model lacks a metric.
        """
        found: list[dict[str, Rate]] = [{} for _ in mixes]
        shared = (
            [1] * len(mixes) if promises is None or self.confidence == 0.5 else [max(count, 1) for count in promises]
        )
        for count in sorted(set(shared)):
            here = [place for place, number in enumerate(shared) if number == count]
            members = [sorted(self.codes(machine, mixes[place])) for place in here]
            width = max(len(codes) for codes in members)
            table = np.array([codes + [-1] * (width - len(codes)) for codes in members], dtype=np.int64)
            names = self._names[machine]
            parts = [part.tolist() for part in self.rates_of_places(machine, table, count)]
            for row, (place, codes) in enumerate(zip(here, members, strict=True)):
                found[place] = {
                    names[code]: (parts[0][row][at], parts[1][row][at], parts[2][row][at])
                    for at, code in enumerate(codes)
                }
        return found

    def codes(self, machine: str, workloads: Iterable[str]) -> list[int]:
        """Return the numbers by which arrays of mixes name workloads."""
        _, index = self._predictor(machine)
        return [index[key] for key in workloads]

    def rates_of_places(self, machine: str, members: NDArray[np.int64], promises: int) -> tuple[Floats, Floats, Floats]:
        """Predict mixes given as arrays.

        Parameters
        ----------
        machine : str
            Machine type.
        members : ndarray of int, shape (mixes, places)
            Numbers of :meth:`codes` in ascending order, then -1 for empty places.
        promises : int
            How many tenants of each mix are promised something.

        Returns
        -------
        mpps, low, high : ndarray, shape (mixes, places)
            Predicted throughput and the ends of its interval [Mpps].
        """
        coverage = self._coverage(machine, 1 if self.confidence == 0.5 else promises)
        from slomo.prediction.batch import predict_places

        predictor, _ = self._predictor(machine)
        models = [self.library[machine, name] for name in self._names[machine]]
        rates = predict_places(models, members, machine, replace(predictor.how, coverage=coverage))
        return rates.mpps, rates.mpps if self.confidence == 0.5 else rates.low, rates.high

    def _coverage(self, machine: str, promises: int) -> float:
        """Return the coverage whose lower ends all hold as asked for, as far as calibration reaches."""
        wanted = 1.0 - 2.0 * (1.0 - self.confidence) / promises
        return max(min(wanted, self._reach(machine)), 1e-9)

    def _reach(self, machine: str) -> float:
        """Return the highest coverage that the calibration scores of all models of a machine can tell."""
        if machine not in self._reached:
            models = [self.library[key] for key in self.library if key[0] == machine]
            if self.jointly(machine):
                counts = [model.response.calibration.count for model in models if model.response is not None]
            else:
                counts = [model.calibration[self.model].count for model in models if self.model in model.calibration]
            self._reached[machine] = 1.0 - 1.0 / (min(counts, default=0) + 1.0)
        return self._reached[machine]

    def check_names(self, requests: Sequence[Request], machines: Sequence[str]) -> None:
        """Refuse network functions that no machine of the cluster has a model or a profile of.

        Raises
        ------
        UnknownNameError
            For one that no machine at all has, with the nearest name.
        UnsupportedPredictionError
            For one that other machines have.
        """
        for error in self.unknown(requests, machines).values():
            raise error

    def unknown(self, requests: Sequence[Request], machines: Sequence[str]) -> dict[str, SlomoError]:
        """Return why some requests cannot be placed anywhere: nothing is known of a network function of theirs."""
        keys = {workload.key for request in requests for workload in request.chain}
        strange = {key for key in keys if all(self.solo_mpps(machine, key) is None for machine in machines)}
        errors: dict[str, SlomoError] = {}
        for request in requests if strange else ():
            key = next((workload.key for workload in request.chain if workload.key in strange), None)
            if key is not None:
                errors[request.id] = self._nothing_known(request.id, key, machines)
        return errors

    def _nothing_known(self, owner: str, key: str, machines: Sequence[str]) -> SlomoError:
        known = [*self.library, *self.profiles]
        elsewhere = sorted({machine for machine, name in known if name == key})
        if elsewhere:
            return UnsupportedPredictionError(
                f"request '{owner}': no model of '{key}' on {', '.join(machines)}, only on {', '.join(elsewhere)}",
                hint="profile and train on that machine, or let it run alone (fallback 'alone')",
            )
        names = {name for _, name in known}
        short = {name.split("@")[0] for name in names}
        nf = key.split("@")[0]
        what = f"network function of request '{owner}'"
        return UnknownNameError(what, key, names) if nf in short else UnknownNameError(what, nf, short)

    def _find(self, machine: str, workload: str) -> "NFModel | None":
        try:
            return (
                self.library[machine, workload]
                if (machine, workload) in self.library
                else self.library.find(workload, machine)
            )
        except UnknownNameError:
            return None

    def _predictor(self, machine: str) -> "tuple[Predictor, dict[str, int]]":
        from slomo.prediction.predictor import Predictor

        if machine not in self._predictors:
            made = Predictor(self.library, machine, self.model, method=self.method)
            self._predictors[machine] = made
            self._names[machine] = tuple(workload.key for workload in made.workloads)
            self._index[machine] = {name: i for i, name in enumerate(self._names[machine])}
        if not self._index[machine]:
            raise PredictionError(f"there are no models for machine '{machine}'", hint="profile and train on it first")
        return self._predictors[machine], self._index[machine]
