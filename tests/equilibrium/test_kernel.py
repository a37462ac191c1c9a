"""Which threads may compile the loop over many servers."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from slomo.equilibrium import one_question, settling
from slomo.equilibrium.rounds import IterationState
from slomo.models.applicability import applicability
from slomo.models.functions import compilation, monotone_kernel
from slomo.models.local_errors import NEAREST, LocalErrors


def test_an_event_loop_does_not_wait_for_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that never compiles solves in numpy until another thread has compiled the loop, then uses it."""
    loop = SimpleNamespace(signatures=[])
    monkeypatch.setattr(compilation, "compiled", lambda *_: loop)
    monkeypatch.setattr(compilation._Spent, "loops", {})
    monkeypatch.setattr(compilation._Spent, "servers", compilation.LOADING_SERVERS)
    seen: list[object] = []
    with compilation.never_compiling():
        before = compilation.loop_for(1, settling.rounds_of, 4)
        other = threading.Thread(target=lambda: seen.append(compilation.loop_for(1, settling.rounds_of, 4)))
        other.start()
        other.join()
        meanwhile = compilation.loop_for(1, settling.rounds_of, 4)
        loop.signatures.append("compiled")
        after = compilation.loop_for(1, settling.rounds_of, 4)

    assert seen == [loop]
    assert (before, meanwhile, after) == (None, None, loop)


def test_a_thread_may_say_so_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What begins and ends inside does not allow what is around it to compile."""
    monkeypatch.setattr(compilation, "compiled", lambda *_: SimpleNamespace(signatures=[]))
    monkeypatch.setattr(compilation._Spent, "loops", {})
    monkeypatch.setattr(compilation._Spent, "servers", compilation.LOADING_SERVERS)
    with compilation.never_compiling():
        with compilation.never_compiling():
            pass
        assert compilation.loop_for(1, settling.rounds_of, 4) is None
    assert compilation.loop_for(1, settling.rounds_of, 4) is not None


def test_without_compiled_code_numpy_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where numba is told not to compile, its vectors would raise an error."""
    numba = pytest.importorskip("numba")
    compiled = compilation.compiled.__wrapped__
    assert compiled(settling.rounds_of, 4) is not None
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    assert compiled(settling.rounds_of, 4) is None


def test_chosen_servers_have_the_memory_order_of_all() -> None:
    """Otherwise numba would compile the loop again, for servers whose solution is corrected."""
    state = IterationState.beginning(np.random.default_rng(1).uniform(size=(5, 3, 4)))
    part = state.rows(np.array([3, 1]))
    assert (part.pressure == state.pressure[[3, 1]]).all()
    assert (part.vector == state.vector[[3, 1]]).all()
    assert {array.flags.c_contiguous for array in vars(part).values()} == {True}


@pytest.mark.parametrize("mixes", [NEAREST, 60])
def test_the_verdict_of_one_question_has_the_bits_of_arrays(mixes: int) -> None:
    """Whether the profile covers the pressure, and the error of the nearest mixes, two of which are equally far."""
    random = np.random.default_rng(mixes)
    profiled = random.uniform(size=(40, 3)) * (1.0, 50.0, 2e4)
    covered = applicability(("L2MISS", "L3MISS", "LMB"), profiled)
    pressures = random.uniform(size=(mixes, 3)) * covered.span
    pressures[1] = pressures[0]
    known = LocalErrors(pressures, random.uniform(size=mixes), covered.span)
    members, waiting, caps, place = np.array([[0, 1, 0, -1]]), np.array([1.25]), random.uniform(1e4, 2e4, size=3), 1
    socket, moves = np.array([0, 0, -1, 0, 2, 0, *caps]), random.uniform(size=(2, 2, 2))
    seen = set()
    for pressure in random.uniform(-0.1, 1.1, size=(200, 1, 4, 3)) * covered.span:
        moves[1] = random.uniform(0.0, 3.0, size=(2, 2))
        server = members, pressure, waiting, socket, moves
        inside, *near, load, more = one_question.judge_one(0, place, *server, covered.inside, known.row, NEAREST)
        felt, traffic = pressure[0, place], np.sort(pressure[0, :3, 2] - caps[2] * 0.25)
        assert (inside, *near) == (covered.covers(felt.tolist()), *known.near(felt))
        assert load == np.add.accumulate(traffic)[-1] / 2 / caps[2]
        assert more == (moves[0, 0] + moves[0, 0] > moves[1, 1]).any()
        seen.add((inside, more))
    assert len(seen) == 4


@pytest.mark.parametrize("units", [1, 7, 8, 32, 128])
def test_contributions_of_one_server_are_added_in_order(units: int) -> None:
    """The order and the precision of additions decide the last bits."""
    tangents, heights = np.random.default_rng(units).uniform(-0.3, 0.3, (2, 3, units)).astype(np.float32)
    mpps = np.empty(3)
    monotone_kernel.leave_rows(np.array([[5.0, 0.5]] * 3), heights, np.arange(3), tangents, mpps)
    left = 0.5 - np.add.accumulate(tangents * heights, axis=1)[:, -1].astype(float)
    assert mpps.tolist() == (5.0 * np.minimum(np.maximum(left, 0.0), 1.0)).tolist()
