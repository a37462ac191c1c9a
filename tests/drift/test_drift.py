"""Drift: a stated false alarm rate, alarms on what has changed, whom to profile again, and the refit from few runs."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from slomo.drift.change_detection import (
    REFERENCE,
    Cusum,
    RecursiveResiduals,
    alarm_threshold,
    average_run_length,
    conformal_score,
)
from slomo.drift.correction import OnlineCorrection
from slomo.drift.monitor import DriftMonitor
from slomo.drift.refit import refit
from slomo.equilibrium.mixes import predict_mixes
from slomo.errors import InvalidValueError, MissingMetricError, UnknownNameError
from slomo.models.library import ModelLibrary
from slomo.models.responses.sensitivity import TreeSensitivity
from slomo.prediction.predictor import Predictor
from slomo.records.dataset import ProfileDataset
from slomo.training.calibration import mix_rows
from slomo.vocabulary.defaults import DEFAULT_MODEL
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector
from slomo.workflow.drift import refit_models

MACHINE = "e5-2620v4"


def models_of(library: ModelLibrary) -> list:
    """Return all models of the toy's machine."""
    return [library.find(key, MACHINE) for key in library.workloads(MACHINE)]


def live(dataset: ProfileDataset) -> Iterator[tuple[str, list[str], float]]:
    """Yield target, competitors and throughput of every row."""
    for row, (target, mpps) in enumerate(zip(dataset.frame["target"], dataset.throughput, strict=True)):
        yield str(target), [workload.key for workload in dataset.competitors(row)], float(mpps)


def vectors(dataset: ProfileDataset) -> Iterator[dict[str, MetricVector]]:
    """Yield each row's live vectors: of the target itself, and of everybody beside it."""
    for row in range(len(dataset)):
        by_prefix = {prefix: dataset.vectors(prefix).iloc[row].dropna().to_dict() for prefix in ("own", "beside")}
        yield {"own": MetricVector(by_prefix["own"], scope=Scope.CORE), "beside": MetricVector(by_prefix["beside"])}


@pytest.mark.parametrize("run_length", [50.0, 300.0])
def test_false_alarms_come_as_rarely_as_stated(run_length: float) -> None:
    """Simulated sequences without any change run as long until an alarm as the threshold promises."""
    threshold, generator = alarm_threshold(run_length), np.random.default_rng(7)
    total, lengths, running = np.zeros(3000), np.zeros(3000), np.ones(3000, dtype=bool)
    while running.any():
        total[running] = np.maximum(0.0, total[running] + generator.standard_normal(int(running.sum())) - REFERENCE)
        lengths[running] += 1
        running &= total <= threshold

    assert lengths.mean() == pytest.approx(run_length, rel=0.1)


def test_a_change_is_found_much_sooner_than_a_false_alarm_comes() -> None:
    """Errors that grow by a standard deviation are found a hundred times sooner than a false alarm comes."""
    threshold = alarm_threshold(2000.0)
    assert average_run_length(threshold, shift=1.0) < 20.0


@pytest.mark.parametrize("run_length", [0.0, 4.0, 1e9])
def test_impossible_run_lengths_are_refused(run_length: float) -> None:
    """A run length that no threshold has is refused."""
    with pytest.raises(InvalidValueError, match="average run length"):
        alarm_threshold(run_length)


def test_conformal_scores_are_standard_normal() -> None:
    """Errors of the same kind as the calibration errors score as a standard normal variable does, ties or not."""
    generator = np.random.default_rng(3)
    for draw in (generator.exponential, lambda size: generator.integers(0, 4, size=size).astype(float)):
        calibration = np.sort(draw(size=4000))
        scores = [conformal_score(float(value), calibration, generator) for value in draw(size=4000)]
        assert np.mean(scores) == pytest.approx(0.0, abs=0.08)
        assert np.std(scores) == pytest.approx(1.0, abs=0.06)


def test_recursive_residuals_are_independent_and_standard() -> None:
    """Without a change the residuals have mean 0, deviation 1 and no correlation from one to the next."""
    generator, series = np.random.default_rng(4), []
    for _ in range(300):
        residuals = RecursiveResiduals(0.05)
        told = [residuals.add(float(value)) for value in generator.normal(1.0, 0.05, size=12)]
        series.append([value for value in told if value is not None])
    values = np.array(series)
    assert values.std() == pytest.approx(1.0, abs=0.05)
    assert np.corrcoef(values[:, :-1].ravel(), values[:, 1:].ravel())[0, 1] == pytest.approx(0.0, abs=0.05)


def test_a_sum_remembers_when_it_left_zero() -> None:
    """The change is dated to where the sum last was 0."""
    cusum = Cusum(2.0)
    for score in (0.0, 0.0, 0.0, 2.0, 2.0):
        cusum.add(score)
    assert cusum.alarmed
    assert cusum.since == 3


def test_models_that_hold_raise_no_alarm(toy_library: ModelLibrary, toy_mixes: ProfileDataset) -> None:
    """Some hundred unseen mixes of unchanged NFs raise no alarm."""
    monitor = DriftMonitor(models_of(toy_library), false_alarm_every=100_000.0)
    for reading in live(toy_mixes):
        monitor.observe(*reading)
    assert not monitor.report()
    assert "the models hold" in str(monitor.report())


def test_the_nf_that_changed_is_the_one_to_profile_again(toy_library: ModelLibrary, toy_mixes: ProfileDataset) -> None:
    """An NF that is suddenly slower by 15 % raises the alarm, the others do not, and it is named."""
    monitor = DriftMonitor(models_of(toy_library), false_alarm_every=100_000.0)
    for target, competitors, mpps in live(toy_mixes):
        monitor.observe(target, competitors, mpps * (0.85 if target.startswith("nat") else 1.0))
    report = monitor.report()
    assert [key.split("@")[0] for key in report.again] == ["nat"]
    assert not report.machine_suspected
    assert report.alarms[0].deviation == pytest.approx(-0.15, abs=0.05)
    assert "profile again: nat" in str(report)
    assert report.to_dict()["alarms"][0]["channel"] == "throughput"


def test_a_machine_that_changed_is_suspected(toy_library: ModelLibrary, toy_mixes: ProfileDataset) -> None:
    """Where all NFs are slower at once, the machine is suspected."""
    monitor = DriftMonitor(models_of(toy_library), false_alarm_every=100_000.0)
    for target, competitors, mpps in live(toy_mixes):
        monitor.observe(target, competitors, 0.8 * mpps)
    assert monitor.report().machine_suspected
    assert "the machine has probably changed" in str(monitor.report())


def test_a_change_within_one_mix_is_found(toy_library: ModelLibrary) -> None:
    """A mix that runs for long and then loses 8 % raises an alarm, whatever the model thought of it."""
    generator = np.random.default_rng(5)
    monitor = DriftMonitor(models_of(toy_library), noise=0.02)
    mix = ("lpm@64B,100000f", ["nat@64B,100000f"])
    before = [monitor.observe(*mix, 4.4 * (1 + 0.02 * float(x))) for x in generator.standard_normal(60)]
    after = [monitor.observe(*mix, 4.0 * (1 + 0.02 * float(x))) for x in generator.standard_normal(20)]
    assert before[-1] is None
    assert after[-1] is not None
    assert after[-1].since >= 50


def test_pressure_that_changed_explains_its_neighbours(toy_library: ModelLibrary, toy_profile: ProfileDataset) -> None:
    """An NF that accesses the cache twice as often is named by its vector; neighbours it slows down are not."""
    models = {model.workload.nf: model for model in models_of(toy_library)}
    monitor = DriftMonitor(list(models.values()), reference=toy_profile, false_alarm_every=1000.0)
    ids, lpm = models["ids"].workload.key, models["lpm"].workload.key
    profile = models["ids"].contentiousness
    for number, load in enumerate(np.linspace(0.1, 0.9, 12).tolist(), start=1):
        beside = MetricVector(dict(zip(profile.pressure_names, (profile.limit * load).tolist(), strict=True)))
        foretold = profile.under((profile.limit * load)[None, :])[0]
        own = MetricVector(dict(zip(profile.metric_names, (2.0 * foretold).tolist(), strict=True)), scope=Scope.CORE)
        monitor.observe(ids, [lpm] * number, 0.6, own=own, beside=beside)
        monitor.observe(lpm, [ids] * number, 1.0 + load)
    report = monitor.report()
    assert ("ids", "vector") in {(alarm.workload.split("@")[0], alarm.channel) for alarm in report.alarms}
    assert lpm not in report.again
    assert report.again[0] == ids


def test_what_is_not_watched_is_refused(toy_library: ModelLibrary) -> None:
    """An NF without a model, a throughput that is no number and a monitor of nothing are refused."""
    monitor = DriftMonitor(models_of(toy_library))
    with pytest.raises(UnknownNameError, match="watched network function"):
        monitor.observe("nobody@64B,1f", [], 1.0)
    with pytest.raises(InvalidValueError, match="nan Mpps"):
        monitor.observe("lpm@64B,100000f", [], float("nan"))
    with pytest.raises(InvalidValueError, match="0 models"):
        DriftMonitor([])


def _changed(dataset: ProfileDataset, nf: str, factor: float, rows: int, solo: float = 0.9) -> ProfileDataset:
    """Return a few rows of an NF that is slower alone and loses `factor` times as much under pressure."""
    frame = dataset.frame
    own = frame[(frame["nf"] == nf) & (frame["plan"] != "mix")].copy()
    whole = float(own.loc[own["competitor_count"] == 0, "throughput_mpps"].median())
    own["throughput_mpps"] = solo * whole * (1.0 - factor * (1.0 - own["throughput_mpps"] / whole)).clip(lower=0.02)
    few = own.iloc[np.unique(np.linspace(0, len(own) - 1, rows).astype(int))] if rows else own
    return ProfileDataset(few.reset_index(drop=True), dataset.environment)


@pytest.mark.parametrize("family", ["slomo-xgb", "slomo-gbr", "slomo-gp", "slomo-additive", "dobrescu", "none"])
def test_few_runs_bring_a_model_up_to_date(toy_library: ModelLibrary, toy_profile: ProfileDataset, family: str) -> None:
    """Seven new runs of an NF that changed leave less than half of the old model's error."""
    old = next(model for model in models_of(toy_library) if model.workload.nf == "lpm")
    new = refit(old, _changed(toy_profile, "lpm", 1.4, 7))
    whole = _changed(toy_profile, "lpm", 1.4, 0)
    errors = []
    for model in (old, new):
        item = model.sensitivity[family]
        columns = [f"competition.{name}" for name in item.feature_names]
        rows = whole.frame[whole.frame[columns].notna().all(axis=1)] if columns else whole.frame
        guess = item.predict_mpps(rows[columns].to_numpy(dtype=float))
        errors.append(np.abs(guess - rows["throughput_mpps"]).mean())
    assert errors[1] < (0.5 if family != "none" else 1.0) * errors[0]
    assert new.manifest["refit"]["rows"] == 7
    assert new.solo_mpps == pytest.approx(0.9 * old.solo_mpps, rel=0.02)


def test_a_refitted_model_is_saved_and_loaded(
    toy_library: ModelLibrary, toy_profile: ProfileDataset, tmp_path: object
) -> None:
    """A refitted model, saved and loaded, predicts the same numbers."""
    old = next(model for model in models_of(toy_library) if model.workload.nf == "lpm")
    new = refit(old, _changed(toy_profile, "lpm", 1.3, 5))
    ModelLibrary([new]).save(str(tmp_path))
    loaded = ModelLibrary.load(str(tmp_path)).find(new.workload)
    item, other = new.sensitivity["slomo-xgb"], loaded.sensitivity["slomo-xgb"]
    assert isinstance(item, TreeSensitivity)
    vectors = np.abs(np.random.default_rng(1).normal(50.0, 40.0, size=(64, len(item.feature_names))))
    assert (item.predict_mpps(vectors) == other.predict_mpps(vectors)).all()


def test_the_same_runs_again_change_nothing(toy_library: ModelLibrary, toy_profile: ProfileDataset) -> None:
    """An NF that has not changed keeps its model: on runs left out a refit is no better, and nothing is to be saved."""
    for old in models_of(toy_library):
        runs = _changed(toy_profile, old.workload.nf, 1.0, 7, solo=1.0)
        assert refit(old, runs) is old
        assert not len(refit_models(toy_library, runs))


@pytest.mark.parametrize("mixes", [10, 21])
def test_few_calibration_mixes_find_a_step_but_prove_nothing(toy_library: ModelLibrary, mixes: int) -> None:
    """With 10 calibration errors a step of 20 % is found within 10 readings; without one the answer is not 'holds'."""
    few, generator = [], np.random.default_rng(mixes)
    for model in models_of(toy_library):
        calibration = model.calibration[model.named(DEFAULT_MODEL)]
        drawn = np.sort(generator.choice(calibration.scores, mixes, replace=False))
        kept = replace(calibration, scores=drawn, kinds=np.zeros(0, dtype=np.int64))
        few.append(replace(model, calibration={**model.calibration, model.named(DEFAULT_MODEL): kept}))
    foretold = Predictor(ModelLibrary(few), MACHINE, method="composed")
    seen = {}
    for change in (1.0, 0.8):
        monitor = DriftMonitor(few)
        for reading in range(10):
            beside = [
                ("nat", "ids", "lpm")[(reading + place) % 3] + "@64B,100000f" for place in range(1 + reading // 3)
            ]
            expected = foretold.predict("lpm", beside, explain=False).throughput_mpps
            mpps = change * expected * float(1.0 + 0.01 * generator.standard_normal())
            monitor.observe("lpm@64B,100000f", beside, mpps)
        seen[change] = monitor.report()
    assert not seen[1.0].alarms
    assert not seen[1.0].holds
    assert f"{mixes} of 30 held-out errors" in str(seen[1.0])
    assert [alarm.workload for alarm in seen[0.8].alarms] == ["lpm@64B,100000f"]


def test_a_profile_without_mixes_never_holds(toy_library: ModelLibrary) -> None:
    """Intervals from cross-validation: a model 117 % off raises an alarm, one that is right has too little evidence."""
    models = []
    for model in models_of(toy_library):
        name = model.named(DEFAULT_MODEL)
        alone = replace(model.calibration[name], source="cross-validation", kinds=np.zeros(0, dtype=np.int64))
        models.append(replace(model, calibration={**model.calibration, name: alone}))
    mixes = [[name + "@64B,100000f"] * count for name in ("nat", "ids", "lpm") for count in (1, 2, 3, 4)]
    foretold = Predictor(ModelLibrary(models), MACHINE, method="composed")
    for factor in (1.0, 1.0 / 2.17):
        monitor = DriftMonitor(models)
        for beside in mixes:
            monitor.observe(
                "lpm@64B,100000f", beside, factor * foretold.predict("lpm", beside, explain=False).throughput_mpps
            )
        report = monitor.report()
        assert not report.holds
        assert bool(report.alarms) == (factor < 1.0)
    assert str(DriftMonitor(models).report()) == "not enough evidence: 0 of 10 readings"


def test_a_refit_needs_a_run_alone(toy_library: ModelLibrary, toy_profile: ProfileDataset) -> None:
    """New runs without one alone are refused: everything else is relative to it."""
    old = next(model for model in models_of(toy_library) if model.workload.nf == "lpm")
    contended = ProfileDataset(toy_profile.frame[toy_profile.frame["competitor_count"] > 0], toy_profile.environment)
    with pytest.raises(MissingMetricError, match=r"none of its .* rows is solo"):
        refit(old, contended)


def test_a_family_that_cannot_be_scaled_is_refused_by_name(
    toy_library: ModelLibrary, toy_profile: ProfileDataset
) -> None:
    """A family of a plug-in, or of pairs by name, is named together with its function and machine."""
    old = next(model for model in models_of(toy_library) if model.workload.nf == "lpm")
    other = replace(old, sensitivity={**old.sensitivity, "ours": object()})
    with pytest.raises(InvalidValueError, match=r"'lpm@.*' on e5-2620v4 of family ours cannot be corrected"):
        refit(other, toy_profile)


def test_the_monitor_trusts_a_model_that_was_refitted(
    toy_library: ModelLibrary, toy_profile: ProfileDataset, toy_mixes: ProfileDataset
) -> None:
    """After an alarm, a refit from seven runs and a reset, the changed NF raises no alarm any more."""
    models = models_of(toy_library)
    monitor = DriftMonitor(models, false_alarm_every=100_000.0)
    readings = [(t, c, m * (0.85 if t.startswith("nat") else 1.0)) for t, c, m in live(toy_mixes)]
    for reading in readings:
        monitor.observe(*reading)
    old = next(model for model in models if model.workload.nf == "nat")
    assert monitor.report().again == (old.workload.key,)
    monitor.reset(old.workload.key, refit(old, _changed(toy_profile, "nat", 1.0, 7, solo=0.85)))
    for reading in readings:
        monitor.observe(*reading)
    assert not monitor.report()


def test_a_smaller_cache_in_the_simulator_is_noticed_and_refitted() -> None:
    """Live throughput and vectors tell when a simulated LLC shrinks to a quarter; a refit from six runs helps."""
    from slomo.profiling.campaign.run import run_campaign
    from slomo.profiling.plans.basic import mixes_plan, pressure_plan
    from slomo.testbed.simulated import SimulatedTestbed
    from slomo.training.training import train
    from slomo.vocabulary.machine import load_machine

    whole = load_machine(MACHINE)
    shrunk = replace(whole, llc_ways=whole.llc_ways // 4, llc_mib=whole.llc_mib / 4, ddio_ways=1)
    names = ("lpm", "stats", "maglev")
    before, after = (SimulatedTestbed(machine, accesses=60_000, scale=64) for machine in (whole, shrunk))
    pressure = run_campaign(pressure_plan(names, whole, "sobol", runs=16), before)
    calibration = run_campaign(mixes_plan(names, whole, 12, sizes=(1, 2, 3), stream="calibration"), before)
    library = train(pressure.merge(calibration), models=["slomo-xgb"])
    models = models_of(library)
    plan = mixes_plan(names, whole, 9, sizes=(1, 2, 3), stream="test")
    readings, reports = [run_campaign(plan, testbed) for testbed in (before, after)], []
    for each in readings:
        monitor = DriftMonitor(models, false_alarm_every=2000.0, reference=pressure)
        for reading, pressed in zip(live(each), vectors(each), strict=True):
            monitor.observe(*reading, **pressed)
        reports.append(monitor.report())
    assert not reports[0]
    assert reports[1].again
    few = run_campaign(pressure_plan(names, whole, "sobol", runs=6, seed=3), after)
    mixes = mix_rows(readings[1], models, MACHINE)
    errors = [
        np.abs(predict_mixes(chosen, mixes, "slomo-xgb") / mixes.mpps - 1.0).mean()
        for chosen in (models, [refit(model, few) for model in models])
    ]
    assert errors[1] < 0.7 * errors[0]


def test_one_absurd_outcome_is_refused_and_forgotten() -> None:
    """1e300 Mpps is refused by name at the monitor; a pair of it moves a correction by three bounds at most."""
    correction = OnlineCorrection()
    for measured in [5.0] * 20 + [1e300] + [5.0] * 20:
        correction = correction.seen("lpm", predicted_mpps=5.0, measured_mpps=measured)
    assert abs(correction.biases["lpm"].ratio - 1.0) < 0.01
    assert correction.biases["lpm"].error < 0.01
    assert not correction.refit_asked
