"""Reporter probes: what their slowdown says, and how that is calibrated."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slomo.compose.composition import compose
from slomo.errors import (
    ConfigurationError,
    IncompatibleMeasurementsError,
    InvalidValueError,
    UnstableMeasurementError,
)
from slomo.records.dataset import ProfileDataset
from slomo.testbed.host.machine.this_machine import this_machine
from slomo.testbed.host.nf.definition import host_definition
from slomo.testbed.host.probe import procedure
from slomo.testbed.host.probe.calibration import Calibration
from slomo.testbed.host.probe.procedure import CandidateTrial, choose
from slomo.testbed.host.probe.reading import ProbedPressure
from slomo.testbed.host.probe.reporters import bubbles, candidates, extra_time, never_hits
from slomo.testbed.host.probe.sentinel import DriftWatch, Look, sentinel_programs
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.traffic.pcap import cached_pcap, count_frames, write_pcap
from slomo.vocabulary.capacities import Capacities
from slomo.vocabulary.knobs import knobs
from slomo.vocabulary.metrics import FELT, Scope
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Traffic


@given(st.floats(0.05, 0.95), st.floats(0.05, 0.95))
def test_more_slowdown_is_more_pressure(one: float, other: float) -> None:
    """Extra time grows with the reporter's slowdown, strictly, and is zero without any or with a gain."""
    assert extra_time(1.0) == extra_time(1.1) == 0.0
    if one != other:
        assert (extra_time(one) > extra_time(other)) == (one < other)


def test_what_reporters_feel_is_the_metric() -> None:
    """A vector holds extra times of the reporters there are; a metric without reporter is missing, not zero."""
    chosen = [item for item in candidates(2.0, 14.0) if item.name in ("random-0.65", "stream-read")]
    calibration = Calibration(2.0, 14.0, tuple(chosen))
    vector = calibration.vector(ProbedPressure({"random-0.65": 0.5, "stream-read": 0.8}), Scope.CORE)
    assert dict(vector) == pytest.approx({"FELTLLC": 1.0, "FELTREAD": 0.25})
    assert "FELTWRITE" not in vector


def test_extra_times_add_until_the_cache_is_full() -> None:
    """Two competitors cost a reporter what each costs it; the cache's no more than all its hits."""
    one = MetricVector({"FELTLLC": 0.4, "FELTREAD": 0.2}, scope=Scope.CORE)
    two = MetricVector({"FELTLLC": 0.5, "FELTREAD": 0.3}, scope=Scope.CORE)
    assert dict(compose([one, two]).vector) == pytest.approx({"FELTLLC": 0.9, "FELTREAD": 0.5})
    full = compose([one, two], Capacities(8, llc_reporter=0.6))
    assert dict(full.vector) == pytest.approx({"FELTLLC": 0.6, "FELTREAD": 0.5})
    assert full.capped == ("FELTLLC",)
    assert Capacities.from_dict(Capacities(8, llc_reporter=0.6).to_dict()).llc_reporter == 0.6


def _trial(name: str, own: float, others: float, error: float = 0.01) -> CandidateTrial:
    reporter = next(item for item in candidates(2.0, 14.0) if item.name == name)
    extra = dict.fromkeys(bubbles(2.0, 14.0), others) | {reporter.metric: own}
    return CandidateTrial(reporter, extra, dict.fromkeys(extra, error))


def test_the_reporter_that_suffers_from_one_resource_only_is_chosen() -> None:
    """Of candidates that suffer enough the most selective; where none does, the one that suffers most; else none."""
    keen, wide = _trial("random-0.5", 0.4, 0.02), _trial("random-0.8", 0.9, 0.8)
    assert choose([wide, keen]) == (keen,)
    weak, weaker = _trial("chain-l2", 0.15, 0.1), _trial("random-l2", 0.1, 0.0)
    assert choose([weaker, weak, keen]) == (weak, keen)
    numb = _trial("stream-read", 0.05, 0.0, error=0.04)
    assert choose([numb, keen]) == (keen,)


def test_reporters_and_settings_are_valid_workloads() -> None:
    """Every candidate has a metric of the vocabulary, and every program keeps within the competitor's knobs."""
    everything = [reporter.workload for reporter in candidates(2.0, 14.0)]
    everything += [*bubbles(2.0, 14.0).values(), *sentinel_programs(2.0, 14.0).values()]
    everything += [never_hits(reporter, 14.0) for reporter in candidates(2.0, 14.0)]
    for workload in everything:
        for name, value in workload.configuration.items():
            knobs()[name].check(value)
    assert {reporter.metric for reporter in candidates(2.0, 14.0)} == set(bubbles(2.0, 14.0)) == set(FELT)
    assert len({reporter.workload.key for reporter in candidates(2.0, 14.0)}) == len(candidates(2.0, 14.0))


def test_a_calibration_survives_its_file(tmp_path: Path) -> None:
    """Saved and loaded, a calibration reads the same; a damaged file, and one of equivalents, is refused by name."""
    chosen = tuple(trial.reporter for trial in choose([_trial("random-0.5", 0.4, 0.0), _trial("chain-l2", 0.4, 0.0)]))
    seen = {"cache": 1.5, "memory": 0.2, "stream": 3.0}
    made = Calibration(2.0, 14.0, chosen, {"FELTLLC": {"FELTREAD": 0.1}}, 2.5, seen, 0.02, "here")
    made.save(tmp_path / "c.json")
    assert Calibration.load(tmp_path / "c.json") == made
    for damage in ("{", "[]", '{"schema_version": 1}', "null", ""):
        (tmp_path / "c.json").write_text(damage)
        with pytest.raises(ConfigurationError, match=r"delete it; the next run calibrates again|needed 2"):
            Calibration.load(tmp_path / "c.json")


class _Machine:
    """A machine whose sentinel sees what a script says."""

    def __init__(self, *rates: float) -> None:
        self.rates, self.runs = list(rates), 0

    def look(self) -> Look:
        return Look({"cache": self.rates.pop(0), "memory": 1.0})

    def run(self) -> int:
        self.runs += 1
        return self.runs


def test_a_run_is_repeated_when_the_machine_moved() -> None:
    """What was measured while the machine changed is measured again, and the provenance says how often."""
    machine = _Machine(1.0, 0.7, 0.71)
    result, told = DriftWatch(machine.look, 0.1, 2).around(machine.run, "a run")
    assert (result, told["repeated"], told["of"]) == (2, 1, "cache")
    assert told["change"] == pytest.approx(0.71 / 0.7)


def test_a_drift_that_does_not_end_is_an_error() -> None:
    """After the last repetition the run fails as unstable, exit code 4, and names what moved by how much."""
    machine = _Machine(1.0, 0.8, 0.6, 0.4)
    with pytest.raises(
        UnstableMeasurementError, match=r"3 times in a row: the sentinel's 'cache' ran at 0\.67"
    ) as told:
        DriftWatch(machine.look, 0.1, 2).around(machine.run, "a run")
    assert told.value.exit_code == 4
    assert "then continues" in str(told.value.hint)


def test_a_calibration_of_another_cache_is_refused() -> None:
    """A sentinel far from what it saw at calibration speaks of another cache, however steady it is now."""
    machine = _Machine(0.4, 0.4)
    watch = DriftWatch(machine.look, 0.1, 2, Look({"cache": 1.0, "memory": 1.0}))
    with pytest.raises(UnstableMeasurementError, match="has changed since the reporters were calibrated") as told:
        watch.around(machine.run, "a run")
    assert told.value.exit_code == 4


def test_reporters_that_feel_nothing_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no candidate loses anything beside the strongest competitors, calibration ends with exit code 4 and why."""
    monkeypatch.setattr(procedure, "_cache", lambda *_: 4.0)
    monkeypatch.setattr(procedure, "_trials", lambda *_: [])
    monkeypatch.setattr(procedure.Sentinel, "look", lambda _: Look({"cache": 1.0}))
    scope = procedure.CalibrationScope(2.0, 32.0, "test")
    with pytest.raises(UnstableMeasurementError, match=r"no reporter feels anything .* 4\.0 MiB") as told:
        procedure.calibrate(host_definition("synthetic"), (0, 1), HostSettings(), scope)
    assert told.value.exit_code == 4
    assert "slomo doctor" in str(told.value.hint)


def test_datasets_of_equivalents_are_refused() -> None:
    """A dataset whose vectors are equivalents of counters cannot be loaded, and says how to repeat it."""
    old = {"testbed": "host", "settings": {"counters": "probe", "calibration": "0123456789abcdef"}}
    with pytest.raises(IncompatibleMeasurementsError, match="equivalents of counters") as told:
        ProfileDataset.from_measurements([], old)
    assert "slomo profile" in str(told.value.hint)
    ProfileDataset.from_measurements([], {**old, "settings": {**old["settings"], "reporters": {"full": 1.0}}})


@pytest.mark.parametrize("traffic", [Traffic(), Traffic(64, 10), Traffic(1518, 2000), Traffic(128, 500, "zipf", 1.1)])
def test_captures_hold_the_traffic(traffic: Traffic, tmp_path: Path) -> None:
    """Every frame has the size asked for, right IPv4 checksums, and the flows are as many as asked for."""
    count = write_pcap(traffic, tmp_path / "t.pcap", seed=3)
    data = (tmp_path / "t.pcap").read_bytes()
    size = struct.unpack("<I", data[32:36])[0]
    assert size == traffic.packet_size_b - 4
    frames = np.frombuffer(data[24:], dtype=np.uint8).reshape(count, 16 + size)[:, 16:]
    words = frames[:, 14:34].reshape(count, 10, 2).astype(np.uint64)
    total = (words[:, :, 0] * 256 + words[:, :, 1]).sum(axis=1)
    assert set((total % 0xFFFF).tolist()) == {0}
    flows = len(np.unique(frames[:, 26:38], axis=0))
    assert flows == traffic.flow_count if traffic.flow_distribution == "uniform" else flows <= traffic.flow_count
    assert count_frames(tmp_path / "t.pcap") == count


def test_captures_are_written_once(tmp_path: Path) -> None:
    """The same traffic is the same file; other traffic is another one."""
    first = cached_pcap(Traffic(flow_count=100), tmp_path)
    written = first.stat().st_mtime_ns
    assert cached_pcap(Traffic(flow_count=100), tmp_path) == first
    assert first.stat().st_mtime_ns == written
    assert cached_pcap(Traffic(flow_count=101), tmp_path) != first
    with pytest.raises(InvalidValueError, match="2000000 flows"):
        cached_pcap(Traffic(flow_count=2_000_000), tmp_path)


def test_this_machine_is_described() -> None:
    """Cores and caches come from the kernel, and the description says what was not measured."""
    machine = this_machine()
    assert machine.cores >= 1
    assert machine.llc_mib > 0.0
    assert "not measured" in machine.source
