"""Importing measured tables and PCM recordings through a mapping."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest

from slomo.errors import ConfigurationError, UnknownNameError
from slomo.files.opening import read_text
from slomo.records.dataset import ProfileDataset
from slomo.records.importing.door import import_table
from slomo.records.importing.mapping import load_mapping, metric_factor, throughput_mpps
from slomo.vocabulary.metrics import METRICS, metric

HEADERLESS = {
    "machine": "bluefield-2",
    "nf": "acl",
    "names": ["flows", "size", "ipc", "rd", "wr", "occ", "perf"],
    "columns": {
        "flows": {"feature": "flow_count"},
        "size": {"traffic": "packet_size_b"},
        "ipc": {"metric": "IPC"},
        "rd": {"metric": "L2MISS", "unit": "1/s"},
        "wr": {"metric": "L2MISS", "unit": "1/s"},
        "occ": {"metric": "L3OCC", "unit": "MiB"},
        "perf": {"target": "throughput", "unit": "kpps"},
    },
}
ROWS = "16384 1518 1.25 2e6 1e6 4 500\n\n# a remark\n20000 1518 1.00 8e6 2e6 16 400\n"


@pytest.fixture
def table(tmp_path):
    """Return a function that writes a table and returns its path."""

    def write(text: str, name: str = "table.txt"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def altered(**changes):
    """Return the mapping of the headerless table with other fields."""
    return {**copy.deepcopy(HEADERLESS), **changes}


def test_columns_become_metrics_with_units(table):
    """Columns are converted to the vocabulary's units, and several columns of one metric add up."""
    dataset = import_table(table(ROWS), HEADERLESS)
    vectors = dataset.vectors("competition")
    assert vectors["L2MISS"].tolist() == [3.0, 10.0]
    assert vectors["L3OCC"].tolist() == [4096.0, 16384.0]
    assert dataset.throughput.tolist() == [0.5, 0.4]
    assert dataset.frame["plan"].tolist() == ["imported", "imported"]


def test_traffic_identifies_and_features_describe(table):
    """A traffic column makes the workload, a feature column stays a number of the row."""
    dataset = import_table(table(ROWS), HEADERLESS)
    assert dataset.targets == ("acl@1518B,100000f",)
    assert [name for name in dataset.frame if name.startswith("traffic.")] == ["traffic.flow_count"]
    by_flows = altered()
    by_flows["columns"]["flows"] = {"traffic": "flow_count"}
    assert import_table(table(ROWS), by_flows).targets == ("acl@1518B,16384f", "acl@1518B,20000f")


def test_unknown_solo_is_said(table):
    """Without a solo run slowdown is relative to the best measured, and both dataset and provenance say so."""
    dataset = import_table(table(ROWS), HEADERLESS)
    assert (dataset.solo_mpps("acl"), dataset.solo_source("acl")) == (0.5, "best measured")
    assert "relative to the best" in dataset.environment["import"]["solo"]


def test_stated_solo_counts(table):
    """A solo throughput stated in the mapping is used and survives storage."""
    dataset = import_table(table(ROWS), altered(solo={"value": 630, "unit": "kpps"}))
    assert (dataset.solo_mpps("acl"), dataset.solo_source("acl")) == (0.63, "stated")
    assert ProfileDataset.from_dict(dataset.to_dict()).solo_mpps("acl") == 0.63


def test_rows_without_competitors_are_solo(table):
    """A column with the number of competitors tells solo rows, whose pressure is zero."""
    mapping = altered()
    mapping["columns"]["flows"] = {"label": "competitor_count"}
    dataset = import_table(table("0 64 1.2 0 0 0 900\n3 64 1.1 3e6 1e6 4 500\n"), mapping)
    assert dataset.frame["plan"].tolist() == ["solo", "imported"]
    assert (dataset.solo_mpps("acl"), dataset.solo_source("acl")) == (0.9, "measured")
    assert len(dataset.competitors(1)) == 3
    assert dataset.vectors("competition")["L2MISS"].tolist() == [0.0, 4.0]
    with pytest.raises(ConfigurationError, match=r"line 1, column 'competitor_count': got 'nan', needed a number"):
        import_table(table("nan 64 1.2 0 0 0 900\n"), mapping)


def test_time_per_packet_is_inverted(table):
    """A target given as time per packet, or as 1 / rate, becomes a throughput."""
    mapping = altered()
    mapping["columns"]["perf"] = {"target": "throughput", "unit": "us"}
    assert import_table(table("1 64 1 1 1 1 4\n"), mapping).throughput.tolist() == [0.25]
    mapping["columns"]["perf"] = {"target": "throughput", "unit": "kpps", "inverse": True}
    assert import_table(table("1 64 1 1 1 1 0.002\n"), mapping).throughput.tolist() == [0.5]


def test_csv_and_parquet_give_the_same(table, tmp_path):
    """The same table as whitespace, CSV with header, and parquet gives the same numbers."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    plain = import_table(table(ROWS), HEADERLESS)
    mapping = altered()
    names = mapping.pop("names")
    values = np.array([line.split() for line in ROWS.splitlines() if line and line[0] != "#"], dtype=float)
    as_csv = import_table(
        table(",".join(names) + "\n" + "\n".join(",".join(map(repr, r)) for r in values.tolist()), "t.csv"), mapping
    )
    pq.write_table(pa.table(dict(zip(names, values.T, strict=True))), tmp_path / "t.parquet")
    as_parquet = import_table(tmp_path / "t.parquet", mapping)
    for other in (as_csv, as_parquet):
        assert other.frame.drop(columns="run_key").equals(plain.frame.drop(columns="run_key"))


def test_counter_that_is_zero_throughout_is_missing(table):
    """A counter that reads zero beside every competition was not read: it is missing, and named."""
    dataset = import_table(table(ROWS.replace(" 4 500", " 0 500").replace(" 16 400", " 0 400")), HEADERLESS)
    assert dataset.metric_names("competition") == ("IPC", "L2MISS")
    assert dataset.environment["import"]["unreported"] == ["competition.L3OCC"]


def test_missing_part_makes_the_sum_missing(table):
    """Where one of the columns that add up is missing, so is the metric; other rows keep theirs (law 5)."""
    dataset = import_table(table(ROWS.replace("1e6", "N/A")), HEADERLESS)
    assert dataset.vectors("competition")["L2MISS"].isna().tolist() == [True, False]


@pytest.mark.parametrize(
    ("old", "new", "column", "reason"),
    [
        ("1.00", "nan", "ipc", "finite"),
        ("1.00", "inf", "ipc", "finite"),
        ("1.00", "-1.00", "ipc", "negative"),
        ("1.00", "much", "ipc", "needed a number"),
        (" 400", " 0", "perf", "above 0"),
        (" 400", " -1", "perf", "above 0"),
        (" 400", " N/A", "perf", "above 0"),
        ("20000 1518", "20000 10", "size", "needed 64 to 9000"),
    ],
)
def test_bad_rows_are_refused_or_counted(table, old, new, column, reason):
    """A bad value is refused with file, line and column, or dropped with its reason and count where asked for."""
    path = table(ROWS.replace(old, new))
    with pytest.raises(ConfigurationError, match=rf"table\.txt, line 4, column '{column}': got .*{reason}") as caught:
        import_table(path, HEADERLESS)
    assert caught.value.exit_code == 2
    dropping = import_table(path, altered(bad_rows="drop"))
    assert len(dropping) == 1
    assert sum(dropping.environment["import"]["dropped"].values()) == 1


@pytest.mark.parametrize(
    ("text", "name", "complaint"),
    [
        ("", "t.csv", "is empty"),
        ("a,b\n", "t.csv", "holds no row"),
        ("", "t.txt", "holds no row"),
        ("1 2 3\n", "t.txt", "line 1: 3 values, needed 7"),
        ("PAR1", "t.parquet", "not readable as parquet"),
    ],
)
def test_tables_without_rows_are_refused(table, text, name, complaint):
    """Empty, one-line, cut and misshapen tables are each said to be so."""
    mapping = altered()
    if name.endswith(".csv"):
        del mapping["names"]
    with pytest.raises(ConfigurationError, match=complaint):
        import_table(table(text, name), mapping)


def test_tables_in_another_encoding_are_refused(table):
    """Two names that differ in letters outside of UTF-8 do not become one function."""
    path = table("nf,ipc,perf\näa,1,2\nöa,1,3\n", "t.csv")
    path.write_bytes(path.read_text(encoding="utf-8").encode("latin1"))
    mapping = table("machine: m\ncolumns:\n  nf: {label: nf}\n  perf: {target: throughput}\n", "m.yaml")
    with pytest.raises(ConfigurationError, match=r"t\.csv: line 2 is not text in UTF-8\nhint: .*iconv -f LATIN1"):
        import_table(path, mapping)
    path.write_text("nf,perf\n", encoding="utf-16")
    with pytest.raises(ConfigurationError, match=r"UTF-8\nhint: .*iconv -f UTF-16"):
        read_text(path)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("  ipc: {metric: IPCC}", r"m\.yaml:5: field 'columns\.ipc': unknown metric 'IPCC'\nhint: did you mean 'IPC'"),
        ("  ipc: {metric: IPC, unit: furlong}", r"m\.yaml:5: field 'columns\.ipc': IPC is in instructions/cycle"),
        ("  ipc: {metric: L3OCC, unit: GHz}", r"m\.yaml:5: .*cannot convert GHz"),
        ("  ipc: {metric: IPC, target: throughput}", r"m\.yaml:5: field 'columns\.ipc'"),
        ("  ipc: {metrik: IPC}", r"m\.yaml:5: field 'columns\.ipc"),
        ("  ipc: {metric: IPC, factor: -1}", r"m\.yaml:5: field 'columns\.ipc\.factor'"),
        ("  gone: {metric: IPC}", r"m\.yaml:5: field 'columns\.gone': .* has no such column"),
        ("  ipc: {target: throughput}", "2 columns are the target"),
        ("bad_rows: keep", r"m\.yaml:5: field 'bad_rows'"),
        ("machin: x", r"m\.yaml:5: field 'machin'"),
        ("  ipc: {metric: [", r"m\.yaml:\d+:\d+: is not YAML"),
    ],
)
def test_wrong_mapping_is_told_by_line_and_field(table, line, complaint):
    """A wrong mapping is refused with its file, line and field."""
    mapping = table(f"machine: bf2\nnf: acl\ncolumns:\n  perf: {{target: throughput}}\n{line}\n", "m.yaml")
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        import_table(table("ipc,perf\n1,2\n", "t.csv"), mapping)
    assert caught.value.exit_code == 2


def test_mapping_file_and_mapping_agree(table):
    """A mapping as YAML file and as a mapping in Python give the same dataset."""
    path = table(ROWS)
    assert import_table(path, table(json.dumps(HEADERLESS), "m.yaml")) == import_table(path, HEADERLESS)


def test_nf_must_be_named():
    """A mapping that names no network function, by field or column, is refused."""
    with pytest.raises(ConfigurationError, match="no network function is named"):
        load_mapping({"machine": "x", "columns": {"perf": {"target": "throughput"}}})


@pytest.mark.parametrize("name", list(METRICS))
def test_every_metric_takes_its_own_unit(name):
    """The metric's own unit needs no conversion."""
    assert metric_factor(metric(name), METRICS[name].unit) == 1.0


def test_units_of_targets():
    """Rates of packets and times per packet convert to Mpps."""
    assert throughput_mpps(3.0, None) == throughput_mpps(3e6, "pps") == throughput_mpps(3e3, "kpps")
    assert throughput_mpps(1.0, "s") == pytest.approx(1e-6)


def pcm_mapping(**run):
    """Return a mapping of kind pcm with one run."""
    return {
        "kind": "pcm",
        "machine": "xeon",
        "nf": "bridge",
        "target_core": 0,
        "runs": [{"throughput": {"value": 300, "unit": "kpps"}, **run}],
    }


def test_pcm_run_becomes_a_row(pcm_files):
    """The competition alone comes from the socket, the target's own vector from its core, the rest by subtraction."""
    competitors = [{"nf": "synthetic", "configuration": {"data_size_mib": 4}, "count": 2}]
    mapping = pcm_mapping(alone="semicolon-sparse.csv", beside="comma-sparse.csv", competitors=competitors)
    dataset = import_table(pcm_files, mapping)
    row = dataset.frame.iloc[0]
    assert (row["competition.L2MISS"], row["own.L2MISS"], row["beside.L2MISS"]) == (6.0, 6.0, 0.0)
    assert (row["competition.READ"], row["throughput_mpps"], row["competitor_count"]) == (4.0, 0.3, 2)
    assert np.isnan(row["own.READ"])
    assert np.isnan(row["beside.READ"])
    assert dataset.environment["import"]["dropped"] == {"first second of a run": 2}


def test_pcm_file_alone_is_a_solo_run(pcm_files):
    """One recording without competitors is the target's solo run."""
    dataset = import_table(pcm_files / "comma-sparse.csv", pcm_mapping(competitors=[]))
    assert (dataset.frame["plan"].tolist(), dataset.solo_mpps("bridge")) == (["solo"], 0.3)
    assert dataset.frame["own.L3OCC"].tolist() == [12345.0]


@pytest.mark.parametrize(
    ("run", "complaint"),
    [
        ({"alone": "absent.csv"}, r"absent\.csv: cannot be read"),
        ({}, "names no recording"),
        ({"beside": "comma-sparse.csv", "target_core": 9}, r"runs\.0.*no columns for core 9"),
        ({"beside": "memory.csv"}, r"runs\.0.*no columns for core 0"),
    ],
)
def test_pcm_run_that_cannot_be_read(pcm_files, run, complaint):
    """A run without recordings, or whose recording lacks the target's core, is named."""
    with pytest.raises(ConfigurationError, match=complaint):
        import_table(pcm_files, pcm_mapping(**run))


def test_published_table(outside_data):
    """The published FlowMonitor table reads: four metrics of the competition, kpps, flow count as a feature."""
    mapping = {
        "machine": "bluefield-2",
        "nf": "flow-monitor",
        "names": ["flows", "size", "ipc", "irt", "l2crd", "l2cwr", "memrd", "memwr", "wss", "perf"],
        "columns": {
            "flows": {"feature": "flow_count"},
            "size": {"traffic": "packet_size_b"},
            "ipc": {"metric": "IPC"},
            "irt": {"metric": "INST", "unit": "1/s"},
            "l2crd": {"metric": "L2MISS", "unit": "1/s"},
            "l2cwr": {"metric": "L2MISS", "unit": "1/s"},
            "wss": {"metric": "L3OCC", "unit": "MiB"},
            "perf": {"target": "throughput", "unit": "kpps"},
        },
    }
    folder = outside_data / "yala-flowmon"
    one, two = (import_table(folder / f"sample_{n}_train.txt", mapping) for n in ("slomo", "yala_mem"))
    both = one.merge(two)
    assert len(both) == len(one) + len(two)
    assert both.metric_names("competition") == ("IPC", "INST", "L3OCC", "L2MISS")
    assert one.throughput[0] == pytest.approx(0.63023, rel=1e-4)
    assert one.vectors("competition")["L2MISS"].iloc[0] == pytest.approx(83.636, rel=1e-4)


def test_shipped_mappings_are_valid():
    """Every mapping of a measured table that ships with the project passes its own check."""
    folder = Path(__file__).resolve().parents[2] / "datasets" / "mappings"
    shipped = [path for path in sorted(folder.glob("*.yaml")) if "kind: probes" not in path.read_text(encoding="utf-8")]
    assert shipped
    for path in shipped:
        assert load_mapping(path).workload().nf


def test_shipped_mappings_are_found_by_name():
    """The name of a shipped mapping stands for its file; a file of one's own of that name comes first."""
    assert load_mapping("yala-flow-monitor").workload().nf == "flow-monitor"
    with pytest.raises(UnknownNameError) as refused:
        load_mapping("yala-flow-monitr")
    assert "did you mean 'yala-flow-monitor'" in refused.value.hint
    assert "YAML file" in refused.value.hint
