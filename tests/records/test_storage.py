"""Datasets as files: exact round trips, the same bytes every time, and errors for what is no dataset."""

import json
import math
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slomo.errors import ConfigurationError, StoreError, UnknownNameError, UsageError
from slomo.records.catalog import catalog, find_dataset
from slomo.records.dataset import ProfileDataset
from slomo.records.storage import load_dataset, save_dataset

AMOUNT = st.floats(min_value=0.0, allow_nan=False, allow_infinity=False)


@given(
    mpps=st.floats(min_value=0.0, allow_nan=False, allow_infinity=False),
    counter=st.one_of(st.just(math.nan), AMOUNT),
    feature=st.one_of(st.just(math.nan), st.floats(allow_nan=False, allow_infinity=False)),
    name=st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20).filter(
        lambda t: t == t.strip()
    ),
    seed=st.integers(0, 2**63 - 1),
)
@settings(max_examples=15)
def test_round_trips_are_exact(dataset, mpps, counter, feature, name, seed):
    """CSV, parquet and dictionary give back every number, text and missing value exactly (law 7)."""
    frame = dataset.frame.assign(**{"traffic.x": feature})
    frame["machine"], frame["seed"] = name, seed
    frame.loc[2, ["throughput_mpps", "own.READ"]] = [mpps, counter]
    whole = ProfileDataset(frame, dataset.environment | {"note": name})
    assert ProfileDataset.from_dict(json.loads(json.dumps(whole.to_dict(), allow_nan=False))) == whole
    with tempfile.TemporaryDirectory() as folder:
        for suffix in (".csv", ".parquet"):
            save_dataset(whole, Path(folder, f"a{suffix}"))
            assert load_dataset(Path(folder, f"a{suffix}")) == whole


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_same_dataset_same_bytes(dataset, tmp_path, suffix):
    """Writing a dataset twice, once after reading it back, gives the same bytes (law 6)."""
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    save_dataset(dataset, first)
    save_dataset(load_dataset(first), second)
    assert first.read_bytes() == second.read_bytes()


def test_directory_holds_measurements_provenance_and_card(dataset, tmp_path):
    """A path without suffix becomes a dataset directory, which reads back and is found in the catalog."""
    save_dataset(dataset, tmp_path / "silver", card="# Silver\n\nSimulated profiles.\n")
    assert load_dataset(tmp_path / "silver") == dataset
    assert json.loads((tmp_path / "silver" / "provenance.json").read_text()) == dataset.environment
    assert [(entry.name, entry.summary) for entry in catalog(tmp_path)] == [("silver", "Simulated profiles.")]
    assert find_dataset("silver", tmp_path) == dataset
    with pytest.raises(UnknownNameError, match="did you mean 'silver'"):
        find_dataset("sliver", tmp_path)


@pytest.mark.parametrize("keep", [0, 4, 100, 3000])
def test_cut_parquet_is_refused(dataset, tmp_path, keep):
    """A parquet file cut anywhere is an error of exit code 2 that names the file."""
    path = tmp_path / "a.parquet"
    save_dataset(dataset, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ConfigurationError, match=r"a\.parquet: not readable as parquet") as caught:
        load_dataset(path)
    assert caught.value.exit_code == 2


def test_foreign_parquet_is_refused(tmp_path):
    """A parquet file of somebody else is told apart from a dataset."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": [1.0]}), tmp_path / "a.parquet")
    with pytest.raises(ConfigurationError, match="is no slomo dataset"):
        load_dataset(tmp_path / "a.parquet")


def written(dataset, tmp_path) -> tuple[Path, list[str]]:
    """Return a CSV file of the dataset and its lines."""
    path = tmp_path / "a.csv"
    save_dataset(dataset, path)
    return path, path.read_text().splitlines()


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_csv_without_rows_is_refused(dataset, tmp_path, kept):
    """An empty CSV, one with only the first line, and one with only the header are refused."""
    path, lines = written(dataset, tmp_path)
    path.write_text("\n".join(lines[:kept]))
    with pytest.raises(
        ConfigurationError, match=r"a\.csv: (this is no slomo dataset, it is empty|holds no measurements)"
    ):
        load_dataset(path)


def test_plain_csv_points_to_the_mapping(tmp_path):
    """A table that is no dataset is answered with the way to import it."""
    (tmp_path / "a.csv").write_text("ipc,perf\n1,2\n")
    with pytest.raises(ConfigurationError, match="needs a mapping"):
        load_dataset(tmp_path / "a.csv")


@pytest.mark.parametrize("text", ["nan", "inf", "-3", "many"])
def test_bad_cell_is_named_by_line_and_column(dataset, tmp_path, text):
    """NaN, infinity, a negative counter and a word are each named by file, line and column."""
    path, lines = written(dataset, tmp_path)
    cells, header = lines[4].split('"'), lines[1].split(",")
    assert header[-1].startswith("own.")
    cells[-1] = ",".join([*cells[-1].split(",")[:-1], text])
    lines[4] = '"'.join(cells)
    lines[0] = re.sub('"rows":"[0-9a-f]*"', '"rows":""', lines[0])  # as an older slomo wrote it
    path.write_text("\n".join(lines))
    with pytest.raises(ConfigurationError, match=rf"a\.csv, line 5, column '{header[-1]}': got '?{text}"):
        load_dataset(path)


def test_cut_csv_line_is_named(dataset, tmp_path):
    """A line with too few cells is named."""
    path, lines = written(dataset, tmp_path)
    path.write_text("\n".join([*lines[:4], lines[4][:10]]))
    with pytest.raises(ConfigurationError, match=r"a\.csv, line 5: 1 cells, needed"):
        load_dataset(path)


@pytest.mark.parametrize("version", ["2", "null", '"x"'])
def test_other_schema_version_is_refused(dataset, tmp_path, version):
    """A dataset of another schema version names both versions."""
    path, lines = written(dataset, tmp_path)
    lines[0] = lines[0].replace('"schema_version":1}', f'"schema_version":{version}}}')
    path.write_text("\n".join(lines))
    with pytest.raises(ConfigurationError, match=r"schema version .*, needed 1"):
        load_dataset(path)


def test_windows_line_ends_and_byte_order_mark_are_read(dataset, tmp_path):
    """A CSV that went through a spreadsheet's line ends still reads exactly."""
    path, lines = written(dataset, tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b"\r\n\r\n")
    assert load_dataset(path) == dataset


@pytest.mark.parametrize("name", ["absent.csv", "absent.parquet", "absent.txt", ""])
def test_what_is_not_there_is_said(tmp_path, name):
    """A missing file, an unknown suffix and an empty directory are each an error of exit code 2."""
    with pytest.raises(ConfigurationError) as caught:
        load_dataset(tmp_path / name)
    assert str(tmp_path) in str(caught.value)


def test_unknown_suffix_is_not_written(dataset, tmp_path):
    """A suffix that stands for no format is refused before anything is written."""
    with pytest.raises(UsageError, match=r"'\.xlsx'"):
        save_dataset(dataset, tmp_path / "a.xlsx")
    assert list(tmp_path.iterdir()) == []


def test_failed_write_keeps_the_old_file(dataset, tmp_path, monkeypatch):
    """Where the disk is full, the dataset written before stays whole and nothing half-written is left."""
    path, _ = written(dataset, tmp_path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left") as caught:
        save_dataset(dataset, path)
    assert caught.value.exit_code == 3
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (before, [path])


def test_a_directory_that_cannot_be_made_is_said(dataset, tmp_path):
    """A path below a file cannot be written, and the error says so."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        save_dataset(dataset, tmp_path / "file" / "a.csv")


def test_vector_columns_without_values_are_not_stored(dataset, tmp_path):
    """A metric nobody reported takes no column of the file and reads back as missing."""
    _, lines = written(dataset, tmp_path)
    assert "own.READ" not in lines[1]
    assert np.isnan(load_dataset(tmp_path / "a.csv").frame["own.READ"]).all()


def test_a_changed_line_is_told_and_the_rest_read(dataset, tmp_path):
    """One digit changed in a CSV file: its line is named and left out, the others are the rows that were written."""
    path, lines = written(dataset, tmp_path)
    lines[3] = lines[3][:-1] + ("1" if lines[3][-1] != "1" else "2")
    path.write_text("\n".join(lines))
    with pytest.warns(UserWarning, match="line 4 is not what was written"):
        left = load_dataset(path)
    assert left.environment["damaged"] == {"lines": [4]}
    assert len(left) == len(dataset) - 1


def test_an_unknown_column_of_parquet_is_told_with_the_file(dataset, tmp_path):
    """A column that somebody added is refused by file and name."""
    pq = pytest.importorskip("pyarrow.parquet")
    save_dataset(dataset, tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    pq.write_table(table.append_column("foo", [[1.0] * len(table)]), tmp_path / "a.parquet")
    with pytest.raises(ConfigurationError, match=r"a\.parquet: unknown column 'foo'"):
        load_dataset(tmp_path / "a.parquet")
