"""Every table shows the better form of each baseline, and says which one it is."""

import pytest

from slomo.evaluation.baselines import (
    BETTER,
    FORMS,
    beside_baselines,
    curves_in_better_form,
    in_better_form,
)
from slomo.report.tables import accuracy_per_nf_table, accuracy_table, learning_table


@pytest.mark.parametrize("curve", [1.0, 9.0])
def test_accuracy_tables_hold_one_row_per_baseline(curve: float) -> None:
    """Whichever form is closer is the row, labelled; the other is gone from tables and stays in the JSON."""
    models = {"equilibrium": {"mape": 0.5}, "dobrescu": {"mape": 5.0}, "dobrescu-curve": {"mape": curve}}
    better = "dobrescu-curve" if curve < 5.0 else "dobrescu"
    assert [row[0] for row in accuracy_table(models).rows] == ["equilibrium", better + BETTER]
    assert [row[1] for row in accuracy_per_nf_table({"lpm": models}).rows] == ["equilibrium", better + BETTER]


def test_one_form_alone_is_called_what_it_is() -> None:
    """Where only a line was trained nothing is claimed to be better."""
    assert in_better_form({"dobrescu": 1, "none": 2}, {"dobrescu": 5.0, "none": 9.0}) == {"dobrescu": 1, "none": 2}
    assert beside_baselines({"dobrescu": 5.0, "equilibrium": 1.0}) == {}


def test_a_learning_curve_takes_the_better_form_at_every_budget() -> None:
    """A baseline has one row: its smaller error at each number of runs."""
    curves = {form: {20: error, 60: 8.0 - error} for form, error in zip(FORMS["Bubble-Up"], (5.0, 6.0), strict=True)}
    assert curves_in_better_form(curves) == {"bubbleup, better form": {20: 5.0, 60: 2.0}}
    assert learning_table(curves).rows == (("bubbleup, better form", 5.0, 2.0),)


def test_ratios_are_those_to_the_default() -> None:
    """The equilibrium is the default where it was judged, else what was chosen for composing."""
    errors = {"composed": 1.0, "equilibrium": 0.5, "dobrescu": 5.0, "dobrescu-curve": 2.0}
    assert beside_baselines(errors)["Dobrescu"]["times"] == pytest.approx(4.0)
    del errors["equilibrium"]
    assert beside_baselines(errors)["Dobrescu"] == {
        "form": "dobrescu-curve", "mape": 2.0, "default": "composed", "times": pytest.approx(2.0),
    }  # fmt: skip
