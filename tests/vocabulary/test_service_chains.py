"""Service chains as people write them."""

import pytest

from slomo.errors import ConfigurationError, SlomoError
from slomo.vocabulary.service_chains import ChainStage, parse_chains
from slomo.vocabulary.workload import Workload

DOCUMENT = """
machine: e5-2620v4
queue: {capacity: 1024, high_water: 0.9, low_water: 0.5}
stages:
  nat: {nf: mazunat, core: 0, priority: 2}
  fw: {cycles: [120, 270, 550], core: 0, shares: 2048}
  log: {cycles: 90, core: 1, storage: {bytes_per_packet: 64, mode: blocking, buffer_kib: 4}}
chains:
  web: {stages: [nat, fw, log], mpps: 1.5}
  bulk: {stages: [fw], kind: tcp, gbps: 4, packet_size_b: 1500, rtt_us: 100}
"""


def test_document_becomes_values() -> None:
    """Stages share a core, chains share a stage, costs may be several, a source may be responsive."""
    system = parse_chains(DOCUMENT)

    assert system.stages[0] == ChainStage("nat", 0, workload=Workload("mazunat"), priority=2.0)
    assert system.stages[1].cycles == (120.0, 270.0, 550.0)
    assert system.stages[2].storage is not None
    assert system.stages[2].storage.blocking
    assert system.paths == {"web": ("nat", "fw", "log"), "bulk": ("fw",)}
    assert system.chains[1].responsive
    assert system.chains[1].mpps == pytest.approx(4e3 / 8 / 1520)
    assert (system.queue_capacity, system.high_water, system.low_water) == (1024, 0.9, 0.5)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[nat, fw, log]", "[nat, fw, nat]", "chain 'web' comes back to nat: nat -> fw -> nat"),
        ("[nat, fw, log]", "[nat, fv, log]", "unknown stage 'fv' of chain 'web'\nhint: did you mean 'fw'"),
        ("shares: 2048", "shares: 300000", "stage 'fw': 300000 CPU shares, a cgroup takes 2 to 262144"),
        ("capacity: 1024", "capacity: 1000", "a ring of 1000 packets, needed a power of two\nhint: 1024 would do"),
        ("packet_size_b: 1500", "packet_size_b: 9000", "sends packets of 9000 B, a buffer holds 2048 B"),
        ("low_water: 0.5", "low_water: 0.95", "water marks are 0.95 (low) and 0.9 (high)"),
        ("kind: tcp, ", "", "chains.bulk.rtt_us is 100, but a chain of kind 'udp' waits for no answers"),
        ("gbps: 4", "gbps: 4, mpps: 1", "chain 'bulk' has both mpps and gbps"),
        ("nf: mazunat, core: 0", "nf: mazunat, cycles: 3, core: 0", "stage 'nat' needs either an nf or cycles"),
    ],
)
def test_bad_documents_are_refused_in_words(old: str, new: str, message: str) -> None:
    """Each mistake is named with the object it is in, the value got and what would do."""
    with pytest.raises(SlomoError) as refused:
        parse_chains(DOCUMENT.replace(old, new))

    assert message in str(refused.value)


def test_wrong_field_is_told_by_line() -> None:
    """A misspelt field is found by file, line and name."""
    with pytest.raises(ConfigurationError, match=r"web\.yaml:7: field 'stages\.log\.cors'"):
        parse_chains(DOCUMENT.replace("cycles: 90, core: 1", "cycles: 90, cors: 1"), "web.yaml")
