"""One NIC port for all: what it lets through is what an NF is offered."""

import asyncio
import dataclasses
import json

import numpy as np
import pytest

from slomo.errors import InvalidValueError
from slomo.models.library import ModelLibrary
from slomo.prediction.predictor import Predictor
from slomo.prediction.question import solve_server
from slomo.vocabulary.server_setting import ServerSetting
from slomo.vocabulary.workload import Traffic, Workload
from slomo.workflow.predict import predict

from .conftest import MACHINE
from .test_question import respond

#: 64 B frames: 2.5 Mpps.
PORT = 1.68


def test_a_port_divides_among_those_who_could_serve_more(library) -> None:
    """Two saturated NFs get half each; the slowdown contains it, and the answer says why."""
    plain = predict("lpm", "nat", library, machine=MACHINE)
    narrow = predict("lpm", "nat", library, machine=MACHINE, setting=ServerSetting(port_gbps=PORT))

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
    with pytest.raises(InvalidValueError, match="port_gbps is -1"):
        predict(names[0], names[1:], library, machine=MACHINE, setting=ServerSetting(port_gbps=-1.0))


def with_ports(library, gbps):
    """Return the library of a machine whose ports carry so much."""
    return ModelLibrary(
        [
            dataclasses.replace(each, capacities=dataclasses.replace(each.capacities, ports_gbps=gbps))
            for each in (library[key] for key in library)
            if each.machine == MACHINE
        ]
    )


def test_the_ports_of_the_machine_are_shared_where_no_port_is_told(library) -> None:
    """A machine of one narrow port answers as where that port is told, alone and in a batch."""
    stated = with_ports(library, PORT)
    told = predict("lpm", "nat", library, machine=MACHINE, setting=ServerSetting(port_gbps=PORT))

    plain = predict("lpm", "nat", stated, machine=MACHINE)

    assert Predictor(stated, MACHINE).predict("lpm", ["nat"]) == plain
    assert plain.throughput_mpps == told.throughput_mpps
    assert "the machine's ports of 1.68 Gbit/s for all lets 1.25 Mpps through" in plain.reasons
    batch = Predictor(stated, MACHINE).predict_batch(["lpm"], [["nat"]])
    assert batch.throughput_mpps[0] == plain.throughput_mpps
    assert batch.reasons[0] == plain.reasons


def test_the_service_divides_the_ports_of_the_machine_too(library) -> None:
    """One question, columns of a batch and what outcomes are judged by are the library's, to the last bit."""
    pytest.importorskip("starlette", reason="pip install 'slomo[service]'")
    from slomo.service.door.bodies import Observation, QuestionBody, Questions
    from slomo.service.knowledge.outcomes import Outcomes
    from slomo.service.knowledge.questions import ServiceAnswers

    stated = ModelLibrary(
        [dataclasses.replace(respond(each), accelerator=None) for each in with_ports(library, PORT).values()]
    )
    mixes = {"lpm": ["nat"], "nat": ["lpm", "stats"], "stats": []}
    own = [predict(target, mix, stated, machine=MACHINE) for target, mix in mixes.items()]
    asked = ServiceAnswers(stated, "these")
    columns = asked.columns(Questions(list(mixes), list(mixes.values())))
    names = ("throughput_mpps", "low_mpps", "high_mpps")
    assert list(zip(*(columns[name] for name in names), strict=True)) == [
        (each.throughput_mpps, *each.interval) for each in own
    ]
    assert columns["verdict"] == [each.verdict for each in own]
    assert [tuple(reasons) for reasons in columns["reasons"]] == [each.reasons for each in own]
    for (target, mix), each in zip(mixes.items(), own, strict=True):
        question = QuestionBody(target, mix)
        assert asked.is_plain(question)
        told = json.loads(asyncio.run(asked.ask(question, target.encode())))
        same = ("throughput_mpps", "interval", "solo_mpps", "verdict", "reasons")
        assert [told[name] for name in same] == [json.loads(json.dumps(each.to_dict()))[name] for name in same]
        judged = Outcomes(stated).judge(Observation(target, each.throughput_mpps, competitors=mix))
        assert judged[2] == each.throughput_mpps
    assert own[0].throughput_mpps == 1.25


def test_what_a_slow_function_leaves_of_a_port_others_get(library) -> None:
    """Beside a function that serves a seventh of its part the other gets the rest, not half."""
    rest = predict("lpm", "snort", library, machine=MACHINE, setting=ServerSetting(port_gbps=PORT))

    assert 1.8 <= rest.throughput_mpps <= 2.5 - 0.9 * 0.4


def test_a_part_of_a_port_is_as_uncertain_as_what_others_leave(library) -> None:
    """Who takes what another leaves has an interval, since the other's throughput has one (law 12)."""
    rest = predict("lpm", "snort", library, machine=MACHINE, setting=ServerSetting(port_gbps=PORT))
    assert rest.interval[0] < rest.throughput_mpps < rest.interval[1]


def test_a_share_of_a_port_scatters_more_at_part_load(library) -> None:
    """A saturating sender keeps its queue at the port full; that of a sender with a fixed rate grows and shrinks."""
    answering = [respond(library.find(name, MACHINE)) for name in ("lpm", "nat")]
    scores = np.linspace(0.0, 1e-4, 30)
    profiled = ModelLibrary(
        [
            dataclasses.replace(each, response=dataclasses.replace(each.response, arrivals=scores), accelerator=None)
            for each in answering
        ]
    )

    def width(offered_mpps: float | None) -> float:
        senders = [Workload(name, {}, Traffic(offered_mpps=offered_mpps)) for name in ("lpm", "nat")]
        server = solve_server(profiled, senders, MACHINE, setting=ServerSetting(port_gbps=PORT))
        assert {each.throughput_mpps for each in server.tenants} == {1.25}
        return float(server.tenants[0].interval[1] - 1.25)

    assert width(1.6) > 2.0 * width(None)


def test_more_than_the_ports_of_the_profiles_carry_is_extrapolated(library) -> None:
    """A port wider than the machine's leaves the pressure that was profiled, once more goes through it."""
    stated, beside = with_ports(library, PORT), ("lpm", "nat")

    wide = solve_server(stated, beside, MACHINE, setting=ServerSetting(port_gbps=100.0))
    narrow = solve_server(stated, beside, MACHINE, setting=ServerSetting(port_gbps=PORT / 2))

    assert all(str(each.verdict) != "supported" for each in wide.tenants)
    assert all("profiled behind ports of 1.68" in " ".join(each.reasons) for each in wide.tenants)
    assert not any("profiled behind ports" in " ".join(each.reasons) for each in narrow.tenants)
