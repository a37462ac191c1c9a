"""PCM recordings: every layout gives the same metrics, and what PCM could not read is missing."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slomo.errors import ConfigurationError, MissingMetricError, SlomoError
from slomo.records.pcm.csv import number
from slomo.records.pcm.recording import CUT, FIRST, NEGATIVE_IPC, NO_CYCLES, NOT_FINITE, OFF_TIME, read_pcm


@pytest.mark.parametrize(("name", "separator"), [("semicolon-sparse.csv", ";"), ("comma-sparse.csv", ",")])
def test_sparse_layouts(pcm_files, name, separator):
    """Files of 2018 and 2020 (group named once) give rates per second, by group and name."""
    recording = read_pcm(pcm_files / name)
    assert (recording.dialect.separator, recording.dialect.header) == (separator, "sparse")
    assert (recording.cores, recording.sockets, recording.socket_of(1)) == ((0, 1), (0, 1), 1)
    assert (recording.interval.source, recording.interval.nominal_mhz) == ("nominal frequency", 2000.0)
    core = recording.core(0)
    assert (core["L3MISS"], core["L2MISS"], core["LMB"], core["RMB"], core["L3OCC"]) == (2.0, 6.0, 50.0, 10.0, 12345.0)
    assert (recording.socket(0)["READ"], recording.socket(1)["READ"], recording.system()["READ"]) == (4.0, 0.5, 8.65)
    assert recording.socket(0)["UPI"] == pytest.approx(0.03)
    assert "L3OCC" not in recording.core(1)
    assert "INST" not in core


def test_first_sample_of_a_run_is_dropped(pcm_files):
    """The first sample, here nine times too high, does not enter, and the recording says so."""
    recording = read_pcm(pcm_files / "comma-sparse.csv")
    assert recording.dropped == {FIRST: 1}
    assert recording.frame("core")["L3MISS"].max() == 2.0
    assert recording.raw("core")["L3MISS"].max() == 36.0


def test_bad_samples_are_dropped_with_reason_and_count(pcm_files):
    """Idle, negative, not finite and mistimed samples are dropped where they stand; the rest counts."""
    recording = read_pcm(pcm_files / "repeated-faults.csv")
    assert recording.dropped == {FIRST: 1, OFF_TIME: 1, NEGATIVE_IPC: 1, NOT_FINITE: 2}
    frame = recording.frame("core")
    assert frame.groupby("core")["sample"].apply(list).to_dict() == {4: [1, 2, 3, 4, 6], 10: [1, 6]}
    assert recording.core(4)["L3OCC"] == 10080.0
    assert recording.core(4)["L3MISS"] == 2.0


def test_coarse_misses_per_instruction_are_computed(pcm_files):
    """Misses per instruction come from misses and instructions where these say more than PCM's four decimals."""
    core = read_pcm(pcm_files / "repeated-faults.csv").core(4)
    assert core["L3MPI"] == pytest.approx(2.0 / 1200.0, rel=1e-12)


def test_latency_of_the_first_second_is_not_believed(pcm_files):
    """The absurd miss latency of the first second is neither kept nor in the median."""
    assert read_pcm(pcm_files / "repeated-faults.csv").socket(0)["LLCMISSLAT"] == 93.21


def test_nominal_frequency_from_cfreq(pcm_files):
    """CFREQ over AFREQ gives the nominal frequency, hence the true interval where clocks stand still."""
    recording = read_pcm(pcm_files / "nominal-frequency.csv")
    assert (recording.interval.nominal_mhz, recording.interval.seconds.tolist()) == (2000.0, [0.5, 0.5, 0.5])
    assert (recording.system()["L3MISS"], recording.system()["READ"]) == (6.0, 2.0)


def test_counters_that_were_not_read_are_missing(pcm_files):
    """Occupancy and both bandwidths at zero on a busy socket are missing, with the reason, never zero."""
    recording = read_pcm(pcm_files / "nominal-frequency.csv")
    assert not {"L3OCC", "LMB", "RMB"} & set(recording.socket(0))
    assert set(recording.unavailable) == {"L3OCC (socket 0)", "LMB (socket 0)", "RMB (socket 0)"}


def test_one_zero_bandwidth_is_a_measurement(pcm_files):
    """Remote bandwidth of zero beside a local one is believed."""
    assert read_pcm(pcm_files / "repeated-faults.csv").core(4)["RMB"] == 0.0


def test_flattened_header(pcm_files):
    """One header row of 'Group - metric' is read too; the interval then comes from the timestamps."""
    recording = read_pcm(pcm_files / "flattened.csv")
    assert (recording.dialect.header, recording.interval.source) == ("flattened", "timestamps")
    assert (recording.system()["L3MISS"], recording.system()["READ"]) == (0.4, 0.2)


def test_pcm_memory(pcm_files):
    """`pcm-memory` prints rates in MB/s already; they become GB/s whatever the sampling interval."""
    recording = read_pcm(pcm_files / "memory.csv")
    assert recording.dialect.tool == "pcm-memory"
    assert dict(recording.socket(0)) == {"READ": 5.0, "WRITE": 2.0}
    assert dict(recording.socket(1)) == {"READ": 0.5, "WRITE": 0.1}
    assert dict(recording.system()) == {"READ": 5.5, "WRITE": 2.1}


def test_given_interval_counts(pcm_files, tmp_path):
    """Without counter of time and clock the interval is the one given, or PCM's default of one second, and says so."""
    path = tmp_path / "a.csv"
    path.write_text((pcm_files / "flattened.csv").read_text().replace(":15.0", ":10.0").replace(":2", ":1"))
    still = path.read_text().replace("15:48:15", "15:48:10")
    path.write_text(still.replace("15:48:10.000", "x"))
    assert (read_pcm(path).interval.source, read_pcm(path).system()["READ"]) == ("assumed", 1.0)
    assert (read_pcm(path, interval_s=0.5).interval.source, read_pcm(path, interval_s=0.5).system()["READ"]) == (
        "given",
        2.0,
    )


def changed(pcm_files: Path, tmp_path: Path, change) -> Path:
    """Return a copy of the repeated layout after `change` of its bytes."""
    path = tmp_path / "changed.csv"
    path.write_bytes(change((pcm_files / "comma-sparse.csv").read_bytes()))
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b"\n", b"\r\n") + b"\r\n",
        lambda data: data.replace(b"\n", b"\n\n") + b"\n\n \n",
        lambda data: b"\n".join(b'"' + line.replace(b",", b'","') + b'"' for line in data.split(b"\n")),
        lambda data: data.replace(b",", b"\t"),
        lambda data: b" Intel(r) Performance Counter Monitor\n\n" + data,
        lambda data: data + b"\0\0\0\0",
        lambda data: data.decode().encode("utf-16"),
        lambda data: b"\n".join(line.rstrip(b",") for line in data.split(b"\n")),
    ],
    ids=[
        "byte order mark",
        "CRLF",
        "blank lines",
        "quotes",
        "tabs",
        "preamble",
        "zero bytes",
        "UTF-16",
        "no trailing comma",
    ],
)
def test_disguises_do_not_matter(pcm_files, tmp_path, change):
    """Byte order mark, line ends, blank lines, quotes and the like change no number."""
    plain, other = read_pcm(pcm_files / "comma-sparse.csv"), read_pcm(changed(pcm_files, tmp_path, change))
    assert dict(other.core(0)) == dict(plain.core(0))
    assert dict(other.system()) == dict(plain.system())
    assert other.dropped == plain.dropped


def test_line_being_written_is_left_out(pcm_files, tmp_path):
    """The cut last line of a file PCM is still writing is counted, not read."""
    path = changed(pcm_files, tmp_path, lambda data: data[:-40])
    recording = read_pcm(path)
    assert recording.dropped == {CUT: 1, FIRST: 1}
    assert recording.frame("system")["sample"].tolist() == [1]


def test_appended_run_starts_anew(pcm_files, tmp_path):
    """Where PCM was started again on the same file, the first sample of the second run is dropped too."""
    path = changed(pcm_files, tmp_path, lambda data: data + b"\n" + data)
    recording = read_pcm(path)
    assert recording.dropped == {FIRST: 2}
    assert recording.frame("system")["sample"].tolist() == [1, 2, 4, 5]


def test_idle_core_has_no_vector(pcm_files, tmp_path):
    """A core without a single cycle has no metrics, and asking for them says why."""
    text = (
        (pcm_files / "repeated-faults.csv")
        .read_text()
        .replace("1200.00,1000.00,2000.00,0.60", "0.00,0.00,2000.00,0.60")
    )
    path = tmp_path / "idle.csv"
    path.write_text(text)
    with pytest.raises(MissingMetricError, match=r"no usable sample of core 4 \(socket 0\)") as caught:
        read_pcm(path).core(4)
    assert NO_CYCLES in str(caught.value)


def test_absent_core_is_named(pcm_files):
    """Asking for a core the file does not have lists those it has."""
    with pytest.raises(
        MissingMetricError, match=r"no columns for core 7, only for sockets \[0, 1\] and cores \[0, 1\]"
    ):
        read_pcm(pcm_files / "comma-sparse.csv").core(7)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"\0\0\0\0", "is empty"),
        (b"System,System,System\nDate,Time,IPC,\n", "has a header but no sample"),
        (b"ipc,perf\n1,2\n3,4\n", "no output of `pcm -csv`"),
        (b"Access to counters has denied\n", "no output of `pcm -csv`"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary data"),
    ],
)
def test_what_pcm_did_not_write_is_refused(tmp_path, content, complaint):
    """Empty files, as PCM leaves them where it fails, and other files are errors of exit code 2 that name the file."""
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        read_pcm(path)
    assert "x.csv" in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("cell", "value", "broken"),
    [
        ("7.12e+03", 7120.0, False),
        (" 12 345 ", 12345.0, False),
        ("  2%", 2.0, False),
        ("-1.00", -1.0, False),
        ("N/A", np.nan, False),
        ("", np.nan, False),
        ("inf", np.nan, True),
        ("-nan", np.nan, True),
        ("nan%", np.nan, True),
        ("1.2.3", np.nan, True),
    ],
)
def test_cells(cell, value, broken):
    """Every way PCM prints a number, or the lack of one, is understood."""
    assert number(cell) == pytest.approx((value, broken), nan_ok=True)


@given(
    place=st.floats(0, 1),
    token=st.sampled_from([b"N/A", b"-nan", b"inf", b'"', b";", b",", b"\n", b"\0", b"1e400"]),
    cut=st.floats(0, 1),
)
@settings(max_examples=40)
def test_damaged_files_read_or_are_refused(pcm_files, place, token, cut):
    """A damaged file either reads into finite vectors or is refused as this library refuses things."""
    data = (pcm_files / "repeated-faults.csv").read_bytes()
    at = int(place * len(data))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "damaged.csv")
        path.write_bytes((data[:at] + token + data[at + len(token) :])[: int(cut * len(data))])
        try:
            recording = read_pcm(path)
            vectors = [recording.core(core) for core in recording.cores]
        except SlomoError:
            return
    assert all(np.isfinite(value) and value >= 0.0 for vector in vectors for value in vector.values())
