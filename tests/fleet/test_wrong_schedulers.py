"""`--scheduler` with what is no address, and with one where nobody answers."""

import pytest

from slomo.cli.main import main

pytest.importorskip("distributed", reason="needs the extra fleet")


@pytest.fixture
def commands(toy_models, mixes_file, tmp_path):
    """Return the words of every command that takes a scheduler."""
    (tmp_path / "hosts.yaml").write_text("testbed: simulated\nhosts: [{name: a}]\n")
    (tmp_path / "cluster.yaml").write_text("servers: [{name: s1, machine: e5-2620v4}]\n")
    (tmp_path / "requests.yaml").write_text("requests: [{id: edge, nf: lpm}]\n")
    plan, out = str(tmp_path / "plan.json"), str(tmp_path / "out.parquet")
    assert main(["profile", "lpm", "--plan", "solo", "--dry-run", "--save-plan", plan]) == 0
    models, hosts = ["--models", str(toy_models)], str(tmp_path / "hosts.yaml")
    cluster, requests = str(tmp_path / "cluster.yaml"), str(tmp_path / "requests.yaml")
    return (
        ["profile", "lpm", "--plan", "solo", "--out", out],
        ["train", "slomo-e5-2620v4", "--models", str(tmp_path / "models"), "--model", "dobrescu"],
        ["predict", "--from", str(mixes_file), "--to", out, *models],
        ["fleet", "profile", plan, "--hosts", hosts, "--out", out],
        ["place", "compare", cluster, requests, *models, "--policy", "e2"],
    )


@pytest.mark.parametrize(
    ("address", "code", "told"),
    [
        ("nonsense://x", 2, "is no scheduler's address"),
        ("tcp://127.0.0.1:x", 2, "is no scheduler's address"),
        ("tcp://127.0.0.1:9", 3, "no scheduler answers at tcp://127.0.0.1:9"),
    ],
)
def test_it_is_told(commands, address, code, told, monkeypatch, capsys):
    """2 for what is no address, 3 where nobody answers; the address is named."""
    monkeypatch.setattr("slomo.fleet.spread.CONNECTING_S", 0.3)
    capsys.readouterr()
    for words in commands:
        assert main([*words, "--scheduler", address]) == code, words
        assert told in capsys.readouterr().err, words
