"""Placement on equilibrium predictions: asked where models know it, and only there."""

from dataclasses import replace

import numpy as np
import pytest

from slomo.errors import UnknownNameError
from slomo.models.contentiousness import ContentiousnessProfile
from slomo.models.intervals import symmetric
from slomo.models.library import ModelLibrary
from slomo.models.responses.server_response import ServerResponse
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.online.placer import Placer
from slomo.vocabulary.workload import Workload

MACHINE = "e5-2620v4"


def responding(model, slope):
    """Return a model whose packets move under any pressure what they do alone, and that loses `slope` per M/s."""
    accesses = model.solo_vector["L2MISS"] / model.solo_mpps
    weights = np.array([[accesses], [0.0], [0.0]])
    profile = ContentiousnessProfile(
        ("L2MISS",), ("L2MISS",), model.solo_vector, {}, np.array([50.0]), np.array([500.0]), weights,
        np.array([0.0]), np.array([2.0 * accesses]),
    )  # fmt: skip
    line = replace(model.sensitivity["slomo-xgb"], slope=slope, name="equilibrium", composition="pressure")
    speed = np.array([model.solo_mpps, 0.0, 0.0])
    response = ServerResponse(
        profile, speed, 0.0, model.solo_mpps, line, symmetric(np.zeros(99), "mixes"), model.applicability
    )
    return replace(model, response=response)


@pytest.fixture
def responsive(library):
    """Models whose equilibrium says half the loss of what composing vectors says."""
    return ModelLibrary([responding(model, 0.5 * model.sensitivity["slomo-xgb"].slope) for model in library.values()])


def test_equilibrium_is_asked_where_models_know_it(library, responsive) -> None:
    """By default the fixed point predicts where all models have one, the vectors of neighbours where one has none."""
    keys = [Workload("lpm").key] * 3
    rates = {
        name: ThroughputEstimates(models, method=method).rates(MACHINE, [keys], [3])[0][keys[0]][0]
        for name, models, method in (
            ("default", responsive, "auto"),
            ("fixed point", responsive, "equilibrium"),
            ("vectors", responsive, "composed"),
            ("unknown", library, "auto"),
        )
    }

    # who loses a part moves that part less: x = 1 - 0.001 * 40 x
    assert rates["default"] == rates["fixed point"] == pytest.approx(5.0 / (1 + 0.001 * 40), rel=1e-3)
    assert rates["vectors"] == rates["unknown"] == pytest.approx(5.0 * (1 - 0.002 * 40))


def test_mixes_of_unequal_size_are_predicted_as_one_by_one(responsive) -> None:
    """Many mixes in arrays, some places empty, say what each mix says alone."""
    estimates = ThroughputEstimates(responsive)
    lpm, stats = Workload("lpm").key, Workload("stats").key
    mixes = [(lpm,), (lpm, stats), (lpm, lpm, stats), (stats, stats, lpm, lpm)]
    together = estimates.rates(MACHINE, mixes)

    assert together == [estimates.rates(MACHINE, [mix])[0] for mix in mixes]
    assert together[0][lpm] == pytest.approx((5.0, 5.0, 5.0), rel=1e-3)


def test_decisions_say_what_predicted(responsive, cluster, ask) -> None:
    """A placer on equilibrium predictions says so, packs by them, and leaves policies their own model."""
    placers = {
        name: Placer(responsive, cluster, policy, **options)
        for name, policy, options in (
            ("default", "predicted", {}),
            ("vectors", "predicted", {"method": "composed"}),
            ("other model", "predicted", {"model": "dobrescu"}),
            ("own model", "dobrescu", {"method": "equilibrium"}),
        )
    }
    said = {name: placer.admit(ask("a")).model for name, placer in placers.items()}
    for name in ("default", "vectors"):
        placers[name].place_all(ask(f"r{i}", share=0.89) for i in range(11))

    assert said == {
        "default": "equilibrium", "vectors": "slomo-xgb", "other model": "dobrescu", "own model": "dobrescu"
    }  # fmt: skip
    assert placers["default"].servers_used < placers["vectors"].servers_used


def test_equilibrium_without_models_of_it_composes_as_prediction_does(library, cluster, ask) -> None:
    """Who insists on the fixed point of models that have none gets what `slomo predict` answers; no other method is."""
    placer = Placer(library, cluster, method="equilibrium")
    decision = placer.admit(ask("a"))

    assert decision.accepted
    assert decision.to_dict() == Placer(library, cluster, method="composed").admit(ask("a")).to_dict()
    with pytest.raises(UnknownNameError, match="unknown method 'guess'"):
        Placer(library, cluster, method="guess")
