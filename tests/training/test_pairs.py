"""Co-locations by name, without counters: answered near what was measured, else by a low rank; doubts are told."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from slomo.cli.main import main
from slomo.errors import IncompatibleMeasurementsError
from slomo.models.applicability import Verdict
from slomo.models.library import ModelLibrary
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request
from slomo.prediction.predictor import Predictor
from slomo.records.dataset import ProfileDataset
from slomo.records.importing.door import import_table
from slomo.records.importing.named import import_pairs
from slomo.records.importing.probe_tables import ProbeTables
from slomo.records.storage import save_dataset
from slomo.training.remarks import remarks
from slomo.training.training import train
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload import Workload
from slomo.workflow.drift import check_drift
from slomo.workflow.place import place
from slomo.workflow.predict import predict
from slomo.workflow.train import train as slomo_train

MACHINE = "rack"
NAMES = [f"app{number}" for number in range(14)]
_DRAW = np.random.default_rng(4)
PRESSES, SUFFERS = _DRAW.gamma(2.0, 0.15, 14), _DRAW.uniform(0.3, 1.2, 14)
ALONE = _DRAW.uniform(1.0, 10.0, 14)
NOISE = _DRAW.normal(0.0, 0.005, (14, 14))


def kept(target: int, *others: int) -> float:
    """Throughput of a function beside others [Mpps]."""
    noise = NOISE[target, others[0]] if len(others) == 1 else 0.0
    return float(ALONE[target] * np.exp(-SUFFERS[target] * PRESSES[list(others)].sum() + noise))


@pytest.fixture(scope="module")
def hidden() -> list[tuple[int, int]]:
    """Half of all pairs."""
    pairs = list(itertools.combinations(range(14), 2))
    return [pairs[place] for place in np.random.default_rng(1).permutation(len(pairs))[: len(pairs) // 2]]


def table(folder, rows, count: int = 14):
    """Write a table of two names and two rates, with functions alone; return its path."""
    alone = [(name, "", mpps, "") for name, mpps in zip(NAMES[:count], ALONE, strict=False)]
    lines = [",".join(map(str, row)) for row in (("one", "other", "one_mpps", "other_mpps"), *alone, *rows)]
    (folder / "pairs.csv").write_text("\n".join(lines) + "\n")
    return folder / "pairs.csv"


def rates(pairs):
    """Return rows of a table of these pairs."""
    return [(NAMES[one], NAMES[other], kept(one, other), kept(other, one)) for one, other in pairs]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, hidden) -> ProfileDataset:
    """The other half, as a table of two names and two rates, with every function alone."""
    known = [pair for pair in itertools.combinations(range(14), 2) if pair not in hidden]
    return import_pairs(table(tmp_path_factory.mktemp("pairs"), rates(known)), MACHINE)


@pytest.fixture(scope="module")
def library(dataset) -> ModelLibrary:
    """Models of the known half."""
    return train(dataset)


def test_hidden_pairs_are_told_and_their_intervals_hold(library, hidden):
    """Both rates of every hidden pair: 1 % of solo off on average, nine in ten inside, no interval without width."""
    predictor, errors, inside = Predictor(library, MACHINE), [], []
    for pair in hidden:
        for target, other in (pair, pair[::-1]):
            prediction = predictor.predict(NAMES[target], [NAMES[other]], explain=False)
            low, high = prediction.interval
            errors.append(abs(prediction.throughput_mpps - kept(target, other)) / ALONE[target])
            inside.append(low <= kept(target, other) <= high)
            assert high > low
    assert np.mean(errors) < 0.012
    assert np.mean(inside) > 0.85


def test_a_measured_pair_is_answered_as_measured(library, hidden):
    """Whoever is in the file has what the file says, and is supported."""
    one, other = next(pair for pair in itertools.combinations(range(14), 2) if pair not in hidden)
    prediction = predict(NAMES[one], NAMES[other], library, machine=MACHINE)
    assert (prediction.model, prediction.unit) == ("pairs", "Mpps")
    assert prediction.verdict is Verdict.SUPPORTED
    assert prediction.throughput_mpps == pytest.approx(kept(one, other), rel=1e-9)


@pytest.fixture(scope="module")
def repeated(tmp_path_factory) -> ModelLibrary:
    """Models of a table with three runs of each of 60 pairs, 1 % apart; a pair is 10 % off what names alone tell."""
    draw = np.random.default_rng(11)
    rows = [
        (NAMES[one], NAMES[other], *(rate * (1.0 + draw.normal(0.0, 0.01)) for rate in odd(one, other)))
        for one, other in list(itertools.combinations(range(14), 2))[:60]
        for _ in range(3)
    ]
    return train(import_pairs(table(tmp_path_factory.mktemp("repeated"), rows), MACHINE))


def odd(one: int, other: int) -> list[float]:
    """Rates of a pair that no product of sensitivity and pressure explains [Mpps]."""
    swing = np.random.default_rng(100 * one + other).normal(0.0, 0.1, 2)
    pairs = (((one, other), swing[0]), ((other, one), swing[1]))
    return [ALONE[target] * np.exp(-SUFFERS[target] * PRESSES[by] - abs(away)) for (target, by), away in pairs]


def test_a_pair_measured_again_and_again_has_the_error_of_its_runs(repeated):
    """Nine in ten new runs of a measured pair lie inside, in an interval half as wide as names alone tell or less."""
    draw, inside, predictor = np.random.default_rng(12), [], Predictor(repeated, MACHINE)
    pairs = list(itertools.combinations(range(14), 2))[:60]
    for one, other in pairs:
        prediction = predictor.predict(NAMES[one], [NAMES[other]])
        low, high = prediction.interval
        runs = odd(one, other)[0] * (1.0 + draw.normal(0.0, 0.01, 20))
        inside.append(np.mean((low <= runs) & (runs <= high)))
        family = repeated[MACHINE, prediction.target.key].calibration["pairs"]
        wide = np.subtract(*family.interval_mpps(np.array([prediction.throughput_mpps]), ALONE[one], 0.9)[::-1])
        assert high - low < 0.5 * wide[0]
        assert (prediction.verdict, prediction.evidence.source) == (Verdict.SUPPORTED, "repeats")
    assert 0.85 < np.mean(inside) < 0.97
    batch = predictor.predict_batch([NAMES[one] for one, _ in pairs], [[NAMES[other]] for _, other in pairs])
    assert (batch.low_mpps[-1], batch.high_mpps[-1]) == (low, high)


def test_one_run_of_a_pair_does_not_tell_its_error(library, hidden):
    """Without repeated runs a measured pair keeps the interval of held-out pairs."""
    one, other = next(pair for pair in itertools.combinations(range(14), 2) if pair not in hidden)
    assert predict(NAMES[one], NAMES[other], library, machine=MACHINE).evidence.source == "mixes"


def test_groups_are_composed_and_say_so(library):
    """Three neighbours add up, in any order to the last bit, in arrays as in one question; none was measured."""
    three = ["app1", "app2", "app3"]
    prediction = predict("app0", three, library, machine=MACHINE)
    turned = predict("app0", three[::-1], library, machine=MACHINE)
    assert prediction.throughput_mpps == turned.throughput_mpps
    batch = Predictor(library, MACHINE).predict_batch(["app0", "app4"], [three, ["app1"]])
    assert batch.throughput_mpps[0] == prediction.throughput_mpps
    assert prediction.throughput_mpps == pytest.approx(kept(0, 1, 2, 3), rel=0.08)
    assert prediction.verdict in (Verdict.EXTRAPOLATED, Verdict.UNSUPPORTED)
    assert "measured beside 1 at most" in prediction.reasons[0]


def test_intervals_of_groups_grow_with_their_size(library):
    """Beside four where one was measured: four times the width of held-out pairs, in arrays and for promises, too."""
    few, many = ["app3"], ["app3", "app4", "app5", "app6"]
    family, calibration = (
        getattr(library[MACHINE, _key("app0")], part)["pairs"] for part in ("sensitivity", "calibration")
    )
    assert [float(family.stretch(count)) for count in (0, 1, 4)] == [1.0, 1.0, 4.0]
    one, four = (predict("app0", others, library, machine=MACHINE) for others in (few, many))
    mpps, solo = four.throughput_mpps, four.solo_mpps
    low, high = (float(end) for end in calibration.interval_mpps(np.array(mpps), solo, 0.9, 5))
    assert four.interval[0] == pytest.approx(max(mpps - 4.0 * (mpps - low), 0.0))
    assert four.interval[1] == pytest.approx(max(high, min(mpps + 4.0 * (high - mpps), solo)))
    assert four.verdict is not Verdict.SUPPORTED
    batch = Predictor(library, MACHINE).predict_batch(["app0"] * 2, [few, many])
    assert [(batch.low_mpps[row], batch.high_mpps[row]) for row in (0, 1)] == [one.interval, four.interval]
    rates = ThroughputEstimates(library, confidence=0.9).rates(MACHINE, [tuple(map(_key, ["app0", *many]))])[0]
    assert rates[_key("app0")][1] < four.interval[0] + 0.05 * solo


def test_an_interval_at_a_load_has_a_width(library):
    """Who could serve three times the load serves the load, give or take what repeated runs scatter; arrays agree."""
    load = ALONE[0] / 10.0
    prediction = predict("app0", "app3", library, machine=MACHINE, offered_mpps=load)
    assert prediction.throughput_mpps == pytest.approx(load)
    assert prediction.interval == pytest.approx((0.9995 * load, 1.0005 * load))
    loaded = Workload("app0").offered(load).key
    batch = Predictor(library, MACHINE).predict_batch([loaded], [["app3"]])
    again = predict(loaded, "app3", library, machine=MACHINE)
    assert (batch.low_mpps[0], batch.high_mpps[0]) == again.interval


def _key(name: str) -> str:
    return Workload(name).key


def test_what_excludes_nothing_is_unknown(tmp_path):
    """Runs that contradict each other leave an interval from 0 to solo throughput, which is no supported answer."""
    (tmp_path / "pairs.csv").write_text(FEW + "lpm,nat,0.4,2.6\nlpm,nat,4.0,0.1\n")
    with pytest.warns(UserWarning, match="beside the same others"):
        library = train(import_pairs(tmp_path / "pairs.csv", MACHINE))
    prediction = predict("lpm", "nat", library)
    assert prediction.verdict is Verdict.UNKNOWN
    assert prediction.reasons[0] == "the interval of 90 % spans everything from 0 to solo throughput"


def test_answers_do_not_depend_on_the_order_of_functions(tmp_path):
    """Two kinds of pressure, three pairs in four: the table's order is no matter, and hidden pairs are told."""
    draw = np.random.default_rng(8)
    loss = draw.uniform(0.1, 1.0, (2, 14)).T @ draw.gamma(1.0, 0.15, (2, 14))
    pairs = set(itertools.permutations(range(14), 2))
    known = sorted(pair for pair in pairs if (5 * sum(pair) + pair[0] * pair[1]) % 3)
    lines = [f"{name},,1.0" for name in NAMES]
    lines += [f"{NAMES[one]},{NAMES[other]},{np.exp(-loss[one, other])}" for one, other in known]
    told = []
    for order in (lines, lines[::-1]):
        (tmp_path / "pairs.csv").write_text("\n".join(["one,other,share", *order]) + "\n")
        predictor = Predictor(train(import_pairs(tmp_path / "pairs.csv", MACHINE), models=["none"]), MACHINE)
        hidden = sorted(pairs - set(known))
        told.append([predictor.predict(NAMES[i], [NAMES[j]], explain=False).throughput_mpps for i, j in hidden])
    assert told[0] == pytest.approx(told[1], rel=1e-6)
    assert np.abs(told[0] - np.exp(-loss[tuple(np.transpose(hidden))])).mean() < 0.01


def test_questions_without_neighbours_are_answered_and_placed(library):
    """In a batch nobody may have a neighbour; an empty cluster is such a batch."""
    batch = Predictor(library, MACHINE).predict_batch(["app0", "app1"], [[], []])
    assert batch.throughput_mpps.tolist() == pytest.approx(ALONE[:2])
    rack = replace(load_machine("e5-2620v4"), name=MACHINE)
    requests = [Request(f"edge{number}", f"app{number}", slo=SLO(min_share=0.9)) for number in range(3)]
    assert len(place(Cluster.uniform(rack, 3), requests, library).requests) == 3


def test_drift_is_checked_without_a_description_of_the_machine(library, dataset):
    """Readings of a machine that slomo does not ship are judged by its name: too few here, and nothing is off."""
    report = check_drift(library, dataset.rows(np.arange(len(dataset)) < 30)).report
    assert not report.alarms
    assert "of 10 readings" in str(report)


def test_it_says_what_to_measure_next_and_survives_saving(library, tmp_path):
    """Every function names a partner that it was not measured beside; loading gives the same numbers."""
    assert all("pair to measure next" in " ".join(remarks(model)) for model in library.values())
    library.save(tmp_path / "models")
    again = ModelLibrary.load(tmp_path / "models")
    mpps = [predict("app0", "app5", each, machine=MACHINE).throughput_mpps for each in (again, library)]
    assert mpps[0] == mpps[1]


def test_rates_of_one_and_without_runs_alone(tmp_path):
    """Shares of the first name alone are enough; who is only named beside others cannot be asked about."""
    draw = np.random.default_rng(2)
    rows = [(NAMES[i], NAMES[j], np.exp(-SUFFERS[i] * PRESSES[j])) for i in range(8) for j in range(10) if i != j]
    kept_rows = [row for row in rows if draw.random() < 0.7]
    pd.DataFrame(kept_rows, columns=["target", "beside", "share"]).to_csv(tmp_path / "shares.csv", index=False)
    library = train(import_pairs(tmp_path / "shares.csv", MACHINE))
    known = predict("app0", "app9", library, machine=MACHINE)
    assert known.unit == known.to_dict()["unit"] == "share"
    assert "1 share" in repr(known)
    assert known.slowdown == pytest.approx(1.0 - np.exp(-SUFFERS[0] * PRESSES[9]), abs=0.03)
    unknown = predict("app9", "app0", library, machine=MACHINE)
    assert unknown.verdict is Verdict.UNKNOWN
    assert "never measured beside another function" in unknown.reasons[0]


#: The table of the guide "import your data".
FEW = """one,other,one_mpps,other_mpps
lpm,,5.0,
nat,,3.0,
ids,,0.7,
dpi,,1.9,
lpm,nat,4.1,2.6
lpm,ids,4.6,0.61
lpm,dpi,4.2,1.5
nat,ids,2.8,0.63
nat,dpi,2.5,1.6
ids,ids,0.66,0.66
lpm,lpm,4.4,4.4
"""


def test_a_chosen_target_leaves_the_solo_rates_of_the_others(tmp_path):
    """Functions beside the one that was asked for are compared with their own runs alone, as if all were asked for."""
    (tmp_path / "few.csv").write_text(FEW)
    pairs = import_pairs(tmp_path / "few.csv", MACHINE)
    some, every = slomo_train(pairs, targets="lpm"), slomo_train(pairs)
    assert {key: model.solo_mpps for key, model in some.items()} == {key: each.solo_mpps for key, each in every.items()}
    one, same = (predict("lpm", "dpi", models, machine=MACHINE).throughput_mpps for models in (some, every))
    assert one == same


def test_one_pair_run_again_and_again_is_no_table(tmp_path):
    """Repeats of a single pair leave nothing to hold out: the rate alone answers, without a verdict, and is saved."""
    table = "one,other,one_mpps,other_mpps\nlpm,,5.0,\nnat,,3.0,\n" + "lpm,nat,4.1,2.6\n" * 6
    (tmp_path / "one.csv").write_text(table)
    library = train(import_pairs(tmp_path / "one.csv", MACHINE))
    library.save(tmp_path / "models")
    prediction = predict("lpm", "nat", library)
    assert (prediction.model, prediction.verdict) == ("mean", Verdict.UNKNOWN)


def test_few_pairs_are_answered_in_words(tmp_path, capsys):
    """A measured pair is supported, doubts name no feature, nothing is divided, `evaluate` says what was learned."""
    table, models = tmp_path / "pairs.csv", str(tmp_path / "models")
    table.write_text(FEW)
    dataset = import_pairs(table, MACHINE)
    library = train(dataset)
    library.save(models)
    measured = predict("lpm", "nat", library)
    assert (measured.throughput_mpps, measured.verdict) == (pytest.approx(4.1), Verdict.SUPPORTED)
    unmeasured = predict("ids", "dpi", library)
    assert unmeasured.verdict is not Verdict.SUPPORTED
    assert "not measured beside these" in unmeasured.reasons[0]
    assert main(["predict", "--target", "lpm", "--with", "nat", "--models", models, "--explain"]) == 0
    assert "explained   not: model 'pairs' reads no counters" in capsys.readouterr().out
    save_dataset(dataset, tmp_path / "pairs.parquet")
    assert main(["evaluate", "--models", models, "--dataset", str(tmp_path / "pairs.parquet")]) == 0
    assert "'pairs' learns from all mixes of its table" in capsys.readouterr().err


#: One pair in four.
SOME = [(one, other) for one, other in itertools.combinations(range(14), 2) if other - one in (1, 6)]


@pytest.fixture(scope="module")
def few(tmp_path_factory) -> ProfileDataset:
    """One pair in four."""
    return import_pairs(table(tmp_path_factory.mktemp("few"), rates(SOME)), MACHINE)


@pytest.fixture(scope="module")
def usual_error(few) -> float:
    """Error of the pairs that are not among the few, of a model that reads names alone."""
    return error_of_the_rest(train(few, models=["none"]))


def counted(folder, presses, suffers, machine=MACHINE, cells=None) -> ProfileDataset:
    """Solo runs with counters: references grow with the pressure, hits with the sensitivity."""
    hits = 10.0 * suffers
    refs = hits + 100.0 * presses
    lines = ["name,refs,misses,held,mpps,others"]
    for number, name in enumerate(NAMES[:13]):
        row = [name, refs[number], refs[number] - hits[number], 1000.0 + 1e4 * presses[number], ALONE[number], 0]
        lines.append(",".join(str((cells or {}).get((name, place), cell)) for place, cell in enumerate(row)))
    (folder / "alone.csv").write_text("\n".join(lines) + "\n")
    columns = {
        "name": {"label": "nf"},
        "refs": {"metric": "L2MISS", "unit": "M/s"},
        "misses": {"metric": "L3MISS", "unit": "M/s"},
        "held": {"metric": "L3OCC", "unit": "KiB"},
        "mpps": {"target": "throughput", "unit": "Mpps"},
        "others": {"label": "competitor_count"},
    }
    mapping = {"machine": machine, "vectors": "own", "columns": columns}
    return import_table(folder / "alone.csv", mapping)


def error_of_the_rest(library) -> float:
    """Mean error of the pairs that are not among the few."""
    predictor, away = Predictor(library, MACHINE), []
    for one, other in sorted(set(itertools.combinations(range(14), 2)) - set(SOME)):
        told = predictor.predict(NAMES[one], [NAMES[other]], explain=False)
        away.append(abs(told.throughput_mpps - kept(one, other)) / ALONE[one])
    return float(np.mean(away))


def test_probes_tell_of_pairs_that_were_not_measured(usual_error, tmp_path):
    """With one pair in four and probes of most functions, hidden pairs are told better; wrong probes do no harm."""
    pairs, levels = table(tmp_path, rates(SOME)), np.array([0.0, 8.0, 16.0])
    probes = ProbeTables(
        MACHINE,
        levels,
        np.array([10.0, 12.0, 15.0]),
        {name: 10.0 * float(np.exp(0.5 * presses)) for name, presses in zip(NAMES[:13], PRESSES, strict=False)},
        {name: (levels, np.exp(0.02 * suffers * levels)) for name, suffers in zip(NAMES[:13], SUFFERS, strict=False)},
    )
    probed = train(import_pairs(pairs, MACHINE, probes=probes), models=["none"])
    assert error_of_the_rest(probed) < 0.8 * usual_error
    assert probed.find("app0").manifest["pairs"]["drawn_to"] == "probes"
    turned = replace(probes, beside=dict(zip(probes.names, list(probes.beside.values())[::-1], strict=True)))
    misled = train(import_pairs(pairs, MACHINE, probes=turned), models=["none"])
    assert error_of_the_rest(misled) < 1.5 * usual_error


def test_counters_of_solo_runs_tell_of_pairs_that_were_not_measured(few, usual_error, tmp_path):
    """With counters of most functions alone, hidden pairs are told better; counters of other functions do no harm."""
    with pytest.warns(UserWarning, match=r"count as average: 'app13@64B,100000f' \(no solo run\)"):
        with_counters = slomo_train([few, counted(tmp_path, PRESSES, SUFFERS)], models=["none"])
    assert error_of_the_rest(with_counters) < 0.85 * usual_error
    assert with_counters.find("app0").manifest["pairs"]["drawn_to"] == "counters"
    with pytest.warns(UserWarning, match="count as average"):
        misled = slomo_train([counted(tmp_path, PRESSES[::-1], SUFFERS[::-1]), few], models=["none"])
    assert error_of_the_rest(misled) < 1.5 * usual_error


def test_the_command_merges_a_profile_and_pairs(few, tmp_path):
    """`slomo train alone.parquet pairs.parquet` trains what `slomo.train` does with a list."""
    alone = counted(tmp_path, PRESSES, SUFFERS)
    for name, each in (("alone", alone), ("pairs", few)):
        save_dataset(each, tmp_path / f"{name}.parquet")
    paths = [str(tmp_path / f"{name}.parquet") for name in ("alone", "pairs")]
    with pytest.warns(UserWarning, match="count as average"):
        assert main(["train", *paths, "--models", str(tmp_path / "models"), "--model", "none"]) == 0
    with pytest.warns(UserWarning, match="count as average"):
        library = slomo_train(paths, models=["none"])
    told = predict("app0", "app7", ModelLibrary.load(tmp_path / "models"), machine=MACHINE)
    assert told.throughput_mpps == predict("app0", "app7", library, machine=MACHINE).throughput_mpps


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"machine": "rack-9"}, r"'app2@64B,100000f' \(row \d+, column machine: rack-9\)"),
        ({"cells": {("app2", 2): ""}}, r"'app2@64B,100000f' \(row \d+, column own.L3MISS: missing\)"),
    ],
)
def test_counters_that_do_not_fit_are_told_by_row_and_column(few, tmp_path, wrong, message):
    """Counters of another machine, and a solo run that lacks one of them."""
    with pytest.warns(UserWarning, match=message):
        slomo_train([few, counted(tmp_path, PRESSES, SUFFERS, **wrong)], models=["none"])


def test_shares_and_rates_of_one_function_are_not_merged(tmp_path):
    """Shares of solo throughput beside runs in Mpps: told by function, row and column."""
    (tmp_path / "shares.csv").write_text("one,other,share\napp0,app1,0.9\napp1,app0,0.8\n")
    shares = import_pairs(tmp_path / "shares.csv", MACHINE)
    with pytest.raises(IncompatibleMeasurementsError, match=r"'app0' on rack has shares .* Mpps in row 0, column thro"):
        shares.merge(counted(tmp_path, PRESSES, SUFFERS))


@pytest.fixture(scope="module")
def profile(toy_profile) -> ProfileDataset:
    """The toy's three functions alone and beside the synthetic competitor."""
    return toy_profile.rows((toy_profile.frame["plan"] != "mix").to_numpy())


PROFILED = ("lpm", "nat", "ids")


def beside_profiled(target: str, other: str) -> float:
    """Throughput of a function beside another, of which one at least is known by name alone [Mpps]."""
    solo, suffers, presses = (
        dict(zip((*PROFILED, *NAMES), each, strict=False))
        for each in ((5.0, 3.0, 0.7, *ALONE), (0.8, 0.5, 0.4, *SUFFERS), (0.25, 0.4, 0.3, *PRESSES))
    )
    return float(solo[target] * np.exp(-suffers[target] * presses[other]))


def test_functions_known_by_name_are_answered_beside_profiled_ones(profile, tmp_path):
    """Names answer where a name is on the server, in arrays and for promises, too; else profiles answer, as before."""
    everybody, hidden = [*PROFILED, *NAMES[:7]], [("lpm", "app6"), ("nat", "app2"), ("app1", "app4")]
    rows = [
        (one, other, beside_profiled(one, other), beside_profiled(other, one))
        for one, other in itertools.combinations(everybody, 2)
        if other not in PROFILED and (one, other) not in hidden
    ]
    pairs = table(tmp_path, rows, count=7)
    with pytest.warns(UserWarning, match="count as average"):
        library = slomo_train([profile, import_pairs(pairs, "e5-2620v4")], models=["none"])
    for one, other in (*hidden, *(pair[::-1] for pair in hidden), ("lpm", "app0")):
        told = predict(one, other, library)
        assert told.model == "pairs"
        assert told.throughput_mpps == pytest.approx(beside_profiled(one, other), rel=0.06)
    assert (told.verdict, told.throughput_mpps) == (Verdict.SUPPORTED, pytest.approx(beside_profiled("lpm", "app0")))
    batch = Predictor(library, "e5-2620v4").predict_batch(["lpm", "lpm", "app0"], [["app0"], ["nat"], ["lpm"]])
    assert (batch.throughput_mpps[0], batch.low_mpps[0]) == (told.throughput_mpps, told.interval[0])
    library.save(tmp_path / "models")
    assert predict("lpm", "app0", ModelLibrary.load(tmp_path / "models")).to_dict() == told.to_dict()
    before, now = (predict("lpm", "nat", each) for each in (slomo_train(profile, models=["none"]), library))
    assert (now.model, now.throughput_mpps, now.interval) == ("equilibrium", before.throughput_mpps, before.interval)
    assert predict("lpm", "app0", library, model="none").model == "none"
    assert batch.throughput_mpps[1] == predict("lpm", "nat", library).throughput_mpps
    rates = ThroughputEstimates(library, confidence=0.5).rates("e5-2620v4", [(_key("app0"), _key("lpm"))])[0]
    assert rates[_key("lpm")][0] == told.throughput_mpps
