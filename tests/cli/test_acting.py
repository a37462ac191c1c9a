"""`slomo whatif`, `slomo control` and `slomo noisy-neighbour`: from the command line to tables and exit codes."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from slomo.cli.main import main
from slomo.host.cores import available_cores
from slomo.models.library import ModelLibrary
from slomo.vocabulary.machine import load_machine

LOOP = """
machine: e5-2620v4
controller: {controller}
period_s: 5
dwell_s: 5
steps: 4
tenants:
  - {{name: victim, workload: lpm, slo: 0.9}}
  - {{name: noise, workload: stats}}
"""
NOISE = """
machine: e5-2620v4
path: [{name: look-up, nf: lpm, passes: 1}, {name: vm, nf: l2fwd}]
noise: {nf: stats, levels: [0, 4]}
policies: [none, llc, burstable]
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def partitions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a profile of two workloads over partitions, as the command keeps it."""
    kept = tmp_path_factory.mktemp("whatif") / "partitions.json"
    assert main(["whatif", "lpm", "stats", "--profiles", str(kept)]) == 0
    return kept


def tenants_of(partitions: Path, capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, dict]:  # type: ignore[type-arg]
    assert main(["whatif", "lpm", "stats", *words, "--profiles", str(partitions), "--json"]) == code
    return {row["tenant"]: row for row in json.loads(capsys.readouterr().out)["tenants"]}


def test_whatif_answers_ways_throttles_weights_and_nodes(partitions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each lever moves what it should: fewer ways, a throttle, half a core and a remote memory all cost."""
    free = tenants_of(partitions, capsys)["0:lpm"]
    few = tenants_of(partitions, capsys, "--ways", "0x1,0xffffe")["0:lpm"]
    throttled = tenants_of(partitions, capsys, "--ways", "0x3,0xffffc", "--bandwidth-percent", "10,100")["0:lpm"]
    far = tenants_of(partitions, capsys, "--nodes", "1,0")["0:lpm"]
    half = tenants_of(partitions, capsys, "--cores", "3,3")
    more = tenants_of(partitions, capsys, "--cores", "3,3", "--weights", "3,1")

    assert few["throughput_mpps"] < 0.9 * free["throughput_mpps"]
    assert few["bottleneck"] == "cache"
    assert throttled["bottleneck"] == "throttle"
    assert far["throughput_mpps"] < 0.95 * free["throughput_mpps"]
    assert far["bottleneck"] == "remote memory"
    assert far["verdict"] == "supported"
    assert [row["core_share"] for row in half.values()] == [0.5, 0.5]
    assert [row["core_share"] for row in more.values()] == [0.75, 0.25]
    assert half["0:lpm"]["bottleneck"] == "shared core"
    assert half["0:lpm"]["low_mpps"] < half["0:lpm"]["throughput_mpps"] < half["0:lpm"]["high_mpps"]


def test_whatif_advises_and_says_by_its_exit_code_what_breaks(
    partitions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 says that a promise breaks; advice brings memory home, and gives the reasons of its verdicts."""
    far = ["whatif", "lpm", "stats", "--nodes", "1,0", "--slo", "0=0.92", "--profiles", str(partitions)]

    assert main(far) == 1
    assert "NO" in capsys.readouterr().out
    assert main([*far, "--advise"]) == 0
    assert "smallest change" in capsys.readouterr().out
    assert main(["whatif", "lpm", "stats", "--slo", "0=0.95", "--advise", "--profiles", str(partitions)]) == 0
    assert "1:stats: extrapolated; cards write" in capsys.readouterr().err
    assert main(["whatif", "lpm", "stats", "--slo", "0=1.0", "--advise", "--profiles", str(partitions)]) == 1
    assert "move a tenant elsewhere" in capsys.readouterr().out


def test_whatif_says_what_is_not_certain(partitions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A promise inside the interval is kept, not certainly; verdicts are a column."""
    row = tenants_of(partitions, capsys)["0:lpm"]
    share = (row["low_mpps"] + row["throughput_mpps"]) / 2 / row["solo_mpps"]

    assert main(["whatif", "lpm", "stats", "--slo", f"0={share}", "--profiles", str(partitions)]) == 0
    told = capsys.readouterr().out
    assert "not certain" in told
    assert "verdict" in told.splitlines()[0]
    assert "share of core" in told.splitlines()[0]
    assert main(["whatif", "lpm", "stats", "--sockets", "0,1", "--nodes", "1,1", "--profiles", str(partitions)]) == 0
    assert "own node" not in capsys.readouterr().out


def test_whatif_names_the_machine_of_the_file(partitions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A profile of another machine is refused by its name."""
    assert main(["whatif", "lpm", "stats", "--machine", "silver-4110", "--profiles", str(partitions)]) == 5
    assert "partitions of 'e5-2620v4' were profiled, asked about 'silver-4110'" in capsys.readouterr().err


def test_whatif_checks_names_before_it_profiles(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown function is told before anything is profiled."""
    assert main(["whatif", "lmp", "stats"]) == 2
    told = capsys.readouterr().err
    assert "'lmp'" in told
    assert "profiling" not in told


def test_whatif_takes_the_only_machine_of_the_models(
    tmp_path: Path, toy_library: ModelLibrary, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --machine the models' machine is asked about; one of the user's own needs its file, named or not."""
    lpm = toy_library.find("lpm")
    for name in ("silver-4110", "rack-7"):
        model = replace(
            lpm, machine=name, capacities=load_machine("silver-4110").capacities(), manifest={"schema_version": 9}
        )
        ModelLibrary([model]).save(tmp_path / name)
    assert main(["whatif", "lpm", "lpm", "--models", str(tmp_path / "silver-4110"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["machine"] == "silver-4110"
    for words in ([], ["--machine", "rack-7"]):
        assert main(["whatif", "lpm", "lpm", "--models", str(tmp_path / "rack-7"), *words]) == 2
        assert "--machine rack-7.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ways", "0x1"], "ways [1] for 2 NFs"),
        (["--ways", "0x100000,0x1"], "way mask 0x100000 on 'e5-2620v4', needed 1 or more adjacent ways of 0xfffff"),
        (["--ways", "0x5,0x1"], "way mask 0x5 on 'e5-2620v4', needed 1 or more adjacent ways"),
        (["--nodes", "0,2"], "nodes: 2, but"),
        (["--weights", "0,1"], "CPU weight 0"),
        (["--cores", "0,99"], "core 99 asked for, it has cores 0 to 15"),
        (["--bandwidth-percent", "few,100"], "'few' is no whole number"),
        (["--slo", "2=0.9"], "for 2 tenants"),
        (["--slo", "1=9"], "write 1=0.09 for 9 %"),
        (["--slo", "1=0.9", "--slo", "1=0.8"], "'1=0.8' is a second promise to tenant 1"),
        (["--learn"], "--learn was given without --models"),
        (["--models", "models"], "--profiles and --models were given"),
    ],
)
def test_slips_are_usage_errors(
    partitions: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not there is refused with exit code 2."""
    assert main(["whatif", "lpm", "stats", *words, "--profiles", str(partitions)]) == 2
    assert message in capsys.readouterr().err


def test_control_runs_a_loop_and_shows_none_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The summary counts rounds; after the loop nothing is open."""
    path = tmp_path / "loop.yaml"
    path.write_text(LOOP.format(controller="max_min"), encoding="utf-8")

    main(["control", "run", str(path), "--json"])
    summary = json.loads(capsys.readouterr().out)
    assert main(["control", "status", "--json"]) == 0
    status = json.loads(capsys.readouterr().out)

    assert summary["rounds"] == 4
    assert summary["controller"] == "max_min"
    assert set(summary["targets_mpps"]) == {"victim"}
    assert status == {"loops": [], "open_receipts": []}


def test_control_refuses_what_it_does_not_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown controller is named with those that there are."""
    path = tmp_path / "loop.yaml"
    path.write_text(LOOP.format(controller="guarf"), encoding="utf-8")

    assert main(["control", "run", str(path)]) == 2
    assert "did you mean 'guard'" in capsys.readouterr().err


def test_control_refuses_a_core_that_the_machine_does_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the first round; a loop that only hears refusals would end with exit code 0."""
    chains = "machine: e5-2620v4\nstages: {a: {cycles: 250, core: 77}}\nchains: {c: {stages: [a], mpps: 1}}\nsteps: 2\n"
    (tmp_path / "loop.yaml").write_text(chains)
    assert main(["control", "run", str(tmp_path / "loop.yaml")]) == 2
    assert "stages.a.core is 77, machine 'e5-2620v4' has cores 0 to 15" in capsys.readouterr().err


def test_noisy_neighbour_reports_every_level_and_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row per level and policy, as JSON, CSV and a page; noise costs throughput."""
    pytest.importorskip("MLRsearch")
    path = tmp_path / "test.yaml"
    path.write_text(NOISE, encoding="utf-8")
    csv, page = tmp_path / "rows.csv", tmp_path / "page.html"

    assert main(["noisy-neighbour", str(path), "--json", "--csv", str(csv), "--report", str(page)]) == 0
    rows = {(row["noise"], row["policy"]): row for row in json.loads(capsys.readouterr().out)["rows"]}

    assert {(0, "none"), (4, "none"), (4, "llc")} <= set(rows)
    assert rows[4, "none"]["throughput_mpps"] <= rows[0, "none"]["throughput_mpps"]
    assert rows[0, "none"]["throughput_mpps"] <= rows[0, "none"]["upper_mpps"]
    masks = {name: int(mask, 16) for name, mask in rows[4, "burstable"]["settings"].items() if name.startswith("ways:")}
    assert masks == {
        "ways:look-up": 0xFFE00,
        "ways:vm": 0x3000,  # of three burstable ways, since the first noise has the third
        "ways:noise0": 0x4000,
        **{f"ways:noise{number}": 0xE00 for number in (1, 2, 3)},
    }
    assert len(csv.read_text(encoding="utf-8").splitlines()) == len(rows) + 1
    assert "<html" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        ("{infrastructure: 21}", "infrastructure has 21 ways, needed at most 20 ('e5-2620v4')"),
        ("{burstable: 4, noise: 6}", "at least burstable 4 + noise 6 + 2 of the stages behind the first"),
        ("{bursting: 4}", "bursting"),
        ("{burstable: 1}", "pools.burstable"),
    ],
)
def test_pools_that_do_not_fit_are_refused(
    pools: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is simulated, with the file's name and what the pools need."""
    path = tmp_path / "test.yaml"
    path.write_text(f"{NOISE}pools: {pools}\n", encoding="utf-8")

    assert main(["noisy-neighbour", str(path)]) == 2
    error = capsys.readouterr().err
    assert str(path) in error
    assert message in error


HOST_NOISE = """
machine: host
victim: synthetic(data_size_mib=8)
noise: {nf: synthetic(data_size_mib=8), levels: [1]}
policies: [none]
repetitions: 3
window_s: 0.1
"""


def test_noise_on_this_host_is_told_beside_its_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A victim and its noise run as processes; what is lost within the error of the windows is called nothing."""
    if len(available_cores()) < 2 or shutil.which("cc") is None:
        pytest.skip("a victim and its noise need two cores and a C compiler")
    monkeypatch.delenv("XDG_CACHE_HOME")  # where the network functions were built already
    file = tmp_path / "noise.yaml"
    longer = HOST_NOISE.replace("window_s: 0.1", "window_s: 0.5")  # other load may stop a function for some tenths
    file.write_text(longer, encoding="utf-8")

    assert main(["noisy-neighbour", str(file), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]

    assert row["quiet_mpps"] > 0.0
    told = abs(row["lost_share"]) > row["error_share"]
    assert told == (row["verdict"] != "nothing to tell")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("policies: [none]", "policies: [llc]", "unknown policy 'llc'"),
        ("repetitions: 3", "repetitions: 2", "got 2, needed a whole number >= 3"),
        ("victim: synthetic(data_size_mib=8)\n", "", "'victim'"),
        ("window_s: 0.1", "rate: 3", "field 'rate': is not known"),
    ],
)
def test_a_wrong_test_of_this_host_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    """Each fault is named, and nothing is started."""
    file = tmp_path / "noise.yaml"
    file.write_text(HOST_NOISE.replace(old, new), encoding="utf-8")

    assert main(["noisy-neighbour", str(file)]) in (2, 3)
    assert said in capsys.readouterr().err
