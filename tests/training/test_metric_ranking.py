"""Metrics are ranked by what they say of throughput that was not fitted."""

import itertools
import re

import numpy as np
import pytest

from slomo.errors import IncompatibleMeasurementsError, MissingMetricError
from slomo.records.dataset import ProfileDataset
from slomo.training.features import subjects
from slomo.training.metric_ranking import rank_metrics, unranked_metrics


def test_what_throughput_follows_comes_first(toy_profile) -> None:
    """A metric that throughput is made of is taken first; one that is noise adds nothing and is missed by nobody."""
    frame = toy_profile.frame.copy()
    fitted = frame["plan"].isin(["solo", "pressure"])
    solo = {key: toy_profile.solo_mpps(key) for key in frame.loc[fitted, "target"].unique()}
    lost = 1.0 - frame.loc[fitted, "throughput_mpps"] / frame.loc[fitted, "target"].map(solo)
    noise = np.random.default_rng(3).random(int(fitted.sum()))
    frame.loc[fitted, "competition.L3OCC"] = 1e4 * lost.clip(lower=0.0) + 1.0
    frame.loc[fitted, "competition.READ"] = noise
    ranked = rank_metrics(ProfileDataset(frame, toy_profile.environment))
    assert (ranked[0].name, ranked[0].place) == ("L3OCC", 1)
    assert ranked[0].alone == pytest.approx(ranked[0].error)
    by_name = {item.name: item for item in ranked}
    assert by_name["READ"].alone > 3.0 * by_name["L3OCC"].alone
    assert abs(by_name["READ"].gain) < 0.2 * ranked[0].gain
    assert sorted(item.place for item in ranked) == list(range(1, len(ranked) + 1))
    for one, other in itertools.pairwise(ranked[:7]):
        assert one.error - other.error == pytest.approx(other.gain)


def test_a_metric_without_a_rank_says_why(toy_profile) -> None:
    """One that is the same in every row, and one that some rows lack, are named with the reason."""
    frame = toy_profile.frame.copy()
    frame["competition.UPI"] = 0.0
    frame["competition.LLCMISSLAT"] = np.where(np.arange(len(frame)) % 2, 90.0, np.nan)
    why = unranked_metrics(ProfileDataset(frame, toy_profile.environment), ())

    assert why["UPI"] == "0 in every row"
    assert re.fullmatch(r"reported in \d\d % of the rows, needed in all beside competitors", why["LLCMISSLAT"])


def test_too_few_rows_tell_nothing(toy_profile) -> None:
    """A dataset of solo rows has nothing to rank by, and says how many rows are needed."""
    with pytest.raises(MissingMetricError, match="24 rows"):
        rank_metrics(toy_profile.select(plan="solo"))


def test_metrics_of_the_socket_alone_are_ranked(toy_profile) -> None:
    """The use of the link, which no core has for itself, comes first where throughput follows it; no model reads it."""
    frame = toy_profile.frame.copy()
    fitted = frame["plan"].isin(["solo", "pressure"])
    solo = {key: toy_profile.solo_mpps(key) for key in frame.loc[fitted, "target"].unique()}
    lost = 1.0 - frame.loc[fitted, "throughput_mpps"] / frame.loc[fitted, "target"].map(solo)
    frame.loc[fitted, "competition.UPI"] = lost.clip(lower=0.0)
    frame["nodes"] = '{"memory_node":1}'
    elsewhere = ProfileDataset(frame, toy_profile.environment)

    assert rank_metrics(elsewhere)[0].name == "UPI"
    assert not list(subjects(elsewhere))


def test_rows_on_two_sockets_are_ranked_apart(toy_profile) -> None:
    """Solo throughput differs with the memory's place, so both kinds of rows in one ranking are refused."""
    frame = toy_profile.frame.copy()
    frame["nodes"] = ["null"] + ['{"memory_node":1}'] * (len(frame) - 1)
    with pytest.raises(IncompatibleMeasurementsError, match="on another socket"):
        rank_metrics(ProfileDataset(frame, toy_profile.environment))
