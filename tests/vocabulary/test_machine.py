"""Machines are read from documents with sources, and refuse nonsense by file, line and field."""

import dataclasses
import json

import pytest

from slomo.errors import ConfigurationError, InvalidValueError, UnknownNameError, UsageError
from slomo.vocabulary.machine import Machine, load_machine, machine_names

SIX = {"e5-2620v4", "silver-4110", "e5-2695v4", "e5-2699v4", "gold-6430", "epyc-7543"}


def test_the_six_machines_are_shipped_with_sources():
    """Six machines are there, and each that is says where its numbers come from."""
    assert set(machine_names()) >= SIX
    assert all(len(load_machine(name).source) > 40 for name in machine_names())


@pytest.mark.parametrize("name", machine_names())
def test_a_machine_survives_the_round_trip(name):
    """from_dict reads what to_dict writes."""
    machine = load_machine(name)
    assert Machine.from_dict(machine.to_dict()) == machine


def test_cores_map_to_sockets_and_domains():
    """Cores fill sockets in order, and domains within them."""
    epyc = load_machine("epyc-7543")
    assert [epyc.socket_of(core) for core in (0, 31, 32, 63)] == [0, 0, 1, 1]
    assert [epyc.llc_domain_of(core) for core in (0, 3, 4, 31, 32)] == [0, 0, 1, 7, 8]
    with pytest.raises(InvalidValueError, match="core 64"):
        epyc.socket_of(64)


def test_the_highest_ways_are_ddios():
    """Devices allocate in the two highest of Broadwell's 20 ways, nowhere on EPYC."""
    assert load_machine("e5-2695v4").ddio_way_mask == 0b11 << 18
    assert load_machine("epyc-7543").ddio_way_mask == 0


def test_an_unknown_machine_is_refused_with_the_nearest():
    """A misspelt name gets the nearest one."""
    with pytest.raises(UnknownNameError, match="did you mean 'silver-4110'"):
        load_machine("silver-4111")


def test_an_own_machine_is_a_file(tmp_path):
    """A document of one's own is loaded by path, and named after the file."""
    data = {k: v for k, v in load_machine("e5-2620v4").to_dict().items() if k not in ("name", "schema_version")}
    path = tmp_path / "mine.yaml"
    path.write_text("\n".join(f"{key}: {value!r}" for key, value in data.items()))
    assert load_machine(str(path)) == dataclasses.replace(load_machine("e5-2620v4"), name="mine")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sockets: two\n", r"bad\.yaml:1: field 'sockets'"),
        ("description: x\nsocket: 2\n", r"bad\.yaml:\d: field 'socket'"),
        ("- 1\n", r"bad\.yaml:1: is a list of 1"),
        ("a: [1\n", r"bad\.yaml:2:1: is not YAML"),
    ],
)
def test_a_wrong_document_is_refused_by_line_and_field(tmp_path, text, words):
    """The error names file, line and field."""
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=words):
        load_machine(str(path))


@pytest.mark.parametrize(
    ("name", "socket", "words"),
    [("mine", 7, r"^\S+bad\.yaml: machine 'mine': nic_socket is 7"), ("", 0, r"bad\.yaml:\d+: field 'name': got ''")],
)
def test_numbers_that_contradict_each_other_are_told_with_the_file(tmp_path, name, socket, words):
    """So is a name without a letter, which would name nothing in any table."""
    document = {**load_machine("e5-2620v4").to_dict(), "name": name, "nic_socket": socket}
    del document["schema_version"]
    (tmp_path / "bad.yaml").write_text("\n".join(f"{key}: {value!r}" for key, value in document.items()))
    with pytest.raises(UsageError, match=words):
        load_machine(str(tmp_path / "bad.yaml"))


def test_a_missing_file_is_refused(tmp_path):
    """A path without a file is refused as such."""
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_machine(str(tmp_path / "absent.yaml"))


@pytest.mark.parametrize(
    "change", [{"ddio_ways": 20}, {"nic_socket": 2}, {"frequency_ghz": 0.0}, {"llc_domains_per_socket": 3}]
)
def test_impossible_machines_are_refused(change):
    """Numbers that contradict each other are refused."""
    with pytest.raises(InvalidValueError, match=next(iter(change))):
        dataclasses.replace(load_machine("e5-2620v4"), **change)


def test_all_missing_fields_are_named_at_once(tmp_path):
    """A file with two fields is told the other twenty in one message, each with what it must be."""
    file = tmp_path / "mine.yaml"
    file.write_text("description: mine\nsource: a guess\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="lacks the required fields 'sockets'") as problem:
        load_machine(str(file))
    stated = {each.name for each in dataclasses.fields(Machine) if each.default is dataclasses.MISSING}
    required = stated - {"name", "description", "source"}
    assert all(f"'{name}'" in str(problem.value) for name in required)
    assert "1 to 8 sockets" in str(problem.value.hint)


def test_an_edited_file_is_another_machine(tmp_path):
    """A machine's file that changes between two looks is read again, though its path is the same."""
    path = tmp_path / "mine.yaml"
    fields = {k: v for k, v in load_machine("e5-2620v4").to_dict().items() if k not in ("name", "schema_version")}
    for llc_mib in (20.0, 2.0):
        path.write_text(json.dumps({**fields, "llc_mib": llc_mib}))
        assert load_machine(str(path)).llc_mib == llc_mib
