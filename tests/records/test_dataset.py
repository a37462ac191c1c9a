"""Profile datasets: what their rows say, and what may be merged."""

import numpy as np
import pytest

from slomo.errors import (
    ConfigurationError,
    IncompatibleMeasurementsError,
    InvalidValueError,
    MissingMetricError,
    UnknownNameError,
)
from slomo.records.dataset import ProfileDataset
from slomo.records.measurement import summarise
from slomo.records.run import RunRecord
from slomo.records.schema import isolated
from slomo.vocabulary.metrics import METRICS, Kind, Rule
from slomo.vocabulary.workload import Workload

LPM, NAT = Workload("lpm"), Workload("nat")


def test_plan_follows_from_competitors(dataset):
    """A run alone is solo, beside synthetic competitors pressure, beside real ones a mix."""
    assert dataset.frame["plan"].tolist() == ["solo", "solo", "pressure", "pressure", "mix", "mix", "mix"]


def test_mix_is_rotated(dataset):
    """A mix of three NFs yields three rows, one per tenant as target, each with its own throughput."""
    mix = dataset.select(plan="mix")
    assert [key.split("@")[0] for key in mix.frame["target"]] == ["lpm", "nat", "stats"]
    assert mix.throughput.tolist() == [3.0, 3.25, 3.5]
    assert [w.nf for w in mix.competitors(1)] == ["lpm", "stats"]


def test_only_the_target_knows_its_competition_alone(dataset):
    """In a rotated mix the competition alone was measured for the first tenant only; beside it is known for all."""
    mix = dataset.select(plan="mix").frame
    assert mix["competition.L2MISS"].notna().tolist() == [True, False, False]
    assert mix["beside.L2MISS"].tolist() == [21.5, 21.5, 21.5]


def test_no_competitors_no_pressure(dataset):
    """Solo rows carry zero for what adds up, nothing for others and for reporters that were not there (law 1)."""
    row = dataset.select(plan="solo").frame.iloc[0]
    for name, metric in METRICS.items():
        value = row[f"competition.{name}"]
        adds = metric.rule is Rule.SUM and metric.kind is not Kind.FELT
        assert value == 0.0 if adds else np.isnan(value)


def test_missing_metric_stays_missing(dataset):
    """A metric no testbed reported is not listed, and asking for it is an error, not zero (law 5)."""
    assert "DDIOOCC" not in dataset.metric_names("competition")
    with pytest.raises(MissingMetricError, match=r"own\.READ"):
        dataset.vectors("own", ["READ"])


def test_zeros_of_solo_rows_are_not_measurements(dataset):
    """Metrics that only solo rows hold, as zeros, do not count as measured."""
    assert dataset.metric_names("competition") == ("IPC", "L2MISS")


def test_vectors_take_aliases_in_the_order_asked(dataset):
    """Vector columns come in the order of the names asked for, aliases resolved."""
    assert list(dataset.vectors("own", ["CAR", "L3OCC"]).columns) == ["L2MISS", "L3OCC"]


def test_replicates_are_summarised(make_run):
    """Runs of one co-location become one row: median, dispersion, number and verdict."""
    runs = [make_run(LPM, NAT, seed=seed, base_mpps=base) for seed, base in enumerate((3.0, 3.1, 4.0))]
    row = ProfileDataset.from_records(runs).frame.iloc[0]
    assert (row["throughput_mpps"], row["replicates"], row["stability"], row["seed"]) == (3.1, 3, "unstable", 0)
    assert row["throughput_cv"] == pytest.approx(np.std([3.0, 3.1, 4.0], ddof=1) / np.mean([3.0, 3.1, 4.0]))


def test_truth_is_kept_where_it_is_known(make_run):
    """The noise-free throughput of a simulated run stands next to the measured one."""
    noisy, clean = make_run(LPM, base_mpps=3.1), make_run(LPM, base_mpps=3.0)
    record = RunRecord(noisy.colocation, 0, None, noisy.beside, {}, truth=clean)
    assert ProfileDataset.from_records([record]).frame["truth_mpps"].tolist() == [3.0]
    assert np.isnan(ProfileDataset.from_records([noisy]).frame["truth_mpps"].iloc[0])


def test_measurements_and_records_agree(make_run):
    """A dataset of summarised measurements equals that of their raw runs."""
    runs = [make_run(LPM), make_run(LPM, Workload("synthetic"), seed=0)]
    assert ProfileDataset.from_measurements([summarise([r]) for r in runs]) == ProfileDataset.from_records(runs)


def test_workload_is_rebuilt(dataset):
    """The workload behind a key is the one that was measured, and so are the competitors."""
    assert dataset.workload(LPM.key) == LPM
    assert dataset.competitors(2) == (Workload("synthetic", {"data_size_mib": 8.0}),) * 2


def test_solo_throughput_is_the_median_of_solo_rows(dataset):
    """Solo throughput comes from solo rows and says so."""
    assert (dataset.solo_mpps("lpm"), dataset.solo_source("lpm")) == (3.0, "measured")


def test_unknown_solo_throughput_is_an_error(dataset):
    """Without solo rows a profiled target has no solo throughput."""
    with pytest.raises(MissingMetricError, match="none of its 2 rows is solo"):
        dataset.select(plan=["pressure", "mix"]).solo_mpps("lpm")


def test_unknown_names_offer_the_nearest(dataset):
    """A wrong target, machine, plan or family is named together with the nearest right one."""
    with pytest.raises(UnknownNameError, match=r"did you mean 'lpm@64B"):
        dataset.select(target="lpn@64B,100000f")
    with pytest.raises(UnknownNameError, match="silver-4110"):
        dataset.select(machine="silver-4111")
    with pytest.raises(UnknownNameError, match="pressure"):
        dataset.select(plan="presure")
    with pytest.raises(UnknownNameError, match="beside"):
        dataset.vectors("besides")


def test_merging_with_itself_changes_nothing(dataset):
    """A measurement that both datasets hold appears once."""
    assert dataset.merge(dataset) == dataset


def test_parts_merge_to_the_whole(dataset):
    """Solo, pressure and mix rows merged are all rows."""
    merged = dataset.select(plan="solo").merge(dataset.select(plan="pressure")).merge(dataset.select(plan="mix"))
    assert merged == dataset


def test_other_environment_is_refused_with_a_difference(dataset, environment):
    """Datasets of a machine defined otherwise are not merged, and the error shows what differs."""
    other = ProfileDataset(dataset.frame, {**environment, "machines": {"silver-4110": {"llc_kib": 20480}}})
    with pytest.raises(
        IncompatibleMeasurementsError, match=r"machines\.silver-4110\.llc_kib: 11264 \| 20480"
    ) as caught:
        dataset.merge(other)
    assert caught.value.exit_code == 4


def test_same_run_with_other_numbers_is_refused(dataset, environment):
    """One run with two results cannot be merged; the error shows both."""
    frame = dataset.frame
    frame.loc[2, "throughput_mpps"] = 9.0
    with pytest.raises(IncompatibleMeasurementsError, match=r"throughput_mpps: 3\.0 \| 9\.0"):
        dataset.merge(ProfileDataset(frame, environment))


def test_other_seed_is_another_measurement(make_run):
    """The same co-location measured with another seed is kept beside the first."""
    one, two = (ProfileDataset.from_records([make_run(LPM, seed=seed, base_mpps=3.0 + seed)]) for seed in (0, 1))
    assert one.merge(two).throughput.tolist() == [3.0, 4.0]


@pytest.mark.parametrize(
    ("column", "value", "complaint"),
    [
        ("competition.L2MISS", -1.0, "row 2, column 'competition.L2MISS': got -1"),
        ("own.L3OCC", np.inf, "row 2, column 'own.L3OCC': got inf"),
        ("throughput_mpps", np.nan, "row 2, column 'throughput_mpps': got nothing"),
        ("plan", "guess", "row 2, column 'plan'"),
        ("competitor_count", 0, "row 2, column 'competitor_count'"),
        ("replicates", 0, "row 2, column 'replicates'"),
    ],
)
def test_impossible_values_are_refused(dataset, column, value, complaint):
    """Negative and infinite counters and rows that contradict themselves name row and column."""
    frame = dataset.frame
    frame.loc[2, column] = value
    with pytest.raises(ConfigurationError, match=complaint):
        ProfileDataset(frame)


def test_columns_are_checked(dataset):
    """A missing column, an unknown metric and a doubled measurement are each refused by name."""
    with pytest.raises(ConfigurationError, match="missing column seed"):
        ProfileDataset(dataset.frame.drop(columns="seed"))
    with pytest.raises(ConfigurationError, match=r"unknown column 'own\.L3MIS'\nhint: did you mean 'own\.L3MISS'"):
        ProfileDataset(dataset.frame.assign(**{"own.L3MIS": 1.0}))
    with pytest.raises(ConfigurationError, match="listed before"):
        ProfileDataset(dataset.frame.iloc[[0, 0]])


@pytest.mark.parametrize("nothing", [None, np.nan, "", "None", "null"])
def test_empty_isolation_means_that_no_tenant_was_isolated(dataset, nothing):
    """Tables of others leave the cell empty, in whatever way; such rows train as any other."""
    read = ProfileDataset(dataset.frame.assign(isolation=nothing))
    assert read.frame["isolation"].tolist() == dataset.frame["isolation"].tolist() == ["null"] * 7
    assert not isolated(read.frame).any()


def test_dataset_is_a_value(dataset):
    """Changing the frame or environment one got does not change the dataset."""
    before = dataset.to_dict()
    frame, environment, throughput = dataset.frame, dataset.environment, dataset.throughput
    frame.loc[0, "throughput_mpps"] = 0.0
    environment["machines"]["silver-4110"]["llc_kib"] = 1
    throughput[0] = 0.0
    assert dataset.to_dict() == before


def test_display_names_every_target(dataset):
    """The notebook display lists every target, escaped."""
    html = dataset._repr_html_()
    assert all(target in html for target in dataset.targets)
    assert "2 solo, 2 pressure, 3 mix" in html


def test_dictionary_needs_columns():
    """A mapping without columns is refused in words."""
    with pytest.raises(InvalidValueError, match="'columns' must be a mapping"):
        ProfileDataset.from_dict({"schema_version": 1, "environment": {}})
