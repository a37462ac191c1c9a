"""Facts about calibration mixes drawn by what they contend for: the parts, the fallback, a kill and a resumption."""

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slomo.errors import MissingMetricError
from slomo.models.library import ModelLibrary
from slomo.profiling.plans import mixes_by_source
from slomo.profiling.plans.basic import drawn_mixes, stream_of
from slomo.profiling.plans.mixes_by_source import mixes_by_source_plan
from slomo.records.catalog import find_dataset
from slomo.records.dataset import ProfileDataset
from slomo.records.run import RunRecord
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import load_machine
from slomo.workflow import profile as workflow
from slomo.workflow.profile import plan_experiments, profile
from tests.conftest import few_steps

MACHINE = "silver-4110"
NAMES = ("ip-router", "snort")


@pytest.fixture(scope="module")
def shipped() -> ProfileDataset:
    """Return the profile of two network functions, 64 B packets, without mixes."""
    frame = find_dataset(f"slomo-{MACHINE}").frame
    chosen = frame["nf"].isin(NAMES) & (frame["plan"] != "mix") & frame["offered_mpps"].isna()
    return ProfileDataset(frame[chosen].reset_index(drop=True), find_dataset(f"slomo-{MACHINE}").environment)


@pytest.fixture(scope="module", autouse=True)
def trained_once(shipped: ProfileDataset) -> Iterator[None]:
    """Let all plans sort mixes by one training of that profile, which depends on neither machine nor mixes."""
    train, made = mixes_by_source.train, dict[int, ModelLibrary]()

    def once(dataset: ProfileDataset, *, models: list[str], seed: int) -> ModelLibrary:
        if dataset is not shipped:
            return train(dataset, models=models, seed=seed)
        if seed not in made:
            made[seed] = train(dataset, models=models, seed=seed)
        return made[seed]

    with few_steps(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixes_by_source, "train", once)
        yield


def test_functions_that_fill_nothing_but_the_cache_are_mixed_as_at_random(shipped: ProfileDataset) -> None:
    """Small packets contend for the cache alone; mixes are drawn as at random, one by one."""
    plan = mixes_by_source_plan(shipped, 12, load_machine(MACHINE), seed=3)

    functions = [shipped.workload(key) for key in dict.fromkeys(shipped.frame["target"])]
    at_random = drawn_mixes(functions, MACHINE, 12, stream="calibration", packed=True, seed=3)
    assert plan.colocations == tuple(at_random)
    assert plan.name == "mixes by source: 12 contend for cache, 0 contend for I/O, 0 contend for memory"


def test_the_same_tenants_are_drawn_once_and_few_kinds_repeat() -> None:
    """Whoever is the target, a server of the same tenants tells the same; placement repeats kinds."""
    drawn = drawn_mixes(["lpm", "stats", "snort", "nat"], MACHINE, 60, stream="calibration", packed=True, seed=3)

    tenants = [sorted(tenant.nf for tenant in mix.tenants) for mix in drawn]
    assert len({tuple(each) for each in tenants}) == 60
    assert any(len(each) > 3 and sorted(Counter(each).values())[-2:] >= [2, 2] for each in tenants)


@pytest.mark.parametrize(
    ("less", "told"),
    [
        ({"memory_peak_gb_s": 7.7}, "8 contend for cache, 0 contend for I/O, 4 contend for memory"),
        ({"nic_ports": 1, "nic_gbps": 8.0}, "3 contend for cache, 9 contend for I/O, 0 contend for memory"),
    ],
)
def test_each_source_has_an_equal_part_as_far_as_there_are_mixes(
    shipped: ProfileDataset, less: dict[str, float], told: str
) -> None:
    """Four different mixes fill a small channel, the cache takes the rest; `snort` alone, in three, fills no port."""
    machine = replace(load_machine(MACHINE), **less)
    plan = mixes_by_source_plan(shipped, 12, machine, seed=3)

    assert plan.name == f"mixes by source: {told}"
    assert len(plan) == 12
    assert {stream_of(mix) for mix in plan.colocations} == {"calibration"}
    assert plan == mixes_by_source_plan(shipped, 12, machine, seed=3)


def test_a_profile_without_counters_does_not_tell_what_mixes_contend_for(shipped: ProfileDataset) -> None:
    """As on a host without counters."""
    frame = shipped.frame.copy()
    counters = [name for name in frame.columns if name.startswith(("beside.", "own.", "competition."))]
    frame[counters] = np.nan
    with pytest.raises(MissingMetricError, match="does not tell which mixes contend"):
        mixes_by_source_plan(ProfileDataset(frame, shipped.environment), 30, load_machine(MACHINE))


def test_mixes_are_drawn_at_random_where_the_profile_tells_too_little() -> None:
    """Four runs teach no response: the draw is that of `plan_experiments`, and the dataset says so."""
    wanted = {"machine": MACHINE, "design": "sobol", "runs": 4, "mixes": 3, "seed": 2}
    made = profile(["lpm", "stats"], testbed=SimulatedTestbed(MACHINE, accesses=60_000, scale=64), **wanted)

    assert made.environment["mixes"].startswith("mixes at random: ")
    planned = {run.key for run in plan_experiments(["lpm", "stats"], **wanted).colocations}
    assert set(made.frame["run_key"]) == planned


class Stopping(SimulatedTestbed):
    """A testbed on which somebody presses Ctrl-C in the third run."""

    runs = 0

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        self.runs += 1
        if self.runs == 3:
            raise KeyboardInterrupt
        return super().run(colocation, seed=seed)


def test_a_killed_profile_goes_on_with_the_mixes_it_drew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dataset is that of a profile that was never interrupted, and nothing is drawn again."""
    wanted = {"machine": MACHINE, "design": "sobol", "runs": 24, "mixes": 4, "seed": 2, "jobs": 1}
    quick, store = {"accesses": 30_000, "scale": 64}, tmp_path / "killed.sqlite"
    whole = profile(["lpm", "stats"], testbed=SimulatedTestbed(MACHINE, **quick), store=tmp_path / "whole", **wanted)
    shutil.copy(tmp_path / "whole", store)  # killed among its mixes
    with pytest.raises(KeyboardInterrupt):
        profile(["lpm", "stats"], testbed=Stopping(MACHINE, **quick), store=store, **wanted)
    monkeypatch.setattr(workflow, "_drawn_mixes", lambda *_: pytest.fail("drawn again"))

    again = profile(["lpm", "stats"], testbed=SimulatedTestbed(MACHINE, **quick), store=store, **wanted)

    assert again == whole
    assert whole.environment["mixes"].startswith("mixes by source: ")
