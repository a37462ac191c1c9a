"""Proposals from elsewhere: any object with ask and tell chooses the settings, Optuna's samplers among them."""

import logging
from collections.abc import Iterator

import pytest

from slomo.profiling.adaptive.ask_tell import OptunaProposals
from slomo.profiling.adaptive.design import AdaptiveDesign
from slomo.profiling.adaptive.outcome import AdaptiveSettings, Reason
from slomo.profiling.plans.designs import Pressure, sobol
from slomo.testing.builders import TOY_MACHINE, ToyTestbed
from slomo.vocabulary.workload import Workload


class InOrder:
    """Proposes the points of a Sobol sequence one after the other, each twice."""

    def __init__(self) -> None:
        self.points: Iterator[Pressure] = (point for point in sobol(64, seed=5) for _ in range(2))
        self.told: list[tuple[Pressure, float]] = []

    def ask(self) -> Pressure:
        return next(self.points)

    def tell(self, point: Pressure, surprise: float) -> None:
        self.told.append((point, surprise))


def proposed_design(proposals: object, budget: int = 31) -> AdaptiveDesign:
    """Run a design on the toy with these proposals."""
    settings = AdaptiveSettings(1e-6, budget=budget)
    design = AdaptiveDesign(Workload("lpm"), TOY_MACHINE, settings, proposals=proposals)  # type: ignore[arg-type]
    while runs := design.ask():
        for run in runs:
            design.tell(run, ToyTestbed().run(run.colocation, seed=run.seed))
    return design


def test_proposals_are_measured_in_their_order_and_once() -> None:
    """After the opening, what is proposed is what is measured; a setting proposed again is not run again."""
    proposals = InOrder()
    design = proposed_design(proposals)
    proposed = [point.competitors for point in sobol(64, seed=5)]
    assert [place.competitors for place in design.colocations[17:]] == proposed[: len(design.colocations) - 17]
    assert design.reason() is Reason.BUDGET


def test_each_proposal_hears_its_surprise() -> None:
    """Whoever proposes hears of every setting of his how far it was from what was foretold."""
    proposals = InOrder()
    design = proposed_design(proposals)
    told = [point.competitors for point, _ in proposals.told]
    assert told == [place.competitors for place in design.colocations[17 : 17 + len(told)]]
    assert len(told) >= len(design.colocations) - 17 - 4
    assert all(surprise >= 0.0 for _, surprise in proposals.told)
    assert any(surprise > 0.0 for _, surprise in proposals.told)


def test_a_proposer_that_repeats_itself_ends_the_design() -> None:
    """Whoever proposes nothing but what was measured has no setting left."""

    class Stubborn(InOrder):
        def ask(self) -> Pressure:
            return sobol(64, seed=5)[0]

    assert proposed_design(Stubborn()).reason() is Reason.EXHAUSTED


def test_an_optuna_sampler_proposes_settings() -> None:
    """A study with a seeded sampler proposes the settings, the same ones each time, and its trials are finished."""
    optuna = pytest.importorskip("optuna", reason="Optuna is not installed: pip install slomo[optuna]")
    logging.getLogger("optuna").setLevel(logging.WARNING)

    def places() -> tuple[tuple[Workload, ...], ...]:
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=3))
        design = proposed_design(OptunaProposals(study), budget=26)
        done = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.COMPLETE]
        assert len(done) >= len(design.colocations) - 17 - 4
        return tuple(place.competitors for place in design.colocations)

    assert len(places()) > 17
    assert places() == places()
