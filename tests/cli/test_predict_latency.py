"""Facts about latency at the command line: measured with a flag, predicted at an offered load."""

import json

import pytest

from slomo.cli.main import main
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.latency_plans import latency_plan
from slomo.testbed.simulated import SimulatedTestbed


def command(capsys, line: str) -> tuple[int, str, str]:
    code = main(line.split())
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture(scope="module")
def timed(profiled, tmp_path_factory):
    """Return models with latency: the small profile and runs at several loads."""
    folder = tmp_path_factory.mktemp("timed")
    plan = latency_plan(profiled, ["lpm@64B,100000f"], loads=(0.3, 0.5, 0.7, 0.9), pressures=3, seed=1)
    more = run_campaign(plan, SimulatedTestbed(accesses=90_000, scale=64))
    profiled.merge(more).to_parquet(folder / "profile.parquet")
    assert (
        main(
            [
                "train",
                str(folder / "profile.parquet"),
                "--models",
                str(folder / "models"),
                "--target",
                "lpm",
                "--model",
                "slomo-xgb",
            ]
        )
        == 0
    )
    return folder / "models"


def test_latency_is_shown_at_an_offered_load(timed, capsys) -> None:
    """`predict --offered` prints load, percentiles with intervals, and a verdict of its own."""
    code, out, _ = command(capsys, f"predict --target lpm --offered 1 --models {timed}")
    assert code == 0
    for text in ("load  ", "p50  ", "p95  ", "p99  ", "latency  ", "90 % interval"):
        assert text in out


def test_latency_is_in_the_json(timed, capsys) -> None:
    """The JSON has the percentiles in order; without a load it has null."""
    line = f"predict --target lpm --models {timed} --json"
    latency = json.loads(command(capsys, f"{line} --offered 1")[1])["latency"]
    assert latency["percentiles_us"]["p50"] <= latency["percentiles_us"]["p95"] <= latency["percentiles_us"]["p99"]
    assert json.loads(command(capsys, line)[1])["latency"] is None


def test_overload_is_said_not_guessed(timed, capsys) -> None:
    """Offered more than can be served, no percentile is printed."""
    _, out, _ = command(capsys, f"predict --target lpm --offered 50 --models {timed}")
    assert "packets are lost" in out
    assert "p95" not in out


def test_an_nf_without_latency_says_how_to_get_it(bench, capsys) -> None:
    """Models trained at full load only still answer throughput, and name the command that is missing."""
    code, out, _ = command(capsys, f"predict --target lpm --offered 1 --models {bench.models}")
    assert code == 0
    assert "slomo profile NF --latency" in out


@pytest.mark.parametrize("load", ["0", "-1", "nan"])
def test_impossible_loads_are_refused(timed, capsys, load) -> None:
    """A load that is not above 0 ends with exit code 2."""
    code, _, err = command(capsys, f"predict --target lpm --offered {load} --models {timed}")
    assert code == 2
    assert "offered" in err


def test_a_vector_has_no_latency(timed, capsys) -> None:
    """--vector with --offered is refused with a hint."""
    code, _, err = command(capsys, f"predict --target lpm --vector L3OCC=1 --offered 1 --models {timed}")
    assert code == 2
    assert "hint" in err


def test_profile_measures_latency_on_request(tmp_path, capsys) -> None:
    """`profile --latency` adds runs at eight loads; --dry-run says so."""
    code, out, _ = command(capsys, "profile lpm --plan solo --latency --dry-run")
    assert code == 0
    assert "latency" in out
    code, out, _ = command(capsys, f"profile l2fwd --plan solo --latency --out {tmp_path}/p.parquet --json")
    assert code == 0
    assert json.loads(out)["rows"] == 9
