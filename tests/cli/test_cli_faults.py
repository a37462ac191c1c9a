"""Bad input at the command line: what is said, with which exit code, and that nothing measured is lost."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from slomo.cli.main import main
from slomo.records.dataset import ProfileDataset

# One line of parameters per fault: the command line (with places {dataset}, {models}, {tmp}), exit code, words said.
NAMES = [
    ("profile lmp --out {tmp}/p.parquet", 2, "unknown network function 'lmp'", "did you mean 'lpm'"),
    ("profile lpm --machine e5-2620 --out {tmp}/p.parquet", 2, "unknown machine 'e5-2620'", "e5-2620v4"),
    ("profile lpm --plan al --out {tmp}/p.parquet", 2, "unknown plan 'al'", "did you mean 'all'"),
    ("profile lpm --design gird --out {tmp}/p.parquet", 2, "unknown design 'gird'", "did you mean 'grid'"),
    ("profile lpm --testbed simulate --out {tmp}/p.parquet", 2, "'simulate'", "did you mean 'simulated'"),
    ("profile lpm --host-file rack.yaml --out {tmp}/p.parquet", 2, "testbed 'simulated'", "add --testbed host"),
    ("profile lpm --testbed host --host-file {tmp}/no.yaml --out {tmp}/p.parquet", 2, "no.yaml", "cannot be read"),
    ("predict --target lmp --models {models}", 2, "'lmp'", "did you mean 'lpm'"),
    ("predict --target lpm --with stast --models {models}", 2, "'stast'", "did you mean 'stats'"),
    ("predict --target lpm --with stats --model slomo-xbg --models {models}", 2, "'slomo-xbg'", "slomo-xgb"),
    ("predict --target lpm --with stats --machine silver-4110 --models {models}", 2, "'silver-4110'", "e5-2620v4"),
    ("predict --target lpm --with stats --machine silver --models {models}", 2, "machine 'silver'", "'silver-4110'?"),
    ("predict --target lpm --with maglev --models {models}", 2, "'maglev'", "slomo profile maglev"),
    ("evaluate --models {models} --model dobresku", 2, "'dobresku'", "dobrescu"),
    ("predict --target lpm --vector L3MIS=3 --models {models}", 2, "unknown metric 'L3MIS'", "did you mean 'L3MISS'"),
    ("train {dataset} --models {tmp}/m --model slomo-gb", 2, "unknown model 'slomo-gb'", "slomo-xgb"),
    ("train {dataset} --models {tmp}/m --target statz", 2, "'statz'", "stats"),
    ("evaluate --models {models} --dataset {mixes} --model dobresku", 2, "'dobresku'", "dobrescu"),
    ("predict lpm stats", 2, "unexpected extra arguments", "for instance slomo predict --target lpm"),
    ("train {dataset}t --models {tmp}/m", 2, "file not found", "did you mean '"),
    ("nf show snrt", 2, "'snrt'", "did you mean 'snort'"),
    ("machine show silver", 2, "'silver'", "silver-4110"),
    ("dataset show e5", 2, "unknown dataset 'e5'", "hint:"),
]
VALUES = [
    ("profile synthetic(data_size_mib=-1) --plan solo --out {tmp}/p.parquet", 2, "data_size_mib", "-1"),
    ("profile synthetic(data_size_mib=nan) --plan solo --out {tmp}/p.parquet", 2, "data_size_mib is nan", "finite"),
    ("profile lpm --design sobol --runs 99999999 --out {tmp}/p.parquet", 2, "99999999", "from 1 to 1e+06"),
    ("profile synthetic(data_size=1) --plan solo --out {tmp}/p.parquet", 2, "data_size", "data_size_mib"),
    ("profile lpm@63B --plan solo --out {tmp}/p.parquet", 2, "packet_size_b is 63", "64 to 9000"),
    ("profile lpm --runs 0 --out {tmp}/p.parquet", 2, "'--runs'", "from 1 to"),
    ("profile lpm --design grid --runs 9999 --out {tmp}/p.parquet", 2, "9999", "588"),
    ("profile lpm --replicates 0 --out {tmp}/p.parquet", 2, "'--replicates'", "from 1 to"),
    ("profile lpm --seed -1 --out {tmp}/p.parquet", 2, "'--seed'", "from 0 to"),
    ("profile lpm --jobs -2 --out {tmp}/p.parquet", 2, "'--jobs'", "from 0 to"),
    ("profile lpm --runs two --out {tmp}/p.parquet", 2, "'two' is not a whole number", "--help"),
    ("profile lpm", 2, "no file is named for the dataset", "--out"),
    ("profile lpm --out {tmp}/p.xlsx", 2, "'.xlsx'", ".parquet"),
    ("profile lpm --source {dataset} --out {tmp}/p.parquet", 2, "--source", "replay"),
    ("predict --target lpm --with stats:8 --models {models}", 2, "cores", "9"),
    ("predict --target lpm --with stats:0 --models {models}", 2, "'0'", "1 to"),
    ("predict --target lpm --with stats --coverage 1.5 --models {models}", 2, "'--coverage'", "from 0 to 1"),
    ("predict --target lpm --vector L3OCC=-1 --models {models}", 2, "L3OCC is -1 KiB", "hint"),
    ("predict --target lpm --vector L3OCC=1e308 --models {models}", 2, "needed 0 to 1e+30", "hint"),
    ("predict --target lpm --vector L3OCC=1 --vector L3OCC=2 --models {models}", 2, "a second value", "L3OCC"),
    ("predict --target lpm --vector L3OCC --models {models}", 2, "no pair", "L3OCC=1024"),
    ("predict --target lpm --vector L3OCC=1 --with stats --models {models}", 2, "--vector and --with", "one of them"),
    ("predict --target lpm --vector L3OCC=1 --model slomo-xgb --models {models}", 4, "L2MISS", "hint"),
    ("predict --target lpm --models {tmp}/nowhere", 2, "no models at", "slomo train"),
    ("predict --target lpm --models {dataset}", 2, "is a file, needed a folder of models", "train"),
    ("demo --out {dataset} --machine nosuch", 2, "unknown machine 'nosuch'", "Known: e5-2620v4"),
    ("demo --out {dataset}", 2, "File exists", "name a folder"),
    ("predict --target lpm --with stats --nf {tmp}/none.yaml --models {models}", 2, "none.yaml", "cannot be read"),
    ("evaluate --models {models} --machine silver-4110", 2, "silver-4110", "e5-2620v4"),
    ("evaluate --models {models} --dataset {dataset} --machine silver-4110", 2, "silver-4110", "e5-2620v4"),
    ("predict --target lpm:2 --with stats --models {models}", 2, "'lpm:2' is 2 instances", "among its competitors"),
    ("evaluate --models {models} --report {tmp}/no/r.html", 2, "there is no folder", "mkdir -p"),
    ("evaluate --models {models} --report {tmp}", 2, "it is a folder", "name a file"),
    ("--config {tmp}/no.toml nf list", 2, "there is no settings file", "no.toml"),
    ("whatif lpm stats:20", 2, "need 21 cores, 'e5-2620v4' has 8", "leave out 13"),
    ("predict --target lpm --server 127.0.0.1:8080", 2, "'127.0.0.1:8080' is no address", "http://"),
    ("place c.yaml r.yaml --cluster x", 2, "'--cluster'", "for instance slomo place cluster.yaml requests.yaml"),
    ("train {dataset} --models {dataset}", 2, "which is a file", "name a folder"),
    ("train {tmp}/nothing.parquet --models {tmp}/m", 2, "nothing.parquet", "hint"),
    ("dataset import {dataset} --mapping {tmp}/map.yaml --out {tmp}/o.parquet", 2, "map.yaml", ""),
]


def run(line: str, bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run a command line with its places filled in."""
    places = {"dataset": bench.dataset, "mixes": bench.mixes, "models": bench.models, "tmp": tmp_path}
    capsys.readouterr()
    code = main([word.format(**places) for word in line.split()])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("fault", [*NAMES, *VALUES], ids=lambda fault: fault[0])
def test_wrong_command_line_is_told_in_words(fault: tuple[str, int, str, str], bench, tmp_path: Path, capsys) -> None:
    """A wrong name or value is answered with what was got, what was needed and the class's exit code."""
    line, code, *said = fault
    exit_code, out, err = run(line, bench, tmp_path, capsys)

    assert (exit_code, out) == (code, "")
    assert all(words in err for words in said), err
    assert "Traceback" not in err
    assert not list(tmp_path.glob("*.parquet"))


def damaged(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.csv", ""),
        ("one-line.csv", "machine,nf,target\n"),
        ("other.csv", "a,b\n1,2\n"),
        ("empty.parquet", ""),
        ("text.parquet", "no parquet at all"),
    ],
)
def test_files_that_are_no_dataset_are_refused(name: str, content: str, tmp_path: Path, capsys) -> None:
    """A file that is not what it claims to be is a configuration error that names it."""
    assert main(["train", damaged(tmp_path / name, content), "--models", str(tmp_path / "m")]) == 2
    said = capsys.readouterr().err
    assert name in said
    assert "Traceback" not in said


@pytest.mark.parametrize("value", ["nan", "inf", "-1"])
def test_impossible_counters_are_refused(value: str, bench, tmp_path: Path, capsys) -> None:
    """A throughput that is no number, infinite or negative never reaches a model."""
    table = tmp_path / "table.csv"
    assert main(["dataset", "export", str(bench.dataset), "--out", str(table)]) == 0
    text = table.read_text(encoding="utf-8")
    frame = pd.read_csv(table, comment="#", dtype=str, keep_default_na=False)
    text = text.replace(f",{frame['throughput_mpps'].iloc[0]},", f",{value},", 1)
    head, rest = text.split("\n", 1)
    mark, fields = head.split(":", 1)
    text = (
        f"{mark}: {json.dumps({name: value for name, value in json.loads(fields).items() if name != 'rows'})}\n{rest}"
    )
    capsys.readouterr()

    assert main(["train", damaged(table, text), "--models", str(tmp_path / "m")]) == 2
    assert "throughput_mpps" in capsys.readouterr().err


def test_truncated_dataset_is_refused(bench, tmp_path: Path, capsys) -> None:
    """Half a parquet file is a configuration error."""
    half = bench.dataset.read_bytes()[: bench.dataset.stat().st_size // 2]

    assert main(["dataset", "show", damaged(tmp_path / "half.parquet", half)]) == 2
    assert "half.parquet" in capsys.readouterr().err


def test_metric_a_model_needs_is_missed_by_name(profiled: ProfileDataset, tmp_path: Path, capsys) -> None:
    """Training a model on a dataset without its metric says which metric, with exit code 4."""
    frame = profiled.frame
    frame[["competition.L3OCC", "own.L3OCC", "beside.L3OCC"]] = float("nan")
    path = tmp_path / "without.parquet"
    ProfileDataset(frame, profiled.environment).to_parquet(path)

    assert main(["train", str(path), "--models", str(tmp_path / "m"), "--model", "bubbleup"]) == 4
    assert "L3OCC" in capsys.readouterr().err


def damage_models(bench, folder: Path, change: str) -> str:
    """Copy the models and damage the first NF's file."""
    shutil.copytree(bench.models, folder)
    file = sorted(folder.rglob("model.json"))[0]
    text = file.read_text(encoding="utf-8")
    if change == "truncated":
        file.write_text(text[: len(text) // 2], encoding="utf-8")
    elif change == "version":
        index = folder / "library.json"
        data = json.loads(index.read_text(encoding="utf-8"))
        index.write_text(json.dumps({**data, "schema_version": 99}), encoding="utf-8")
    else:
        (folder / "library.json").unlink()
    return str(folder)


DAMAGES = [("truncated", "model.json"), ("version", "99"), ("no index", "library.json")]


@pytest.mark.parametrize(("change", "said"), DAMAGES)
def test_damaged_models_are_refused(change: str, said: str, bench, tmp_path: Path, capsys) -> None:
    """A truncated model file, another schema version or a missing index is told, not guessed around."""
    models = damage_models(bench, tmp_path / "models", change)

    codes = {main(f"predict --target {name} --with stats --models {models}".split()) for name in ("snort", "lpm")}
    assert 2 in codes
    assert codes <= {0, 2}
    assert said in capsys.readouterr().err


def test_the_hint_at_a_damaged_index_works(bench, profiled: ProfileDataset, tmp_path: Path, capsys) -> None:
    """What the message says to do makes the library readable again."""
    models = damage_models(bench, tmp_path / "models", "none")
    Path(models, "library.json").write_text('{"models"', encoding="utf-8")
    assert main(["predict", "--target", "lpm", "--models", models]) == 2
    said = " ".join(capsys.readouterr().err.split())
    command = re.search(r"slomo (train PROFILE --models \S+);", said)
    assert command is not None, said
    assert main([*command[1].replace("PROFILE", str(bench.dataset)).split(), "--model", "none"]) == 0
    assert main(["predict", "--target", "lpm", "--models", models, "--model", "none"]) == 0


PROFILE = ["profile", "l2fwd", "--plan", "solo"]


def test_corrupt_store_is_refused_and_left_alone(tmp_path: Path, capsys) -> None:
    """A store that is no database ends with exit code 3 and keeps its bytes."""
    store = tmp_path / "runs.sqlite"
    damaged(store, b"this is no database" * 100)
    before = store.read_bytes()

    assert main([*PROFILE, "--out", str(tmp_path / "p.parquet"), "--store", str(store)]) == 3
    assert "runs.sqlite" in capsys.readouterr().err
    assert store.read_bytes() == before


def test_store_of_another_campaign_is_refused_with_the_difference(tmp_path: Path, capsys) -> None:
    """A store is never filled with runs that do not belong to it."""
    store = str(tmp_path / "runs.sqlite")
    assert main([*PROFILE, "--out", str(tmp_path / "a.parquet"), "--store", store]) == 0

    other = [*PROFILE, "--machine", "silver-4110", "--out", str(tmp_path / "b.parquet"), "--store", store]
    assert main(other) == 4
    said = capsys.readouterr().err
    assert "belongs to another campaign (there | asked for)" in said
    assert "(--store FILE), delete '" in said
    assert "plan.colocations" in said


def test_two_campaigns_on_one_store(tmp_path: Path, capsys) -> None:
    """The second campaign on a store is turned away at once, with exit code 3."""
    from slomo.profiling.campaign.store import CampaignStore

    store = tmp_path / "runs.sqlite"
    with CampaignStore(store):
        assert main([*PROFILE, "--out", str(tmp_path / "p.parquet"), "--store", str(store)]) == 3
    assert "runs.sqlite" in capsys.readouterr().err
    assert main([*PROFILE, "--out", str(tmp_path / "p.parquet"), "--store", str(store)]) == 0


def test_wrong_schema_version_of_a_store(tmp_path: Path, capsys) -> None:
    """A store of another version is refused with both versions."""
    store = tmp_path / "runs.sqlite"
    assert main([*PROFILE, "--out", str(tmp_path / "p.parquet"), "--store", str(store)]) == 0
    with sqlite3.connect(store) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()

    assert main([*PROFILE, "--out", str(tmp_path / "q.parquet"), "--store", str(store)]) == 3
    assert "99" in capsys.readouterr().err


def test_read_only_place_is_refused_before_measuring(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory one may not write to is told before any run."""
    # Permission bits do not stop root, so the system's answer is what has to change.
    monkeypatch.setattr(os, "access", lambda path, mode: False)

    assert main([*PROFILE, "--out", str(tmp_path / "p.parquet")]) == 2
    assert "read-only" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_missing_folder_is_refused_before_measuring(tmp_path: Path, capsys) -> None:
    """A folder that is not there is named, with the command that makes it."""
    assert main([*PROFILE, "--out", str(tmp_path / "nowhere" / "p.parquet")]) == 2
    assert "mkdir -p" in capsys.readouterr().err


def test_interrupt_keeps_what_is_finished(tmp_path: Path) -> None:
    """Ctrl-C ends a campaign with 130, says how many runs are kept, and keeps them."""
    store = tmp_path / "runs.sqlite"
    line = f"profile l2fwd --plan pressure --jobs 1 --store {store} --out {tmp_path / 'p.parquet'}"
    program = [sys.executable, "-m", "slomo", *line.split()]
    running = subprocess.Popen(program, stderr=subprocess.PIPE, text=True)
    for _ in range(600):
        time.sleep(0.1)
        if store.exists() and finished(store):
            break
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)

    assert running.returncode == 130
    assert "kept in" in said
    assert "Traceback" not in said
    assert finished(store) > 0


def finished(store: Path) -> int:
    """Count the runs a store holds, while its campaign goes on."""
    connection = sqlite3.connect(store, timeout=10)
    try:
        return int(connection.execute("SELECT count(*) FROM runs").fetchone()[0])
    except sqlite3.Error:
        return 0
    finally:
        connection.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_full_disk_is_told(tmp_path: Path) -> None:
    """Output that cannot be written ends with a message and no traceback."""
    program = [sys.executable, "-m", "slomo", "machine", "list"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert done.returncode != 0
    assert "Traceback" not in done.stderr
