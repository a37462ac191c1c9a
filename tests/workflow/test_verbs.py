"""The verbs as a library user calls them: names, paths or values in; the same answers out."""

from dataclasses import replace
from pathlib import Path

import pytest

import slomo
from slomo.errors import InvalidValueError, UnknownNameError
from slomo.models.library import ModelLibrary
from slomo.records.dataset import ProfileDataset
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.network_function import load_network_function
from slomo.workflow.campaign import PlanSettings
from slomo.workflow.drift import check_drift
from slomo.workflow.names import own_functions
from slomo.workflow.place import check_model, compare, make_judge, place
from slomo.workflow.profile import plan_experiments, profile
from tests.faulty_testbeds import FailingTestbed

MACHINE = "e5-2620v4"
REQUESTS = [slomo.Request("edge", "lpm"), slomo.Request("watch", ["nat", "ids"])]


@pytest.fixture(scope="module")
def models(toy_library: ModelLibrary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of models."""
    return toy_library.save(tmp_path_factory.mktemp("trained") / "models")


def test_a_plan_there_is_none_of_is_refused() -> None:
    """A plan is told by its nearest name."""
    with pytest.raises(UnknownNameError, match="unknown plan 'sollo'"):
        PlanSettings("sollo")


def test_profile_runs_what_was_planned() -> None:
    """The dataset holds the co-locations that `plan_experiments` lists for the same words."""
    testbed = SimulatedTestbed(MACHINE, accesses=20_000)
    planned = plan_experiments(["l2fwd", "lpm"], plan="mixes", mixes=2, seed=4)
    dataset = profile(["l2fwd", "lpm"], plan="mixes", mixes=2, seed=4, testbed=testbed, jobs=1)

    assert set(dataset.frame["run_key"]) == {colocation.key for colocation in planned.colocations}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"plan": "mixes", "latency": True}, "use plan solo, pressure or all"),
        ({"plan": "mixes", "reduced_mixes": 3}, "does not measure what 100 % is"),
        ({"reduced_mixes": -1}, "needed 0 or more"),
    ],
)
def test_profile_refuses_before_it_measures(options: dict, told: str) -> None:
    """What cannot follow a plan is said at once: the testbed is never asked."""
    with pytest.raises(InvalidValueError, match=told):
        profile("lpm", testbed=FailingTestbed(SimulatedTestbed(MACHINE), every=1), **options)


def test_one_own_function_needs_no_list() -> None:
    """`own` takes one network function or several; anything else is told."""
    own = replace(load_network_function("l2fwd"), name="mirror")
    testbed = SimulatedTestbed(MACHINE, [own], accesses=20_000)
    assert len(profile("mirror", plan="solo", own=own, testbed=testbed, jobs=1)) > 0
    assert own_functions(own) == own_functions([own]) == (own,)
    with pytest.raises(InvalidValueError, match=r"'mirror\.yaml' is no NetworkFunction"):
        make_judge(own="mirror.yaml")  # type: ignore[arg-type]


def test_a_library_is_opened_wherever_a_path_is_given(models: Path, toy_library: ModelLibrary) -> None:
    """`predict` answers the same for the models and for the folder they were saved in."""
    given = slomo.predict("lpm", ["nat:2"], models, machine=MACHINE)

    assert given.to_dict() == slomo.predict("lpm", ["nat", "nat"], toy_library, machine=MACHINE).to_dict()


def test_placing_takes_values_and_files(models: Path, toy_library: ModelLibrary, tmp_path: Path) -> None:
    """A cluster, requests and models from files are placed as the same values are."""
    (tmp_path / "cluster.yaml").write_text(f"servers:\n- {{name: rack, machine: {MACHINE}, count: 2}}\n")
    (tmp_path / "requests.yaml").write_text("requests:\n- {id: edge, nf: lpm}\n- {id: watch, chain: [nat, ids]}\n")
    read = place(tmp_path / "cluster.yaml", tmp_path / "requests.yaml", models, confidence=0.9)
    told = place(slomo.Cluster.uniform(MACHINE, 2), REQUESTS, toy_library, confidence=0.9)

    assert [item.id for item in read.requests] == ["edge", "watch"]
    assert read.servers_used == told.servers_used
    assert [len(read.decision(item.id).assignments) for item in REQUESTS] == [1, 2]


def test_policies_are_compared_by_one_judge(toy_library: ModelLibrary) -> None:
    """Each policy is placed and judged once, by the judge that was handed in."""
    judge = make_judge(SimulatedTestbed(MACHINE, accesses=20_000))
    judged = compare(
        slomo.Cluster.uniform(MACHINE, 2), [slomo.Request("edge", "lpm")], toy_library, ["e2"], judge=judge
    )

    assert [(item.policy, item.placed) for item in judged] == [("e2", 1)]
    with pytest.raises(UnknownNameError, match="unknown model in the library"):
        check_model(toy_library, "predicted", "slomo-xbg")


def test_drift_is_checked_against_readings(toy_library: ModelLibrary, toy_mixes: ProfileDataset) -> None:
    """Readings of the world that was learned raise no alarm."""
    assert not check_drift(toy_library, toy_mixes, machine=MACHINE).report.again
