"""A host whose network functions are simulated and whose counters are read by the real readers from stand-ins.

Truth and throughput come from the simulator; vectors go the way of `HostTestbed`'s experiments (`observe_counters`).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from slomo.records.run import Phase, RunRecord
from slomo.testbed.host.counters.base import CounterReader
from slomo.testbed.host.experiment import observe_counters
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from tests.counter_noise.told import RDT_KIB, Truth
from tests.fake_resctrl.files import ModelFiles
from tests.fake_resctrl.model import Flavour, ResctrlModel

#: Counters of RDT are in units of so many bytes.
_UNIT_B = RDT_KIB * 1024.0
_PHASE_S = 2.0
#: What goes on on a core where nothing runs.
_IDLE = {"INST": 0.5, "FREQ": 0.001, "L2MISS": 0.01, "L3MISS": 0.001, "L3HIT": 0.9, "L3OCC": 0.0, "LMB": 0.1}


@dataclass
class Clock:
    """Time that passes when somebody sleeps, and two seconds per phase."""

    now_s: float = 0.0

    def monotonic(self) -> float:
        """Return now [s]."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds


class CountingFiles(ModelFiles):
    """The emulated resctrl tree, with counters that count; noisy ones lag, are coarse, and now and then unavailable."""

    def __init__(self, folder: Path, clock: Clock, random: np.random.Generator) -> None:
        super().__init__(folder / "resctrl.json")
        self.clock, self.random, self.truth = clock, random, Truth({}, {})
        self.model = ResctrlModel(Flavour(cpus=8))

    def load(self) -> ResctrlModel:
        """Return the tree, which lives in memory."""
        return self.model

    look = load

    def save(self, model: ResctrlModel) -> None:
        """Keep it."""
        self.model = model

    def read(self, name: str, limit_b: int) -> bytes:
        """Return a file; counters by the truth."""
        folder, _, file = name.partition("mon_data/mon_L3_00/")
        if not file:
            return super().read(name, limit_b)
        if self.truth.noisy and self.random.random() < 0.1:
            return b"Unavailable\n"
        return f"{self._count(self._cpus(folder.strip('/')), file)}\n".encode()

    def _cpus(self, group: str) -> set[int]:
        own, *_ = self.model.find(group) or (self.model.groups[""], "", [])
        if isinstance(own, dict):
            return set(own["cpus"])
        return set(own.cpus) | {cpu for inner in own.monitors.values() for cpu in inner["cpus"]}

    def _count(self, cpus: set[int], file: str) -> int:
        values = [self.truth.cores.get(cpu, _IDLE) for cpu in cpus]
        if file == "llc_occupancy":
            held = 1024.0 * sum(value.get("L3OCC", 0.0) for value in values)
            return round(self._coarse(held))
        names = ("LMB", "RMB") if file == "mbm_total_bytes" else ("LMB",)
        rate = sum(value.get(name, 0.0) for value in values for name in names) * 2**20
        lag_s = 0.02 if self.truth.noisy and self.random.random() < 0.2 else 0.0
        return round(self._coarse(rate * max(self.clock.now_s - lag_s, 0.0)))

    def _coarse(self, value: float) -> float:
        return _UNIT_B * round(value / _UNIT_B) if self.truth.noisy else value


@dataclass
class CountedBed:
    """A testbed as `run_campaign` wants one.

    Attributes
    ----------
    inner : SimulatedTestbed
        Says what is true.
    reader : CounterReader
        Reads what the stand-ins say.
    told : callable
        Lets them say a truth.
    noisy : bool
        Whether they make noise.
    clock : Clock
        Of the machine.
    """

    inner: SimulatedTestbed
    reader: CounterReader
    told: Callable[[Truth], None]
    noisy: bool
    clock: Clock = field(default_factory=Clock)
    memory: dict[str, RunRecord] = field(default_factory=dict)
    name: str = "host"
    exclusive: bool = True

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        """Run one co-location: true throughput, vectors as the reader reads them."""
        if colocation.key not in self.memory:
            self.memory[colocation.key] = self.inner.run(colocation, seed=seed)
        truth = self.memory[colocation.key]
        first = colocation.target is not None
        before = self._cores(None, 0)
        host: dict[str, Any] = {}
        alone = None if truth.alone is None else self._observed(truth.alone, int(first), before, host, "alone")
        before = self._cores(truth.alone, int(first))
        beside = None if truth.beside is None else self._observed(truth.beside, 0, before, host, "beside")
        return replace(truth, alone=alone, beside=beside, seed=seed, provenance={**truth.provenance, "host": host})

    def _cores(self, phase: Phase | None, first: int) -> dict[int, dict[str, float]]:
        running = {} if phase is None else {first + n: dict(item.vector) for n, item in enumerate(phase.tenants)}
        return {cpu: running.get(cpu, dict(_IDLE)) for cpu in range(8)}

    def _observed(
        self, phase: Phase, first: int, before: Mapping[int, Mapping[str, float]], host: dict[str, Any], name: str
    ) -> Phase:
        truth = Truth(self._cores(phase, first), before, self.noisy)
        tenants: Any = [SimpleNamespace(where=SimpleNamespace(cores=(first + n,))) for n in range(len(phase.tenants))]
        self.told(truth)
        _, seen = observe_counters(self.reader, tenants, self._watch)
        host[name] = seen.details
        samples = (replace(item, vector=vector) for item, vector in zip(phase.tenants, seen.own, strict=True))
        return Phase(tuple(samples), seen.socket, seen.system, phase.duration_s)

    def _watch(self) -> list[Any]:
        self.clock.sleep(_PHASE_S)
        return []

    def environment(self) -> Mapping[str, Any]:
        """Return the simulator's, under this name."""
        stated = json.loads(json.dumps(self.inner.environment()))
        return {**stated, "testbed": self.name, "noisy": self.noisy}

    def estimate_s(self, colocation: Colocation) -> float:
        """Return the simulator's."""
        return self.inner.estimate_s(colocation)
