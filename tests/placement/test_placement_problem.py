"""The problem's values round-trip, and say what is wrong with a bad one."""

import json

import pytest

from slomo.errors import ConfigurationError, InvalidValueError, UnknownNameError
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.decision import Assignment, Decision, Refusal
from slomo.placement.problem.documents import parse_cluster, parse_requests, read_cluster, read_requests
from slomo.placement.problem.request import SLO, Request, requests_from_dict, requests_to_dict

REQUESTS = (
    Request("a", ("lpm", "stats@1500B,1000f"), SLO(min_mpps=1.5, p95_us=20.0), priority=2, replicas=3),
    Request("b", ("synthetic(data_size_mib=8)",), SLO(kind="on-demand"), affinity=("a",), anti_affinity=("b", "c")),
)


def test_cluster_round_trips_through_json() -> None:
    """A cluster written as JSON reads back as the same value."""
    cluster = Cluster(
        (Server("x", "e5-2620v4", 2, 10, (0, 1)), *Cluster.uniform("e5-2695v4", 3, cores_reserved=9, sockets=1).servers)
    )

    assert Cluster.from_dict(json.loads(json.dumps(cluster.to_dict()))) == cluster
    assert parse_cluster(json.dumps(cluster.to_dict())) == cluster


def test_requests_round_trip_through_json() -> None:
    """Requests written as JSON read back as the same values, chains, SLOs and affinities included."""
    assert requests_from_dict(json.loads(json.dumps(requests_to_dict(REQUESTS)))) == REQUESTS
    assert parse_requests(json.dumps(requests_to_dict(REQUESTS))) == REQUESTS


def test_decision_round_trips_through_json() -> None:
    """A decision, taken or refused, reads back as the same value."""
    refusal = Refusal("a", "lpm", "e5-2620v4", "throughput", 6.0, 5.0)
    for made in (
        Decision(
            "a", True, "predicted", "slomo-xgb", (Assignment("s", 0, 1, "lpm", 1.0, 2.0, 1.5, 2.5, 7, 100),), ("x",)
        ),
        Decision("a", False, "predicted", refused=refusal),
    ):
        assert Decision.from_dict(json.loads(json.dumps(made.to_dict()))) == made


def test_counts_stand_for_numbered_servers_and_requests(tmp_path) -> None:
    """`count` in a file makes as many, numbered from 1."""
    servers, requests = tmp_path / "c.yaml", tmp_path / "r.yaml"
    servers.write_text("servers:\n- {name: r, machine: e5-2695v4, count: 3, cores_reserved: 9, nic_sockets: [0, 1]}\n")
    requests.write_text("requests:\n- {id: q, nf: 'lpm@1500B', count: 2, slo: {min_share: 0.9}}\n")

    assert [server.name for server in read_cluster(servers).servers] == ["r-1", "r-2", "r-3"]
    assert [request.id for request in read_requests(requests)] == ["q-1", "q-2"]
    assert read_requests(requests)[0].chain[0].traffic.packet_size_b == 1500


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Server("a", "e5-2620v4", cores_reserved=8), "cores_reserved is 8, needed 0 to 7"),
        (lambda: Server("a", "e5-2620v4", llc_ways_usable=21), "llc_ways_usable is 21, needed 1 to 20"),
        (lambda: Server("a", "e5-2620v4", sockets=3), "sockets is 3, needed 1 to 2"),
        (lambda: Server("a", "e5-2620v4", nic_sockets=(2,)), "nic_sockets is (2,), needed different sockets"),
        (lambda: Cluster(()), "no servers"),
        (lambda: Cluster((Server("a", "e5-2620v4"),) * 2), "two servers are called 'a'"),
        (lambda: Cluster.uniform("e5-2620v4", 0), "servers of a cluster is 0"),
        (lambda: SLO(min_mpps=-1.0), "min_mpps is -1.0, needed a number above 0"),
        (lambda: SLO(p95_us=float("nan")), "p95_us is nan"),
        (lambda: SLO(min_mpps=1.0, min_share=0.9), "needed one of them"),
        (lambda: SLO(kind="best-effort"), "needed 'reserved' or 'on-demand'"),
        (lambda: Request("a", ()), "of 0 network functions"),
        (lambda: Request("a", ("lpm",), replicas=0), "replicas is 0"),
        (lambda: requests_from_dict({"requests": [{"id": "a", "nf": "lpm"}] * 2}), "two requests are called 'a'"),
    ],
)
def test_impossible_values_are_refused_with_what_was_needed(make, says) -> None:
    """Each impossible value is an InvalidValueError that names it and what was needed."""
    with pytest.raises(InvalidValueError) as caught:
        make()

    assert says in str(caught.value)


def test_unknown_machine_type_is_named_with_the_nearest() -> None:
    """A slip in a machine's name is answered with the name meant."""
    with pytest.raises(UnknownNameError, match="did you mean 'e5-2620v4'"):
        Server("a", "e5-2620v5")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("servers: []\n", "x.yaml:1: field 'servers'"),
        ("servers:\n- {name: a}\n", "'machine'"),
        (
            "servers:\n- {name: a, machine: e5-2620v4}\n- {name: b, machine: e5-2620v4, coers: 1}\n",
            "x.yaml:3: field 'servers.1.coers'",
        ),
        ("servers: [", "is not YAML"),
        ("- a\n", "needed a mapping"),
        ("schema_version: 9\nservers: [{name: a, machine: e5-2620v4}]\n", "got 9, needed 1"),
    ],
)  # fmt: skip
def test_cluster_files_are_refused_with_file_line_and_field(text, says) -> None:
    """A cluster file that is wrong says where."""
    with pytest.raises(ConfigurationError) as caught:
        parse_cluster(text, "x.yaml")

    assert says in str(caught.value)


def test_values_that_do_not_fit_each_other_are_told_with_the_file() -> None:
    """What only a whole server, or all requests together, shows is told with the file's name, too."""
    with pytest.raises(InvalidValueError, match=r"^x\.yaml: server 'a': nic_sockets is \(7,\)"):
        parse_cluster("servers: [{name: a, machine: e5-2620v4, nic_sockets: [7]}]", "x.yaml")
    with pytest.raises(InvalidValueError, match=r"^x\.yaml: two requests are called 'a'"):
        parse_requests("requests: [{id: a, nf: lpm}, {id: a, nf: nat}]", "x.yaml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("requests:\n- {id: a}\n", "x.yaml:2"),
        ("requests:\n- {id: a, nf: lpm, chain: [lpm]}\n", "x.yaml:2"),
        ("requests:\n- {id: a, nf: lpm, slo: {min_mpps: -3}}\n", "min_mpps"),
        ("requests:\n- {id: a, nf: lpm, slo: {throughput: 3}}\n", "throughput"),
    ],
)
def test_request_files_are_refused_with_file_line_and_field(text, says) -> None:
    """A requests file that is wrong says where."""
    with pytest.raises(ConfigurationError) as caught:
        parse_requests(text, "x.yaml")

    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["[{id: a, nf: lpm}]", "servers: [{name: a, machine: e5-2620v4}]", "{}"])
def test_a_file_of_something_else_says_how_requests_begin(text) -> None:
    """A bare list, or the cluster's file in the place of the requests', is answered with the first field."""
    with pytest.raises(ConfigurationError) as refused:
        parse_requests(text, "x.yaml")
    assert refused.value.hint == "this file begins with `requests:`"
