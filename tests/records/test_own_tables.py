"""One's own co-location tables: competitors by name, units that cannot be, other targets, results beside PCM files."""

from pathlib import Path

import numpy as np
import pytest

from slomo.errors import ConfigurationError
from slomo.records.importing.competitors import named_competitors
from slomo.records.importing.door import import_table
from slomo.records.pcm.recording import read_pcm

NAMED = {
    "machine": "mine",
    "traffic": {"packet_size_b": 512},
    "columns": {
        "nf": {"label": "nf"},
        "beside": {"label": "competitors"},
        "mpps": {"target": "throughput"},
    },
}


@pytest.fixture
def table(tmp_path):
    """Return a function that writes a file and returns its path."""

    def write(text: str, name: str = "table.csv") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_named_competitors_make_mixes(table):
    """Rows that name their competitors are mixes with the table's traffic, pressure beside the synthetic one, solo."""
    rows = "nf,beside,mpps\nlpm,,4.0\nlpm,nat + 2 x snort,3.0\nnat,lpm@64B;snort:2,2.0\nlpm,synthetic,3.5\n"
    dataset = import_table(table(rows), NAMED)
    assert dataset.frame["plan"].tolist() == ["solo", "mix", "mix", "pressure"]
    assert [w.key for w in dataset.competitors(1)] == sorted(
        ["nat@512B,100000f", "snort@512B,100000f", "snort@512B,100000f"]
    )
    assert dataset.competitors(2)[0].key == "lpm@64B,100000f"
    assert import_table(table(rows), {**NAMED, "plan": "imported"}).frame["plan"].tolist()[1] == "imported"


def test_odd_competitors_are_told_by_line_and_column(table):
    """A cell that names nobody between separators, or no workload, is refused where it stands."""
    for cell in ("lpm + + nat", "lpm@x"):
        with pytest.raises(ConfigurationError, match=r"table\.csv, line 2, column 'beside': got"):
            import_table(table(f"nf,beside,mpps\nlpm,{cell},4.0\n"), NAMED)
    assert named_competitors("alone", {}) == ()
    assert [each.nf for each in named_competitors("nat-4x10g@64B; 2xlpm@64B", {})] == ["nat-4x10g", "lpm", "lpm"]


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ({"target": "throughput", "unit": "Mpps"}, "2100000", r"that is 2\.1e\+06 Mpps.*is it in pps\?"),
        ({"target": "throughput"}, "14880", r"that is 1\.488e\+04 Mpps.*is it in kpps\?"),
    ],
)
def test_throughputs_that_no_port_carries_are_told(table, column, value, words):
    """A rate that no port carries is a wrong unit, and the message names the likely one."""
    with pytest.raises(ConfigurationError, match=words):
        import_table(table(f"p\n{value}\n"), {"machine": "m", "nf": "acl", "columns": {"p": column}})


def test_the_size_of_packets_bounds_their_rate(table):
    """500 Mpps pass as packets of 64 bytes, not as packets of 1518, wherever the table has their size."""
    columns = {"p": {"target": "throughput"}, "size": {"traffic": "packet_size_b"}}
    mapping = {"machine": "m", "nf": "acl", "columns": columns}
    assert len(import_table(table("size,p\n64,500\n"), mapping)) == 1
    with pytest.raises(ConfigurationError, match=r"column 'p': .* more than 130 of 1518 B; is it in kpps\?"):
        import_table(table("size,p\n1518,500\n"), mapping)


def test_a_rate_whose_column_names_a_unit_needs_it(table):
    """A column `rate_kpps` without a unit is not read as Mpps."""
    mapping = {"machine": "m", "nf": "acl", "columns": {"rate_kpps": {"target": "throughput"}}}
    with pytest.raises(ConfigurationError, match="its name ends with 'kpps'\nhint: write 'unit: kpps'"):
        import_table(table("rate_kpps\n500\n"), mapping)


def test_metrics_that_cannot_be_are_told(table):
    """A hit ratio of 87 is per cent, an occupancy of 8 GiB in bytes read as KiB no cache."""
    columns = {"p": {"target": "throughput"}, "x": {"metric": "L3HIT"}}
    with pytest.raises(ConfigurationError, match="line 2, column 'x': got '87', that is 87 1 of L3HIT"):
        import_table(table("p,x\n2,87\n"), {"machine": "m", "nf": "acl", "columns": columns})
    columns["x"] = {"metric": "L3HIT", "unit": "%"}
    dataset = import_table(table("p,x\n2,87\n"), {"machine": "m", "nf": "acl", "columns": columns})
    assert dataset.vectors("competition")["L3HIT"].tolist() == [0.87]


def test_features_keep_their_unit(table):
    """The unit of a feature is part of the provenance."""
    columns = {"p": {"target": "throughput"}, "mtbr": {"feature": "match_density", "unit": "matches/MB"}}
    dataset = import_table(table("p,mtbr\n2,600\n"), {"machine": "m", "nf": "ids", "columns": columns})
    assert dataset.environment["import"]["units"] == {"traffic.match_density": "matches/MB"}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("p,q,p", r"occurs twice: 'p' \(columns 1, 3\)"),
        ("p,,q", r"column 2 of 3 has no readable name: ''"),
        ("p,\x07,q", r"column 2 of 3 has no readable name"),
    ],
)
def test_odd_columns_are_named(table, header, words):
    """A name that occurs twice is named with its places; so is a column without a name."""
    with pytest.raises(ConfigurationError, match=words):
        import_table(
            table(f"{header}\n1,2,3\n"), {"machine": "m", "nf": "a", "columns": {"p": {"target": "throughput"}}}
        )


def test_latency_and_share_are_targets(table):
    """A response latency is the rate of a client that waits; a share is one of the solo throughput, where known."""
    base = {"machine": "m", "nf": "redis"}
    path = table("y\n50\n80\n")
    by = import_table(path, {**base, "columns": {"y": {"target": "latency", "unit": "us"}}})
    assert by.throughput.tolist() == [0.02, 0.0125]
    share = {**base, "columns": {"y": {"target": "share", "unit": "%"}}}
    assert import_table(path, share).throughput.tolist() == [0.5, 0.8]
    assert (import_table(path, share).solo_mpps("redis"), import_table(path, share).solo_source("redis")) == (
        1.0,
        "stated",
    )
    assert import_table(path, share).environment["throughput_units"] == {"m": {"redis": "share"}}
    with_solo = import_table(path, {**share, "solo": {"value": 2.0}})
    assert "throughput_units" not in with_solo.environment
    assert with_solo.throughput.tolist() == [1.0, 1.6]
    for column, words in (
        ({"target": "share", "unit": "us"}, "has no unit"),
        ({"target": "latency", "unit": "kpps"}, "no 'kpps'"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            import_table(path, {**base, "columns": {"y": column}})


RESULTS = {
    "kind": "pcm",
    "machine": "xeon",
    "nf": "bridge",
    "target_core": 0,
    "results": {
        "file": "results.csv", "throughput": "kpps", "unit": "kpps", "alone": "v", "beside": "p", "competitors": "c",
    },
}  # fmt: skip


def test_recordings_and_results_join_by_one_mapping(table, pcm_files, tmp_path):
    """One row per run names the recordings, the throughput and the competitors; the rows are those of listed runs."""
    for name in ("semicolon-sparse.csv", "comma-sparse.csv"):
        (tmp_path / name).write_bytes((pcm_files / name).read_bytes())
    table("kpps,v,p,c\n300,semicolon-sparse.csv,comma-sparse.csv,2 x stats\n400,,comma-sparse.csv,\n", "results.csv")
    dataset = import_table(tmp_path, RESULTS)
    assert dataset.throughput.tolist() == [0.3, 0.4]
    assert dataset.frame["competitor_count"].tolist() == [2, 0]
    assert dataset.frame["competition.L2MISS"].tolist() == [6.0, 0.0]
    table("kpps,v,p,c\nfast,,comma-sparse.csv,\n", "results.csv")
    with pytest.raises(ConfigurationError, match=r"results\.csv, line 2, column 'kpps': got 'fast'"):
        import_table(tmp_path, RESULTS)
    table("mpps,v,p,c\n3,,comma-sparse.csv,\n", "results.csv")
    with pytest.raises(ConfigurationError, match="has no column 'kpps'"):
        import_table(tmp_path, RESULTS)


def test_a_system_of_one_socket_is_that_socket(table, tmp_path):
    """A recording without socket columns serves on a machine of one socket, and only there."""
    head = "System,,,,,,\nDate,Time,IPC,L3MISS,L2MISS,READ,TIME(ticks)\n"
    line = "2018-11-20,10:00:0{}.000,1.2,4,8,3.5,2000\n"
    table(head + "".join(line.format(second) for second in range(3)), "alone.csv")
    run = {"alone": "alone.csv", "throughput": {"value": 2.0}, "competitors": [{"nf": "stats"}]}
    mapping = {"kind": "pcm", "machine": "xeon", "nf": "bridge", "runs": [run]}
    dataset = import_table(tmp_path, {**mapping, "sockets": 1})
    assert dataset.frame["competition.READ"].tolist() == [3.5]
    with pytest.raises(ConfigurationError, match="columns of the system but of no socket"):
        import_table(tmp_path, mapping)
    with pytest.raises(ConfigurationError, match="no columns for socket 0"):
        import_table(tmp_path, {**mapping, "sockets": 2})


def test_zeros_that_are_rounding_come_from_finer_columns(table, pcm_files):
    """EXEC 0.00 of a core that retired instructions is INST over TIME; FREQ and IPC likewise; true zeros stay."""
    text = (pcm_files / "repeated-faults.csv").read_text()
    core = "0.60,1.20,0.50,1.20,2.00,8.00,0.75,0.40,0.0017,0.0067, 10 080,100,0,1200.00,1000.00,2000.00,"
    idle = core.replace("0.60,1.20,0.50", "0.00,0.00,0.00").replace("1200.00,1000.00", "2.00,4.00")
    assert core in text
    core_vector = read_pcm(table(text.replace(core, idle))).core(10)
    assert [core_vector[name] for name in ("EXEC", "FREQ", "IPC")] == pytest.approx([0.001, 0.002, 0.5])
    frame = read_pcm(pcm_files / "repeated-faults.csv").frame("core")
    assert np.allclose(frame["EXEC"], 0.6)
