"""The `host:` section of a network function, and what is filled into its command."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from slomo.errors import ConfigurationError, InvalidValueError, TestbedError, UnknownNameError
from slomo.host.cores import assign_cores, parse_cpu_list
from slomo.testbed.host.counters.registry import choose_reader
from slomo.testbed.host.nf import command
from slomo.testbed.host.nf.command import Surroundings, command_words
from slomo.testbed.host.nf.definition import HostDefinition, host_definition, parse_host, runnable_names
from slomo.testbed.host.settings import HostSettings
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.workload import Traffic, Workload

GOOD = """\
description: a program of one's own
settings: {size: 4}
host:
  command: [program, --core, "{core}", --size, "{size}", --frames, "{frame_b}", --prefix, "{file_prefix}"]
  throughput: {source: json-lines, packets: packets}
"""
WHERE = Surroundings(cores=(3, 5), directory="/run", file_prefix="mine", pcap="/t.pcap", port=7001)


def test_commands_are_filled_in(tmp_path: Path) -> None:
    """Placeholders stand for cores, settings and traffic; words stay words, whatever they hold."""
    file = tmp_path / "own.yaml"
    file.write_text(GOOD)
    definition = host_definition(str(file))
    workload = Workload("own", {"size": "8; rm -rf /"}, Traffic(packet_size_b=128))
    words, environment = command_words(definition, workload, WHERE)
    assert words == ["program", "--core", "3", "--size", "8; rm -rf /", "--frames", "124", "--prefix", "mine"]
    assert environment == {}


@pytest.mark.parametrize(
    ("change", "line", "field"),
    [
        ("comand: [x]", 4, "host.comand"),
        ("command: program --core 3", 4, "host.command"),
        ("command: [x]\n  ready: {regexp: x}", 5, "host.ready.regexp"),
        ("command: [x]\n  ready: {regex: '('}", 5, "host.ready"),
        ("command: [x]\n  ready: {regex: a, file: b}", 5, "host.ready"),
        ("command: [x]\n  cores: 0", 5, "host.cores"),
        ("command: [x]\n  stop: {signal: SIGSTOP}", 5, "host.stop.signal"),
    ],
)
def test_wrong_fields_are_named_with_file_and_line(change: str, line: int, field: str, tmp_path: Path) -> None:
    """A mistake in the section names file, line and field, exit code 2."""
    file = tmp_path / "own.yaml"
    kept = GOOD.splitlines()
    file.write_text("\n".join([*kept[:3], f"  {change}", kept[4], ""]))
    with pytest.raises(ConfigurationError) as caught:
        host_definition(str(file))
    assert f"own.yaml:{line}: field '{field}'" in caught.value.message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "throughput",
    [
        {"source": "json-lines"},
        {"source": "regex"},
        {"source": "regex", "pattern": "no group"},
        {"source": "click", "packets": "c.count"},
        {"source": "tea-leaves", "packets": "x"},
    ],
)
def test_sources_need_what_they_read(throughput: dict[str, Any]) -> None:
    """A source without what it needs is refused before anything runs."""
    with pytest.raises(ConfigurationError, match="throughput"):
        parse_host({"command": ["x"], "throughput": throughput}, nf="own")


def test_unknown_placeholders_are_refused() -> None:
    """A placeholder that stands for nothing is named, with those that would do."""
    definition = parse_host(
        {"command": ["x", "{cpu}"], "throughput": {"source": "json-lines", "packets": "p"}}, nf="own"
    )
    with pytest.raises(ConfigurationError, match=r"\{cpu\}") as caught:
        command_words(definition, Workload("own"), WHERE)
    assert "{core}" in str(caught.value.hint)


def test_a_network_function_on_paper_cannot_run() -> None:
    """An NF without the section is refused, with the names of those that have one."""
    with pytest.raises(TestbedError) as caught:
        host_definition(NetworkFunction("paper", "only simulated"))
    assert "synthetic" in str(caught.value.hint)


def test_shipped_network_functions_can_run() -> None:
    """At least six shipped NFs and the synthetic competitor run on a real machine, and every section is valid."""
    definitions = [host_definition(name) for name in runnable_names()]
    assert len(definitions) >= 6
    for definition in definitions:
        if "{slomo_nf}" in definition.command:
            words = [word for word in definition.command if word not in ("{slomo_nf}", "{slomo_nf_dpdk}")]
            filled, _ = command_words(parse_host_again(definition.nf, words), Workload(definition.nf), WHERE)
            assert not any("{" in word for word in filled)


def parse_host_again(nf: str, words: list[str]) -> Any:
    """Return a shipped definition whose command does without our binary, so that nothing is compiled."""
    section = host_definition(nf).section
    return HostDefinition(nf, structs.replace(section, command=words), host_definition(nf).settings)


def test_fingerprints_follow_the_definition() -> None:
    """Two definitions share a fingerprint only if they say the same, in every version of slomo."""
    section = {"command": ["x"], "throughput": {"source": "json-lines", "packets": "p"}}
    one = parse_host(section, nf="own")
    full = {**section, "command": ["x", 3, 2.5], "ready": {"tcp_port": 7001}, "traffic": {"generator": True}}
    assert one.fingerprint == "ceddde6fba13ac7a"  # stored traces and calibrations carry these
    assert parse_host(full, nf="own").fingerprint == "948f619f60038a6f"
    assert one.fingerprint != parse_host({**section, "stop": {"signal": "SIGTERM"}}, nf="own").fingerprint
    assert one.fingerprint != parse_host({**section, "steady": {"stretch_s": 2}}, nf="own").fingerprint


@pytest.mark.parametrize("text", ["1-", "a", "3-1", "-1", "0-99999999"])
def test_lists_of_cpus_are_checked(text: str) -> None:
    """What is no list of CPUs is refused, huge ranges too."""
    with pytest.raises(InvalidValueError, match="no list of CPUs"):
        parse_cpu_list(text)


def test_tenants_never_share_cores() -> None:
    """Cores are given out in order, each once; too few are an error that counts them."""
    assert assign_cores((4, 5, 6), (2, 1), "x") == [(4, 5), (6,)]
    with pytest.raises(InvalidValueError, match="needs 4 cores for 2 tenants, this host offers 3 \\(4-6\\)"):
        assign_cores((4, 5, 6), (2, 2), "x")


def test_settings_are_checked() -> None:
    """A setting outside its range is named with what was needed."""
    for wrong in (
        {"window_s": 0.0},
        {"pairs": 0},
        {"most_pairs": 1},
        {"minimum_cpu_share": 1.5},
        {"limit": float("nan")},
    ):
        with pytest.raises(InvalidValueError, match=next(iter(wrong))):
            HostSettings(**wrong)  # type: ignore[arg-type]


def test_counter_readers_are_chosen_by_what_works() -> None:
    """The first reader that works is taken; one asked for by name must work."""
    readers = {"broken": f"{__name__}:Broken"}
    assert choose_reader(None, {}) is None
    with pytest.raises(UnknownNameError, match="brocken"):
        choose_reader("brocken", readers)
    with pytest.raises(TestbedError, match="no module for it"):
        choose_reader(Broken())


class Broken:
    """A reader that never works."""

    name = "broken"

    def available(self) -> tuple[bool, str]:
        """Say no."""
        return False, "no module for it"

    def start(self, cores: Any) -> None:
        """Never called."""
        raise AssertionError

    def stop(self) -> Any:
        """Never called."""
        raise AssertionError


def test_the_examples_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every example of the documentation is a network function whose command can be filled in; nothing is built."""
    monkeypatch.setattr(command, "slomo_nf_binary", lambda build: Path(f"/cache/slomo-nf-{build}"))
    folder = Path(__file__).resolve().parents[2] / "docs" / "examples"
    examples = sorted(folder.glob("*.yaml"))
    assert {"suricata", "snort"} <= {file.stem for file in examples}
    for file in examples:
        definition = host_definition(str(file))
        words, _ = command_words(definition, Workload(definition.nf), WHERE)
        assert not any("{" in word for word in words)
