"""The family that answers where none is named is chosen per network function, and remembered."""

from dataclasses import replace

from slomo.prediction.predictor import Predictor
from slomo.training.calibration import mix_rows
from slomo.training.choice import BASELINES, MATERIAL, candidates, chosen_of, with_choice


def test_the_choice_is_never_materially_worse_than_the_best(toy_library) -> None:
    """For every network function the recorded error of the chosen family is near the least, and no baseline's."""
    for model in toy_library.values():
        told = model.manifest["default"]
        errors = told["error_percent_of_solo"]
        assert model.chosen == told["family"] == model.named("default")
        assert model.chosen not in BASELINES
        assert errors[model.chosen] <= max(min(errors.values()) * (1.0 + MATERIAL), min(errors.values()) + 0.03)


def test_the_default_answers_as_the_chosen_family(toy_library) -> None:
    """Composing without a name gives the bits of the family that was chosen and stored, and says its name."""
    (machine, key), model = next(iter(toy_library.items()))
    others = [workload.key for workload in Predictor(toy_library, machine).workloads[:2]]
    default = Predictor(toy_library, machine, method="composed").predict(key, others)
    chosen = Predictor(toy_library, machine, model.chosen, method="composed").predict(key, others)
    assert (default.throughput_mpps, default.interval) == (chosen.throughput_mpps, chosen.interval)
    assert default.model == model.chosen


def test_libraries_that_chose_nothing_answer_as_before(toy_library) -> None:
    """Without a recorded choice the former default answers, and the first family where that is missing."""
    model = replace(next(iter(toy_library.values())), chosen="")
    assert model.named("default") == "slomo-xgb"
    assert replace(model, sensitivity={"mean": model.sensitivity["mean"]}).named("default") == "mean"


def test_a_monotone_family_goes_first_unless_it_is_materially_worse(toy_library) -> None:
    """Equal errors choose the smooth monotone network; a baseline is a candidate only alone."""
    assert chosen_of({"slomo-smooth": 1.0, "slomo-xgb": 1.0, "slomo-gp": 0.95}) == "slomo-smooth"
    assert chosen_of({"slomo-smooth": 1.0, "slomo-xgb": 0.8, "slomo-gp": 0.5}) == "slomo-gp"
    model = next(iter(toy_library.values()))
    assert candidates(model) == ["slomo-smooth", "slomo-xgb", "slomo-gp", "slomo-gbr", "slomo-additive"]
    assert candidates(replace(model, sensitivity={"mean": model.sensitivity["mean"]})) == ["mean"]


def test_noisy_rows_choose_who_surely_gains_on_the_mean(toy_library, toy_profile) -> None:
    """Where replicates say that rows are noisy, the mean answers unless any family, baselines too, surely gains."""
    models = list(toy_library.values())
    rows = mix_rows(toy_profile, models, models[0].machine)
    cases = (("slomo-gp", 0.5, "mean"), ("slomo-gp", 2.0, "slomo-gp"), ("dobrescu", 2.0, "dobrescu"))
    for family, gain, answers in cases:
        told = {
            "noise": {"row": 0.05, "next_measurement": 0.07},
            "against_mean": {family: {"gain": gain, "standard_error": 1.0}},
        }
        noisy = replace(models[0], manifest={**models[0].manifest, **told})
        first, *others = with_choice([noisy, *models[1:]], rows)
        assert first.chosen == first.manifest["default"]["family"] == answers
        assert [model.chosen for model in others] == [model.chosen for model in models[1:]]
