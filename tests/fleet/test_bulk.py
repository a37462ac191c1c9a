"""Mixes from parquet to parquet: the bits of one question, in any pieces, by any engine, whatever is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import slomo.fleet.bulk as bulk
from slomo.cli.main import main
from slomo.errors import StoreError, TestbedError
from slomo.files.lock import held_alone
from slomo.fleet.batches import JUDGED, PREDICTED, BulkQuestion, predict_batches
from slomo.fleet.bulk import predict_file
from slomo.fleet.spread import spread
from slomo.prediction.predictor import Predictor
from slomo.workflow.train import train
from tests.fleet.mortal import always_killed, once_killed

MACHINE = "e5-2620v4"


def question(models):
    return BulkQuestion(str(models), MACHINE)


def test_every_mix_has_the_bits_of_predict_batch(toy_library, toy_models, toy_table, mixes_file, tmp_path):
    """Whatever the size of batches; columns of one's own stay, types as they were, row groups too."""
    rows = toy_table.to_pydict()
    expected = Predictor(toy_library, MACHINE).predict_batch(rows["target"], rows["competitors"])
    predict_file(mixes_file, tmp_path / "out.parquet", question(toy_models), jobs=1)
    made = pq.read_table(tmp_path / "out.parquet")
    assert made.select(toy_table.column_names).equals(toy_table)
    assert pq.ParquetFile(tmp_path / "out.parquet").num_row_groups == 4
    pieces = pa.Table.from_batches(predict_batches(toy_table.to_batches(max_chunksize=7), toy_models, MACHINE))
    for name in PREDICTED:
        np.testing.assert_array_equal(made[name], getattr(expected, name), err_msg=name)
        np.testing.assert_array_equal(pieces[name], made[name], err_msg=name)


def test_verdicts_and_units_are_those_of_predict_batch(toy_library, toy_models, toy_table, mixes_file, tmp_path):
    """`--verdicts` adds three columns of text; the other columns are the same bits as without it."""
    rows = toy_table.to_pydict()
    expected = Predictor(toy_library, MACHINE).predict_batch(rows["target"], rows["competitors"])
    words = ["predict", "--from", str(mixes_file), "--models", str(toy_models), "--machine", MACHINE, "--jobs", "1"]
    assert main([*words, "--to", str(tmp_path / "plain.parquet")]) == 0
    assert main([*words, "--to", str(tmp_path / "judged.parquet"), "--verdicts"]) == 0
    judged = pq.read_table(tmp_path / "judged.parquet")

    assert judged.column_names[-3:] == list(JUDGED)
    assert judged.drop_columns(list(JUDGED)).equals(pq.read_table(tmp_path / "plain.parquet"))
    assert judged["verdict"].to_pylist() == expected.verdict.tolist()
    assert judged["reasons"].to_pylist() == ["; ".join(reasons) for reasons in expected.reasons]
    assert judged["unit"].to_pylist() == expected.unit.tolist() == ["Mpps"] * len(expected)
    pieces = predict_batches(toy_table.to_batches(max_chunksize=7), toy_models, MACHINE, verdicts=True)
    assert pa.Table.from_batches(pieces)["verdict"].to_pylist() == expected.verdict.tolist()


@pytest.mark.parametrize("option", [["--verdicts"], ["--jobs", "2"]])
def test_options_of_files_are_refused_for_one_question(toy_models, option, capsys):
    """What only `--from` reads is refused without it, not ignored."""
    assert main(["predict", "--target", "lpm", "--models", str(toy_models), *option]) == 2
    assert f"{option[0]} was given without --from" in capsys.readouterr().err


def test_a_call_that_failed_goes_on_to_the_same_bytes(toy_models, mixes_file, tmp_path, monkeypatch):
    """Finished row groups are kept and not predicted again; nothing is left beside the result."""
    whole, broken = tmp_path / "whole.parquet", tmp_path / "broken.parquet"
    predict_file(mixes_file, whole, question(toy_models), jobs=1)
    asked = []

    def failing(batch, asked_how):
        if len(asked) == 2:
            raise OSError(28, "No space left on device")
        asked.append(len(batch))
        return predicted(batch, asked_how)

    predicted = bulk.predicted
    monkeypatch.setattr(bulk, "predicted", failing)
    with pytest.raises(StoreError, match="No space left"):
        predict_file(mixes_file, broken, question(toy_models), jobs=1)
    assert not broken.exists()
    monkeypatch.setattr(bulk, "predicted", predicted)
    assert predict_file(mixes_file, broken, question(toy_models), jobs=1).kept == 2
    assert broken.read_bytes() == whole.read_bytes()
    assert not [name for name in os.listdir(tmp_path) if "parts" in name]


def test_a_killed_command_goes_on_to_the_same_bytes(toy_models, mixes_file, tmp_path):
    """SIGKILL while it predicts; other models than before begin anew."""
    whole, killed = tmp_path / "whole.parquet", tmp_path / "killed.parquet"
    arguments = ["--from", str(mixes_file), "--models", str(toy_models), "--machine", MACHINE, "--jobs", "1"]
    program = (
        "import sys, os, signal, slomo.fleet.bulk as bulk\nfrom slomo.cli.main import main\n"
        "first = bulk.predict_group\n"
        "def slow(*group):\n    done = first(*group)\n    group[-1] == 1 and os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return done\nbulk.predict_group = slow; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run([sys.executable, "-c", program, "predict", *arguments, "--to", str(killed)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len([*(tmp_path / "killed.parquet.parts").glob("*.arrow")]) == 2
    assert not killed.exists()
    for place in (killed, whole):
        assert main(["predict", *arguments, "--to", str(place)]) == 0
    assert killed.read_bytes() == whole.read_bytes()


def refused(capsys, models, source, *more):
    code = main(["predict", "--from", str(source), "--models", str(models), "--machine", MACHINE, *more])
    return code, capsys.readouterr().err


def test_what_cannot_be_predicted_is_told(capsys, toy_models, toy_table, mixes_file, tmp_path):
    """Missing columns, other types, names nobody has, no parquet, columns taken: exit code 2, and where it stands."""
    out = ("--to", str(tmp_path / "out.parquet"), "--jobs", "1")
    cases = {
        "lack the column 'competitors'": toy_table.drop_columns(["competitors"]),
        "holds string, needed lists of text": toy_table.set_column(1, "competitors", toy_table["target"]),
        "holds int64, needed text": toy_table.set_column(0, "target", toy_table["rack"]),
        "have a column 'low_mpps'": toy_table.append_column("low_mpps", toy_table["rack"]),
        "row group 0, batch from row 0: mix 1: unknown network function": pa.table(
            {"target": ["lpm", "lmp"], "competitors": [["nat"], []]}
        ),
        "column 'target' is damaged": pa.table(
            [pa.array([b"\xff\xfe"]).cast(pa.binary()).view(pa.string()), pa.array([["nat"]])],
            ["target", "competitors"],
        ),
        "1 of 2 names are missing": pa.table({"target": ["lpm", None], "competitors": [["nat"], []]}),
        "1 of 2 lists are missing": pa.table({"target": ["lpm", "lpm"], "competitors": [["nat"], None]}),
    }
    for words, table in cases.items():
        pq.write_table(table, tmp_path / "bad.parquet")
        code, said = refused(capsys, toy_models, tmp_path / "bad.parquet", *out)
        assert (code, words in said) == (2, True), said
    (tmp_path / "bad.parquet").write_text("target,competitors\n")
    for source in (tmp_path / "bad.parquet", tmp_path / "nothing.parquet"):
        assert refused(capsys, toy_models, source, *out)[0] == 2
    assert refused(capsys, toy_models, mixes_file)[0] == 2
    before = mixes_file.read_bytes()
    code, said = refused(capsys, toy_models, mixes_file, "--to", str(mixes_file))
    assert (code, "holds the mixes themselves" in said, mixes_file.read_bytes()) == (2, True, before)
    code, said = refused(capsys, toy_models, mixes_file, "--to", str(tmp_path))
    assert (code, "it is a folder" in said, Path(f"{tmp_path}.parts").exists()) == (2, True, False)
    assert refused(capsys, toy_models, mixes_file, *out, "--target", "lpm")[0] == 2
    assert main(["predict", "--models", str(toy_models)]) == 2
    assert not (tmp_path / "out.parquet").exists()


def test_nobody_else_writes_the_same_result(capsys, toy_models, mixes_file, tmp_path):
    """The second call is refused with exit code 3, and says who is at it."""
    with held_alone(tmp_path / "out.parquet.parts.lock", "it"):
        code, said = refused(capsys, toy_models, mixes_file, "--to", str(tmp_path / "out.parquet"), "--jobs", "1")
    assert code == 3
    assert f"in use by another process ({os.getpid()})" in said


def test_a_dead_worker_costs_its_task(tmp_path):
    """What it computed is computed again; an item that ends everyone is told after three."""
    items = [(number, str(tmp_path / "died")) for number in range(8)]
    assert list(spread(once_killed, items, jobs=2)) == list(range(8))
    with pytest.raises(TestbedError, match="3 times a worker died"):
        list(spread(always_killed, range(3), jobs=2))


def test_a_worker_that_dies_while_items_are_given_out_costs_its_task(tmp_path):
    """A pool that is known to be broken takes no more items: a new one does."""
    died = tmp_path / "died"

    def slowly():
        yield 3, str(died)
        while not died.exists():
            time.sleep(0.01)
        time.sleep(0.5)  # until the pool knows
        yield from ((number, str(died)) for number in range(3))

    assert list(spread(once_killed, slowly(), jobs=2)) == [3, 0, 1, 2]


def test_no_scheduler_is_told(monkeypatch):
    """An address at which nobody answers, and one that is none."""
    pytest.importorskip("distributed")
    monkeypatch.setattr("slomo.fleet.spread.CONNECTING_S", 0.2)
    with pytest.raises(TestbedError, match="no scheduler answers"):
        list(spread(abs, [1], scheduler="tcp://127.0.0.1:9"))


def test_models_do_not_depend_on_who_fits_them(small_profile, tmp_path):
    """Two processes give the files that one gives."""
    folders = [train(small_profile, models=["slomo-smooth"], jobs=jobs).save(tmp_path / str(jobs)) for jobs in (1, 2)]
    one, two = ({path.relative_to(f): path.read_bytes() for path in f.rglob("*.json")} for f in folders)
    assert one == two
