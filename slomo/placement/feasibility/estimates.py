"""What policies know about network functions: throughput alone, in mixes (predicted), and over cache ways (profiled).

The confidence is the probability that all SLOs of a socket hold; `slomo.placement.feasibility.bounds` turns it into
lower bounds of predictions.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from slomo.errors import (
    InvalidValueError,
    PredictionError,
    SlomoError,
    UnknownNameError,
    UnsupportedPredictionError,
)
from slomo.files.stored import stored
from slomo.models.evidence import FEWEST_OF_PROFILE, too_few_of_profile
from slomo.models.library import ModelLibrary
from slomo.models.nf_model import NFModel
from slomo.models.partition_profile import PartitionProfile
from slomo.models.responses.partition import PartitionResponse
from slomo.models.sharing import accelerator_shared, ports_full
from slomo.placement.feasibility.bounds import breaking, different_in, level_of, lower_mpps
from slomo.placement.feasibility.identity import joined_fingerprint, model_fingerprint
from slomo.placement.feasibility.kinds import Kinds, without_load
from slomo.placement.feasibility.worst_case import STRANGER, WorstCase, worst_case
from slomo.placement.problem.request import Request
from slomo.prediction.batch import Places, predict_places
from slomo.prediction.options import PredictionOptions
from slomo.vocabulary.defaults import DEFAULT_METHOD, DEFAULT_MODEL, Method, method_named
from slomo.vocabulary.identity import require_same
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.vector import Floats
from slomo.vocabulary.workload import Workload, canonical_json

#: Predicted throughput, and the ends of its interval [Mpps].
Rate = tuple[float, float, float]
Tenants = tuple[str, ...]


class ThroughputEstimates:
    """Models and profiles of a library, found by machine and workload key.

    Raises InvalidValueError for a confidence outside 0.5 to 1, or an unknown method.

    Parameters are those of `slomo.placement.online.placer.Placer`; the library may be empty for policies that use
    profiles only. Method "equilibrium" needs profiles with the competition beside the target.
    """

    def __init__(
        self,
        library: ModelLibrary,
        model: str = DEFAULT_MODEL,
        confidence: float = 0.95,
        profiles: Sequence[PartitionProfile] = (),
        method: Method = DEFAULT_METHOD,
        slo_grid: float = 0.0,
        reference_machine: str | None = None,
    ) -> None:
        if not 0.5 <= confidence < 1.0:
            raise InvalidValueError(
                f"confidence is {confidence}, needed at least 0.5 and below 1",
                hint="0.95: an SLO is kept with a probability of 95 %",
            )
        self.library, self.model, self.confidence, self.method = library, model, confidence, method_named(method)
        self._profiles = tuple(profiles)
        self.profiles: Mapping[tuple[str, str], PartitionResponse] = {
            (each.machine, key): response for each in profiles for key, response in each.responses.items()
        }
        self.slo_grid, self.reference_machine = slo_grid, reference_machine
        #: Whether network functions without a model count as the worst neighbour in the library.
        self.takes_strangers = False
        #: Whether upper ends of predictions are counted on; measured mixes keep their lower ends.
        self.bold = False
        #: Machine -> workload -> correction factor of its predictions, learned from outcomes
        #: (`slomo.drift.correction`).
        self.factors: Mapping[str, Mapping[str, float]] = {}
        self._worst: dict[str, WorstCase | None] = {}
        self._found: dict[tuple[str, str], NFModel | None] = {}
        self.how = PredictionOptions(self.method, model, explain=False)
        self._fingerprints: dict[tuple[str, ...], str] = {}
        self._by_machine: dict[str, Kinds] = {}
        self._jointly: dict[str, bool] = {}

    def profile(self, machine: str, workload: str) -> PartitionResponse | None:
        """Return a workload's profile over cache ways and load; None if there is none."""
        return self.profiles.get((machine, without_load(workload)))

    def profiles_of(self, machine: str, request: Request) -> list[PartitionResponse] | None:
        """Return the profile of every stage of a request; None if one has none."""
        profiles = [each for w in request.chain if (each := self.profile(machine, w.key)) is not None]
        return profiles if len(profiles) == len(request.chain) else None

    def solo_mpps(self, machine: str, workload: str) -> float | None:
        """Return the solo throughput [Mpps]; None if nothing is known on this machine."""
        known = self._find(machine, workload) or self.profile(machine, workload)
        if known is not None:
            return known.solo_mpps
        worst = self.worst(machine)
        return None if worst is None else self.solo_mpps(machine, worst.sensitive)

    def worst(self, machine: str) -> WorstCase | None:
        """Return the functions that stand for functions without a model on a machine; None if none do."""
        if machine not in self._worst:
            keys = [key for name, key in self.library if name == machine and self.predictable(machine, key)]
            solo = {key: self.library[machine, key].solo_mpps for key in keys}
            capacities = (self.library[machine, key].capacities for key in keys)
            cores = max((each.cores for each in capacities if each is not None), default=2)

            def middles(mixes: Sequence[Tenants]) -> list[dict[str, float]]:
                return [{key: rate[0] for key, rate in each.items()} for each in self.rates(machine, mixes)]

            self._worst[machine] = worst_case(solo, cores, middles) if keys else None
        return self._worst[machine] if self.takes_strangers else None

    def is_stranger(self, machine: str, workload: str) -> bool:
        """Return whether a network function has no model, so that the worst case stands for it."""
        return self.takes_strangers and self._find(machine, workload) is None

    def predictable(self, machine: str, workload: str) -> bool:
        """Return whether a mix with this workload can be predicted on this machine."""
        model = self._find(machine, workload)
        if model is None:
            return self.is_stranger(machine, workload) and self.worst(machine) is not None
        if self.jointly(machine):
            return True
        return model.named(self.model) in model.sensitivity

    def jointly(self, machine: str) -> bool:
        """Return whether the equilibrium predicts all mixes on a machine."""
        if machine not in self._jointly:
            models = [self.library[key] for key in self.library if key[0] == machine]
            self._jointly[machine] = bool(models) and self.how.jointly(models)
        return self._jointly[machine]

    def predictor_label(self, machine: str) -> str:
        """Return the name of the model that predicts on a machine, for display."""
        if self.jointly(machine):
            return "equilibrium"
        here = [self.library[key] for key in self.library if key[0] == machine]
        return ", ".join(sorted({model.named(self.model) for model in here})) or self.model

    def needed_mpps(self, request: Request, machine: str) -> float | None:
        """Return the throughput promised to a request [Mpps]; None for a share of an unknown solo throughput."""
        return 0.0 if request.slo.kind == "on-demand" else self.wanted_mpps(request, machine)

    def wanted_mpps(self, request: Request, machine: str) -> float | None:
        """Return the throughput that a request asks for, at most its offered load [Mpps]; None as in `needed_mpps`."""
        offered = min((w.traffic.offered_mpps for w in request.chain if w.traffic.offered_mpps), default=math.inf)
        if request.slo.min_share is None and any(self.is_stranger(machine, w.key) for w in request.chain):
            return None if request.slo.min_mpps else 0.0  # its solo throughput is unknown
        if request.slo.min_share is None:
            return min(request.slo.needed_mpps(0.0), offered)
        solos = [self.solo_mpps(self.reference_machine or machine, workload.key) for workload in request.chain]
        modelled_solos = [solo for solo in solos if solo is not None]
        return min(request.slo.needed_mpps(min(modelled_solos)), offered) if len(modelled_solos) == len(solos) else None

    def rounded(self, request: Request, machine: str, mpps: float) -> float:
        """Round a promised throughput up to the next step of the SLO grid [Mpps]."""
        solos = [self.solo_mpps(machine, workload.key) for workload in request.chain]
        solo = min((solo for solo in solos if solo is not None), default=0.0)
        if not (self.slo_grid and solo and mpps):
            return mpps
        step = self.slo_grid * solo
        up = math.ceil(mpps / step - 1e-9) * step
        loads = [workload.traffic.offered_mpps for workload in request.chain]
        most = min((load for load in loads if load is not None), default=math.inf)
        return max(min(up, solo, most), mpps) if mpps <= solo else up

    def check_machines(self, machines: Mapping[str, Machine]) -> None:
        """Raise an error if models and profiles are from other machines with the same names."""
        for machine in machines.values():
            self.library.require_measured_on(machine, "the cluster's")
        for profile in self._profiles:
            if profile.machine in machines:
                fingerprint = machines[profile.machine].fingerprint
                require_same(profile.machine, profile.fingerprint, fingerprint, "the cluster's")

    def fingerprint(self, machines: tuple[str, ...]) -> str:
        """Return a fingerprint of the models and profiles of some machines, 16 hexadecimal digits."""
        if machines not in self._fingerprints:
            parts = [model_fingerprint(self.library[key], self.model) for key in self.library if key[0] in machines]
            parts += [canonical_json(stored(p)) for p in self._profiles if p.machine in machines]
            self._fingerprints[machines] = joined_fingerprint(parts)
        return self._fingerprints[machines]

    def rates(
        self, machine: str, mixes: Sequence[Tenants], promises: Sequence[int] | None = None
    ) -> list[dict[str, Rate]]:
        """Predict every tenant of every mix in one batch; tenants that run one workload have equal throughputs.

        A mix is workload keys, one per core. `promises` is the number of different tenants with a promise in
        each mix, whose bounds share the risk; one by default.

        Returned is workload key -> predicted, low, high [Mpps] of each mix; predicted is NaN where a model lacks a
        metric.
        """
        if not mixes:
            return []
        members = [sorted(zip(self.codes(machine, mix), mix, strict=True)) for mix in mixes]
        width = max(len(tenants) for tenants in members)
        table = np.array(
            [[code for code, _ in tenants] + [-1] * (width - len(tenants)) for tenants in members], dtype=np.int64
        )
        different = np.array([1] * len(mixes) if promises is None else promises, dtype=np.int64)
        parts = [part.tolist() for part in self.rates_of_places(machine, table, different)]
        return [
            {key: (parts[0][row][at], parts[1][row][at], parts[2][row][at]) for at, (_, key) in enumerate(tenants)}
            for row, tenants in enumerate(members)
        ]

    def breaking(self, machine: str, needs: Sequence[tuple[str, float]]) -> float:
        """Return the probability that a server breaks a promise, from errors in calibration mixes.

        `machine`: machine type. `needs`: workload key and promised throughput [Mpps] of each tenant; 0 without a
        promise.
        """
        kinds = self._kinds(machine)
        ordered = sorted((kinds.code(key), need) for key, need in needs)
        members = np.array([[code for code, _ in ordered]], dtype=np.int64)
        members = np.where(kinds.strange(members), kinds.sensitive, members)
        who, needed = kinds.models_of(members)[0], np.array([need for _, need in ordered])
        places = predict_places(kinds.tenants, members, machine, self.how)
        calibrations = kinds.calibrations(bool(places.jointly[0]), str(kinds.families(who[np.newaxis], self.model)[0]))
        factors = kinds.factors_of(who, self.factors.get(machine, {}))
        measured = kinds.measured.breaking(members[0], needed)
        if measured is not None:
            return measured
        return breaking(calibrations, kinds.solo_mpps, who, places.possible[0], needed / factors)

    def lacking(self, machine: str, workload: str, different: int = 1) -> tuple[int, int] | None:
        """Return how many errors promises to `different` workloads of a socket need, and how many are known."""
        if self.confidence <= 0.5 or self.is_stranger(machine, workload) or not self.predictable(machine, workload):
            return None
        kinds = self._kinds(machine)
        number, jointly = kinds.models_of(np.array([kinds.code(workload)]))[0], self.jointly(machine)
        own = too_few_of_profile(kinds.models[number], kinds.known_errors(jointly, self.model)[number])
        if own is not None:
            return FEWEST_OF_PROFILE, own
        known = kinds.calibrations(jointly, self.model)[number]
        missing = known.missing(level_of(self.confidence, different, known.together))
        return (known.count + missing, known.count) if missing else None

    def keys(self, machine: str, request: Request) -> tuple[str, ...]:
        """Return the workloads of a request by key, with offered loads rounded up to the grid."""
        return tuple(self._on_grid(machine, workload) for workload in request.chain)

    def _on_grid(self, machine: str, workload: Workload) -> str:
        if self.is_stranger(machine, workload.key):
            return STRANGER
        offered, solo = workload.traffic.offered_mpps, self.solo_mpps(machine, workload.key)
        if offered is None or not self.slo_grid or not solo:
            return workload.key
        step = self.slo_grid * solo
        up = round(math.ceil(offered / step - 1e-9) * step, 9)
        return workload.offered(up).key

    def codes(self, machine: str, workloads: Iterable[str]) -> list[int]:
        """Return the numbers by which arrays of mixes refer to these workloads."""
        kinds = self._kinds(machine)
        return [kinds.code(key) for key in workloads]

    def rates_of_places(
        self, machine: str, members: NDArray[np.int64], different: NDArray[np.int64] | None = None
    ) -> tuple[Floats, Floats, Floats]:
        """Predict mixes that are given as arrays of workload numbers.

        `members`, shape (mixes, places): numbers of :meth:`codes` in ascending order, then -1 for empty places.
        `different`: how many different tenants of each mix are promised something; all by default. Returned are the
        predicted throughput, the throughput that a promise may count on, and the upper end of the interval [Mpps].
        """
        kinds = self._kinds(machine)
        strange = kinds.strange(members)
        different = different_in(members) if different is None else different
        rates = self._rates_of(machine, members, different)
        rows = np.flatnonzero(strange.any(axis=1))
        if len(rows):  # once more with whom they suffer like in their place
            there = strange[rows]
            suffering = self._rates_of(machine, np.where(there, kinds.sensitive, members[rows]), different[rows])
            for part, other in zip(rates, suffering, strict=True):
                part[rows] = np.where(there, other, part[rows])
        return rates

    def _rates_of(
        self, machine: str, members: NDArray[np.int64], different: NDArray[np.int64]
    ) -> tuple[Floats, Floats, Floats]:
        """Predict mixes given as arrays of model numbers and loads."""
        kinds = self._kinds(machine)
        who, offered = kinds.models_of(members), kinds.loads_of(members)
        places = predict_places(kinds.tenants, members, machine, self.how)
        low = places.high if self.bold else places.mpps
        if self.confidence > 0.5 and not self.bold:
            sharing = np.flatnonzero(accelerator_shared(kinds.models, who) | ports_full(kinds.models, who, offered))
            bound = self._bounds(kinds, who, places, different)
            bound[sharing] = np.fmin(bound[sharing], places.low[sharing])  # their error is in the interval
            alone = (who >= 0).sum(axis=1, keepdims=True) == 1
            bound = np.where(alone, np.where(kinds.is_carried[who], places.low, places.mpps), bound)
            low = np.fmin(bound, places.mpps)
        mpps, low, high = places.mpps.copy(), low.copy(), places.high.copy()
        if machine in self.factors:
            by = kinds.factors_of(who, self.factors[machine])
            mpps, low, high = mpps * by, low * by, high * by
        kinds.measured.apply(members, (mpps, low, high), self.confidence, different)
        return np.fmin(mpps, offered), np.fmin(low, offered), np.fmin(high, offered)

    def _bounds(self, kinds: Kinds, who: NDArray[np.int64], places: Places, different: NDArray[np.int64]) -> Floats:
        """Return the lower bound of each tenant's throughput, from known prediction errors [Mpps]."""
        bound = np.zeros(who.shape)
        families = kinds.families(who, self.model)
        for jointly, family in itertools.product((True, False), np.unique(families).tolist()):
            rows = np.flatnonzero((places.jointly == jointly) & (families == family))
            if len(rows):
                calibrations, possible = kinds.calibrations(jointly, family), places.possible[rows]
                bound[rows] = lower_mpps(
                    calibrations, kinds.solo_mpps, who[rows], possible, self.confidence, different[rows]
                )
                if not jointly:
                    factor = kinds.stretch(who[rows], family)
                    below = np.maximum(possible - factor * (possible - bound[rows]), 0.0)
                    bound[rows] = np.where(factor > 1.0, below, bound[rows])
        return bound

    def _kinds(self, machine: str) -> Kinds:
        if machine not in self._by_machine:
            models = [self.library[key] for key in self.library if key[0] == machine]
            if not models:
                raise PredictionError(
                    f"there are no models for machine '{machine}'", hint="profile and train on it first"
                )
            self._by_machine[machine] = Kinds(models)
        kinds = self._by_machine[machine]
        if kinds.sensitive < 0 and self.takes_strangers and machine in self._worst and (worst := self._worst[machine]):
            kinds.name_worst(STRANGER, worst.contentious, worst.sensitive)
        return kinds

    def check_names(self, requests: Sequence[Request], machines: Sequence[str]) -> None:
        """Raise an error for network functions that have no model or profile on any machine of the cluster."""
        for error in self.unknown(requests, machines).values():
            raise error

    def unknown(self, requests: Sequence[Request], machines: Sequence[str]) -> dict[str, SlomoError]:
        """Return why some requests cannot be placed anywhere: one of their functions has no model or profile."""
        keys = {workload.key for request in requests for workload in request.chain}
        strange = {key for key in keys if all(self.solo_mpps(machine, key) is None for machine in machines)}
        errors: dict[str, SlomoError] = {}
        for request in requests if strange else ():
            key = next((workload.key for workload in request.chain if workload.key in strange), None)
            if key is not None:
                errors[request.id] = self._nothing_known(request.id, key, machines)
        return errors

    def _nothing_known(self, owner: str, key: str, machines: Sequence[str]) -> SlomoError:
        modelled = [*self.library, *self.profiles]
        elsewhere = sorted({machine for machine, name in modelled if name == key})
        if elsewhere:
            return UnsupportedPredictionError(
                f"request '{owner}': no model of '{key}' on {', '.join(machines)}, only on {', '.join(elsewhere)}",
                hint="profile and train on that machine, or let it run alone (fallback 'alone')",
            )
        names = {name for _, name in modelled}
        short = {name.split("@")[0] for name in names}
        nf = key.split("@")[0]
        from slomo.vocabulary.network_function import network_function_names  # reads YAML: only for the hint

        hint = None
        if nf not in short and nf in network_function_names():
            hint = f"it has no models yet; run slomo profile {nf}, then slomo train. Known: {', '.join(sorted(short))}"
        wrong, known = (key, names) if nf in short else (nf, short)
        return UnknownNameError("network function", wrong, known, hint=hint, where=f"of request '{owner}'")

    def _find(self, machine: str, workload: str) -> NFModel | None:
        key = (machine, without_load(workload))
        if key not in self._found:
            try:
                self._found[key] = self.library[key] if key in self.library else self.library.find(key[1], machine)
            except UnknownNameError:
                self._found[key] = None
        return self._found[key]
