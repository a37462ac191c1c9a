"""NUMASFP's lookup table, measured."""

import json
from pathlib import Path

import pytest

from slomo.cli.main import main
from slomo.errors import InvalidValueError
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload_text import parse_workload
from slomo.workflow.chains.resource_table import resource_table

MACHINE = load_machine("e5-2620v4")


def test_needs_grow_with_the_rate() -> None:
    """More traffic never needs fewer cores, and within one core never fewer ways; what is found serves the rate."""
    testbed = SimulatedTestbed(MACHINE, accesses=20_000)
    rows = resource_table(testbed, MACHINE, [parse_workload("snort@256B")], [0.5, 1.0, 3.0])

    assert [row.cores for row in rows] == sorted(row.cores for row in rows)
    assert rows[0].cores == 1
    assert rows[-1].cores > 1
    assert all(1 <= row.ways <= 18 and 10 <= row.memory_percent <= 100 for row in rows)
    within_one_core = [row.ways for row in rows if row.cores == 1]
    assert within_one_core == sorted(within_one_core)


def test_rates_beyond_the_line_are_refused() -> None:
    """The line's rate is named."""
    with pytest.raises(InvalidValueError, match="rate of 50 Gbit/s, needed above 0 and at most 40"):
        resource_table(SimulatedTestbed(MACHINE), MACHINE, [parse_workload("l2fwd")], [50.0])


def test_command_prints_and_writes_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`slomo profile --plan resource-table` gives ten rates per NF, as a table and as JSON."""
    out = tmp_path / "table.json"
    assert main(["profile", "l2fwd@256B", "--plan", "resource-table", "--out", str(out)]) == 0

    assert "LLC ways" in capsys.readouterr().out
    assert len(json.loads(out.read_text(encoding="utf-8"))["rows"]) == 10


def test_a_dry_run_of_the_table_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """`--dry-run` runs nothing, so it says that it cannot describe runs that depend on each other."""
    assert main(["profile", "l2fwd@256B", "--plan", "resource-table", "--dry-run"]) == 2
    assert "each run depends on those before it" in capsys.readouterr().err
