"""The whole way without counters, on a machine made of formulas with the noise and drift of a real one.

Profile in random blocks -> dataset on disk -> train -> predict pairs never trained on -> compare with the truth. The
noise is that of the harness on a quiet virtual machine (5 % from pair to pair, solo speeds that wander by 1.5 times).
"""

from pathlib import Path

import numpy as np
import pytest

import slomo
from slomo.errors import IncompatibleMeasurementsError
from slomo.models.library import ModelLibrary
from slomo.prediction.predictor import Predictor
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.dataset import ProfileDataset
from slomo.training.training import train
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.defaults import DEFAULT_MODEL
from tests.felt_machine import MACHINE, TARGETS, FeltMachine, felt_plan

_FAMILIES = ("slomo-additive", "slomo-gp", "slomo-xgb", "mean", "bubbleup", "dobrescu")


def _profiled(machine: FeltMachine) -> ProfileDataset:
    return run_campaign(felt_plan(), machine)


def _defaults(library: ModelLibrary) -> dict[str, str]:
    """Return the default family of every target."""
    return {target.key: library.find(target, MACHINE).named(DEFAULT_MODEL) for target in TARGETS}


def test_pairs_are_predicted_better_than_by_the_mean(tmp_path: Path) -> None:
    """Saved, loaded and trained, noisy runs of a wandering machine beat every baseline by 0.85."""
    ours, baselines = [], {"mean": [], "bubbleup": [], "dobrescu": []}  # type: ignore[var-annotated]
    noise = []
    for seed in range(3):
        machine = FeltMachine(seed)
        _profiled(machine).to_parquet(tmp_path / f"{seed}.parquet")
        library = train(ProfileDataset.read_parquet(tmp_path / f"{seed}.parquet"), models=_FAMILIES)
        defaults = _defaults(library)
        for target in TARGETS:
            model = library.find(target, MACHINE)
            default = defaults[target.key]
            noise.append(model.manifest["noise"]["next_measurement"])
            for other in TARGETS:
                if other == target:
                    continue
                truth = machine.share(target, other)
                for name, errors in (("default", ours), *baselines.items()):
                    family = default if name == "default" else name
                    answer = Predictor(library, MACHINE, family, method="composed").predict(target, [other])
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
    for target in TARGETS:
        default = defaults[target.key]
        answers += [
            Predictor(library, MACHINE, default, method="composed").predict(target, [other]).slowdown
            for other in TARGETS
            if other != target
        ]
    assert float(np.abs(answers).mean()) < 0.03, "5 % per pair, 1.2 % of the mean of 16"


def test_a_mix_tells_of_both() -> None:
    """A run of two functions gives each its own ratio, formed inside its own process, times its one solo speed."""
    machine = FeltMachine(0, noise=0.01)
    one, other = TARGETS[1:3]
    colocations = [Colocation(MACHINE, one), Colocation(MACHINE, other), Colocation(MACHINE, one, (other,))]
    dataset = run_campaign(ExperimentPlan("mix", tuple(colocations), replicates=2), machine)
    for target, beside in ((one, other), (other, one)):
        row = dataset.select(target=target.key, plan="mix")
        share = float(row.throughput[0]) / dataset.solo_mpps(target.key)
        assert share == pytest.approx(machine.share(target, beside), rel=0.04)


def test_every_door_gives_the_same_answer(tmp_path: Path) -> None:
    """`slomo.predict` from a library on disk answers as the predictor of the campaign does."""
    library = train(_profiled(FeltMachine(0)), models=["slomo-additive"])
    library.save(tmp_path / "models")
    here = Predictor(library, MACHINE, "slomo-additive", method="composed").predict(TARGETS[1], [TARGETS[2]])
    there = slomo.predict(
        TARGETS[1],
        [TARGETS[2]],
        library=tmp_path / "models",
        machine=MACHINE,
        model="slomo-additive",
        method="composed",
    )
    assert there.throughput_mpps == here.throughput_mpps


def test_datasets_of_two_calibrations_merge_only_by_competitions_that_both_probed() -> None:
    """What reporters felt under one calibration says nothing under another, but where both probed the same."""
    one = _profiled(FeltMachine(0))
    other = one.environment
    other["settings"]["calibration"] = "beef"
    alone = one.frame[one.frame["competitor_count"] == 0].reset_index(drop=True)
    with pytest.raises(IncompatibleMeasurementsError, match="calibrated differently"):
        one.merge(ProfileDataset(alone, other))


def test_a_reporter_that_never_hits_bounds_what_many_do_to_it() -> None:
    """The capacity of the calibration reaches the models: extra times of the cache add up to its full one."""
    machine = FeltMachine(0)
    machine.pressure = {key: np.full(4, 3.0) for key in machine.pressure}
    library = train(_profiled(machine), models=["mean"])
    capacities = library.find(TARGETS[0], MACHINE).capacities
    assert capacities is not None
    assert capacities.llc_reporter == 4.0
