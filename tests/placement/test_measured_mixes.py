"""A mix that was measured is counted on as measured; the few mixes worth measuring are named."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from slomo.cli.main import main
from slomo.errors import InvalidValueError
from slomo.models.library import ModelLibrary
from slomo.models.nf_model import MeasuredMix
from slomo.placement.feasibility.measured import MeasuredRates
from slomo.placement.online.placer import Placer
from slomo.placement.over_time.worth_measuring import worth_measuring
from slomo.profiling.plans.basic import named_mixes_plan
from slomo.training.mixes_fit import with_measured
from slomo.vocabulary.workload import Workload
from slomo.workflow.profile import plan_experiments

LPM = Workload("lpm").key


@pytest.fixture
def measured(make_library):
    """Return a maker of libraries in which some lpm were measured together, with what each served [Mpps]."""

    def make(spread, *mixes):
        library = make_library(spread=spread)
        known = tuple(MeasuredMix((LPM,) * (count - 1), mpps, 0.005, freedom=100) for count, mpps in mixes)
        return ModelLibrary([replace(m, measured=known) if m.workload.nf == "lpm" else m for m in library.values()])

    return make


@pytest.mark.parametrize(
    ("spread", "mpps", "servers"),
    [(0.0, None, 1), (0.0, 4.4, 2), (0.01, None, 2), (0.01, 4.6, 1), (0.01, 4.505, 2)],
    ids=["predicted", "measured below", "bound below", "measured above", "within the error"],
)
def test_three_at_90_percent_go_by_their_measurement(measured, cluster, ask, spread, mpps, servers) -> None:
    """Predicted to serve 4.6 of 5 Mpps, promised 4.5: a measurement decides in place of the bound, with its error."""
    placer = Placer(measured(spread, *([] if mpps is None else [(3, mpps)])), cluster)
    placer.place_all(ask(f"r{i}") for i in range(3))

    assert placer.servers_used == servers


def test_parts_of_a_measured_mix_hold_when_it_does(measured, cluster, ask) -> None:
    """More competitors never raise throughput: who leaves breaks nobody's promise, however wide the bounds."""
    placer = Placer(measured(0.2, (3, 4.6)), cluster)
    placer.place_all(ask(f"r{i}") for i in range(3))
    snapshot = placer.servers_used
    placer.remove("r0")

    assert snapshot == 1
    assert placer.restore(placer.snapshot()).at_risk == ()


def test_a_measured_mix_breaks_as_often_as_its_error_says(measured, cluster, ask) -> None:
    """A promise twenty errors below the measurement is safe, whatever calibration mixes did."""
    placer = Placer(measured(0.01, (3, 4.6)), cluster)
    placer.place_all(ask(f"r{i}") for i in range(3))

    assert max(placer.breaking().values()) < 1e-6


def test_the_mix_that_only_bounds_refuse_is_worth_measuring(measured, cluster, ask) -> None:
    """Once measured, below the promise or above, it is named no more."""
    told = []
    for mixes in ([], [(3, 4.6)], [(3, 4.4)]):
        placer = Placer(measured(0.01, *mixes), cluster)
        placer.place_all(ask(f"r{i}") for i in range(3))
        told.append(worth_measuring(placer))

    assert [[(each.mix, each.servers) for each in one.mixes] for one in told] == [[(f"3 x {LPM}", 1)], [], []]
    assert told[0].text == "measure 1 mix: saves up to 1 of 2 servers"


def test_policies_that_predict_nothing_name_no_mixes(library, cluster) -> None:
    """First fit needs no measurements."""
    with pytest.raises(InvalidValueError, match="first-fit"):
        worth_measuring(Placer(library, cluster, "first-fit"))


def test_training_keeps_mixes_at_full_load_that_were_run_again(library) -> None:
    """Instances of one mix become one value, no surer than one more run of it; one run alone is no evidence."""
    rows = [
        ("mix", "[]", None, 4.6, 0.01, 3), ("mix", "[]", None, 4.7, 0.01, 3), ("mix", "[]", 2.0, 2.0, 0.01, 3),
        ("pressure", "[]", None, 3.0, 0.01, 3), ("mix", '[{"nf": "stats"}]', None, 4.0, 0.0, 1),
        ("mix", '[{"nf": "lpm"}]', None, 4.0, 0.0, 2),
    ]  # fmt: skip
    names = ("plan", "competitors", "offered_mpps", "throughput_mpps", "throughput_cv", "replicates")
    frame = pd.DataFrame(rows, columns=names).assign(machine="e5-2620v4", target=LPM, isolation="null")
    models = {m.workload.nf: m for m in with_measured(SimpleNamespace(frame=frame), list(library.values()))}  # type: ignore[arg-type]

    alone, beside_one = models["lpm"].measured
    assert (alone.competitors, round(alone.mpps, 6), beside_one.competitors) == ((), 4.65, (LPM,))
    assert alone.error_mpps > 0.0707  # how far its instances are apart
    assert 4.0 * 0.008 < beside_one.error_mpps < 4.0 * 0.0125  # the spread of the others, as two runs tell little
    assert models["stats"].measured == ()
    assert beside_one.freedom == 5  # runs beyond the first, of all mixes on the machine


def test_bounds_from_two_runs_break_as_often_as_asked(library) -> None:
    """On machines with two runs of one mix, a third run breaks 5 % of the bounds at 0.95; normal ones broke 17 %."""
    machines, lpm = 1000, next(model for model in library.values() if model.workload.nf == "lpm")
    runs = np.random.default_rng(5).normal(4.0, 0.04, (machines, 3))
    names = [f"m{number}" for number in range(machines)]
    frame = pd.DataFrame({
        "machine": names, "target": LPM, "competitors": '[{"nf": "lpm"}]', "plan": "mix", "isolation": "null",
        "offered_mpps": np.nan, "throughput_mpps": runs[:, :2].mean(axis=1), "replicates": 2,
        "throughput_cv": runs[:, :2].std(axis=1, ddof=1) / runs[:, :2].mean(axis=1),
    })  # fmt: skip
    models = with_measured(SimpleNamespace(frame=frame), [replace(lpm, machine=name) for name in names])  # type: ignore[arg-type]
    pair, broken = np.zeros((1, 2), dtype=np.int64), 0
    for model, third in zip(models, runs[:, 2], strict=True):
        rates = tuple(np.full((1, 2), 5.0) for _ in range(3))
        measured = MeasuredRates([model])
        measured.apply(pair, rates, 0.95, np.array([1]))
        broken += third < rates[1][0, 0]
        assert measured.breaking(pair[0], np.repeat(rates[1][0, 0], 2)) == pytest.approx(0.05)

    assert broken / machines == pytest.approx(0.05, abs=0.03)


def test_named_mixes_are_run_and_no_other(capsys) -> None:
    """As `worth_measuring` writes them; one function, too many, or a plan that draws its own is told."""
    plan = plan_experiments([], plan="mixes", mixes=[f"3 x {LPM}", "lpm + stats"])

    assert [len(each.tenants) for each in plan.colocations] == [3, 2]
    assert main(["profile", "--mix", "2 x lpm", "--dry-run"]) == 0
    assert "1 run" in capsys.readouterr().out
    for contradiction in (["lpm"], ["--mixes", "4"], ["--plan", "solo"]):
        assert main(["profile", *contradiction, "--mix", "2 x lpm", "--dry-run"]) == 2
    for wrong in (["lpm"], ["9 x lpm"]):
        with pytest.raises(InvalidValueError, match="2 to 8"):
            named_mixes_plan(wrong, "e5-2620v4")
    with pytest.raises(InvalidValueError, match="named"):
        plan_experiments(["lpm"], mixes=["2 x lpm"])
