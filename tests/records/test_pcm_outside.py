"""PCM files of real servers and of every release's layout, where they are at hand: identities hold, units are right."""

from pathlib import Path

import numpy as np
import pytest

from slomo.records.pcm.recording import read_pcm

RELEASES = ("201811", "202003", "202010", "202107", "202110", "202302", "202403", "202502", "202604", "HEAD")
PROFILES = ("skx2", "icx1", "spr2", "gnr2", "client1", "skx2_nc", "skx2_yc2")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("release", RELEASES)
def test_every_release_gives_the_same_core(outside_data, release, profile):
    """The layout of every release and machine reads into the same metrics of a core."""
    recording = read_pcm(outside_data / "pcm" / "formats" / f"pcm_{release}_{profile}.csv")
    if profile.endswith("_nc"):
        assert recording.cores == ()
        core = recording.socket(0)
        scale = 2.0
    else:
        core = recording.core(2)
        scale = 1.0
    expected = {
        "L3MISS": 2.35 * scale,
        "L2MISS": 6.79 * scale,
        "IPC": 1.23,
        "EXEC": 0.712,
        "FREQ": 0.577,
        "L3HIT": 0.654,
    }
    for name, value in expected.items():
        assert core[name] == pytest.approx(value, rel=0.01), name
    if "L3OCC" in core:
        assert core["L3OCC"] == 12345.0 * scale


@pytest.mark.parametrize("name", ["2302_2skt_6ch", "2302_nc", "2302_pmem", "new_2skt_6ch", "new_nc", "new_pmem"])
def test_every_memory_layout(outside_data, name):
    """Sockets of `pcm-memory` add up to the system's DRAM bandwidth in every layout."""
    recording = read_pcm(outside_data / "pcm" / "formats" / f"pcm-memory_{name}.csv")
    for metric in ("READ", "WRITE"):
        assert sum(recording.socket(s)[metric] for s in recording.sockets) == pytest.approx(recording.system()[metric])


@pytest.mark.parametrize("name", ["onvm-bridge-xeon-2socket-2023-10.csv", "linux-8core-2024-12.csv"])
@pytest.mark.parametrize("scope", ["core", "socket", "system"])
def test_identities_hold_on_real_servers(outside_data, name, scope):
    """IPC, EXEC and FREQ follow from instructions, cycles and time within what two decimals allow."""
    raw = read_pcm(outside_data / "pcm" / name).raw(scope)
    raw = raw[raw["kept"].astype(bool)]
    if not len(raw) or "ACYC" not in raw:
        pytest.skip(f"{name} has no {scope} block")
    np.testing.assert_allclose(raw["INST"] / raw["ACYC"], raw["IPC"], atol=0.0055)
    threads = (raw["INST"] / raw["TIME(ticks)"] / raw["EXEC"].where(raw["EXEC"] > 0.2)).round()
    exec_ = raw["INST"] / (raw["TIME(ticks)"] * threads)
    np.testing.assert_allclose(exec_[threads.notna()], raw["EXEC"][threads.notna()], atol=0.0051)
    freq = raw["ACYC"] / (raw["TIME(ticks)"] * threads)
    np.testing.assert_allclose(freq[threads.notna()], raw["FREQ"][threads.notna()], atol=0.0051)


def test_real_server_of_2023(outside_data):
    """The NF core of the bridge: occupancy in KiB despite padding, rates per second, absurd miss latency left out."""
    recording = read_pcm(outside_data / "pcm" / "onvm-bridge-xeon-2socket-2023-10.csv")
    core = recording.core(3)
    assert core["L3OCC"] == 480.0
    assert core["L2MISS"] == pytest.approx(26.13, rel=0.002)
    assert recording.interval.nominal_mhz == pytest.approx(2597, abs=1)
    assert "LLCMISSLAT" not in recording.socket(0)


def test_flattened_file_of_2025(outside_data):
    """The flattened system recording has samples of five seconds."""
    recording = read_pcm(outside_data / "pcm" / "flattened-system-2025.csv")
    assert recording.interval.seconds[0] == pytest.approx(5.0, rel=0.001)
    assert recording.system()["READ"] == pytest.approx(0.76 / 5, rel=0.03)


def test_every_file_reads(outside_data):
    """Every file at hand reads, and every vector is finite and not negative."""
    files = sorted((outside_data / "pcm").rglob("*.csv"))
    assert files
    for path in files:
        recording = read_pcm(Path(path))
        for scope in ("core", "socket", "system"):
            frame = recording.frame(scope)
            values = frame.drop(columns=["time"]).to_numpy(dtype=float)[:, 4:]
            assert not (values < 0).any(), path
            assert not np.isinf(values).any(), path
