"""`slomo chain simulate`: chains on shared cores, from a document to a table."""

import json
from pathlib import Path

import pytest

from slomo.cli.main import main

DOCUMENT = """
stages: {nf1: {cycles: 120, core: 0}, nf2: {cycles: 270, core: 0}}
chains: {web: {stages: [nf1, nf2], mpps: 8}}
"""


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "chains.yaml"
    path.write_text(DOCUMENT, encoding="utf-8")
    return path


def test_policies_are_played_and_told_apart(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """NFVnice wastes nothing where the plain scheduler does; both say which policy they are."""
    answers = {}
    for policy in ("nfvnice", "cfs"):
        assert main(["chain", "simulate", str(document), "--policy", policy, "--window-ms", "20", "--json"]) == 0
        answers[policy] = json.loads(capsys.readouterr().out)

    assert answers["cfs"]["policy"] == "cfs"
    assert answers["nfvnice"]["chains"]["web"]["wasted_mpps"] < 0.1 * answers["cfs"]["chains"]["web"]["wasted_mpps"]
    assert answers["nfvnice"]["stages"]["nf1"]["cpu_share"] < answers["nfvnice"]["stages"]["nf2"]["cpu_share"]


def test_table_names_chains_and_stages(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """People get one table of chains and one of stages."""
    assert main(["chain", "simulate", str(document), "--window-ms", "5", "--warm-ms", "1"]) == 0
    text = capsys.readouterr().out

    assert "lost at entry" in text
    assert all(name in text for name in ("web", "nf1", "nf2"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            DOCUMENT.replace("core: 0}}", "core: 16}}"),
            "chains.yaml: stages.nf2.core is 16, machine 'e5-2620v4' has cores",
        ),
        (
            "memory_socket: 2" + DOCUMENT,
            "chains.yaml: memory_socket is 2, machine 'e5-2620v4' has memory on sockets 0 to 1",
        ),
        (
            "stages: {a: {nf: lpn, core: 0}}\nchains: {web: {stages: [a], mpps: 1}}",
            "chains.yaml: unknown network function 'lpn'",
        ),
    ],
)
def test_what_the_machine_lacks_is_told_with_file_and_field(
    document: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A core, a memory or a function that is not there ends with exit code 2, before anything is simulated."""
    document.write_text(text, encoding="utf-8")
    assert main(["chain", "simulate", str(document)]) == 2
    assert message in capsys.readouterr().err


def test_tcp_that_nobody_marks_is_told(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A scheduler alone sets no marks: the chain and its field are named; the command goes on."""
    document.write_text(DOCUMENT.replace("mpps: 8", "kind: tcp, gbps: 1, packet_size_b: 1500"), encoding="utf-8")
    for policy, told in (("eevdf", True), ("nfvnice", False)):
        assert main(["chain", "simulate", str(document), "--policy", policy, "--window-ms", "1", "--warm-ms", "0"]) == 0
        assert ("chains.web.kind is tcp, but 'eevdf' marks no packets (ECN)" in capsys.readouterr().err) is told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "nfvnise"], "did you mean 'nfvnice'"),
        (["--cpu-scheduler", "cfx"], "unknown scheduler 'cfx'"),
        (["--without", "local"], "unknown part of nfvnice 'local'"),
        (["--window-ms", "0"], "Invalid value for '--window-ms': '0' is not a number above 0"),
    ],
)
def test_slips_are_usage_errors(
    document: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong name or a time that is none ends with exit code 2 and says what is there."""
    assert main(["chain", "simulate", str(document), *arguments]) == 2
    assert message in capsys.readouterr().err
