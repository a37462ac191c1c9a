"""Rows of a measured table are predicted from memory and accelerator, each trained apart."""

import json
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from slomo.compose.uncertain import LEVELS, composed_values, quantile
from slomo.errors import MissingMetricError, UnsupportedPredictionError
from slomo.evaluation.rows import predict_rows
from slomo.models.library import ModelLibrary
from slomo.models.nf_model import NFModel
from slomo.models.responses.service_time import ServiceTime
from slomo.records.dataset import ProfileDataset
from slomo.records.importing.door import import_table
from slomo.training.service_time_fit import service_time_of
from slomo.training.training import train

MAPPING = {
    "machine": "toy-nic",
    "nf": "monitor",
    "format": "csv",
    "columns": {
        "car": {"metric": "L2MISS", "unit": "M/s"},
        "occ": {"metric": "L3OCC", "unit": "MiB"},
        "density": {"feature": "match_density"},
        "rival": {"feature": "competitor_match_density"},
        "mpps": {"target": "throughput", "unit": "Mpps"},
    },
}
LINE = ServiceTime("regex", base_us=0.2, slope_us=0.002, low=100.0, high=600.0)


def table(folder: Path, *, density: float = 100.0, rival: float = 0.0, rows: int = 24) -> ProfileDataset:
    """Return rows of an NF that memory alone slows down."""
    draw = np.random.default_rng(1)
    lines = ["car,occ,density,rival,mpps"]
    for car, occ in draw.uniform((1.0, 0.1), (100.0, 10.0), (rows, 2)):
        lines.append(f"{car},{occ},{density},{rival},{1.0 - 0.002 * car - 0.01 * occ}")
    path = folder / f"rows-{density}-{rival}.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    return import_table(path, MAPPING)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> NFModel:
    """Return a model of the memory runs."""
    return next(iter(train(table(tmp_path_factory.mktemp("rows")), models=["slomo-gbr", "slomo-xgb", "mean"]).values()))


def test_what_cannot_be_judged_is_unknown(trained: NFModel, tmp_path: Path) -> None:
    """A constant in place of a model, and an interval of 99 % from 24 rows: `unknown`, and refused if strict."""
    rows = table(tmp_path)
    assert "unknown" not in predict_rows(trained, rows).verdicts
    for options, why in (({"family": "mean"}, "stands in place of a model"), ({"coverage": 0.99}, "needs 99")):
        told = predict_rows(trained, rows, **options)
        assert set(told.verdicts) == {"unknown"}
        assert why in told.reasons[0][0]
        with pytest.raises(UnsupportedPredictionError):
            predict_rows(trained, rows, strict=True, **options)


def test_without_an_accelerator_memory_decides(trained: NFModel, tmp_path: Path) -> None:
    """With no second resource, a row is what its memory model says, inside its interval."""
    predictions = predict_rows(trained, table(tmp_path))
    assert predictions.throughput_mpps.tolist() == predictions.memory_mpps.tolist()
    assert np.abs(predictions.error_percent).mean() < 5.0
    assert (predictions.low_mpps <= predictions.throughput_mpps).all()
    assert (predictions.throughput_mpps <= predictions.high_mpps).all()
    assert len(predictions.to_frame()) == len(predictions.verdicts) == 24


def test_rows_of_another_network_function_are_refused(trained: NFModel, tmp_path: Path) -> None:
    """What one NF's model would say of another's rows is no prediction."""
    frame = table(tmp_path).frame
    with pytest.raises(UnsupportedPredictionError, match="rows of other, the model is of 'monitor'"):
        predict_rows(trained, ProfileDataset(frame.assign(nf="other", target="other@64B,100000f")))


def test_a_row_that_lacks_what_is_read_has_no_number_and_says_so(trained: NFModel, tmp_path: Path) -> None:
    """A prediction that cannot be made is `unsupported`; the others stay as they were."""
    frame, whole = table(tmp_path).frame, predict_rows(trained, table(tmp_path), family="slomo-gbr")
    frame.loc[3, "competition.L3OCC"] = np.nan
    predictions = predict_rows(trained, ProfileDataset(frame), family="slomo-gbr")
    assert np.isnan(predictions.throughput_mpps).nonzero()[0].tolist() == [3]
    assert predictions.verdicts[3] == "unsupported"
    assert np.delete(predictions.throughput_mpps, 3).tolist() == np.delete(whole.throughput_mpps, 3).tolist()


def test_a_pipeline_is_cut_off_by_its_accelerator(trained: NFModel, tmp_path: Path) -> None:
    """Where matching is dense, the accelerator decides; beside a rival it takes turns."""
    dense = predict_rows(trained, table(tmp_path, density=600.0), LINE)
    assert dense.accelerator_mpps == pytest.approx(1 / 1.4)
    assert (dense.throughput_mpps <= dense.accelerator_mpps).all()
    beside = predict_rows(trained, table(tmp_path, density=600.0, rival=400.0), LINE)
    assert beside.throughput_mpps == pytest.approx(1 / 2.4, rel=5e-3)


def test_run_to_completion_adds_times_and_counts_the_base_once(trained: NFModel, tmp_path: Path) -> None:
    """Time at the accelerator is added to the memory runs' time, less what those runs spent there already."""
    rows = table(tmp_path, density=350.0)
    plain = predict_rows(trained, rows, LINE, pattern="run-to-completion")
    assert 1 / plain.throughput_mpps == pytest.approx(1 / plain.memory_mpps + 0.9)
    based = predict_rows(trained, rows, LINE, pattern="run-to-completion", base_density=100.0)
    assert 1 / based.throughput_mpps == pytest.approx(1 / based.memory_mpps + 0.5)


def test_the_default_of_training_answers(trained: NFModel, tmp_path: Path) -> None:
    """Unless told otherwise, the family that training chose answers, as everywhere; it has no forced shape."""
    assert predict_rows(trained, table(tmp_path)).model == trained.chosen == "slomo-gbr"
    assert predict_rows(trained, table(tmp_path), family="mean").model == "mean"


def test_tables_without_what_is_read_are_refused(trained: NFModel, tmp_path: Path) -> None:
    """A table without match density is an error, not a number."""
    columns = {name: column for name, column in MAPPING["columns"].items() if name not in ("density", "rival")}  # type: ignore[attr-defined]
    path = tmp_path / "bare.csv"
    path.write_text("car,occ,density,rival,mpps\n1,1,1,1,0.9\n", encoding="utf-8")
    bare = import_table(path, {**MAPPING, "columns": columns})
    with pytest.raises(MissingMetricError, match="match_density"):
        predict_rows(trained, bare, LINE)
    with pytest.raises(MissingMetricError, match="match_density"):
        service_time_of(bare)


def test_the_slower_of_two_that_vary_is_slower_than_either() -> None:
    """Near balance the middle of the distribution hits what runs show; the plain minimum promises 2 % too much."""
    draw = np.random.default_rng(1)
    runs = np.minimum(1.0 + 0.05 * draw.standard_normal(20_000), 1.02 + 0.05 * draw.standard_normal(20_000))
    away = np.array([NormalDist().inv_cdf(level) for level in LEVELS])[np.newaxis]
    values = composed_values([1.0 + 0.05 * away, 1.02 + 0.05 * away])
    assert float(quantile(values, 0.5)[0]) == pytest.approx(np.median(runs), abs=2e-3)
    assert 1.0 - np.median(runs) > 0.015
    low, high = (float(quantile(values, level)[0]) for level in (0.05, 0.95))
    assert np.mean((low <= runs) & (runs <= high)) == pytest.approx(0.9, abs=0.015)


@pytest.mark.parametrize("rival", [0.0, 400.0])
@pytest.mark.parametrize("density", [150.0, 420.0, 600.0])
def test_no_composed_interval_has_zero_width(trained: NFModel, tmp_path: Path, density: float, rival: float) -> None:
    """Whichever resource decides, both errors are in the interval, and the prediction lies inside it."""
    predictions = predict_rows(trained, table(tmp_path, density=density, rival=rival), LINE)
    assert (predictions.low_mpps < predictions.throughput_mpps).all()
    assert (predictions.throughput_mpps < predictions.high_mpps).all()
    assert (
        predictions.throughput_mpps <= np.minimum(predictions.memory_mpps, predictions.accelerator_mpps) + 1e-12
    ).all()


def test_the_verdict_looks_at_the_match_density(trained: NFModel, tmp_path: Path) -> None:
    """Beyond the accelerator's runs a row is extrapolated, far beyond unsupported, whoever's density it is."""
    for density, rival, verdict in ((350, 0, "supported"), (700, 0, "extrapolated"), (350, 2000, "unsupported")):
        predictions = predict_rows(trained, table(tmp_path, density=density, rival=rival), LINE)
        assert set(predictions.verdicts) == {verdict}
        assert all(
            ("measured from 100 to 600" in "; ".join(why)) == (verdict != "supported") for why in predictions.reasons
        )


def test_strict_rows_are_refused(trained: NFModel, tmp_path: Path) -> None:
    """With `strict`, a table with an unsupported row is refused, naming the row and the reason."""
    with pytest.raises(UnsupportedPredictionError, match=r"24 of 24 rows.*match_density 2000"):
        predict_rows(trained, table(tmp_path, density=2000.0), LINE, strict=True)


def test_traffic_that_the_model_does_not_read_is_no_answer(trained: NFModel, tmp_path: Path) -> None:
    """Rows of another packet size than the model's, which it does not read, are unsupported."""
    predictions = predict_rows(trained, ProfileDataset(table(tmp_path).frame.assign(packet_size_b=1500)))
    assert set(predictions.verdicts) == {"unsupported"}
    assert "packet_size_b 1500" in predictions.reasons[0][0]


@pytest.mark.parametrize("density", [330.2259075, 628.0341902])
def test_published_runs_of_an_accelerator_are_reproduced(density: float, outside_data: Path) -> None:
    """The line through Yala's two runs of the regex accelerator gives their times back."""
    file = outside_data / "yala-flowmon" / "sample_yala_reg_train.txt"
    if not file.is_file():
        pytest.skip(f"{file} is not there")
    mapping = Path(__file__).resolve().parents[2] / "datasets" / "mappings" / "yala-regex.yaml"
    published = dict(line.split() for line in file.read_text().splitlines() if line.strip())
    line = service_time_of(import_table(file, mapping))
    wanted = {float(key): 1e3 * float(value) for key, value in published.items()}
    assert float(line.time_us(density)) == pytest.approx(wanted[density])


def test_rows_are_predicted_from_the_command_line(
    trained: NFModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`slomo rows` prints a prediction per row as JSON, and a summary."""
    from slomo.cli.main import main

    models, rows = str(ModelLibrary([trained]).save(tmp_path / "models")), tmp_path / "rows.parquet"
    table(tmp_path).to_parquet(rows)
    line = ["rows", str(rows), "--target", "monitor", "--models", models]
    assert main([*line, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["rows"]["throughput_mpps"]) == 24
    assert main(line) == 0
    assert "inside the 90 % intervals" in capsys.readouterr().err
