"""One NIC port for all: what it lets through is what an NF is offered."""

import pytest

from slomo.errors import InvalidValueError
from slomo.prediction.question import Question, answer, solve_server
from slomo.vocabulary.server_setting import ServerSetting

from .conftest import MACHINE

#: 64 B frames: 2.5 Mpps.
PORT = 1.68


def test_a_port_divides_among_those_who_could_serve_more(library) -> None:
    """Two saturated NFs get half each; the slowdown contains it, and the answer says why."""
    plain = answer(library, Question(("lpm", "nat"), MACHINE))
    narrow = answer(library, Question(("lpm", "nat"), MACHINE, ServerSetting(port_gbps=PORT)))

    assert narrow.throughput_mpps == pytest.approx(min(1.25, plain.throughput_mpps))
    assert narrow.solo_mpps == plain.solo_mpps
    assert narrow.slowdown > plain.slowdown
    assert "a port of 1.68 Gbit/s for all lets 1.25 Mpps through" in narrow.reasons


def test_a_wide_port_is_no_port(library) -> None:
    """Where nobody could use more, the answers are the same to the last bit."""
    names = ("lpm", "nat", "snort", "stats")

    assert solve_server(library, names, MACHINE, setting=ServerSetting(port_gbps=1000.0)) == solve_server(
        library, names, MACHINE
    )
    with pytest.raises(InvalidValueError, match="shared port is -1"):
        answer(library, Question(names, MACHINE, ServerSetting(port_gbps=-1.0)))
