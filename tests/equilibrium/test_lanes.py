"""Which threads may compile the loop over many servers."""

import threading
from types import SimpleNamespace

import pytest

from slomo.equilibrium import lanes


def test_an_event_loop_does_not_wait_for_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that never compiles solves in numpy until another thread has compiled the loop, then uses it."""
    loop = SimpleNamespace(signatures=[])
    monkeypatch.setattr(lanes, "compiled", lambda _: loop)
    monkeypatch.setattr(lanes._Spent, "loops", {})
    monkeypatch.setattr(lanes._Spent, "servers", lanes.LOADING_SERVERS)
    seen: list[object] = []
    with lanes.never_compiling():
        before = lanes.loop_for(1)
        other = threading.Thread(target=lambda: seen.append(lanes.loop_for(1)))
        other.start()
        other.join()
        meanwhile = lanes.loop_for(1)
        loop.signatures.append("compiled")
        after = lanes.loop_for(1)

    assert seen == [loop]
    assert (before, meanwhile, after) == (None, None, loop)


def test_a_thread_may_say_so_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What begins and ends inside does not allow what is around it to compile."""
    monkeypatch.setattr(lanes, "compiled", lambda _: SimpleNamespace(signatures=[]))
    monkeypatch.setattr(lanes._Spent, "loops", {})
    monkeypatch.setattr(lanes._Spent, "servers", lanes.LOADING_SERVERS)
    with lanes.never_compiling():
        with lanes.never_compiling():
            pass
        assert lanes.loop_for(1) is None
    assert lanes.loop_for(1) is not None
