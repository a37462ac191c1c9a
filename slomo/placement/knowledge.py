"""What a policy knows about network functions: solo rates, predicted rates in a mix, profiles over cache ways.

The risk is the probability with which all SLOs of a socket hold. Conformal intervals are two-sided: the lower end of
the interval of coverage c is exceeded with probability (1 + c) / 2 or more, so that n promises kept together with
probability r ask for c = 1 - 2 (1 - r) / n (union bound).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from slomo.errors import InvalidValueError, PredictionError, UnknownNameError
from slomo.placement.problem import Request
from slomo.placement.profiles import InstanceProfile, ProfileKey

if TYPE_CHECKING:
    from slomo.models.library import ModelLibrary
    from slomo.models.nf_model import NFModel
    from slomo.prediction.predictor import Predictor

#: Predicted throughput, and the ends of its interval [Mpps].
Rate = tuple[float, float, float]
Tenants = tuple[str, ...]


class Knowledge:
    """Models and profiles, asked by machine and workload key.

    Parameters
    ----------
    library : ModelLibrary
        Trained models; may be empty for policies that use profiles only.
    model : str
        Sensitivity model.
    risk : float
        Probability with which all SLOs of a socket must hold, 0.5 (by the predictions themselves) up to below 1.
    profiles : sequence of InstanceProfile
        Throughput over cache ways and latency over load.

    Raises
    ------
    InvalidValueError
        For a risk outside 0.5 to 1.

    Examples
    --------
    >>> from slomo.models.library import ModelLibrary
    >>> Knowledge(ModelLibrary([]), risk=2.0)
    Traceback (most recent call last):
    slomo.errors.InvalidValueError: risk is 2.0, needed at least 0.5 and below 1
    hint: 0.95: an SLO is kept with a probability of 95 %
    """

    def __init__(
        self,
        library: "ModelLibrary",
        model: str = "slomo-xgb",
        risk: float = 0.95,
        profiles: Sequence[InstanceProfile] = (),
    ) -> None:
        if not 0.5 <= risk < 1.0:
            raise InvalidValueError(
                f"risk is {risk}, needed at least 0.5 and below 1",
                hint="0.95: an SLO is kept with a probability of 95 %",
            )
        self.library, self.model, self.risk = library, model, risk
        self.profiles: Mapping[ProfileKey, InstanceProfile] = {(p.machine, p.workload): p for p in profiles}
        self._predictors: dict[str, Predictor] = {}
        self._index: dict[str, dict[str, int]] = {}
        self._solo: dict[tuple[str, str], float | None] = {}
        self._reached: dict[str, float] = {}

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
        """Say whether the sensitivity model exists for this workload on this machine."""
        found = self._find(machine, workload)
        return found is not None and self.model in found.sensitivity

    def needed_mpps(self, request: Request, machine: str) -> float | None:
        """Return what the request is promised [Mpps]; None where a share of an unknown solo rate is asked."""
        return 0.0 if request.slo.kind == "on-demand" else self.wanted_mpps(request, machine)

    def wanted_mpps(self, request: Request, machine: str) -> float | None:
        """Return what the request asks for, promised or not [Mpps]; None as for :meth:`needed_mpps`."""
        solos = [self.solo_mpps(machine, workload.key) for workload in request.chain]
        if request.slo.min_share is not None and None in solos:
            return None
        return request.slo.needed_mpps(min((solo for solo in solos if solo is not None), default=0.0))

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
            How many tenants of each mix are promised something; their intervals share the risk (Bonferroni).

        Returns
        -------
        list of dict
            Workload key -> predicted, low, high [Mpps]; predicted NaN where a model lacks a metric.
        """
        found: list[dict[str, Rate]] = [{} for _ in mixes]
        shared = [1] * len(mixes) if promises is None or self.risk == 0.5 else [max(count, 1) for count in promises]
        for count in sorted(set(shared)):
            places = [place for place, number in enumerate(shared) if number == count]
            for place, rate in zip(places, self._batch(machine, [mixes[i] for i in places], count), strict=True):
                found[place] = rate
        return found

    def _batch(self, machine: str, mixes: Sequence[Tenants], promises: int) -> list[dict[str, Rate]]:
        predictor, index = self._predictor(machine)
        targets, others, owners = [], [], []
        width = max((len(mix) for mix in mixes), default=1) - 1
        for number, mix in enumerate(mixes):
            codes = [index[key] for key in mix]
            for key in dict.fromkeys(mix):
                place = mix.index(key)
                rest = codes[:place] + codes[place + 1 :]
                targets.append(codes[place])
                others.append(rest + [-1] * (width - len(rest)))
                owners.append((number, key))
        coverage = self._coverage(machine, promises)
        places = np.array(others, dtype=np.int64).reshape(len(targets), max(width, 0))
        batch = predictor.predict_batch(np.array(targets, dtype=np.int64), places, coverage)
        mpps, high = batch.throughput_mpps.tolist(), batch.high_mpps.tolist()
        low = mpps if self.risk == 0.5 else batch.low_mpps.tolist()
        found: list[dict[str, Rate]] = [{} for _ in mixes]
        for row, (number, key) in enumerate(owners):
            found[number][key] = (mpps[row], low[row], high[row])
        return found

    def _coverage(self, machine: str, promises: int) -> float:
        """Return the coverage whose lower ends all hold with the risk asked for, as far as calibration reaches."""
        wanted = 1.0 - 2.0 * (1.0 - self.risk) / promises
        return max(min(wanted, self._reach(machine)), 1e-9)

    def _reach(self, machine: str) -> float:
        """Return the highest coverage that the calibration scores of all models of a machine can tell."""
        if machine not in self._reached:
            models = [self.library[key] for key in self.library if key[0] == machine]
            counts = [model.calibration[self.model].count for model in models if self.model in model.calibration]
            self._reached[machine] = 1.0 - 1.0 / (min(counts, default=0) + 1.0)
        return self._reached[machine]

    def check_names(self, requests: Sequence[Request], machines: Sequence[str]) -> None:
        """Refuse network functions that no machine of the cluster has a model or a profile of.

        Raises
        ------
        UnknownNameError
            With the nearest name.
        """
        checked: set[str] = set()
        for request in requests:
            for workload in request.chain:
                if workload.key in checked:
                    continue
                checked.add(workload.key)
                if all(self.solo_mpps(machine, workload.key) is None for machine in machines):
                    names = {key for machine, key in (*self.library, *self.profiles)}
                    known = (
                        names
                        if any(key.split("@")[0] == workload.key.split("@")[0] for key in names)
                        else {key.split("@")[0] for key in names}
                    )
                    shown = workload.key if known is names else workload.key.split("@")[0]
                    raise UnknownNameError(f"network function of request '{request.id}'", shown, known)

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
            made = Predictor(self.library, machine, self.model)
            self._predictors[machine] = made
            self._index[machine] = {workload.key: i for i, workload in enumerate(made.workloads)}
        if not self._index[machine]:
            raise PredictionError(f"there are no models for machine '{machine}'", hint="profile and train on it first")
        return self._predictors[machine], self._index[machine]
