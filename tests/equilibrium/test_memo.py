"""Facts about equilibria that are kept by mix."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from slomo.equilibrium.memo import JointMemo
from slomo.equilibrium.server import Joint, solve_joint
from slomo.errors import InvalidValueError


@pytest.fixture(scope="module")
def models(toy_library):
    """Return the toy's models."""
    return list(toy_library.values())


@pytest.fixture
def servers():
    """Return servers of 1 to 4 NFs, some twice in another order, a third of them with an NF at reduced load."""
    generator = np.random.default_rng(5)
    members = generator.integers(-1, 3, (60, 4))
    members[:, 0] = np.abs(members[:, 0])
    offered = np.where(generator.random((60, 4)) < 0.1, generator.uniform(0.2, 1.5, (60, 4)), np.nan)
    return np.vstack([members, members[:, ::-1]]), np.vstack([offered, offered[:, ::-1]])


def same(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in Joint.__dataclass_fields__)


def test_the_memo_changes_no_bit(models, servers):
    """Cold and warm, at full and at reduced load, the memo gives what solving anew gives."""
    members, offered = servers
    memo = JointMemo(models)
    for loads in (None, offered):
        fresh = solve_joint(models, members, loads)
        assert same(memo.solve(members, loads), fresh)
        assert same(memo.solve(members, loads), fresh)


def test_every_distinct_server_is_solved_once(models, servers):
    """The same NFs in another order are the same server."""
    members, _ = servers
    memo = JointMemo(models)
    memo.solve(members)
    distinct = {tuple(sorted(row)) for row in members.tolist()}
    assert len(memo) == len(distinct)
    memo.solve(members[::-1])
    assert len(memo) == len(distinct)


def test_servers_learned_bit_by_bit_are_all_kept(models, servers):
    """Servers asked about one at a time are answered like all of them at once."""
    members, offered = servers
    memo = JointMemo(models)
    for row in range(len(members)):
        memo.solve(members[row : row + 1], offered[row : row + 1])
    assert same(memo.solve(members, offered), solve_joint(models, members, offered))


def test_a_full_memo_forgets_and_still_answers(models, servers):
    """Beyond its limit the memo forgets older servers; answers stay what they are."""
    members, _ = servers
    memo = JointMemo(models, most=10)
    for begin in range(0, len(members), 7):
        part = members[begin : begin + 7]
        assert same(memo.solve(part), solve_joint(models, part))
        assert len(memo) <= 10


def test_no_server_has_no_results(models):
    """Also before the memo knows any; places are kept."""
    assert JointMemo(models).solve(np.zeros((0, 3), dtype=int)).pressure.shape[:2] == (0, 3)


def test_nonsense_is_refused(models):
    """Members that stand for no model, and a memo of no size, are refused in words."""
    with pytest.raises(InvalidValueError, match="do not belong together"):
        JointMemo(models).solve(np.array([[7, 0]]))
    with pytest.raises(InvalidValueError, match="do not belong together"):
        JointMemo(models).solve(np.array([[-2, 0]]))
    with pytest.raises(InvalidValueError, match="at least 1"):
        JointMemo(models, most=0)


def test_threads_that_ask_at_once_are_all_answered(models, servers):
    """Whoever solves a server first, what is kept is whole."""
    members, _ = servers
    fresh, memo = solve_joint(models, members), JointMemo(models)
    orders = [np.random.default_rng(seed).permutation(len(members)) for seed in range(8)]

    def bit_by_bit(order):
        return [same(memo.solve(members[row : row + 1]), Joint(**{
            name: getattr(fresh, name)[row : row + 1] for name in Joint.__dataclass_fields__
        })) for row in order]  # fmt: skip

    with ThreadPoolExecutor(8) as pool:
        assert all(all(rows) for rows in pool.map(bit_by_bit, orders))
    assert len(memo) == len({tuple(sorted(row)) for row in members.tolist()})
