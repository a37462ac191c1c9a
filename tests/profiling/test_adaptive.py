"""Adaptive designs: what they ask, when they stop, and that a killed campaign asks the same again."""

import dataclasses
import signal
from pathlib import Path

import numpy as np
import pytest

from slomo.errors import InvalidValueError, UsageError
from slomo.profiling.adaptive.campaign import AdaptivePlan, adaptive_plan, run_adaptive
from slomo.profiling.adaptive.design import AdaptiveDesign
from slomo.profiling.adaptive.noise import estimate_noise
from slomo.profiling.adaptive.outcome import AdaptiveSettings, Reason
from slomo.profiling.campaign.run import IncompleteCampaignError
from slomo.profiling.plans.designs import grid
from slomo.profiling.plans.plan import PlannedRun
from slomo.records.run import RunRecord, TenantSample
from slomo.testing.builders import TOY_MACHINE, ToyTestbed, toy_plan
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload import Workload

LPM = Workload("lpm")


class NoisyToy(ToyTestbed):
    """The toy with normal noise on the target's throughput, seeded per run."""

    def __init__(self, relative: float) -> None:
        super().__init__()
        self.relative = relative

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        record = super().run(colocation, seed=seed)
        assert record.beside is not None
        factor = 1.0 + self.relative * float(np.random.default_rng(seed).standard_normal())
        first, *others = record.beside.tenants
        noisy = TenantSample(first.throughput_mpps * max(factor, 0.01), first.vector)
        return dataclasses.replace(record, beside=dataclasses.replace(record.beside, tenants=(noisy, *others)))


class Interrupted(ToyTestbed):
    """The toy that fails for good after some runs."""

    def __init__(self, runs: int) -> None:
        super().__init__()
        self.left = runs

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("the plug was pulled")
        return super().run(colocation, seed=seed)


def finished(testbed: ToyTestbed, settings: AdaptiveSettings) -> AdaptiveDesign:
    """Run a design to its end."""
    design = AdaptiveDesign(LPM, TOY_MACHINE, settings)
    while runs := design.ask():
        for run in runs:
            design.tell(run, testbed.run(run.colocation, seed=run.seed))
    return design


def test_opening_fills_the_space_and_repeats_two_settings() -> None:
    """The first batch runs alone twice, and settings that fill the space, of which one is run twice."""
    runs = AdaptiveDesign(LPM, TOY_MACHINE).ask()
    alone = [run for run in runs if not run.colocation.competitors]
    assert [run.replicate for run in alone] == [0, 1]
    assert sum(run.replicate for run in runs) == 2
    assert len({run.colocation.key for run in runs}) == 17


def test_new_settings_are_taken_in_order() -> None:
    """Where no noise asks for repeats, settings do not depend on what was measured: any budget takes the first ones."""
    design = finished(ToyTestbed(), AdaptiveSettings(1e-6, budget=32))
    assert [place.competitors for place in design.colocations[1:]] == [each.competitors for each in design.pool[:29]]


def test_the_target_error_ends_the_design_before_the_budget() -> None:
    """A smooth toy is known well enough long before the budget is spent."""
    outcome = finished(ToyTestbed(), AdaptiveSettings(0.05, budget=60)).outcome()
    assert outcome.reason is Reason.TARGET
    assert outcome.runs < 60
    assert outcome.assessment is not None
    assert outcome.assessment.error <= 0.05
    assert "of the grid's 589 runs saved" in str(outcome)


@pytest.mark.parametrize("budget", [1, 7, 25])
def test_the_budget_is_never_exceeded(budget: int) -> None:
    """A target out of reach costs exactly the budget, however small that is."""
    outcome = finished(ToyTestbed(), AdaptiveSettings(1e-6, budget=budget)).outcome()
    assert outcome.runs == budget
    assert outcome.reason is Reason.BUDGET


def test_a_target_below_the_noise_floor_stops_at_the_floor_and_says_so() -> None:
    """With noise of 20 % a target of 0.1 % is out of reach, and the report names both."""
    outcome = finished(NoisyToy(0.2), AdaptiveSettings(0.001, budget=200)).outcome()
    assert outcome.below_floor
    assert outcome.reason is Reason.FLOOR
    assert outcome.runs < 200
    assert "below the noise floor" in str(outcome)


def test_noise_is_answered_by_repeats() -> None:
    """A noisy network function is asked to repeat more settings than a quiet one."""
    settings = AdaptiveSettings(1e-4, budget=32)
    repeats = [32 - finished(testbed, settings).outcome().settings for testbed in (ToyTestbed(), NoisyToy(0.2))]
    assert repeats[0] == 2
    assert repeats[1] > 3


@pytest.mark.parametrize(
    ("field", "value"), [("budget", 0), ("budget", -3), ("target_error", 0.0), ("target_error", 1.0)]
)
def test_impossible_settings_are_refused(field: str, value: float) -> None:
    """A budget of zero and a target error outside 0 to 1 are refused before anything runs."""
    with pytest.raises(InvalidValueError, match="needed"):
        AdaptiveSettings(**{field: value})  # type: ignore[arg-type]


def test_what_was_not_asked_is_not_accepted() -> None:
    """A record of another run than those asked for is refused."""
    design = AdaptiveDesign(LPM, TOY_MACHINE)
    stranger = toy_plan().colocations[1]
    with pytest.raises(InvalidValueError, match="did not ask"):
        design.tell(PlannedRun(stranger, 0, 0), ToyTestbed().run(stranger))


def test_open_questions_are_asked_again() -> None:
    """Asking twice without telling returns the same runs; told ones are not asked again."""
    design = AdaptiveDesign(LPM, TOY_MACHINE)
    runs = design.ask()
    design.tell(runs[0], ToyTestbed().run(runs[0].colocation))
    assert design.ask() == runs[1:]


def test_a_killed_campaign_resumes_to_the_same_dataset(tmp_path: Path) -> None:
    """A campaign that dies after 25 runs ends, resumed from its store, with the dataset of one that did not die."""
    plan = AdaptivePlan((LPM,), TOY_MACHINE, AdaptiveSettings(1e-4, budget=28))
    whole = run_adaptive(plan, ToyTestbed())
    with pytest.raises(IncompleteCampaignError, match="the plug was pulled"):
        run_adaptive(plan, Interrupted(25), tmp_path / "store.sqlite", jobs=1)
    resumed = run_adaptive(plan, ToyTestbed(), tmp_path / "store.sqlite", jobs=2)
    assert resumed.dataset == whole.dataset
    assert [outcome.runs for outcome in resumed.outcomes] == [28]


def test_a_store_belongs_to_one_target_error(tmp_path: Path) -> None:
    """The store of one adaptive campaign is refused to another, with the difference."""
    from slomo.errors import IncompatibleMeasurementsError

    for error, budget in ((0.05, 5), (0.04, 5)):
        plan = AdaptivePlan((LPM,), TOY_MACHINE, AdaptiveSettings(error, budget=budget))
        if error == 0.05:
            run_adaptive(plan, ToyTestbed(), tmp_path / "store.sqlite")
        else:
            with pytest.raises(IncompatibleMeasurementsError, match=r"adaptive to 5 % .* \| adaptive to 4 %"):
                run_adaptive(plan, ToyTestbed(), tmp_path / "store.sqlite")


def test_the_machine_bounds_the_competitors() -> None:
    """On a machine of eight cores a socket a target has at most seven competitors."""
    plan = adaptive_plan([LPM], load_machine("silver-4110"), target_error=0.03)
    assert max(len(place.competitors) for place in plan.sure().colocations) <= 7
    assert plan.settings.target_error == 0.03
    assert plan.settings.budget == 60


def test_fixed_replicates_are_refused() -> None:
    """An adaptive design decides itself what to repeat."""
    with pytest.raises(UsageError, match="replicates is 3"):
        adaptive_plan([LPM], load_machine("silver-4110"), replicates=3)


def test_noise_is_pooled_over_settings() -> None:
    """The pooled noise of many pairs is the noise they were drawn with."""
    generator = np.random.default_rng(1)
    pairs = [5.0 * scale * (1.0 + 0.03 * generator.standard_normal(2)) for scale in np.linspace(0.1, 1.0, 400)]
    noise = estimate_noise(pairs)
    assert noise.degrees == 400
    assert noise.relative == pytest.approx(0.03, rel=0.1)
    assert estimate_noise([[1.0], []]).relative == 0.0


class Impatient(ToyTestbed):
    """The toy at whose tenth run somebody presses Ctrl-C."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        self.runs += 1
        if self.runs == 10:
            signal.raise_signal(signal.SIGINT)
        return super().run(colocation, seed=seed)


def test_an_interrupt_says_what_is_kept(tmp_path: Path) -> None:
    """Ctrl-C ends an adaptive campaign between two runs, and says how many are kept and where."""
    plan = AdaptivePlan((LPM,), TOY_MACHINE, AdaptiveSettings(1e-4, budget=20))
    with pytest.raises(KeyboardInterrupt, match=r"runs are kept in '.*store.sqlite'"):
        run_adaptive(plan, Impatient(), tmp_path / "store.sqlite", jobs=1)


class MixedUp(ToyTestbed):
    """The toy that takes one setting of seven competitors for nobody at all."""

    def __init__(self, place: Colocation) -> None:
        super().__init__()
        self.place = place

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        record = super().run(colocation, seed=seed)
        if colocation != self.place:
            return record
        assert record.beside is not None
        first, *others = record.beside.tenants
        fast = TenantSample(5.0, first.vector)
        return dataclasses.replace(record, beside=dataclasses.replace(record.beside, tenants=(fast, *others)))


def test_a_contradiction_is_measured_again_and_said() -> None:
    """A setting under the most pressure that runs as fast as alone is repeated, and named if it stays so."""
    opening = [run.colocation for run in AdaptiveDesign(LPM, TOY_MACHINE).opening()]
    crowded = max(opening[4:], key=lambda place: len(place.competitors))
    design = finished(MixedUp(crowded), AdaptiveSettings(1e-6, budget=26))
    repeats = [run for run in design._asked if run.colocation == crowded]
    assert len(repeats) == 2
    outcome = design.outcome()
    assert outcome.contradictions == (crowded.label,)
    assert "contradictory, under more pressure than others and yet faster" in str(outcome)
    assert finished(ToyTestbed(), AdaptiveSettings(1e-6, budget=22)).outcome().contradictions == ()


def test_settings_are_those_of_the_grid() -> None:
    """Without other settings, points of the grid are asked for, each once, with many and few competitors."""
    pool = [point.competitors for point in AdaptiveDesign(LPM, TOY_MACHINE).pool]
    assert len(pool) == len(grid())
    assert set(pool) == {point.competitors for point in grid()}
    assert {1, 7} <= {len(place) for place in pool[:16]}
