"""Facts about mixes drawn as placement fills servers: what they are, how many, and who is told what is missing."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from slomo.equilibrium import settling
from slomo.errors import InvalidValueError, MissingMetricError
from slomo.profiling.plans.basic import stream_of, tenants_key
from slomo.records.dataset import ProfileDataset
from slomo.records.schema import PACKED
from slomo.testbed.simulated import SimulatedTestbed
from slomo.training.training import train
from slomo.vocabulary.machine import load_machine
from slomo.workflow import packed_mixes
from slomo.workflow.packed_mixes import packed_mixes_plan
from slomo.workflow.profile import profile
from tests.conftest import few_steps

MACHINE = load_machine("silver-4110")


@pytest.fixture(scope="module", autouse=True)
def one_family() -> Iterator[None]:
    """Let the first model have one family and few steps: each plan trains it anew, and all take five times as long."""
    with few_steps(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_mixes, "train", partial(train, models=["slomo-xgb"]))
        yield


@pytest.fixture(scope="module")
def measured(one_family: None) -> ProfileDataset:
    """Return a small profile with mixes of packed servers."""
    bed = SimulatedTestbed(MACHINE, accesses=60_000, scale=64)
    return profile(
        ["lpm", "stats", "snort"], machine=MACHINE, design="sobol", runs=30, mixes=4, seed=1, testbed=bed,
        packed_mixes=6,
    )  # fmt: skip


def test_packed_servers_are_measured_as_mixes(measured: ProfileDataset) -> None:
    """Up to six different mixes of two and more tenants of the calibration half are run beside the four drawn ones."""
    plan = packed_mixes_plan(measured, 6, MACHINE, seed=1)

    assert 1 <= len({tenants_key(mix) for mix in plan.colocations}) == len(plan) <= 6
    assert {stream_of(mix) for mix in plan.colocations} == {"calibration"}
    assert all(2 <= len(mix.tenants) <= MACHINE.cores_per_socket for mix in plan.colocations)
    frame = measured.frame
    assert frame[frame["plan"] == "mix"]["run_key"].nunique() > 4
    assert measured.environment[PACKED] == sorted({tenants_key(mix) for mix in plan.colocations})


def test_packed_mixes_depend_on_the_seed_alone(measured: ProfileDataset) -> None:
    """A campaign that was killed and goes on draws the same mixes again (as above); another seed draws others."""
    drawn = packed_mixes_plan(measured, 6, MACHINE, seed=2)

    assert {tenants_key(mix) for mix in drawn.colocations} != {*measured.environment[PACKED]}


def test_servers_that_do_not_settle_are_packed_by_composed_predictions(
    measured: ProfileDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first model has families that answer for such mixes; without them the plan ended with an unknown model."""
    monkeypatch.setattr(settling, "TRIES", ((0.8, 1),))

    assert 1 <= len(packed_mixes_plan(measured, 6, MACHINE, seed=1)) <= 6


def test_a_profile_that_packs_nothing_is_refused(measured: ProfileDataset) -> None:
    """Without counters of the competition no first model packs; plan `mixes` has no profile to train it on."""
    frame = measured.frame.copy()
    frame[[name for name in frame if str(name).startswith("beside.")]] = np.nan
    with pytest.raises(MissingMetricError, match="model of whole servers of every network function"):
        packed_mixes_plan(ProfileDataset(frame, measured.environment), 6, MACHINE)
    for plan, count in (("mixes", 5), ("solo", 5), ("all", -1)):
        with pytest.raises(InvalidValueError, match="packed"):
            profile(["lpm", "stats"], plan=plan, packed_mixes=count)
