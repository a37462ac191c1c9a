"""The screen: ten runs say whether a function is worth sixty, and fewer say that they do not know."""

import json

import numpy as np
import pytest

from slomo.cli.main import main
from slomo.errors import MissingMetricError
from slomo.profiling.adaptive.screen import FEWEST, WORTH, screen
from slomo.records.catalog import find_dataset
from slomo.records.dataset import ProfileDataset

#: Draws of ten runs per function; the fewest answers that are right.
DRAWS, RIGHT = 100, 0.95


def _full(name: str) -> ProfileDataset:
    dataset = find_dataset(f"slomo-{name}")
    frame = dataset.frame
    kept = frame["offered_mpps"].isna() & frame["plan"].isin(["solo", "pressure"])
    return ProfileDataset(frame[kept].reset_index(drop=True), dataset.environment)


@pytest.mark.parametrize("machine", ["e5-2620v4", "silver-4110"])
def test_ten_runs_say_what_the_whole_profile_says(machine: str) -> None:
    """In 95 % of draws of ten runs, three or four of each source, the answer is that of all runs."""
    whole, draw, right = _full(machine), np.random.default_rng(7), []
    truth = {answer.target: answer.worth for answer in screen(whole)}
    assert set(truth.values()) == {True, False}
    for target, worth in truth.items():
        rows = whole.select(target=target, plan="pressure").frame
        lost = 1.0 - rows["throughput_mpps"].to_numpy() / whole.solo_mpps(target)
        for _ in range(DRAWS):
            picked = [
                draw.choice(np.arange(source, len(lost), 3), 3 + (source == 0), replace=False) for source in range(3)
            ]
            right.append((lost[np.concatenate(picked)].mean() > WORTH) == worth)
    assert np.mean(right) >= RIGHT


def test_the_first_ten_runs_of_a_profile_are_such_a_draw() -> None:
    """The design's own first ten runs: the firewall needs no more, the router does."""
    whole = _full("silver-4110")
    frame = whole.frame
    first = frame[(frame["plan"] == "solo") | (frame.groupby(["target", "plan"]).cumcount() < 10)]
    answers = {each.target.partition("@")[0]: each for each in screen(ProfileDataset(first, whole.environment))}
    assert answers["stateless-firewall"].worth is False
    assert answers["ip-router"].worth is True
    assert answers["ip-router"].runs == 10


def test_too_few_runs_and_none_are_told() -> None:
    """Eight runs cannot tell; without any, the hint says how to make ten."""
    whole = _full("silver-4110").select(target="vpn")
    frame = whole.frame
    few = frame[(frame["plan"] == "solo") | (frame.groupby("plan").cumcount() < FEWEST - 1)]
    answer = screen(ProfileDataset(few, whole.environment))[0]
    assert answer.worth is None
    assert "cannot be told" in answer.text
    with pytest.raises(MissingMetricError, match="no run beside the synthetic competitor"):
        screen(whole.select(plan="solo"))


def test_the_command_answers_as_python_does(capsys: pytest.CaptureFixture[str]) -> None:
    """`slomo dataset screen` prints a table, or what the function returns as JSON."""
    assert main(["dataset", "screen", "slomo-silver-4110"]) == 0
    assert "worth more runs" in capsys.readouterr().out
    assert main(["dataset", "screen", "slomo-silver-4110", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == [each.to_dict() for each in screen(find_dataset("slomo-silver-4110"))]
