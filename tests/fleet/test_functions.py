"""Native network functions on the hosts of a fleet: named by their content, whole, checked before use."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="needs the extra fleet")

import slomo.fleet.functions as sent
import slomo.fleet.measuring as measuring
from slomo.cli.main import main
from slomo.errors import ConfigurationError, IncompatibleMeasurementsError, TestbedError
from slomo.fleet.campaign import profile_on_hosts
from slomo.fleet.functions import checked_functions, publish_functions, read_functions
from slomo.fleet.hosts import Fleet, FleetHost, load_fleet
from slomo.testbed.host.nf.command import Surroundings, command_words
from slomo.testbed.host.nf.definition import parse_host
from slomo.testing.builders import ToyTestbed, toy_plan
from slomo.vocabulary.workload import Workload
from tests.testbed_host.real_sshd import RealSshd


@pytest.fixture
def programs(tmp_path):
    """Return a folder with a program and a file that it reads."""
    folder = tmp_path / "programs"
    (folder / "data").mkdir(parents=True)
    (folder / "nf").write_text("#!/bin/sh\necho 1\n")
    (folder / "nf").chmod(0o755)
    (folder / "data" / "rules").write_text("10.0.0.0/8\n")
    return folder


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    """Leave no folder to other tests."""
    monkeypatch.setenv(sent.VARIABLE, "")
    yield
    measuring._checked_once.cache_clear()


def test_the_name_is_the_content(programs, tmp_path):
    """Another byte, name or mode is another folder; what is there already is checked; a draft that was left goes."""
    first = read_functions(programs)
    place = publish_functions(first, tmp_path / "there")
    assert place.name == first.digest
    assert os.access(place / "nf", os.X_OK)
    assert not os.access(place / "data" / "rules", os.X_OK) or os.getuid() == 0
    (tmp_path / "there" / ".draft-x").mkdir()
    assert publish_functions(first, tmp_path / "there") == place
    (programs / "nf").chmod(0o644)
    other = publish_functions(read_functions(programs), tmp_path / "there")
    assert other != place
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == sorted((place.name, other.name))
    (place / "nf").write_text("#!/bin/sh\necho 2\n")
    for call in (
        lambda: publish_functions(first, tmp_path / "there"),
        lambda: checked_functions(place.parent, "0" * 64),
    ):
        with pytest.raises(TestbedError) as told:
            call()
        assert told.value.exit_code == 3
        assert "remove" in told.value.hint


def test_a_folder_that_is_none_is_told(programs, tmp_path, monkeypatch):
    """Nothing there, no file in it, a link, too much: exit code 2, before a host is asked."""
    (tmp_path / "empty").mkdir()
    (programs / "link").symlink_to("/etc/passwd")
    for folder, words in ((tmp_path / "no", "is no folder"), (tmp_path / "empty", "no file"), (programs, "is a link")):
        with pytest.raises(ConfigurationError, match=words) as told:
            read_functions(folder)
        assert told.value.exit_code == 2
    (programs / "link").unlink()
    monkeypatch.setattr(sent, "MOST_BYTES", 20)
    with pytest.raises(ConfigurationError, match="may have 20 B"):
        read_functions(programs)


def test_every_host_gets_them_and_a_changed_one_is_refused(programs, tmp_path, monkeypatch, fleet_workers):
    """The dataset says which; a campaign does not go on with others; a host's that were changed end with code 3."""
    monkeypatch.setattr(measuring, "_opened_testbed", lambda *_: ToyTestbed())
    plan, state = toy_plan(), tmp_path / "state"
    fleet = Fleet([FleetHost(n, state=str(state)) for n in ("a", "b")], "toy", functions=str(programs))
    scheduler, digest = fleet_workers(fleet), read_functions(programs).digest
    made = profile_on_hosts(plan, fleet, tmp_path / "runs.sqlite", scheduler=scheduler).dataset
    assert made.environment["settings"]["functions"] == digest
    assert (state / "a" / "functions" / digest / "nf").read_text() == (programs / "nf").read_text()
    assert Path(os.environ[sent.VARIABLE]).name == digest
    (programs / "nf").write_text("#!/bin/sh\necho 2\n")
    with pytest.raises(IncompatibleMeasurementsError, match="functions"):
        profile_on_hosts(plan, fleet, tmp_path / "runs.sqlite", scheduler=scheduler)
    again = tmp_path / "other.sqlite"
    profile_on_hosts(plan, fleet, again, scheduler=scheduler)
    digest = read_functions(programs).digest
    (state / "b" / "functions" / digest / "nf").write_text("#!/bin/sh\necho 3\n")
    with pytest.raises(TestbedError, match=f"b/functions/{digest}: holds network functions") as told:
        profile_on_hosts(plan, fleet, again, scheduler=scheduler)
    assert told.value.exit_code == 3
    done = profile_on_hosts(plan, fleet, again, scheduler=scheduler, skip_missing=True)
    assert "was changed" in done.left_out["b"]
    with pytest.raises(ConfigurationError, match="is no folder"):
        profile_on_hosts(plan, replace(fleet, functions="nowhere"), again, scheduler=scheduler)


def test_a_host_section_names_the_folder(programs, monkeypatch):
    """`{functions}` is the folder; without one the network function and the way out are named."""
    section = {"command": ["{functions}/nf", "{core}"], "throughput": {"source": "json-lines", "packets": "packets"}}
    definition = parse_host(section, nf="mine")
    with pytest.raises(TestbedError, match="'mine': SLOMO_FUNCTIONS is ''"):
        command_words(definition, Workload("mine"), Surroundings((3,), "/tmp", "x"))
    monkeypatch.setenv(sent.VARIABLE, str(programs))
    words, _ = command_words(definition, Workload("mine"), Surroundings((3,), "/tmp", "x"))
    assert words == [f"{programs}/nf", "3"]


def test_over_ssh_they_arrive_as_they_are(programs, tmp_path, monkeypatch, capsys):
    """Two hosts behind a real sshd: the same bytes and modes, by the command line; the path is the file's."""
    (tmp_path / "sshd").mkdir()
    daemon = RealSshd(tmp_path / "sshd")
    try:
        monkeypatch.setenv("PATH", f"{daemon.bin}{os.pathsep}{os.environ['PATH']}")
        root = Path(__file__).parents[2]
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nexport PYTHONPATH={root}\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        plan, hosts, state = tmp_path / "plan.json", tmp_path / "hosts.yaml", tmp_path / "state"
        entries = [{"name": n, "ssh": "gen1", "python": str(python), "state": str(state)} for n in ("a", "b")]
        hosts.write_text(json.dumps({"testbed": "simulated", "functions": "programs", "hosts": entries}))
        assert load_fleet(hosts).functions == str(programs)
        assert main(["profile", "l2fwd", "--plan", "solo", "--dry-run", "--save-plan", str(plan)]) == 0
        out = str(tmp_path / "out.parquet")
        assert main(["fleet", "profile", str(plan), "--hosts", str(hosts), "--out", out]) == 0, capsys.readouterr().err
    finally:
        daemon.close()
    digest = read_functions(programs).digest
    for name in ("a", "b"):
        assert read_functions(state / name / "functions" / digest).digest == digest
