"""Co-locations by name, without counters: answered near what was measured, else by a low rank; doubts are told."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from slomo.cli.main import main
from slomo.models.applicability import Verdict
from slomo.models.library import ModelLibrary
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request
from slomo.prediction.predictor import Predictor
from slomo.records.dataset import ProfileDataset
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


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, hidden) -> ProfileDataset:
    """The other half, as a table of two names and two rates, with every function alone."""
    lines = ["one,other,one_mpps,other_mpps", *(f"{name},,{alone}," for name, alone in zip(NAMES, ALONE, strict=True))]
    for one, other in itertools.combinations(range(14), 2):
        if (one, other) not in hidden:
            lines.append(f"{NAMES[one]},{NAMES[other]},{kept(one, other)},{kept(other, one)}")
    path = tmp_path_factory.mktemp("pairs") / "pairs.csv"
    path.write_text("\n".join(lines) + "\n")
    return import_pairs(path, MACHINE)


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
    draw, lines = np.random.default_rng(11), ["one,other,one_mpps,other_mpps"]
    lines += [f"{name},,{alone}," for name, alone in zip(NAMES, ALONE, strict=True)]
    for one, other in list(itertools.combinations(range(14), 2))[:60]:
        for _ in range(3):
            rates = [rate * (1.0 + draw.normal(0.0, 0.01)) for rate in odd(one, other)]
            lines.append(f"{NAMES[one]},{NAMES[other]},{rates[0]},{rates[1]}")
    path = tmp_path_factory.mktemp("repeated") / "pairs.csv"
    path.write_text("\n".join(lines) + "\n")
    return train(import_pairs(path, MACHINE))


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


def test_probes_tell_of_pairs_that_were_not_measured(tmp_path):
    """With one pair in four and probes of most functions, hidden pairs are told better; wrong probes do no harm."""
    pairs = list(itertools.combinations(range(14), 2))
    known = [(one, other) for one, other in pairs if other - one in (1, 6)]
    lines = ["one,other,one_mpps,other_mpps", *(f"{name},,{alone}," for name, alone in zip(NAMES, ALONE, strict=True))]
    lines += [f"{NAMES[one]},{NAMES[other]},{kept(one, other)},{kept(other, one)}" for one, other in known]
    (tmp_path / "pairs.csv").write_text("\n".join(lines) + "\n")
    levels = np.array([0.0, 8.0, 16.0])
    probes = ProbeTables(
        MACHINE,
        levels,
        np.array([10.0, 12.0, 15.0]),
        {name: 10.0 * float(np.exp(0.5 * presses)) for name, presses in zip(NAMES[:13], PRESSES, strict=False)},
        {name: (levels, np.exp(0.02 * suffers * levels)) for name, suffers in zip(NAMES[:13], SUFFERS, strict=False)},
    )

    def error(library):
        predictor, away = Predictor(library, MACHINE), []
        for one, other in set(pairs) - set(known):
            told = predictor.predict(NAMES[one], [NAMES[other]], explain=False)
            away.append(abs(told.throughput_mpps - kept(one, other)) / ALONE[one])
        return float(np.mean(away))

    plain = train(import_pairs(tmp_path / "pairs.csv", MACHINE), models=["none"])
    probed = train(import_pairs(tmp_path / "pairs.csv", MACHINE, probes=probes), models=["none"])
    assert error(probed) < 0.8 * error(plain)
    assert probed.find("app0").manifest["pairs"]["probes"] is True
    turned = replace(probes, beside=dict(zip(probes.names, list(probes.beside.values())[::-1], strict=True)))
    misled = train(import_pairs(tmp_path / "pairs.csv", MACHINE, probes=turned), models=["none"])
    assert error(misled) < 1.5 * error(plain)


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
