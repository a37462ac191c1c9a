"""Tests that every model family must pass: subclass the class and say how to make the family.

Shipped with the library, as optuna ships its conformance tests for samplers (optuna/testing): authors
of a model test it against the same facts as slomo's own.

Examples
--------
A test file of a plug-in::

    from slomo.testing.model_contract import ModelContract

    class TestMyModel(ModelContract):
        def make_family(self):
            return MyFamily()
"""

import json

import numpy as np
from numpy.typing import NDArray

from slomo.models.base import ModelFamily, SensitivityModel
from slomo.models.responses.sensitivity import sensitivity_from_dict
from slomo.training.families.registry import make_family

#: Metrics of the toy competition that families are fitted on.
AVAILABLE = ("IPC", "L3MISS", "L3OCC", "L2MISS", "READ", "WRITE")
SOLO_MPPS = 5.0


class ModelContract:
    """Tests of a model family; subclasses override :meth:`make_family`."""

    #: Whether the models can be saved by `ModelLibrary.save` (those whose `to_dict` is of a kind slomo can read).
    can_be_saved = True

    def make_family(self) -> ModelFamily:
        """Return the family under test."""
        raise NotImplementedError("override make_family")

    def fitted(self, seed: int = 0) -> tuple[SensitivityModel, NDArray[np.float64], NDArray[np.float64]]:
        """Return a model trained on a made-up competition, with the rows and throughputs of its training."""
        family = make_family(self.make_family())
        names = family.select_features(AVAILABLE)
        vectors, mpps = toy_competition()
        rows = vectors[:, [AVAILABLE.index(name) for name in names]]
        return family.fit(names, rows, mpps, solo_mpps=SOLO_MPPS, seed=seed), rows, mpps

    def test_features_are_among_those_measured(self) -> None:
        """A family selects only columns that exist, each once."""
        names = self.make_family().select_features(AVAILABLE)
        assert set(names) <= set(AVAILABLE)
        assert len(set(names)) == len(names)
        assert self.make_family().composition in ("pressure", "solo", "none")

    def test_model_says_what_it_is(self) -> None:
        """A fitted model carries its family's name and composition, and the columns it reads."""
        family, (model, rows, _) = self.make_family(), self.fitted()
        assert isinstance(model, SensitivityModel)
        assert (model.name, model.composition) == (family.name, family.composition)
        assert len(model.feature_names) == rows.shape[1]

    def test_answers_are_throughputs(self) -> None:
        """A model predicts one finite, non-negative number per row."""
        model, rows, _ = self.fitted()
        answers = model.predict_mpps(rows)
        assert answers.shape == (len(rows),)
        assert np.isfinite(answers).all()
        assert (answers >= 0).all()

    def test_no_rows_no_answers(self) -> None:
        """For an empty batch a model returns an empty array."""
        model, rows, _ = self.fitted()
        assert model.predict_mpps(rows[:0]).shape == (0,)

    def test_a_row_is_answered_alike_in_any_company(self) -> None:
        """The prediction for a row depends neither on other rows nor on their order."""
        model, rows, _ = self.fitted()
        answers = model.predict_mpps(rows)
        np.testing.assert_array_equal(model.predict_mpps(rows[::-1])[::-1], answers)
        np.testing.assert_array_equal(model.predict_mpps(rows[3:4]), answers[3:4])

    def test_unknown_stays_unknown(self) -> None:
        """For a row that lacks a value a model returns NaN; other rows are not affected."""
        model, rows, _ = self.fitted()
        if rows.shape[1]:
            gap = rows[:5].copy()
            gap[2, 0] = np.nan
            assert np.isnan(model.predict_mpps(gap)).tolist() == [False, False, True, False, False]

    def test_input_is_left_alone(self) -> None:
        """Neither training nor predicting changes the arrays given."""
        family = self.make_family()
        names = family.select_features(AVAILABLE)
        vectors, mpps = toy_competition()
        rows = vectors[:, [AVAILABLE.index(name) for name in names]]
        before = rows.copy(), mpps.copy()
        family.fit(names, rows, mpps, solo_mpps=SOLO_MPPS, seed=0).predict_mpps(rows)
        np.testing.assert_array_equal(rows, before[0])
        np.testing.assert_array_equal(mpps, before[1])

    def test_same_seed_same_numbers(self) -> None:
        """Training twice with one seed gives the same predictions, to the bit."""
        (one, rows, _), (two, _, _) = self.fitted(seed=7), self.fitted(seed=7)
        np.testing.assert_array_equal(one.predict_mpps(rows), two.predict_mpps(rows))

    def test_beats_nothing_it_was_shown(self) -> None:
        """On its training rows, a model is no worse than predicting solo throughput for all."""
        model, rows, mpps = self.fitted()
        assert np.abs(model.predict_mpps(rows) - mpps).mean() <= np.abs(SOLO_MPPS - mpps).mean()

    def test_is_data(self) -> None:
        """A model can be written as JSON; read back, it predicts the same numbers."""
        model, rows, _ = self.fitted()
        text = json.dumps(model.to_dict(), allow_nan=False)
        if self.can_be_saved:
            again = sensitivity_from_dict(json.loads(text), getattr(model, "source", None))
            np.testing.assert_array_equal(again.predict_mpps(rows), model.predict_mpps(rows))


def toy_competition() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return competitions, shape ``(120, len(AVAILABLE))``, and a target's throughput beside each [Mpps]."""
    random, count = np.random.default_rng(0), 120
    car, occupancy = random.uniform(0, 200, count), random.uniform(0, 20480, count)
    miss = car * occupancy / 40960
    columns = {
        "IPC": random.uniform(0.5, 2, count),
        "L3MISS": miss,
        "L3OCC": occupancy,
        "L2MISS": car,
        "READ": miss * 0.064,
        "WRITE": miss * 0.02,
    }
    vectors = np.column_stack([columns[name] for name in AVAILABLE])
    return vectors, SOLO_MPPS / (1.0 + car / 300 + occupancy / 60000)
