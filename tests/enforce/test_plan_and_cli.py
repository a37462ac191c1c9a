"""Plans from decisions and files, and the command line around them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slomo.cli.main import main
from slomo.enforce.plan import EnforcementPlan, MemoryBandwidth, TenantSetting
from slomo.errors import ConfigurationError, InvalidValueError
from slomo.placement.problem.decision import Assignment, Decision
from slomo.placement.problem.enforcement import plan_from_decision
from slomo.vocabulary.machine import load_machine
from slomo.workflow.acting.enforce import read_plan


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


DECISION = Decision(
    "edge",
    True,
    "resq",
    "",
    (
        Assignment("s1", 1, 3, "lpm", llc_way_mask=0x3, buffers=512),
        Assignment("s1", 1, 4, "nat", llc_way_mask=0x1C),
        Assignment("s2", 0, 0, "lpm"),
    ),
)


def test_a_decision_becomes_one_servers_plan() -> None:
    """Cores are counted over the machine, disjoint ways are guaranteed, other servers are left out."""
    plan = plan_from_decision(DECISION, "s1", load_machine("e5-2620v4"))

    assert [tenant.cores for tenant in plan.tenants] == [(11,), (12,)]
    assert all(tenant.exclusive for tenant in plan.tenants)
    assert plan.tenants[0].buffers == 512


def test_a_plan_survives_its_mapping() -> None:
    """Masks, bandwidth and names come back."""
    plan = EnforcementPlan(
        "s", (TenantSetting("a", (1,), llc_way_mask=3, memory_bandwidth=MemoryBandwidth(2, "GB/s")),), 0x600
    )

    assert EnforcementPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


@pytest.mark.parametrize(
    "data", [[], {"tenants": 3}, {"tenants": [{"tenant": "a", "way": 1}]}, {"schema_version": 9}, {"tenants": [{}]}]
)
def test_what_is_no_plan_is_refused(data: object) -> None:
    """Unknown fields and versions are named."""
    with pytest.raises((ConfigurationError, InvalidValueError)):
        EnforcementPlan.from_dict(data)  # type: ignore[arg-type]


def test_a_refused_plan_names_its_file(tmp_path: Path) -> None:
    """A field that a plan does not have is told with the path of the file that has it."""
    (tmp_path / "plan.yaml").write_text("machine: e5-2620v4\ntenants: []\n")
    with pytest.raises(ConfigurationError, match=r"plan\.yaml: field 'machine': is not known"):
        read_plan(tmp_path / "plan.yaml")


def test_apply_show_and_undo_on_this_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line applies, says what it did, finds nothing to do again, and takes it back."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        plan = tmp_path / "plan.yaml"
        plan.write_text(f"server: here\ntenants: [{{tenant: noise, process_ids: [{process.pid}], scheduler: batch}}]\n")
        words = ["--backend", "scheduler"]

        assert main(["enforce", "diff", str(plan), *words]) == 1
        assert main(["enforce", "apply", str(plan), *words, "--json"]) == 0
        receipt = json.loads(capsys.readouterr().out.partition("'normal 0' -> 'batch 0'\n")[2])["receipt"]
        assert os.sched_getscheduler(process.pid) == os.SCHED_BATCH
        assert main(["enforce", "diff", str(plan), *words]) == 0
        assert main(["enforce", "show", *words]) == 0
        assert receipt in capsys.readouterr().out
        assert main(["enforce", "undo", receipt]) == 0
        assert os.sched_getscheduler(process.pid) == os.SCHED_OTHER
        capsys.readouterr()
        assert main(["enforce", "undo", "--all"]) == 0
        assert "no open receipt" in capsys.readouterr().err
    finally:
        process.kill()
        process.wait()


def test_process_0_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The kernel takes it for whoever writes it: slomo would throttle itself."""
    plan = tmp_path / "plan.yaml"
    plan.write_text("tenants: [{tenant: a, process_ids: [0], cpu_weight: 2}]\n")

    assert main(["enforce", "apply", str(plan), "--backend", "cgroup"]) == 2
    assert "'tenants.0.process_ids.0': got 0" in capsys.readouterr().err


def test_a_damaged_journal_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another folder would not help: what it recorded is lost."""
    (tmp_path / "journal.sqlite3").write_bytes(b"junk" * 1000)

    assert main(["enforce", "undo", "--all", "--receipts", str(tmp_path)]) == 3
    assert "the file is damaged" in capsys.readouterr().err


def test_a_host_without_resctrl_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 3 and a hint."""
    if Path("/sys/fs/resctrl/info").is_dir():
        pytest.skip("this host has resctrl")
    plan = tmp_path / "plan.json"
    plan.write_text('{"tenants": [{"tenant": "a", "cores": [0], "llc_way_mask": "0x3"}]}')

    assert main(["enforce", "apply", str(plan), "--backend", "resctrl"]) == 3
    assert "mount -t resctrl" in capsys.readouterr().err


def test_decisions_need_to_know_their_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of decisions is for many servers."""
    plan = tmp_path / "decisions.json"
    plan.write_text(json.dumps([DECISION.to_dict()]))

    assert main(["enforce", "diff", str(plan)]) == 2
    assert "--member" in capsys.readouterr().err
