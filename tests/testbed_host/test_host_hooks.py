"""What a run borrows from outside: a traffic generator that tells the throughput, a backend that divides the cache."""

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slomo.enforce.backends.simulated import Knobbed, SimulatedKnobs
from slomo.enforce.change import Backend
from slomo.enforce.plan import EnforcementPlan
from slomo.errors import ConfigurationError, MeasurementError, TestbedError
from slomo.host.knobs import Wish
from slomo.testbed.host.testbed import HostTestbed
from slomo.testbed.host.traffic.base import TrafficStatistics
from slomo.vocabulary.colocation import Colocation, Isolation
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.workload import Traffic, Workload

Maker = Callable[..., NetworkFunction]
Beds = Callable[..., HostTestbed]

FROM_GENERATOR = {"throughput": {"source": "generator", "interval_s": 0.02}, "ready": {"first_reading": True}}


class _Generator:
    """Gets 5000 packets more back each time it is asked."""

    name = "made-up"

    def __init__(self, step: int = 5000) -> None:
        self.sent: list[Traffic] = []
        self.sending = False
        self._received = itertools.count(step, step)

    def available(self) -> tuple[bool, str]:
        return True, ""

    def start(self, traffic: Traffic) -> None:
        self.sent.append(traffic)
        self.sending = True

    def statistics(self) -> TrafficStatistics:
        return TrafficStatistics(0, next(self._received))

    def stop(self) -> None:
        self.sending = False


class _Backend(SimulatedKnobs, Backend):
    """Remembers what was set; cache ways are texts in memory."""

    name = "made-up"

    def __init__(self) -> None:
        self.held: dict[str, str | None] = {f"ways:{core}": "all" for core in range(64)}
        super().__init__(cast("Knobbed", SimpleNamespace(lock=threading.RLock(), knobs=self.held)))
        self.masks: list[int | None] = []

    def place(self) -> str:
        return "memory"

    def wishes(self, plan: EnforcementPlan) -> tuple[Wish, ...]:
        self.masks += [tenant.llc_way_mask for tenant in plan.tenants]
        return tuple(Wish(f"ways:{core}", f"{t.llc_way_mask}") for t in plan.tenants for core in t.cores)


def test_a_generator_tells_the_throughput(fake: Maker, bed: Beds) -> None:
    """It sends the workload's traffic, its packets that come back are the throughput, and it ends with the run."""
    generator = _Generator()
    workload = Workload("one", traffic=Traffic(packet_size_b=128))
    testbed = bed(fake("one", **FROM_GENERATOR), generator=generator)

    record = testbed.run(Colocation("test-host", workload))

    assert record.target.throughput_mpps > 0.0
    assert set(generator.sent) == {workload.traffic}
    assert not generator.sending
    assert testbed.environment() != bed(fake("one", **FROM_GENERATOR)).environment()


def test_a_generator_sends_to_a_function_that_counts_itself(fake: Maker, bed: Beds) -> None:
    """`traffic: {generator: true}`: it sends while the NF runs, whose own count is the throughput."""
    generator = _Generator()
    nf = fake("one", traffic={"generator": True})

    record = bed(nf, generator=generator).run(Colocation("test-host", Workload("one")))

    assert record.target.throughput_mpps == pytest.approx(5.0, rel=0.01)  # what the stand-in counts itself
    assert generator.sent
    assert not generator.sending


def test_a_function_that_nobody_sends_to_is_told(fake: Maker, bed: Beds) -> None:
    """A generator whose packets never arrive gives no throughput of 0."""
    nf = fake("one", **{**FROM_GENERATOR, "steady": {"limit_s": 0.2, "stretch_s": 0.06}})

    with pytest.raises(MeasurementError, match="served no packets in 4 windows"):
        bed(nf, generator=_Generator(0)).run(Colocation("test-host", Workload("one")))


@pytest.mark.parametrize("section", [FROM_GENERATOR, {"traffic": {"generator": True}}], ids=["read", "fed"])
def test_a_missing_generator_is_told(fake: Maker, bed: Beds, section: dict[str, Any]) -> None:
    """A network function that is read by a generator, or gets its packets from one, does not run without."""
    with pytest.raises(ConfigurationError, match="none is attached"):
        bed(fake("one", **section)).run(Colocation("test-host", Workload("one")))


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the machine's journal in a folder of the test's own."""
    monkeypatch.setenv("SLOMO_JOURNAL", str(tmp_path))


@pytest.mark.usefixtures("journal")
def test_tenants_get_their_part_of_the_cache(fake: Maker, bed: Beds) -> None:
    """Masks go to the cores of their tenants, nobody else is restricted, and all is taken back."""
    backend = _Backend()
    testbed = bed(fake("one"), fake("two"), backend=backend)
    parts = (Isolation(0x3), Isolation())

    testbed.run(Colocation("test-host", Workload("one"), (Workload("two"),), parts))

    assert backend.masks == [0x3]
    assert set(backend.held.values()) == {"all"}


@pytest.mark.usefixtures("journal")
def test_the_cache_is_given_back_when_a_run_fails(fake: Maker, bed: Beds) -> None:
    """A network function that crashes does not leave others without cache."""
    backend = _Backend()
    testbed = bed(fake("one", mode="crash"), backend=backend)

    with pytest.raises(TestbedError):
        testbed.run(Colocation("test-host", Workload("one"), (), (Isolation(0x3),)))

    assert backend.masks == [0x3]
    assert set(backend.held.values()) == {"all"}
