"""Functions that share a core of a host: measured one by one, predicted together."""

from dataclasses import replace

import pytest

from slomo.compose.turns import RingUser, TurnRules, ring_turns
from slomo.errors import InvalidValueError, UnknownNameError
from slomo.testbed.host.chains.cold_caches import Refill, evicts_over_us, refill_of
from slomo.testbed.host.chains.looks import ChainOutcome, HostChainResult, StageOutcome
from slomo.vocabulary.service_chains import ChainStage, ChainSystem, ServiceChain
from slomo.workflow.chains import shared_core
from slomo.workflow.chains.shared_core import forecast_core, require_one_core

TIMES_NS = {"quick": 60.0, "slow": 900.0, "reporter": 300.0, "like": 300.0}
RULES = TurnRules(pause_us=57.0, per_packet_us=0.07)
SECONDS = 0.3


def system(cores: tuple[int, int] = (0, 0), together: bool = False) -> ChainSystem:
    stages = tuple(ChainStage(name, core, cycles=(1.0,)) for name, core in zip(("quick", "slow"), cores, strict=True))
    both = (ServiceChain("both", ("quick", "slow")),)
    chains = both if together else tuple(ServiceChain(f"to-{s.name}", (s.name,), mpps=14.88) for s in stages)
    return ChainSystem(stages, chains, queue_capacity=2048)


def outcome(name: str, **values: object) -> StageOutcome:
    empty = StageOutcome(name, 0, 0, 0, 0, 0, 0, 0.0, 0, 0, 0.0)
    return replace(empty, **values)


def fake_host(system: ChainSystem, policy: str) -> HostChainResult:
    """Run as the rules say, of functions that cost what `TIMES_NS` says."""
    offered = {chain.stages[0]: chain.mpps for chain in system.chains}
    loads = [TIMES_NS[stage.name] * offered[stage.name] for stage in system.stages]
    weights = [load / sum(loads) if policy == "nfvnice" else 1.0 for load in loads]
    users = [
        RingUser(TIMES_NS[stage.name], offered[stage.name], weight)
        for stage, weight in zip(system.stages, weights, strict=True)
    ]
    played = ring_turns(users, RULES, duration_ms=300.0)
    stages = tuple(
        outcome(stage.name, served=round(1e6 * SECONDS * one.mpps), processor_share=one.share,
                involuntary_switches=round(one.turns_per_s * SECONDS))
        for stage, one in zip(system.stages, played, strict=True)
    )  # fmt: skip
    chains = tuple(
        ChainOutcome(chain.name, chain.mpps, one.mpps, 0, 0, 0.0, 0.0, 0.0)
        for chain, one in zip(system.chains, played, strict=True)
    )
    moved = sum(one.mpps for one in played)
    looks = 1e6 * (1.0 - RULES.per_packet_us * moved) / RULES.pause_us  # each takes its pause, and so long per packet
    return HostChainResult(SECONDS, stages, chains, 0.5, looks_per_s=looks)


@pytest.mark.parametrize("policy", ["cfs", "nfvnice"])
def test_functions_measured_one_by_one_are_predicted_together(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a host that keeps the scheduler's rules, costs, looks and shares come back."""
    measured, hosts = shared_core.rules_of, {"tick_us": RULES.tick_us, "slice_us": RULES.slice_us}
    monkeypatch.setattr(shared_core, "rules_of", lambda runs, ring: replace(measured(runs, ring), **hosts))

    forecast = forecast_core(system(), policy, rounds=1, measure=True, run=fake_host)

    for stage in forecast:
        assert stage.measured_mpps is not None
        assert stage.predicted.mpps == pytest.approx(stage.measured_mpps, rel=0.12)


@pytest.mark.parametrize(
    ("bad", "message"),
    [(system((0, 1)), "stages on cores 0, 1"), (system(together=True), "chain 'both' of 2 stages")],
)
def test_what_is_not_played_is_refused(bad: ChainSystem, message: str) -> None:
    """Several cores, or chains that hand packets on, have more to wait for than a turn."""
    with pytest.raises(InvalidValueError, match=message):
        require_one_core(bad)


def test_other_policies_are_not_predicted() -> None:
    """Round robin and batch have other rules of turns; no round measures nothing."""
    with pytest.raises(UnknownNameError, match="'rr'"):
        forecast_core(system(), "rr", run=fake_host)
    with pytest.raises(InvalidValueError, match="0 rounds"):
        forecast_core(system(), rounds=0, run=fake_host)


def test_refill_is_what_early_packets_cost_more_than_late_ones() -> None:
    """A hundred turns in which the first tenth of a millisecond's packets cost twice as much, then what evicts so."""
    turns = ((0, 0.0),) * 3 + ((10_000, 2e4),) + ((0, 0.0),) * 4 + ((200_000, 2e5),) + ((0, 0.0),) * 3
    reporter = outcome("reporter", turns=turns, involuntary_switches=100)
    other = outcome("other", processor_share=0.5, involuntary_switches=100)

    assert refill_of(reporter).extra_us == pytest.approx(100.0)
    assert refill_of(outcome("quick", turns=((1000, 60.0),) + ((0, 0.0),) * 11)) == Refill()
    # 2 ms of the other evict half of what its like evicts
    assert evicts_over_us(other, reporter, 200.0, 0.4) == pytest.approx(2000.0 / 0.6931, rel=0.01)
    assert evicts_over_us(other, outcome("none"), 200.0, 0.4) > 1e6
