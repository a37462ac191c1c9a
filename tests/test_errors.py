"""Errors: the tree, the exit codes, the nearest match."""

import copy
import pickle

import pytest

from slomo import errors
from slomo.errors import SlomoError, UnknownNameError

TREE = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, SlomoError)]


@pytest.mark.parametrize("kind", TREE)
def test_every_error_has_a_documented_exit_code(kind: type[SlomoError]) -> None:
    """Each class ends with one of the exit codes of the design, and the drawn tree names it."""
    assert kind.exit_code in {2, 3, 4, 5, 70}
    assert kind.__name__ in (errors.__doc__ or "")


def test_unknown_name_offers_the_nearest() -> None:
    """A slip of one letter is met with the name that was meant."""
    error = UnknownNameError("network function", "l2fdw", ["l2fwd", "lpm", "snort"])

    assert "did you mean 'l2fwd'?" in str(error)
    assert error.exit_code == 2


def test_unknown_name_ignores_case_and_admits_ignorance() -> None:
    """Case does not hide the match; nonsense gets only the list, and is cut short."""
    assert "'IPC'" in str(UnknownNameError("metric", "ipc", ["IPC", "L3OCC"]))
    assert "did you mean" not in str(UnknownNameError("metric", "zzzzzz", ["IPC"]))
    assert len(str(UnknownNameError("server", "x" * 10**6, ["s1"]))) < 300
    assert str(UnknownNameError("server", "x", [f"s{n:03}" for n in range(900)])).endswith("s039 and 860 more")


@pytest.mark.parametrize("duplicate", [copy.copy, lambda e: pickle.loads(pickle.dumps(e))])
def test_errors_cross_process_borders(duplicate: object) -> None:
    """Message and hint survive copying, as they must when a worker process raises."""
    again = duplicate(UnknownNameError("metric", "IPD", ["IPC"]))  # type: ignore[operator]

    assert isinstance(again, UnknownNameError)
    assert str(again) == str(UnknownNameError("metric", "IPD", ["IPC"]))
