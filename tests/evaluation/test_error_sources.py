"""Facts about where errors come from, how reliable intervals are, and what more runs buy."""

import numpy as np
import pytest

from slomo.errors import InvalidValueError, MissingMetricError
from slomo.evaluation.error_sources import error_sources, reliability
from slomo.evaluation.evaluate import evaluate, predictor_of
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.basic import mixes_plan, pressure_plan
from slomo.testbed.simulated import SimulatedTestbed
from slomo.training.training import train
from slomo.workflow.evaluate import learning_curve

NFS, MACHINE = ("lpm", "stats", "snort"), "e5-2620v4"


@pytest.fixture(scope="module")
def profile():
    """Return a small profile of three NFs on a fast, coarse simulator."""
    testbed = SimulatedTestbed(MACHINE, accesses=90_000, scale=64)
    return run_campaign(pressure_plan(NFS, MACHINE, "sobol", runs=30), testbed)


@pytest.fixture(scope="module")
def mixes():
    """Return mixes of the same NFs."""
    testbed = SimulatedTestbed(MACHINE, accesses=90_000, scale=64)
    return run_campaign(mixes_plan(NFS, MACHINE, 12), testbed)


@pytest.fixture(scope="module")
def trained(profile):
    """Return two models of each NF that read the measured competition, and two baselines."""
    return train(profile, models=["slomo-xgb", "slomo-gbr", "mean", "none"])


def test_errors_split_into_sources(trained, mixes):
    """The total is at most the model's error plus composition's, and each run counts once."""
    sources = error_sources(predictor_of(trained, MACHINE, "slomo-xgb"), mixes)
    assert sources.predictions == mixes.frame["run_key"].nunique()
    assert sources.total <= sources.sensitivity + sources.composition + 1e-9
    assert sources.composition > 0.0
    assert sources.noise is None


def test_noise_is_the_distance_to_the_truth_where_it_is_known(trained, mixes):
    """Where the simulator's truth is in the dataset, noise is measured against it."""
    frame = mixes.frame.copy()
    frame["truth_mpps"] = frame["throughput_mpps"] / 1.03
    sources = error_sources(predictor_of(trained, MACHINE, "slomo-gbr"), type(mixes)(frame, mixes.environment))
    assert sources.noise == pytest.approx(3.0)


def test_a_model_that_reads_no_competition_has_no_parts(trained, mixes):
    """The null model's error cannot be split."""
    with pytest.raises(InvalidValueError, match="does not read the measured competition"):
        error_sources(predictor_of(trained, MACHINE, "none"), mixes)


def test_unmeasured_competitions_are_said(trained, mixes):
    """Mixes whose competition was never measured alone are refused in words."""
    frame = mixes.frame.copy()
    frame[[name for name in frame if name.startswith("competition.")]] = np.nan
    with pytest.raises(MissingMetricError, match="of the competition alone"):
        error_sources(predictor_of(trained, MACHINE, "slomo-gbr"), type(mixes)(frame, mixes.environment))


def test_wider_intervals_hold_more(trained, mixes):
    """Observed coverage never falls as the nominal one rises, and stays a share."""
    coverage = reliability(predictor_of(trained, MACHINE, "slomo-xgb"), mixes, levels=(0.2, 0.5, 0.9))
    assert coverage[0.2] <= coverage[0.5] <= coverage[0.9] <= 1.0


def test_evaluations_carry_sources_and_reliability(trained, mixes):
    """An evaluation with sources has sources of the models that read the competition, and reliability of all."""
    evaluation = evaluate(trained, mixes, with_sources=True)
    assert set(evaluation.sources) == {"slomo-xgb", "slomo-gbr"}
    assert set(evaluation.reliability) == set(evaluation.models)
    assert evaluation.to_dict()["sources"]["slomo-gbr"]["total"] == pytest.approx(
        evaluation.sources["slomo-gbr"]["total"]
    )


def test_the_mean_baseline_answers_with_the_mean(trained, profile):
    """The mean of an NF's rows is what the baseline predicts."""
    learned = profile.converged().frame
    rows = learned[learned["nf"] == "lpm"]
    answer = trained.find("lpm").model("mean").predict_mpps(np.zeros((1, 0)))
    assert answer[0] == pytest.approx(rows["throughput_mpps"].mean())


def test_learning_curves_judge_all_models_on_equal_runs(profile, mixes):
    """Each budget trains every model on the same runs; the null model, which learns nothing, stays where it is."""
    curves = learning_curve(profile, mixes, budgets=(15, 30), models=("slomo-xgb", "none"))
    assert set(curves) == {"slomo-xgb", "none"}
    assert curves["none"][15] == curves["none"][30]
    assert curves["slomo-xgb"][30] < curves["none"][30]


@pytest.mark.parametrize("runs", [(), (3,), (9_999,)])
def test_impossible_budgets_are_refused(profile, mixes, runs):
    """No runs, too few, or more than were measured are refused with the range."""
    with pytest.raises(InvalidValueError, match="between 12 and the 30"):
        learning_curve(profile, mixes, budgets=runs)


def test_runs_at_part_load_count_as_runs_of_their_function(profile, mixes):
    """A profile of design `sources` has a function's part-load runs under keys of their own."""
    frame = profile.frame.copy()
    some = frame.index[(frame["plan"] == "pressure") & (frame["nf"] == "lpm")][:8]
    frame.loc[some, "target"] = [f"lpm@64B,100000f,{place + 1}Mpps" for place in range(len(some))]
    with pytest.raises(InvalidValueError, match="between 12 and the 30"):
        learning_curve(type(profile)(frame, profile.environment), mixes, budgets=(31,))
