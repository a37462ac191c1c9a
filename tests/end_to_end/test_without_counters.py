"""The whole way without counters, on a machine made of formulas with the noise and drift of a real one.

Profile in random blocks -> dataset on disk -> train -> predict pairs never trained on -> compare with the truth. The
noise is that of the harness on a quiet virtual machine (5 % from pair to pair, solo speeds that wander by 1.5 times).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slomo
from slomo.errors import IncompatibleMeasurementsError
from slomo.models.library import ModelLibrary
from slomo.prediction.predictor import Predictor
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.dataset import ProfileDataset
from slomo.records.run import Phase, RunRecord, TenantSample
from slomo.training.training import train
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.defaults import DEFAULT_MODEL
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.metrics import FELT, Scope
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload

_MACHINE = "e5-2620v4"
_TARGETS = [Workload(name) for name in ("l2fwd", "ip-router", "flowstats", "maglev", "mazunat", "stateless-firewall")]
_PRESSURES = [Workload("synthetic", {"data_size_mib": float(size)}) for size in (1, 2, 4, 8, 16, 32, 64, 128)]


_FAMILIES = ("slomo-additive", "slomo-gp", "slomo-xgb", "mean", "bubbleup", "dobrescu")


class FeltMachine:
    """A host whose reporters feel what is drawn for each workload, and whose speed wanders."""

    name, exclusive = "host", True

    def __init__(self, seed: int, noise: float = 0.05) -> None:
        self.random, self.noise, self.speed = np.random.default_rng(seed), noise, 1.0
        drawn = np.random.default_rng(1000 + seed)
        everybody = [*_TARGETS, *_PRESSURES]
        self.pressure = {item.key: drawn.gamma(1.2, 0.35, 4) for item in everybody}
        self.sensitivity = {item.key: drawn.gamma(1.0, 0.25, 4) for item in everybody}

    def share(self, target: Workload, other: Workload) -> float:
        """Return the true share of its solo speed that a target keeps."""
        return 1.0 / (1.0 + float(self.sensitivity[target.key] @ self.pressure[other.key]))

    def _read(self, workload: Workload, scope: Scope) -> MetricVector:
        felt = self.pressure[workload.key] + 0.03 * self.random.standard_normal(4)
        return MetricVector(dict(zip(FELT, np.maximum(felt, 0.0).tolist(), strict=True)), scope=scope)

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        """Run one co-location, as `HostTestbed` records it."""
        self.speed *= float(np.exp(0.03 * self.random.standard_normal()))
        target, others = colocation.target, colocation.competitors
        assert target is not None
        solo = 5.0 * self.speed
        own = self._read(target, Scope.CORE)
        host: dict[str, Any] = {"drift": {"change": 1.0, "repeated": 0, "rates": {"cache": self.speed}}}
        if not others:
            host["solo"] = {"mpps": [solo]}
            phase = Phase((TenantSample(solo, own),), MetricVector({}), None, 1.0)
            return RunRecord(colocation, seed, None, phase, self._told(host))
        ratio = self.share(target, others[0]) * (1.0 + self.noise * float(self.random.standard_normal()))
        host["pairs"] = {"ratio": ratio, "solo_mpps": [solo]}
        if others[0].nf != "synthetic":
            host["pairs"]["competitor_ratio"] = self.share(others[0], target) * (
                1.0 + 0.01 * self.random.standard_normal()
            )
        felt = self._read(others[0], Scope.SOCKET)
        other = TenantSample(5.0, MetricVector(dict(felt), scope=Scope.CORE))
        alone = Phase((other,), felt, None, 1.0)
        beside = Phase((TenantSample(ratio * solo, own), other), MetricVector({}), None, 1.0)
        return RunRecord(colocation, seed, alone, beside, self._told(host))

    def _told(self, host: Mapping[str, Any]) -> dict[str, Any]:
        return {"testbed": "host", "settings": {"interleaved": True}, "host": host}

    def environment(self) -> Mapping[str, Any]:
        """Return what a calibrated host states."""
        machines = {_MACHINE: load_machine(_MACHINE).to_dict()}
        reporters = {"programs": {}, "felt": {}, "full": 4.0}
        settings = {"counters": "probe", "calibration": "f00d", "interleaved": True, "reporters": reporters}
        return {"testbed": "host", "settings": settings, "machines": machines}

    def estimate_s(self, colocation: Colocation) -> float:
        """Return a guess."""
        return 1.0


def _profiled(machine: FeltMachine) -> ProfileDataset:
    solo = [Colocation(_MACHINE, target) for target in _TARGETS]
    pressed = [Colocation(_MACHINE, target, (other,)) for target in _TARGETS for other in _PRESSURES]
    return run_campaign(ExperimentPlan("felt", (*solo, *pressed), replicates=2), machine)


def _defaults(library: ModelLibrary) -> dict[str, str]:
    """Return the default family of every target."""
    return {target.key: library.find(target, _MACHINE).named(DEFAULT_MODEL) for target in _TARGETS}


def test_pairs_are_predicted_better_than_by_the_mean(tmp_path: Path) -> None:
    """Saved, loaded and trained, noisy runs of a wandering machine beat every baseline by 0.85."""
    ours, baselines = [], {"mean": [], "bubbleup": [], "dobrescu": []}  # type: ignore[var-annotated]
    noise = []
    for seed in range(3):
        machine = FeltMachine(seed)
        _profiled(machine).to_parquet(tmp_path / f"{seed}.parquet")
        library = train(ProfileDataset.read_parquet(tmp_path / f"{seed}.parquet"), models=_FAMILIES)
        defaults = _defaults(library)
        for target in _TARGETS:
            model = library.find(target, _MACHINE)
            default = defaults[target.key]
            noise.append(model.manifest["noise"]["next_measurement"])
            for other in _TARGETS:
                if other == target:
                    continue
                truth = machine.share(target, other)
                for name, errors in (("default", ours), *baselines.items()):
                    family = default if name == "default" else name
                    answer = Predictor(library, _MACHINE, family, method="composed").predict(target, [other])
                    errors.append(abs(answer.throughput_mpps / answer.solo_mpps - truth))
    error = float(np.mean(ours))
    assert error < 0.85 * min(float(np.mean(values)) for values in baselines.values())
    assert error < 0.05
    assert float(np.mean(noise)) == pytest.approx(0.05, rel=0.15)


def test_where_nothing_is_felt_the_mean_answers() -> None:
    """On a machine that only makes noise the default is hardly ever anything but `mean`, and never far from it."""
    machine = FeltMachine(7)
    machine.sensitivity = dict.fromkeys(machine.sensitivity, np.full(4, 0.0))
    library = train(_profiled(machine))
    answers, defaults = [], _defaults(library)
    for target in _TARGETS:
        default = defaults[target.key]
        answers += [
            Predictor(library, _MACHINE, default, method="composed").predict(target, [other]).slowdown
            for other in _TARGETS
            if other != target
        ]
    assert float(np.abs(answers).mean()) < 0.03, "5 % per pair, 1.2 % of the mean of 16"


def test_a_mix_tells_of_both() -> None:
    """A run of two functions gives each its own ratio, formed inside its own process, times its one solo speed."""
    machine = FeltMachine(0, noise=0.01)
    one, other = _TARGETS[1:3]
    colocations = [Colocation(_MACHINE, one), Colocation(_MACHINE, other), Colocation(_MACHINE, one, (other,))]
    dataset = run_campaign(ExperimentPlan("mix", tuple(colocations), replicates=2), machine)
    for target, beside in ((one, other), (other, one)):
        row = dataset.select(target=target.key, plan="mix")
        share = float(row.throughput[0]) / dataset.solo_mpps(target.key)
        assert share == pytest.approx(machine.share(target, beside), rel=0.04)


def test_every_door_gives_the_same_answer(tmp_path: Path) -> None:
    """`slomo.predict` from a library on disk answers as the predictor of the campaign does."""
    library = train(_profiled(FeltMachine(0)))
    library.save(tmp_path / "models")
    here = Predictor(library, _MACHINE, "slomo-additive", method="composed").predict(_TARGETS[1], [_TARGETS[2]])
    there = slomo.predict(
        _TARGETS[1],
        [_TARGETS[2]],
        library=tmp_path / "models",
        machine=_MACHINE,
        model="slomo-additive",
        method="composed",
    )
    assert there.throughput_mpps == here.throughput_mpps


def test_datasets_of_two_calibrations_do_not_merge() -> None:
    """What reporters felt under one calibration says nothing under another."""
    one = _profiled(FeltMachine(0))
    other = one.environment
    other["settings"]["calibration"] = "beef"
    with pytest.raises(IncompatibleMeasurementsError, match="calibration"):
        one.merge(ProfileDataset(one.frame, other))


def test_a_reporter_that_never_hits_bounds_what_many_do_to_it() -> None:
    """The capacity of the calibration reaches the models: extra times of the cache add up to its full one."""
    machine = FeltMachine(0)
    machine.pressure = {key: np.full(4, 3.0) for key in machine.pressure}
    library = train(_profiled(machine))
    capacities = library.find(_TARGETS[0], _MACHINE).capacities
    assert capacities is not None
    assert capacities.llc_reporter == 4.0
