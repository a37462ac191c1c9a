"""Facts about mixes at reduced load: how they are drawn, what they calibrate, and what they must not touch."""

import numpy as np
import pytest

from slomo.errors import InvalidValueError, MissingMetricError
from slomo.evaluation.evaluate import evaluate, judged_mixes
from slomo.models.library import ModelLibrary
from slomo.models.responses.server_response import ServerResponse
from slomo.prediction.question import solve_server
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.basic import solo_plan, stream_of
from slomo.profiling.plans.reduced_mixes import LOADS, part_load_plan, part_load_runs, reduced_mixes_plan
from slomo.records.dataset import ProfileDataset
from slomo.records.rows import workload_from_columns
from slomo.testbed.simulated import SimulatedTestbed
from slomo.training.training import train
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.workload import Traffic, Workload
from slomo.workflow.profile import profile
from tests.conftest import few_steps

pytestmark = pytest.mark.xdist_group("reduced-mixes")  # its profile is made once
MACHINE = "silver-4110"
NETWORK_FUNCTIONS = ("lpm", "stats", "snort")
QUICK = {"accesses": 60_000, "scale": 64}


@pytest.fixture(scope="module")
def measured() -> ProfileDataset:
    """Return a small profile with calibration mixes at full and at reduced load."""
    with few_steps():  # of the models by which mixes are drawn
        return profile(
            NETWORK_FUNCTIONS,
            machine=MACHINE,
            design="sobol",
            runs=24,
            mixes=12,
            seed=1,
            testbed=SimulatedTestbed(MACHINE, **QUICK),
            reduced_mixes=16,
        )


@pytest.fixture(scope="module")
def full(measured: ProfileDataset) -> ProfileDataset:
    """Return the same profile without its mixes at reduced load."""
    loaded = measured.frame["competitors"].str.contains('"offered_mpps":[0-9]') | measured.frame["offered_mpps"].notna()
    return ProfileDataset(measured.frame[~loaded].reset_index(drop=True), measured.environment)


@pytest.fixture(scope="module")
def libraries(measured: ProfileDataset, full: ProfileDataset) -> tuple[ModelLibrary, ModelLibrary]:
    """Return models trained with and without mixes at reduced load."""
    with few_steps():
        with_them, without = (train(dataset, models=["none", "slomo-gbr"], seed=0) for dataset in (measured, full))
    return with_them, without


def test_some_tenants_of_every_mix_are_offered_a_share_of_their_solo_throughput(full: ProfileDataset) -> None:
    """In every mix one tenant or more, over all mixes about half, are offered 15 to 95 % of solo."""
    plan = reduced_mixes_plan(full, 40, seed=3)

    shares = [
        [
            tenant.traffic.offered_mpps / full.solo_mpps(tenant.nf)
            for tenant in mix.tenants
            if tenant.traffic.offered_mpps
        ]
        for mix in plan.colocations
    ]
    tenants = sum(len(mix.tenants) for mix in plan.colocations)
    assert len(plan) == 40
    assert all(shares)
    assert all(LOADS[0] - 1e-3 <= share <= LOADS[1] + 1e-3 for listed in shares for share in listed)
    assert 0.4 < sum(map(len, shares)) / tenants < 0.75


def test_a_mix_is_in_the_same_stream_at_any_load() -> None:
    """The half of all mixes a mix belongs to does not depend on what its tenants are offered."""
    one, other = Workload("lpm"), Workload("stats")
    loaded = Workload("stats", traffic=Traffic(offered_mpps=0.5))

    assert stream_of(Colocation("m", one, (other,))) == stream_of(Colocation("m", one, (loaded,)))


@pytest.mark.parametrize("stream", ["calibration", "test"])
def test_mixes_come_from_the_stream_asked_for(full: ProfileDataset, stream) -> None:
    """Mixes at reduced load that calibrate and those that test never share their tenants."""
    plan = reduced_mixes_plan(full, 12, stream=stream, seed=3)

    assert {stream_of(mix) for mix in plan.colocations} == {stream}


def test_the_plan_needs_solo_runs_of_one_machine(full: ProfileDataset) -> None:
    """Without solo runs, on two machines, or for no mixes at all, the plan says what is missing."""
    with pytest.raises(MissingMetricError, match="no solo run"):
        reduced_mixes_plan(full.select(plan="mix"), 10)
    elsewhere = run_campaign(solo_plan(["lpm"], "e5-2620v4"), SimulatedTestbed("e5-2620v4", **QUICK))
    two = ProfileDataset(full.select(plan="solo").merge(elsewhere).frame)
    with pytest.raises(InvalidValueError, match="one machine"):
        reduced_mixes_plan(two, 10)
    with pytest.raises(InvalidValueError, match="needed 1 or more"):
        reduced_mixes_plan(full, 0)


@pytest.mark.parametrize(("count", "plan"), [(-1, "all"), (5, "mixes"), (5, "accelerator")])
def test_profile_refuses_impossible_mixes_at_reduced_load(count, plan) -> None:
    """A negative number, or a plan without solo runs at full load, is refused before anything is measured."""
    with pytest.raises(InvalidValueError, match=r"reduced.(mixes|load)"):
        profile(["lpm", "stats"], plan=plan, reduced_mixes=count)


def test_reduced_mixes_leave_everything_at_full_load_as_it_was(
    measured: ProfileDataset, full: ProfileDataset, libraries: tuple[ModelLibrary, ModelLibrary]
) -> None:
    """Sensitivity and the intervals of composed predictions are the same numbers with and without such mixes."""
    with_them, without = libraries

    assert len(measured) > len(full) + 16
    assert list(with_them) == list(without)
    for key, model in without.items():
        for name, sensitivity in model.sensitivity.items():
            assert with_them[key].sensitivity[name].to_dict() == sensitivity.to_dict()
            np.testing.assert_array_equal(with_them[key].calibration[name].scores, model.calibration[name].scores)


def test_trained_models_know_how_far_arrivals_stray(
    full: ProfileDataset, libraries: tuple[ModelLibrary, ModelLibrary]
) -> None:
    """With such mixes, intervals at reduced load hold on unseen mixes, and are as wide as these mixes strayed."""
    with_them, without = libraries
    plan = reduced_mixes_plan(full, 16, stream="test", seed=5)
    runs = run_campaign(plan, SimulatedTestbed(MACHINE, **QUICK)).frame

    inside, widths = [], []
    for _, frame in runs.groupby("run_key"):
        samples = frame.sort_values("tenant").to_dict("records")
        server = solve_server(with_them, [workload_from_columns(sample) for sample in samples], MACHINE)
        for tenant, sample in zip(server.tenants, samples, strict=True):
            if tenant.workload.traffic.offered_mpps is not None:
                inside.append(tenant.interval[0] <= sample["throughput_mpps"] <= tenant.interval[1])
    light = [Workload("lpm", traffic=Traffic(offered_mpps=0.3)), "stats"]
    for library in (with_them, without):
        low, high = solve_server(library, light, MACHINE).tenants[0].interval
        widths.append(high - low)
    assert len(inside) >= 24
    assert np.mean(inside) >= 0.75
    assert widths[0] != widths[1]
    assert min(widths) > 0.0


def test_evaluation_leaves_out_mixes_at_reduced_load(
    measured: ProfileDataset, full: ProfileDataset, libraries: tuple[ModelLibrary, ModelLibrary]
) -> None:
    """What an NF at reduced load serves says nothing about sensitivity: such mixes are not judged."""
    library = libraries[1]

    assert evaluate(library, measured).models["none"] == evaluate(library, full).models["none"]
    rest = measured.frame[~measured.frame["run_key"].isin(full.frame["run_key"])]
    with pytest.raises(InvalidValueError, match="at full load"):
        judged_mixes(library, ProfileDataset(rest.reset_index(drop=True), measured.environment))


def test_targets_at_reduced_load_are_no_profiled_targets(measured: ProfileDataset) -> None:
    """A dataset tells profiled targets from those of mixes at reduced load; training by name still works."""
    assert sorted(map(str, measured.profiled_targets)) == sorted(Workload(nf).key for nf in NETWORK_FUNCTIONS)
    assert len(measured.targets) > len(measured.profiled_targets)
    assert len(train(measured, models=["none"], targets=["lpm"])) == 1


def test_a_quarter_of_a_profile_is_at_part_load_and_is_learned() -> None:
    """What leaks to memory from a short queue is predicted closer by the runs there than from those at full load."""
    testbed, machine = SimulatedTestbed("e5-2620v4", **QUICK), "e5-2620v4"
    target = Workload("stats", {}, Traffic(1500))
    measured = profile(target, machine=machine, plan="pressure", runs=48, seed=3, testbed=testbed)
    idle = measured.frame["offered_mpps"].notna()
    assert idle.sum() == part_load_runs("sources", 48) == 12
    assert (~idle).sum() == 1 + 36
    response = train(measured, models=["none"], seed=1)[machine, target.key].response
    assert response is not None
    assert response.part_load is not None
    again = ServerResponse.from_dict(response.to_dict()).part_load
    assert again is not None
    np.testing.assert_array_equal(again.weights, response.part_load.weights)

    fresh = run_campaign(part_load_plan(measured, 8, seed=9), testbed).frame
    fresh = fresh[fresh["throughput_mpps"] > 0.985 * fresh["offered_mpps"]]
    names = response.pressure_names
    rates = np.array([name in ("L2MISS", "LMB") for name in names])
    stretch = (response.fastest_mpps / fresh["throughput_mpps"].to_numpy())[:, None]
    pressure = fresh[[f"beside.{name}" for name in names]].to_numpy() * np.where(rates, stretch, 1.0)
    column = response.part_load.metric_names.index("LMB")
    truth = (fresh["own.LMB"] / fresh["throughput_mpps"]).to_numpy()
    errors = [np.abs(each.under(pressure)[:, column] - truth).mean() for each in (response.part_load, response.profile)]
    assert errors[0] < errors[1]


def test_part_load_needs_solo_runs(measured: ProfileDataset) -> None:
    """Without them nobody knows what 100 % is."""
    mixes = ProfileDataset(measured.frame[measured.frame["plan"] == "mix"], measured.environment)
    with pytest.raises(MissingMetricError, match="no solo run at full load"):
        part_load_plan(mixes, 4)
