"""Servers come, go, fail and are drained; each change is whole, and can be asked about first."""

import json
from dataclasses import replace

import numpy as np
import pytest

from slomo.errors import ConfigurationError, InvalidValueError, UnknownNameError
from slomo.models.intervals import ConformalCalibration
from slomo.models.library import ModelLibrary
from slomo.placement.online.placer import Placer
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.request import SLO, Request
from slomo.service.servers import placed

MACHINE = "e5-2620v4"
FIRST, SECOND = f"{MACHINE}-1", f"{MACHINE}-2"


@pytest.fixture
def placer(library, cluster, ask):
    """Three requests on the first of four servers."""
    made = Placer(library, cluster)
    for request in (ask("a", "firewall"), ask("b", "firewall"), ask("c", "firewall", priority=5)):
        made.admit(request)
    assert set(made.layout()) == {FIRST}
    return made


def test_a_drained_server_is_empty_and_takes_nothing_more(placer, ask) -> None:
    """After a drain everything runs elsewhere, and new requests go elsewhere, until the server is uncordoned."""
    change = placer.lifecycle.drain(FIRST)
    placer.admit(ask("d", "firewall"))

    assert change.done
    assert len(change.moves) == 3
    assert set(placer.layout()) == {SECOND}
    placer.lifecycle.uncordon(FIRST)
    assert placer.lifecycle.drain(SECOND).done
    assert FIRST in placer.layout()


@pytest.mark.parametrize("how", ["what_if", "budget", "no room"])
def test_a_drain_that_is_asked_about_or_cannot_be_done_changes_nothing(placer, how) -> None:
    """What could not be moved is named, and the placement is what it was, to the byte."""
    if how == "no room":
        for number in range(2, 5):
            placer.lifecycle.cordon(f"{MACHINE}-{number}")
    before = json.dumps(placer.snapshot())
    change = placer.lifecycle.drain(FIRST, max_moves=2 if how == "budget" else None, what_if=how == "what_if")

    assert change.done == (how == "what_if")
    assert len(change.left) == {"what_if": 0, "budget": 1, "no room": 3}[how]
    assert json.dumps(placer.snapshot()) == before


def test_a_change_refuses_what_it_does_not_take(placer) -> None:
    """Options of another change are refused by name, unless they have their default; unknown changes are named."""
    assert placer.lifecycle.act("cordon", FIRST, max_moves=None, taints=(), surge=True).done
    for option in ({"max_moves": 1}, {"taints": ("a",)}, {"surge": False}, {"value": "r3"}, {"threshold": 0.3}):
        with pytest.raises(InvalidValueError, match=f"'uncordon' takes no option {next(iter(option))}"):
            placer.lifecycle.act("uncordon", FIRST, **option)
    with pytest.raises(InvalidValueError, match="takes no option budget"):
        placer.lifecycle.act("drain", FIRST, budget=3)
    with pytest.raises(UnknownNameError, match="unknown change 'at_risk'"):
        placer.lifecycle.act("at_risk", FIRST)


def test_where_all_servers_failed_the_refusal_says_so(library, ask) -> None:
    """No kind of server was tried: the reason is that none is open."""
    placer = Placer(library, Cluster.uniform(MACHINE, 1))
    placer.admit(ask("a"))
    (refused,) = placer.lifecycle.fail(FIRST).refused
    assert refused.reasons == ("no server is open for 'a' (lpm)",)


def test_what_ran_on_a_failed_server_is_placed_elsewhere_by_priority(placer) -> None:
    """With room, nobody is lost; the failed server takes nothing."""
    change = placer.lifecycle.fail(FIRST)

    assert change.done
    assert not change.refused
    assert {request.id for request in placer.requests} == {"a", "b", "c"}
    assert FIRST not in placer.layout()


def test_where_room_is_short_the_highest_priority_stays(library, ask) -> None:
    """Of what ran on a failed server, what matters most is placed first, the rest is refused with a reason."""
    placer = Placer(library, Cluster.uniform(MACHINE, 2, cores_reserved=6))
    placer.admit(ask("x", "firewall"))
    placer.lifecycle.cordon(FIRST)
    placer.place_all([ask("low", "firewall"), ask("high", "firewall", priority=9)])
    placer.lifecycle.uncordon(FIRST)
    change = placer.lifecycle.fail(SECOND)

    assert [decision.request for decision in change.refused] == ["low"]
    assert placer.decision("high").servers == (FIRST,)


def test_servers_join_and_leave(placer, ask) -> None:
    """A new server is used when the others are closed; only an empty one can leave."""
    placer.lifecycle.add_server(Server("new", MACHINE))
    for number in range(1, 5):
        placer.lifecycle.cordon(f"{MACHINE}-{number}")

    assert placer.admit(ask("d")).servers == ("new",)
    refused = placer.lifecycle.remove_server("new")
    assert (refused.done, refused.left) == (False, ("d",))
    placer.remove("d")
    assert placer.lifecycle.remove_server("new").done
    assert "new" not in [server.name for server in placer.cluster.servers]
    with pytest.raises(UnknownNameError, match="unknown server 'new'"):
        placer.lifecycle.drain("new")


def test_names_that_are_taken_or_unknown_are_refused(placer) -> None:
    """A second server of one name, and any change of a server there is none of, end in an error."""
    with pytest.raises(InvalidValueError, match=f"there is a server '{FIRST}' already"):
        placer.lifecycle.add_server(Server(FIRST, MACHINE))
    with pytest.raises(UnknownNameError, match="unknown server 'rack'"):
        placer.lifecycle.cordon("rack")


def test_a_request_gets_a_new_slo_or_keeps_the_old(placer, ask) -> None:
    """An update that fits replaces the request; one that does not leaves it as it was."""
    assert placer.lifecycle.update(ask("a", "firewall", 0.5)).done
    assert {r.id: r.slo.min_share for r in placer.requests}["a"] == 0.5
    before = json.dumps(placer.snapshot())
    change = placer.lifecycle.update(Request("a", "firewall", SLO(min_mpps=99.0)))

    assert not change.done
    assert change.refused[0].refused.what == "throughput"
    assert json.dumps(placer.snapshot()) == before


def test_without_surge_the_old_version_makes_room_for_the_new(library, ask) -> None:
    """On a full server an update fits only where the old version goes first."""
    placer = Placer(library, Cluster.uniform(MACHINE, 1, cores_reserved=7))
    placer.admit(ask("a", "lpm"))

    assert not placer.lifecycle.update(ask("a", "stats", 0.5)).done
    assert placer.lifecycle.update(ask("a", "lpm", 0.5), surge=False).done


def test_a_request_of_higher_priority_takes_the_place_of_a_lower_one(library, ask) -> None:
    """On a full cluster the least of the tenants goes; what matters as much stays."""
    placer = Placer(library, Cluster.uniform(MACHINE, 1, cores_reserved=6))
    placer.place_all([ask("low", "firewall", priority=1), ask("mid", "firewall", priority=2)])

    foreseen = placer.lifecycle.preempt(ask("high", "firewall", priority=3), what_if=True)
    assert {request.id for request in placer.requests} == {"low", "mid"}
    change = placer.lifecycle.preempt(ask("high", "firewall", priority=3))
    assert foreseen == change
    assert [decision.request for decision in change.refused] == ["low"]
    assert {request.id for request in placer.requests} == {"mid", "high"}
    assert not placer.lifecycle.preempt(ask("same", "firewall", priority=2)).done


def test_other_models_say_what_is_at_risk_and_move_nothing(library, make_library, ask) -> None:
    """After a refit with wider intervals, promises that no longer hold are named; none is moved."""
    placer = Placer(library, Cluster.uniform(MACHINE, 1))
    for number in range(6):
        placer.admit(ask(f"r{number}", share=0.85))
    before = placer.layout()
    assert placer.lifecycle.at_risk() == ()
    change = placer.lifecycle.use(make_library(spread=0.05))

    assert {item.request for item in change.at_risk} == {request.id for request in placer.requests}
    assert {(i.core, i.workload) for i in placer.layout()[FIRST]} == {(i.core, i.workload) for i in before[FIRST]}
    assert placer.lifecycle.at_risk()[0].possible < placer.lifecycle.at_risk()[0].needed
    again = Placer(make_library(spread=0.05), placer.cluster)
    with pytest.raises(ConfigurationError, match="does not hold"):
        again.restore(placer.snapshot())
    assert set(again.restore(placer.snapshot(), keep_at_risk=True).at_risk) == {r.id for r in placer.requests}
    assert len(again.requests) == len(placer.requests)


def test_a_promise_at_risk_is_broken_or_cannot_be_judged(library, make_library, ask) -> None:
    """Wide intervals break a promise; with eight known errors it is unjudged, and why is told, also of the servers."""
    few = ConformalCalibration(np.linspace(-1.0, 1.0, 8), "mixes")
    unsure = [replace(each, calibration=dict.fromkeys(each.calibration, few)) for each in library.values()]
    placer = Placer(library, Cluster.uniform(MACHINE, 1))
    for number in range(6):
        placer.admit(ask(f"r{number}", share=0.85))
    for models, state, why in (
        (make_library(spread=0.05), "broken", "less than promised is to be counted on beside what runs there"),
        (ModelLibrary(unsure), "unjudged", "19 held-out errors would be needed, 8 are there"),
    ):
        rows = placer.lifecycle.use(models).at_risk
        assert rows == placer.lifecycle.at_risk()
        assert {(row.request, row.state, row.why) for row in rows} == {(r.id, state, why) for r in placer.requests}
        assert {(row.what, row.needed) for row in rows} == {("throughput", 0.85 * 5.0)}
        (server,) = placed(placer)
        assert {(item.owner, item.state, item.why) for item in server.tenants} == {
            (r.request, state, why) for r in rows
        }


def test_models_that_know_solo_a_little_otherwise_take_over_offered_loads(library) -> None:
    """Loads are rounded to a grid of solo, which a refit moves: what runs is what was asked for, on the new grid."""
    placer = Placer(library, Cluster.uniform(MACHINE, 1))
    placer.admit(Request("edge", "lpm@64B,100000f,1.234Mpps", SLO(min_mpps=1.2)))
    placer.lifecycle.use(
        ModelLibrary([replace(model, solo_mpps=1.003 * model.solo_mpps) for model in library.values()])
    )
    forged = json.loads(json.dumps(placer.snapshot()))
    forged["placed"][0]["pieces"][0]["workloads"] = ["stats@64B,100000f"]

    assert placer.decision("edge").assignments[0].workload == "lpm@64B,100000f,1.234Mpps"
    with pytest.raises(ConfigurationError, match="whose chain is lpm"):
        placer.restore(forged)


def test_a_snapshot_goes_into_a_smaller_cluster_with_a_list_of_what_no_longer_fits(library, ask) -> None:
    """What was on servers that are gone is placed elsewhere while there is room; the rest is named."""
    placer = Placer(library, Cluster.uniform(MACHINE, 3, cores_reserved=6))
    placer.place_all([ask(f"r{number}", "firewall") for number in range(5)])
    document = json.loads(json.dumps(placer.snapshot()))
    smaller = Placer(library, Cluster.uniform(MACHINE, 2, cores_reserved=6))
    larger = Placer(library, Cluster.uniform(MACHINE, 5, cores_reserved=6))

    assert len(smaller.restore(document).left) == 1
    assert len(smaller.requests) == 4
    assert larger.restore(document).left == ()
    assert larger.layout() == placer.layout()


def test_a_snapshot_cannot_take_a_promise_away(library, ask) -> None:
    """Needs are worked out from the requests: a zero written into the snapshot changes nothing."""
    placer = Placer(library, Cluster.uniform(MACHINE, 2))
    placer.admit(ask("a"))
    document = placer.snapshot()
    document["placed"][0]["pieces"][0]["needed_mpps"] = 0.0
    placer.restore(document)
    assert placer.decision("a").assignments[0].needed_mpps == 4.5


def test_a_snapshot_whose_mixes_do_not_hold_is_refused(library, ask) -> None:
    """Requests put together by hand that break each other's SLOs are named, and nothing changes."""
    placer = Placer(library, Cluster.uniform(MACHINE, 8))
    placer.place_all([ask(f"r{number}", share=0.99) for number in range(4)])
    document = placer.snapshot()
    for number, entry in enumerate(document["placed"]):
        entry["pieces"][0] |= {"server": FIRST, "cores": [number]}
    before = placer.layout()
    with pytest.raises(ConfigurationError, match=r"'r0' does not hold: throughput of lpm"):
        placer.restore(document)
    assert placer.layout() == before


def test_a_snapshot_of_other_models_is_refused(library, make_library, ask) -> None:
    """A placer without the models that decided does not take over what they decided."""
    placer = Placer(library, Cluster.uniform(MACHINE, 2))
    placer.admit(ask("a"))
    with pytest.raises(ConfigurationError, match="decided by other models"):
        Placer(make_library(spread=0.01), placer.cluster).restore(placer.snapshot())


def test_a_machine_of_the_same_name_that_differs_is_refused(library, tmp_path) -> None:
    """A file that describes a smaller cache under a shipped name gets no predictions of the shipped machine."""
    from slomo.vocabulary.machine import load_machine

    fields = {k: v for k, v in load_machine(MACHINE).to_dict().items() if k not in ("name", "schema_version")}
    path = tmp_path / f"{MACHINE}.yaml"
    path.write_text(json.dumps({**fields, "llc_mib": 2.0}))
    with pytest.raises(ConfigurationError, match="were measured on a machine"):
        Placer(library, Cluster.uniform(str(path), 2))


def test_constraints_are_kept(library, ask) -> None:
    """Labels, taints, spread, a most per host and limited amounts leave the servers they leave."""
    servers = (
        Server("old", MACHINE, labels={"rack": "1"}, taints=("old",)),
        Server("one", MACHINE, labels={"rack": "1"}, resources={"memory_gib": 3}),
        Server("two", MACHINE, labels={"rack": "2"}),
    )
    placer = Placer(library, Cluster(servers), "first-fit")
    wide = replace(ask("wide", "firewall"), spread="rack", replicas=2, slo=SLO(min_mpps=0.7))

    assert placer.admit(ask("plain", "firewall")).servers == ("one",)
    assert placer.admit(ask("tolerant", "firewall", tolerations=("old",))).servers == ("old",)
    assert placer.admit(ask("picky", "firewall", selector={"rack": "2"})).servers == ("two",)
    assert set(placer.admit(wide).servers) == {"one", "two"}
    assert placer.admit(ask("big", "firewall", resources={"memory_gib": 2})).servers == ("one",)
    assert placer.admit(ask("bigger", "firewall", resources={"memory_gib": 2})).servers == ("two",)
    refused = placer.admit(ask("nowhere", "firewall", selector={"rack": "9"}))
    assert refused.refused.what == "selector"
    assert "selector rack=9" in refused.refused.text


def test_whom_a_request_wants_near_or_away_holds_in_any_order_of_arrival(library, ask) -> None:
    """Who is placed keeps what it asked for, also towards those who come later; unknown names are refused."""
    placer = Placer(library, Cluster.uniform(MACHINE, 3), "first-fit")
    placer.place_all([ask("b"), ask("a", "firewall", anti_affinity=("b",)), ask("c", "firewall", affinity=("a",))])
    placer.remove("b")
    again = placer.admit(ask("b"))

    assert again.servers != placer.decision("a").servers
    placer.remove("a")
    assert placer.admit(ask("a", "firewall")).servers == placer.decision("c").servers
    with pytest.raises(UnknownNameError, match="affinity of 'd'"):
        placer.admit(ask("d", affinity=("nobody",)))


def test_an_error_half_way_leaves_everything_as_it_was(library, cluster, ask, monkeypatch) -> None:
    """Where deciding breaks off, what was placed for it is taken back."""
    placer = Placer(library, cluster)
    placer.admit(ask("a"))
    before = json.dumps(placer.snapshot())
    monkeypatch.setattr(placer._core.writer, "decision", lambda name: 1 / 0)
    for act in (lambda: placer.admit(ask("b")), lambda: placer.place_all([ask("b"), ask("c")])):
        with pytest.raises(ZeroDivisionError):
            act()
    assert json.dumps(placer.snapshot()) == before
