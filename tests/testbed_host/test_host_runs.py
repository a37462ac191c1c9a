"""Runs on this machine with a stand-in for network functions."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from slomo.errors import InvalidValueError, TestbedError, UnknownNameError, UnstableMeasurementError
from slomo.host.cores import available_cores
from slomo.records.measurement import summarise
from slomo.records.run import RunRecord
from slomo.testbed import base
from slomo.testbed.host.counters.base import CounterSample
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.testbed import HostTestbed
from slomo.vocabulary.colocation import Colocation, Isolation
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Traffic, Workload

REPORTED = ("FELTLLC", "FELTL3", "FELTREAD", "FELTWRITE")
pytestmark = [
    pytest.mark.skipif(len(available_cores()) < 2, reason="co-locations need two cores"),
    pytest.mark.usefixtures("nothing_left"),
]
Maker = Callable[..., NetworkFunction]
Beds = Callable[..., HostTestbed]


def test_a_pair_runs_in_two_phases(fake: Maker, bed: Beds) -> None:
    """A co-location yields V of the competitor alone, and the throughput of the target beside it."""
    testbed = bed(fake("one"), fake("two"), reporters=REPORTED)
    assert isinstance(testbed, base.Testbed)
    record = testbed.run(Colocation("test-host", Workload("one"), (Workload("two"),)), seed=3)
    assert record.alone is not None
    assert record.alone.socket.scope is Scope.SOCKET
    assert set(record.alone.socket) == set(REPORTED)
    assert record.target.throughput_mpps == pytest.approx(5.0, rel=0.5)
    assert record.target.vector.scope is Scope.CORE
    assert record.target.latency_p50_us == pytest.approx(2.0)
    assert len(record.beside.tenants) == 2  # type: ignore[union-attr]
    assert RunRecord.from_dict(record.to_dict()) == record


def test_a_target_that_never_gets_its_core_is_unstable(fake: Maker, bed: Beds, quick: HostSettings) -> None:
    """A polling function without 95 % of its core in any window ends the run with that share, exit code 4."""
    strict = replace(quick, minimum_cpu_share=0.95, attempts=1, window_s=0.1)
    testbed = bed(fake("one", polling=True), fake("two"), settings=strict)
    with pytest.raises(
        UnstableMeasurementError, match=r"'one' got \d+% of its cores in \d+ windows .* needed 95%"
    ) as told:
        testbed.run(Colocation("test-host", Workload("one"), (Workload("two"),)))
    assert told.value.exit_code == 4


def test_the_provenance_says_what_ran(fake: Maker, bed: Beds) -> None:
    """Commands, cores, pairs of windows and the source of the vector stand in the provenance."""
    testbed = bed(fake("one"), fake("two"))
    details = testbed.run(Colocation("test-host", Workload("one"), (Workload("two"),))).provenance["host"]
    assert details["alone"]["source"] == "probe"
    assert details["own"]["source"] == "probe"
    assert details["cores"] == [[core] for core in testbed.cores[:2]]
    assert [words[-1] for words in details["commands"]] == ["good", "good"]
    assert len(details["pairs"]["beside_mpps"]) == 2


def test_a_competition_is_probed_beside_its_runs(fake: Maker, bed: Beds) -> None:
    """Competitors probed a short while ago keep their vector for the next target; long ago, they are probed again."""
    testbed = bed(fake("one"), fake("two"), fake("three"))
    first = testbed.run(Colocation("test-host", Workload("one"), (Workload("two"),)))
    second = testbed.run(Colocation("test-host", Workload("three"), (Workload("two"),)))
    assert first.alone is not None
    assert second.alone is not None
    assert first.alone.socket == second.alone.socket
    probe = testbed.probe()
    key = Workload("two").key
    assert probe.fresh([key])
    probe.forget()
    assert not probe.fresh([key])
    was = probe.readings[key,].taken_s
    testbed.run(Colocation("test-host", Workload("three"), (Workload("two"),)))
    assert probe.readings[key,].taken_s > was


def test_solo_runs_set_the_reference(fake: Maker, bed: Beds) -> None:
    """Throughput beside others is the ratio found inside one process, times the solo runs of the campaign."""
    testbed = bed(fake("one"), fake("two"))
    solo = testbed.run(Colocation("test-host", Workload("one")))
    assert solo.alone is None
    beside = testbed.run(Colocation("test-host", Workload("one"), (Workload("two"),)))
    pairs = beside.provenance["host"]["pairs"]
    assert pairs["reference_mpps"] == solo.target.throughput_mpps
    assert beside.target.throughput_mpps == pytest.approx(pairs["ratio"] * solo.target.throughput_mpps)
    assert summarise([beside]).competition is not None


def test_loss_follows_from_what_was_offered(fake: Maker, bed: Beds) -> None:
    """At an offered load, loss is the share not served; a saturating load has none."""
    testbed = bed(fake("one"))
    offered = testbed.run(Colocation("test-host", Workload("one", traffic=Traffic(offered_mpps=20.0))))
    assert offered.target.loss == pytest.approx(0.75, abs=0.15)
    assert testbed.run(Colocation("test-host", Workload("one"))).target.loss is None


def test_competition_alone_needs_no_target(fake: Maker, bed: Beds) -> None:
    """Without a target only the first phase is run, with the target's core left to the probe."""
    testbed = bed(fake("one"))
    record = testbed.run(Colocation("test-host", None, (Workload("one"),)))
    assert record.beside is None
    assert record.provenance["host"]["cores"] == [[testbed.cores[1]]]


class _Counters:
    """A reader that counts its starts and stops."""

    name = "made-up"

    def __init__(self, *, vanishes: bool = False) -> None:
        self.open = 0
        self.vanishes = vanishes
        self.cores: list[int] = []

    def available(self) -> tuple[bool, str]:
        return True, "made up"

    def start(self, cores: Any) -> None:
        self.open += 1
        self.cores = list(cores)

    def stop(self) -> CounterSample:
        self.open -= 1
        if self.vanishes:
            raise TestbedError("the counters vanished", hint="load the module again")
        vectors = {core: MetricVector({"L2MISS": 1.0 + core}, scope=Scope.CORE) for core in self.cores}
        return CounterSample(vectors, {0: MetricVector({"L2MISS": 9.0})}, None, 0.1)


def test_counters_take_the_place_of_probes(fake: Maker, bed: Beds) -> None:
    """With a counter reader, vectors are its: socket and cores, in both phases."""
    reader = _Counters()
    testbed = bed(fake("one"), fake("two"), counters=reader)
    record = testbed.run(Colocation("test-host", Workload("one"), (Workload("two"),)))
    assert record.alone is not None
    assert record.alone.socket["L2MISS"] == 9.0
    assert record.target.vector["L2MISS"] == 1.0 + testbed.cores[0]
    assert testbed.source == "made-up"
    assert reader.open == 0


def test_counters_that_vanish_end_the_run(fake: Maker, bed: Beds) -> None:
    """A reader that fails in the middle ends the run with its error, and nothing is left."""
    reader = _Counters(vanishes=True)
    with pytest.raises(TestbedError, match="vanished"):
        bed(fake("one"), counters=reader).run(Colocation("test-host", Workload("one")))
    assert reader.open == 0


def test_bad_requests_are_refused_before_anything_runs(fake: Maker, bed: Beds) -> None:
    """Unknown NFs, settings, too many tenants and isolation are named at once."""
    testbed = bed(fake("one"), NetworkFunction("paper-only", "no host section"))
    cases: list[tuple[Colocation, type[Exception], str]] = [
        (Colocation("test-host", Workload("ones")), UnknownNameError, "ones"),
        (Colocation("test-host", Workload("one", {"sise": 3})), UnknownNameError, "sise"),
        (Colocation("test-host", Workload("paper-only")), TestbedError, "no `host:` section"),
        (Colocation("test-host", Workload("one"), (Workload("one"),) * 600), InvalidValueError, "601 cores"),
        (Colocation("test-host", Workload("one"), (), (Isolation(3),)), TestbedError, "does not isolate"),
        (Colocation("test-host", None), InvalidValueError, "neither"),
        (Colocation("elsewhere", Workload("one")), InvalidValueError, "measures 'test-host'"),
    ]
    for colocation, kind, text in cases:
        with pytest.raises(kind, match=text):
            testbed.run(colocation)


def test_estimates_grow_with_what_is_asked(fake: Maker, bed: Beds) -> None:
    """A co-location is expected to take longer than a solo run, and less once its competition is known."""
    testbed = bed(fake("one"), fake("two"))
    pair = Colocation("test-host", Workload("one"), (Workload("two"),))
    before = testbed.estimate_s(pair)
    assert before > testbed.estimate_s(Colocation("test-host", Workload("one"))) > 0.0
    testbed.run(pair)
    assert testbed.estimate_s(pair) < before


def test_the_environment_tells_hosts_and_settings_apart(fake: Maker, bed: Beds) -> None:
    """Machine, settings, counters and NF definitions are what must agree between two datasets."""
    stated = bed(fake("one")).environment()
    assert stated["testbed"] == "host"
    assert stated["settings"]["counters"] == "probe"
    assert stated["machines"]["test-host"]["cores_per_socket"] >= 1
    assert "one" in stated["network_functions"]
