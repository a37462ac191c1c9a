"""Facts about asking for whole servers at the command line."""

import json

from slomo.cli.main import main


def command(capsys, line: str) -> tuple[int, str, str]:
    code = main(line.split())
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_equilibrium_can_be_asked_for(bench, capsys) -> None:
    """`predict --method equilibrium` answers with the same keys, the method as model, and a loss beside others."""
    base = f"predict --target lpm --with stats:2 --with snort --models {bench.models} --json --method composed"
    code, out, _ = command(capsys, base.replace("composed", "equilibrium"))
    _, composed, _ = command(capsys, base)
    prediction = json.loads(out)
    assert code == 0
    assert set(prediction) == set(json.loads(composed))
    assert prediction["model"] == "equilibrium"
    assert 0.0 < prediction["slowdown"] < 1.0
    assert abs(prediction["throughput_mpps"] / json.loads(composed)["throughput_mpps"] - 1.0) < 0.15


def test_a_load_that_can_be_served_is_served(bench, capsys) -> None:
    """An NF offered little serves just that."""
    line = f"predict --target lpm@64B,100000f,0.5Mpps --with stats --models {bench.models} --method equilibrium --json"
    code, out, _ = command(capsys, line)
    assert code == 0
    assert json.loads(out)["throughput_mpps"] == 0.5


def test_a_vector_stands_for_no_server(bench, capsys) -> None:
    """--vector with --method equilibrium is refused with a hint, exit code 2."""
    line = f"predict --target lpm --vector L3OCC=1024 --method equilibrium --models {bench.models}"
    code, _, err = command(capsys, line)
    assert code == 2
    assert "hint" in err


def test_what_the_equilibrium_would_pass_over_is_refused(bench, capsys) -> None:
    """--compat is refused with a hint."""
    base = f"predict --target lpm --with stats --method equilibrium --models {bench.models}"
    code, _, err = command(capsys, f"{base} --compat published")
    assert code == 2
    assert "compat is 'published'" in err


def test_the_equilibrium_explains_its_loss(bench, capsys) -> None:
    """--explain divides the loss over the neighbours, from the pressure that the NF feels at the fixed point."""
    line = f"predict --target lpm --with stats:2 --with snort --models {bench.models} --explain --json"
    code, out, _ = command(capsys, line)
    prediction = json.loads(out)
    assert code == 0
    assert prediction["model"] == "equilibrium"
    why = prediction["explanation"]
    assert set(why["competitors"]) == {"stats", "snort"}
    parts = sum(sum(each.values()) for each in why["competitors"].values()) + why["unattributed_mpps"]
    assert abs(parts - why["loss_mpps"]) < 1e-9
    assert abs(prediction["solo_mpps"] - prediction["throughput_mpps"] - why["loss_mpps"]) < 1e-9
    assert why["groups"][why["bottleneck"]] == max(why["groups"].values())
    assert "stats" in why["lever"] or "snort" in why["lever"]
