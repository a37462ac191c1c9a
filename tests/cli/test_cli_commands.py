"""What the commands print and write when all is well."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import slomo
from slomo.cli.main import main
from slomo.errors import UnknownNameError
from slomo.records.dataset import ProfileDataset
from slomo.records.storage import load_dataset
from slomo.training.families.registry import model_names
from slomo.workflow.profile import plan_experiments

# The fixture `bench` and its type live in conftest.py, which tests cannot import; duck typing is enough here.
PREDICTION_KEYS = {
    "target",
    "competitors",
    "machine",
    "model",
    "solo_mpps",
    "throughput_mpps",
    "slowdown",
    "interval",
    "coverage",
    "verdict",
}
EVALUATION_KEYS = {"mape", "p95", "within_5", "within_10", "bias", "coverage"}
HEAVY = {"pandas", "sklearn", "xgboost", "numba", "scipy", "matplotlib", "rich", "pyarrow", "jinja2"}


def answer(capsys: pytest.CaptureFixture[str], line: str) -> object:
    """Run a command line that must succeed; return its JSON."""
    capsys.readouterr()
    assert main([*line.split(), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_prediction_has_the_stable_keys(bench, capsys) -> None:
    """`predict --json` answers with the documented keys, and plausible numbers under them."""
    prediction = answer(capsys, f"predict --target lpm --with stats:2 --with snort --models {bench.models}")

    assert set(prediction) >= PREDICTION_KEYS
    assert (prediction["target"], prediction["machine"]) == ("lpm", "e5-2620v4")
    assert sorted(prediction["competitors"]) == ["snort", "stats", "stats"]
    assert prediction["slowdown"] == pytest.approx(1 - prediction["throughput_mpps"] / prediction["solo_mpps"])
    assert prediction["interval"][0] <= prediction["throughput_mpps"] <= prediction["interval"][1]


def test_nobody_beside_means_no_slowdown(bench, capsys) -> None:
    """Alone, a network function does what it did alone."""
    prediction = answer(capsys, f"predict --target lpm --models {bench.models}")

    assert prediction["slowdown"] == 0.0
    low, high = prediction["interval"]
    assert 0.99 * prediction["solo_mpps"] < low < prediction["solo_mpps"] < high  # as far as repeats of a run differ


def test_prediction_for_people_names_its_units(bench, capsys) -> None:
    """The text has throughput in Mpps, slowdown in percent and the verdict."""
    assert main(["predict", "--target", "lpm", "--with", "stats:3", "--models", str(bench.models), "--explain"]) == 0
    said = capsys.readouterr().out

    assert "lpm beside 3 x stats on e5-2620v4" in said
    assert all(word in said for word in ("Mpps", "%", "verdict", "composed metric", "bottleneck", "what helps"))


def test_model_coverage_and_published_rule_can_be_chosen(bench, capsys) -> None:
    """--model, --coverage and --compat reach the prediction."""
    options = "--model slomo-gbr --coverage 0.5 --compat published"
    line = f"predict --target lpm --with stats:3 --models {bench.models} {options}"
    prediction = answer(capsys, line)

    assert (prediction["model"], prediction["coverage"]) == ("slomo-gbr", 0.5)


def test_vector_stands_for_the_competitors(bench, capsys) -> None:
    """A competition known by its counters is predicted without naming anybody."""
    pairs = "--vector L2MISS=80 --vector L3OCC=16000"
    heavy = answer(capsys, f"predict --target lpm {pairs} --models {bench.models} --model dobrescu")

    assert heavy["competitors"] == []
    assert heavy["throughput_mpps"] < heavy["solo_mpps"]


def test_predicting_imports_nothing_heavy(bench) -> None:
    """Predicting from saved models needs numpy alone, which keeps it under a second."""
    program = "import sys; from slomo.cli.main import main; code = main(sys.argv[1:]); "
    program += "print(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr); sys.exit(code)"
    line = ["predict", "--target", "lpm", "--with", "stats:2", "--models", str(bench.models), "--json"]
    done = subprocess.run([sys.executable, "-c", program, *line], capture_output=True, text=True, check=True)

    assert not set(done.stderr.split()) & HEAVY


def test_evaluation_has_the_stable_keys(bench, capsys) -> None:
    """`evaluate --json` judges the equilibrium and every model of the registry on the same mixes, in percent."""
    evaluation = answer(capsys, f"evaluate --models {bench.models} --dataset {bench.mixes}")

    assert set(evaluation) >= {"machine", "mixes", "models"}
    assert evaluation["mixes"] == 12
    assert set(evaluation["models"]) == {"equilibrium", "composed", *model_names()}
    assert all(set(row) >= EVALUATION_KEYS for row in evaluation["models"].values())
    assert all(0 <= row["within_5"] <= row["within_10"] <= 100 for row in evaluation["models"].values())


def test_mixes_that_calibrate_are_pointed_out(bench, capsys) -> None:
    """Judging by the mixes that set the intervals is possible, and said; unseen mixes pass in silence."""
    for dataset, said in ((bench.dataset, "40 of these mixes"), (bench.mixes, "")):
        capsys.readouterr()
        assert main(f"evaluate --models {bench.models} --dataset {dataset} --model none --json".split()) == 0
        assert (capsys.readouterr().err.startswith(f"note: {said}")) == bool(said)


def test_evaluation_runs_its_own_mixes(bench, capsys, tmp_path: Path) -> None:
    """Without a dataset the mixes are run; a page with figures can be had of them."""
    page = tmp_path / "report.html"
    line = f"evaluate --models {bench.models} --machine e5-2620v4 --mixes 3 --seed 9 --model none --report {page}"
    evaluation = answer(capsys, line)

    assert (evaluation["mixes"], set(evaluation["models"])) == (3, {"none"})
    assert "data:image/svg+xml;base64," in page.read_text(encoding="utf-8")


def test_evaluation_takes_as_many_mixes_as_there_are(monkeypatch, profiled) -> None:
    """Two network functions have fewer than 200 different mixes; without a number, evaluation makes do with those."""
    ran = []

    def measured(targets, *, mixes, **rest):
        kept = {name: rest[name] for name in ("machine", "plan", "stream", "seed")}
        ran.append(plan_experiments(targets, mixes=mixes, **kept))
        raise InterruptedError

    monkeypatch.setattr("slomo.workflow.evaluate.profile", measured)
    with pytest.raises(InterruptedError):
        slomo.evaluate(slomo.train(profiled, models=["none"], targets=["lpm", "stats"]))

    assert 1 <= len(ran[0].colocations) < 200


def test_own_functions_must_be_described_to_be_run(profiled) -> None:
    """Evaluating models of an own network function asks for its file before anything runs."""
    frame = profiled.frame.assign(nf="mine", target=[key.replace("lpm", "mine") for key in profiled.frame["target"]])
    own = ProfileDataset(frame[frame["target"].str.startswith("mine@")].reset_index(drop=True), profiled.environment)

    with pytest.raises(UnknownNameError, match=r"--nf mine\.yaml"):
        slomo.evaluate(slomo.train(own, models=["none"]))


def test_evaluation_on_a_machine_of_ones_own_asks_for_its_file(profiled) -> None:
    """Models of a machine that is not shipped need its description before mixes can be run on it."""
    elsewhere = ProfileDataset(profiled.frame.assign(machine="mine"), profiled.environment)

    with pytest.raises(UnknownNameError, match=r"--machine mine\.yaml"):
        slomo.evaluate(slomo.train(elsewhere, models=["none"]))


def test_models_left_out_are_told_with_the_reason(profiled, capsys, tmp_path: Path) -> None:
    """A dataset that lacks a metric trains what it can and says what it cannot and why; `predict` repeats it."""
    lacking = ProfileDataset(profiled.frame.drop(columns="competition.L2MISS"), profiled.environment)
    lacking.to_parquet(tmp_path / "lacking.parquet")
    words = ["--models", str(tmp_path / "m"), "--target", "lpm", "--target", "stats"]
    assert main(["train", str(tmp_path / "lacking.parquet"), *words]) == 0
    assert "no model 'dobrescu' of 'lpm@64B,100000f': model 'dobrescu' reads L2MISS" in capsys.readouterr().err

    assert main(f"predict --target lpm --with stats --model dobrescu --models {tmp_path / 'm'}".split()) == 4
    assert "reads L2MISS or FELTL3 of the competition" in capsys.readouterr().err


def test_functions_named_twice_are_measured_once() -> None:
    """Naming a network function twice asks for nothing more, and makes no mixes of it with itself."""
    assert plan_experiments(["lpm", "lpm"], runs=2).colocations == plan_experiments("lpm", runs=2).colocations


def test_evaluation_for_people_lists_every_nf_and_model(bench, capsys) -> None:
    """The tables name each network function and each model; of a baseline's two forms the better one."""
    assert main(["evaluate", "--models", str(bench.models), "--dataset", str(bench.mixes)]) == 0
    said = capsys.readouterr().out

    models = {name.removesuffix("-curve") for name in model_names()}
    assert all(name in said for name in ("lpm", "stats", "snort", *models))


def test_training_keeps_models_of_other_network_functions(bench, capsys, tmp_path: Path) -> None:
    """Training one network function more leaves the others in the directory."""
    models = str(tmp_path / "models")
    for name in ("lpm", "stats"):
        training = answer(capsys, f"train {bench.dataset} --models {models} --target {name} --model dobrescu")

    assert [row["target"] for row in training["network_functions"]] == ["stats@64B,100000f"]
    kept = answer(capsys, f"predict --target lpm --with stats --models {models} --model dobrescu")
    assert kept["target"] == "lpm"


def test_training_into_a_folder_named_like_a_family_says_so(bench, capsys, tmp_path: Path) -> None:
    """`--models dobrescu` is a folder with all that was fitted; the note names the option that fits one family."""
    words = ["--models", str(tmp_path / "dobrescu"), "--target", "lpm", "--model", "dobrescu", "--model", "none"]
    assert main(["train", str(bench.dataset), *words]) == 0
    assert "holds 2 families; for one family --model dobrescu" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("predict --target lpm --with stats --models {models} --model equilibrium", "--method equilibrium"),
        ("profile mirror --runs 20 --out {out}", "--nf FILE.yaml"),
        ("profile lpm --machine rack-7 --dry-run", "the path of its YAML file"),
        ("profile lpm --plan resource-tabel --out n.json", "did you mean 'resource-table'"),
        ("predict --target lpm --models {models} --coverage 90%", "90 % is 0.9"),
        ("whatif lpm stats --bandwidth-percent 0.5", "write --bandwidth-percent 100,50: percent"),
        ("whatif lpm stats --slo lpm=0.9", "a tenant's place, counted from 0"),
        ("whatif lpm stats --sockets 0,2", "sockets: 2, but 'e5-2620v4' has 2, counted from 0"),
    ],
)
def test_unknown_name_says_what_else_may_be_given(bench, capsys, tmp_path: Path, words: str, says: str) -> None:
    """A method given as a model, a function or a machine of one's own, a percentage: the hint has what to write."""
    assert main(words.format(models=bench.models, out=tmp_path / "x.parquet").split()) == 2
    assert says in capsys.readouterr().err


def test_dry_run_says_how_much_and_runs_nothing(capsys, tmp_path: Path) -> None:
    """--dry-run counts runs, those at part load apart, and makes no file."""
    out = tmp_path / "profile.parquet"
    forecast = answer(capsys, f"profile lpm --plan pressure --out {out} --dry-run")

    assert (forecast["dry_run"], forecast["runs"], forecast["pending"]) == (True, 442, 442)
    assert forecast["part_load_runs"] == forecast["later_runs"] == 147
    assert forecast["whole_s"] == pytest.approx(forecast["estimate_s"] * (442 + 147) / 442)
    assert not list(tmp_path.iterdir())


def test_dry_run_says_that_the_simulator_is_compiled_first(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing was compiled yet the estimate says so; where it was, it does not."""
    monkeypatch.setattr("slomo.simulator.first_compile.is_compiled", lambda: False)
    assert answer(capsys, "profile lpm --plan solo --dry-run")["compiles_first"]
    assert main(["profile", "lpm", "--plan", "solo", "--dry-run"]) == 0
    assert "compile the simulator, once per installation" in capsys.readouterr().out
    monkeypatch.setattr("slomo.simulator.first_compile.is_compiled", lambda: True)
    assert not answer(capsys, "profile lpm --plan solo --dry-run")["compiles_first"]


def test_profile_is_the_same_whether_interrupted_or_not(capsys, tmp_path: Path) -> None:
    """Profiling again with the same store repeats no run and writes the same bytes."""
    line = ["profile", "l2fwd", "--plan", "pressure", "--design", "sobol", "--runs", "3", "--seed", "5"]
    first, second, store = (tmp_path / name for name in ("first.parquet", "second.parquet", "runs.sqlite"))
    assert main([*line, "--out", str(first), "--store", str(store)]) == 0
    capsys.readouterr()
    assert main([*line, "--out", str(second), "--store", str(store), "--dry-run"]) == 0
    assert "4 finished, 0 left" in capsys.readouterr().out
    assert main([*line, "--out", str(second), "--store", str(store)]) == 0

    assert first.read_bytes() == second.read_bytes()


def test_replay_answers_from_a_recorded_dataset(profiled: ProfileDataset, bench, capsys, tmp_path: Path) -> None:
    """Testbed `replay` gives the throughput that was recorded, without simulating."""
    out = tmp_path / "again.parquet"
    line = f"profile lpm --plan solo --testbed replay --source {bench.dataset} --out {out}"
    assert main(line.split()) == 0

    assert load_dataset(out).solo_mpps("lpm") == profiled.solo_mpps("lpm")


def test_replay_answers_from_a_campaign_s_store(capsys, tmp_path: Path) -> None:
    """The runs that a campaign kept, replayed, give the throughput of its dataset."""
    out, again = tmp_path / "p.parquet", tmp_path / "again.parquet"
    assert main(f"profile lpm --plan solo --out {out}".split()) == 0
    line = f"profile lpm --plan solo --testbed replay --source {out}.runs.sqlite --out {again}"
    assert main(line.split()) == 0

    assert load_dataset(again).solo_mpps("lpm") == load_dataset(out).solo_mpps("lpm")


def test_network_function_of_one_s_own_is_profiled_and_predicted(capsys, tmp_path: Path) -> None:
    """--nf FILE takes a network function from YAML through the whole job."""
    own = tmp_path / "mirror.yaml"
    own.write_text(OWN, encoding="utf-8")
    out, models = str(tmp_path / "p.parquet"), str(tmp_path / "models")
    made = answer(capsys, f"profile mirror --nf {own} --plan pressure --design sobol --runs 8 --out {out}")
    assert made["targets"] == ["mirror@64B,100000f"]
    assert main(["train", out, "--models", models, "--model", "none"]) == 0
    assert answer(capsys, f"predict --target mirror --nf {own} --models {models} --model none")["slowdown"] == 0


def test_datasets_travel_between_formats(bench, profiled: ProfileDataset, capsys, tmp_path: Path) -> None:
    """Exporting to CSV and merging with itself changes nothing."""
    table, whole = tmp_path / "table.csv", tmp_path / "whole.parquet"
    assert main(["dataset", "export", str(bench.dataset), "--out", str(table)]) == 0
    merged = answer(capsys, f"dataset merge {table} {bench.dataset} --out {whole}")

    assert merged["rows"] == len(profiled)
    assert load_dataset(whole) == profiled


def test_dataset_is_shown_by_target(bench, capsys) -> None:
    """`dataset show` has a row per target with its solo throughput."""
    shown = answer(capsys, f"dataset show {bench.dataset}")

    assert {row["target"].split("@")[0] for row in shown["targets"]} == {"lpm", "stats", "snort"}
    assert all(row["solo_mpps"] > 0 for row in shown["targets"])


@pytest.mark.parametrize("kind", ["nf", "machine"])
def test_lists_and_cards(kind: str, capsys) -> None:
    """`list` names what `show` can show."""
    names = [row["name"] for row in answer(capsys, f"{kind} list")]

    assert len(names) >= 6
    assert answer(capsys, f"{kind} show {names[0]}")["name"] == names[0]


def test_shipped_datasets_are_listed(capsys) -> None:
    """`dataset list` prints a row per shipped dataset, each of which can be shown by name."""
    listed = answer(capsys, "dataset list")
    for row in listed:
        assert answer(capsys, f"dataset show {row['name']}")["rows"] > 0


OWN = """\
name: mirror
description: sends every packet back after one table look-up
source: made for this test
simulated:
  compute_cycles: 200
  instructions: 400
  structures:
    - {name: table, size_mib: 2, reads: 1}
"""
