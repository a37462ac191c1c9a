"""A saved profile over partitions: what was written is read, what is none is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from slomo.errors import ConfigurationError
from slomo.models.responses.partition import MemoryTraffic, PartitionResponse
from slomo.vocabulary.machine import load_machine
from slomo.workflow.acting.partition_profile import PartitionProfile
from slomo.workflow.acting.whatif import PartitionKnowledge


@pytest.fixture
def knowledge() -> PartitionKnowledge:
    """Return knowledge of one workload."""
    response = PartitionResponse("lpm", 5.0, (1.0, 20.0), (0.2, 0.2), (4.0, 0.0), (256.0, 0.0))
    memory = MemoryTraffic((80.0, 120.0), (0.0, 40.0))
    profile = PartitionProfile("e5-2620v4", {"lpm": response}, memory, 9)
    return PartitionKnowledge(profile, (0.01, -0.02), (0.03,))


def test_what_is_saved_is_read_again(knowledge: PartitionKnowledge, tmp_path: Path) -> None:
    knowledge.save(tmp_path / "p.json")
    again = PartitionKnowledge.load(tmp_path / "p.json")

    assert again == knowledge
    model = again.models(load_machine("e5-2620v4"))["lpm"]
    assert model.half_width(0.5) == 0.02
    assert model.excess(0.9) == 0.01


@pytest.mark.parametrize(
    "change",
    [
        {"errors": []},
        {"shared_errors": []},
        {"errors": [float("nan")]},
        {"errors": ["x"]},
        {"errors": None},
        {"schema_version": 2},
        {"responses": 3},
    ],
)
def test_what_is_none_is_refused(knowledge: PartitionKnowledge, tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "p.json"
    knowledge.save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))

    with pytest.raises(ConfigurationError, match=r"p\.json.*") as refused:
        PartitionKnowledge.load(path)
    assert next(iter(change)) in str(refused.value) or "NaN" in str(refused.value)
