"""Reporter probes: what their slowdown says, and how that is calibrated."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slomo.errors import ConfigurationError, InvalidValueError
from slomo.testbed.host.machine.this_machine import this_machine
from slomo.testbed.host.probe.calibration import (
    Calibration,
    CalibrationPoint,
    calibration_settings,
    fit_calibration,
    known_pressure,
)
from slomo.testbed.host.probe.reading import ProbedPressure
from slomo.testbed.host.probe.reporters import reporters
from slomo.testbed.host.probe.response import Response, extra_time, fit_response
from slomo.testbed.host.traffic.pcap import cached_pcap, count_frames, write_pcap
from slomo.vocabulary.metrics import METRICS, Scope
from slomo.vocabulary.workload import Traffic, Workload


@given(st.floats(0.05, 0.95), st.floats(0.05, 0.95), st.floats(0.1, 100.0), st.floats(0.3, 3.0))
def test_more_slowdown_is_more_pressure(one: float, other: float, scale: float, exponent: float) -> None:
    """The metric grows with the reporter's slowdown, strictly, and is zero without any."""
    law = Response(scale, exponent, 5, 0.0)
    assert law.metric(1.0) == law.metric(1.1) == 0.0
    if abs(extra_time(one) - extra_time(other)) > 1e-6:
        assert (law.metric(one) > law.metric(other)) == (one < other)


def test_a_law_is_found_again() -> None:
    """Points made by a law give back that law; a wild one among them changes little."""
    true = Response(3.0, 0.8, 0, 0.0)
    ratios = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]
    found = fit_response(ratios, [true.metric(ratio) for ratio in ratios])
    assert found is not None
    assert (found.scale, found.exponent) == (pytest.approx(3.0), pytest.approx(0.8))
    assert found.error == pytest.approx(0.0, abs=1e-9)


def test_a_reporter_that_feels_nothing_reports_nothing() -> None:
    """Without points beyond the noise there is no law, and the metric is missing, not zero."""
    assert fit_response([1.0, 0.995, 1.01, 0.4], [1.0, 2.0, 3.0, 4.0]) is None
    calibration = Calibration(2.0, 14.0, 7.0, {"io": Response(1.0, 1.0, 3, 0.0)}, "x")
    vector = calibration.vector(ProbedPressure({"io": 0.5}, {}), Scope.CORE)
    assert dict(vector) == {"WRITE": 1.0}
    assert [reporter.name for reporter in calibration.reporters] == ["io"]


def test_reporters_and_settings_are_valid_workloads() -> None:
    """Every reporter has a metric of the vocabulary, and every setting keeps within the competitor's knobs."""
    from slomo.vocabulary.knobs import knobs

    everything = [reporter.workload for reporter in reporters(2.0, 14.0)] + list(calibration_settings(14.0))
    for workload in everything:
        for name, value in workload.configuration.items():
            knobs()[name].check(value)
    assert {reporter.metric for reporter in reporters(2.0, 14.0)} <= set(METRICS)
    assert len({workload.key for workload in everything}) == len(everything)


def test_what_the_competitor_does_follows_from_its_knobs() -> None:
    """Random access misses by size; data within L2 press on nothing beyond; written lines are read first."""
    inside = known_pressure(Workload("synthetic", {"data_size_mib": 1.0, "reads_per_packet": 10}), 5.0, 2.0, 14.0)
    assert inside["L2MISS"] == inside["READ"] == inside["WRITE"] == 0.0
    random = known_pressure(Workload("synthetic", {"data_size_mib": 28.0, "reads_per_packet": 10}), 5.0, 2.0, 14.0)
    assert random["L2MISS"] == pytest.approx(50.0 * 26 / 28)
    assert random["READ"] == pytest.approx(50.0 * 0.5 * 64 / 1e3)
    assert random["L3OCC"] == 14 * 1024
    writing = Workload(
        "synthetic", {"data_size_mib": 64, "reads_per_packet": 0, "writes_per_packet": 10, "pattern": "sequential"}
    )
    assert known_pressure(writing, 1.0, 2.0, 14.0)["READ"] == known_pressure(writing, 1.0, 2.0, 14.0)["WRITE"]


def test_a_calibration_survives_its_file(tmp_path: Path) -> None:
    """Saved and loaded, a calibration reads the same; a damaged file is refused by name."""
    points = [
        CalibrationPoint(workload, 1.0, ProbedPressure({r.name: 0.9 - 0.05 * number for r in reporters(2.0, 14.0)}, {}))
        for number, workload in enumerate(calibration_settings(14.0))
    ]
    made = fit_calibration(points, 2.0, 14.0, 7.0, "here")
    assert set(made.responses) == {"cache-occupancy", "access-rate", "streaming-bandwidth", "io"}
    made.save(tmp_path / "c.json")
    assert Calibration.load(tmp_path / "c.json") == made
    for damage in ("{", "[]", '{"schema_version": 2}', "null", ""):
        (tmp_path / "c.json").write_text(damage)
        with pytest.raises(ConfigurationError, match="cannot be read"):
            Calibration.load(tmp_path / "c.json")


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
