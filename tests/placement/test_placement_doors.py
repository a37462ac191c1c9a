"""`slomo place` over time and on NUMA nodes, on-demand requests, and what is said to bad input."""

import json
from dataclasses import replace

import pytest

from slomo.cli.main import main
from slomo.errors import ConfigurationError
from slomo.models.library import ModelLibrary
from slomo.models.partition_profile import save_profiles
from slomo.models.responses.sensitivity import LinearSensitivity
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.decision import Decision
from slomo.placement.problem.documents import parse_cluster, parse_requests
from slomo.placement.problem.request import SLO, Request, requests_to_dict

MACHINE = "e5-2620v4"
FUNCTIONS = {"lpm": (5.0, 0.002), "stats": (3.6, 0.001), "firewall": (0.4, 0.0)}


@pytest.fixture
def folder(library, profiles, tmp_path):
    """Models that can be saved, profiles, a cluster, and requests of two kinds."""
    saved = []
    for model in library.values():
        solo, slope = FUNCTIONS[model.workload.nf]
        line = LinearSensitivity("dobrescu", ("L2MISS",), "solo", solo, -slope * solo)
        calibration = {"dobrescu": model.calibration["dobrescu"]}
        saved.append(replace(model, sensitivity={"dobrescu": line}, calibration=calibration))
    ModelLibrary(saved).save(tmp_path / "models")
    save_profiles(profiles, tmp_path / "ways.json")
    (tmp_path / "c.yaml").write_text(f"servers: [{{name: rack, machine: {MACHINE}, count: 6}}]\n")
    requests = [Request(f"r{i}", ("lpm",), SLO(min_share=0.9)) for i in range(12)]
    (tmp_path / "r.json").write_text(json.dumps(requests_to_dict(requests)))
    chains = [{"id": f"c{i}", "chain": ["lpm", "l2fwd"], "gbps": [1 + i, 4 - i]} for i in range(3)]
    (tmp_path / "chains.json").write_text(json.dumps({"requests": chains}))
    return tmp_path


def run(folder, *words, requests="r.json", model="dobrescu"):
    files = [str(folder / "c.yaml"), str(folder / requests)]
    sub = [words[0]] if words and not words[0].startswith("-") else []
    rest = [str(folder / word[1:]) if word.startswith(":") else word for word in words[len(sub) :]]
    return main(["place", *sub, *files, *rest, "--models", str(folder / "models"), "--model", model])


def test_timeline_runs_each_policy_without_and_with_fresh_plans(folder, capsys) -> None:
    """Two runs per policy, the second with moves; the page has one figure; JSON has every sample."""
    words = ("--policy", "predicted", "--every-s", "20", "--threshold", "0.2", "--per-s", "0.2", "--stay-s", "60")
    assert run(folder, "timeline", *words, "--report", ":t.html", "--json") == 0
    plain, again = json.loads(capsys.readouterr().out)["timelines"]

    assert (plain["planner"], again["planner"]) == ("", "predicted")
    assert again["migrations"] == sum(len(item["moves"]) for item in again["reoptimisations"])
    assert again["mean_servers"] <= plain["mean_servers"]
    assert max(sample["placed"] for sample in plain["samples"]) > 3
    assert (folder / "t.html").read_text().count("data:image/svg+xml") == 1
    assert run(folder, "timeline", *words) == 0
    assert "servers, mean" in capsys.readouterr().out


@pytest.mark.parametrize("policy", ["octans", "node-first", "node-balance", "numasfp"])
def test_chains_are_placed_on_numa_nodes_by_name(folder, capsys, policy) -> None:
    """`--policy octans` and its like read rates, and give every stage a socket and a core of its own."""
    assert run(folder, "--policy", policy, "--json", requests="chains.json") == 0
    document = json.loads(capsys.readouterr().out)
    seats = [(a["server"], a["socket"], a["core"]) for d in document["decisions"] for a in d["assignments"]]

    assert document["policy"] == policy
    assert len(document["intervals"]) == 2
    assert len(set(seats)) == len(seats) == 6
    assert (document["migrations"] > 0) == (
        policy == "numasfp" and document["intervals"][0] != document["intervals"][1]
    )


@pytest.mark.slow
def test_chain_policies_are_compared_by_what_they_serve(folder, capsys) -> None:
    """`compare` runs every interval on the simulator; the page shows throughput over time beside the bars."""
    words = ("--policy", "octans", "--policy", "node-balance", "--report", ":n.html", "--json")
    assert run(folder, "compare", *words, requests="chains.json") == 0
    judgements = json.loads(capsys.readouterr().out)["policies"]

    assert [item["policy"] for item in judgements] == ["octans", "node-balance"]
    assert all(len(item["anat_over_time"]) == 2 and 0.5 < item["anat"] <= 1.0 for item in judgements)
    assert (folder / "n.html").read_text().count("data:image/svg+xml") == 2


def test_on_demand_requests_go_through_the_command_line(folder, capsys) -> None:
    """`kind: on-demand` is placed without a promise, and the note says which share of the cache it has."""
    requests = [{"id": "kept", "nf": "lpm", "slo": {"min_share": 0.9}}]
    requests += [{"id": "spare", "nf": "stats", "slo": {"kind": "on-demand", "p95_us": 30}}]
    (folder / "r.json").write_text(json.dumps({"requests": requests}))
    assert run(folder, "--policy", "resq-greedy", "--profiles", ":ways.json") == 0
    printed = capsys.readouterr()

    assert "spare: rack-1, socket 0: beside 1 other, on demand: max-min share of" in printed.err
    assert [line.split()[4] for line in printed.out.splitlines() if line.startswith("spare")] == ["0.00"]


BAD = {
    "infeasible": ({"id": "a", "nf": "lpm", "slo": {"min_mpps": 99}}, (), 5, "needed 99, at best 5 Mpps"),
    "unknown NF": ({"id": "a", "nf": "lpn"}, (), 2, "did you mean 'lpm'"),
    "too many cores": ({"id": "a", "chain": ["lpm"] * 9}, (), 5, "cores of 'a'"),
    "negative rate": ({"id": "a", "nf": "lpm", "slo": {"min_mpps": -1}}, (), 2, "field 'requests.0.slo.min_mpps'"),
    "negative load": ({"id": "a", "nf": {"nf": "lpm", "traffic": {"offered_mpps": -1}}}, (), 2, "traffic.offered_mpps"),
    "unknown kind": ({"id": "a", "nf": "lpm", "slo": {"kind": "spot"}}, (), 2, "field 'requests.0.slo.kind'"),
    "unknown field": ({"id": "a", "nf": "lpm", "rate": 1}, (), 2, "field 'requests.0.rate': is not known"),
    "no profile over ways": ({"id": "a", "nf": "lpm"}, ("--policy", "resq-greedy"), 5, "--plan ways --out"),
    "latency without profile": ({"id": "a", "nf": "lpm", "slo": {"p95_us": 9}}, (), 5, "give --profiles ways.json"),
    "rate in pps": ({"id": "a", "nf": "lpm", "slo": {"min_mpps": 1200000}}, (), 5,
                    "100 % short; is that pps? 1.2e+06 pps are 1.2 Mpps"),
    "negative gbps": ({"id": "a", "nf": "lpm", "gbps": [-1]}, ("--policy", "octans"), 2, "requests.0.gbps.0"),
    "gbps for no chain policy": ({"id": "a", "nf": "lpm", "gbps": [1]}, (), 2, "rates over time"),
    "unknown chain": ({"id": "a", "chain": ["lpn"], "gbps": [1]}, ("--policy", "octans"), 2, "'lpn' of chain 'a'"),
    "no gbps": ({"id": "a", "nf": "lpm"}, ("--policy", "octans"), 2, "give gbps"),
    "snapshot": ({"id": "a", "nf": "lpm", "gbps": [1]}, ("--policy", "octans", "--snapshot", ":s"), 2, "--snapshot"),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(BAD))
def test_bad_requests_are_messages_with_the_right_exit_code(folder, capsys, case) -> None:
    """What is wrong, where, what was needed; no traceback, nothing on stdout that looks like a placement."""
    request, words, code, says = BAD[case]
    (folder / "r.json").write_text(json.dumps({"requests": [request]}))
    assert run(folder, *words) == code
    printed = capsys.readouterr()

    assert says in printed.err
    assert "Traceback" not in printed.err
    assert "rack-" not in printed.out


def test_a_model_that_nothing_has_is_named(folder, capsys) -> None:
    """A slip in `--model` is an error before anything is placed."""
    assert run(folder, model="dobresku") == 2
    assert "did you mean 'dobrescu'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("servers", "code", "says"),
    [
        ("[{name: a, machine: e5-2620v5}]", 2, "did you mean 'e5-2620v4'"),
        ("[{name: a, machine: e5-2620v4, cores_reserved: 8}]", 2, "needed 0 to 7"),
        ("[{name: a, machine: e5-2620v4, llc_ways_usable: 21}]", 2, "machine 'e5-2620v4' has 20 ways"),
        ("[{name: a, machine: e5-2620v4}, {name: a, machine: e5-2620v4}]", 2, "two servers are called 'a'"),
        ("[]", 2, "servers"),
        ("[{name: a, machine: silver-4110}]", 5, "no model of 'lpm@64B,100000f' on silver-4110, only on e5-2620v4"),
    ],
)
def test_bad_clusters_are_messages_with_the_right_exit_code(folder, capsys, servers, code, says) -> None:
    """Unknown machines, more cores or ways than there are, names twice, and machines without a model."""
    (folder / "c.yaml").write_text(f"servers: {servers}\n")
    assert run(folder) == code
    assert says in capsys.readouterr().err


def test_a_machine_without_models_may_be_fallen_back_on(folder, capsys) -> None:
    """`--fallback alone` gives what has no model a socket for itself, and the decision says so."""
    (folder / "c.yaml").write_text("servers: [{name: a, machine: silver-4110, count: 2}]\n")
    requests = [Request(name, ("lpm",), SLO(min_mpps=1.0)) for name in ("x", "y")]
    (folder / "r.json").write_text(json.dumps(requests_to_dict(requests)))
    assert run(folder, "--fallback", "alone", "--json") == 0
    document = json.loads(capsys.readouterr().out)

    assert document["servers_used"] == 2
    assert "alone, for there is no model of it on silver-4110" in document["decisions"][0]["reasons"][0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("timeline", "--per-s", "-1"), "'--per-s': '-1' is not a number"),
        (("timeline", "--stay-s", "0"), "'--stay-s': '0' is not a number"),
        (("timeline", "--every-s", "0"), "'--every-s': '0' is not a number"),
        (("timeline", "--every-s", "5", "--threshold", "-1"), "'--threshold': '-1' is not a number"),
        (("timeline", "--every-s", "5", "--planner", "slomo-serch"), "did you mean 'slomo-search'"),
        (("timeline", "--policy", "octans"), "places chains with rates on NUMA nodes"),
        (("compare", "--policy", "octans", "--policy", "predicted"), "no common measure"),
        (("--policy", "numasp"), "did you mean 'numasfp'"),
    ],
)
def test_bad_options_over_time_end_with_exit_code_2(folder, capsys, words, says) -> None:
    """A wrong number or name is a message."""
    assert run(folder, *words) == 2
    assert says in capsys.readouterr().err


def test_documents_round_trip(folder, capsys) -> None:
    """What `slomo place --json` prints are decisions; a cluster and requests come back through their schemas."""
    assert run(folder, "--json") == 0
    printed = capsys.readouterr().out
    shown = json.loads(printed)["decisions"]
    cluster = Cluster.uniform(MACHINE, 2, cores_reserved=1, nic_sockets=(0, 1), llc_ways_usable=10)
    slo = SLO(min_share=0.5, p95_us=9.0, p99_us=20.0, kind="on-demand")
    request = Request("a", ("lpm", "stats@1500B,1000f"), slo, 3, ("b",), ("a",), 4)

    assert [Decision.from_dict(item).to_dict() for item in shown] == shown
    assert parse_cluster(json.dumps(cluster.to_dict())) == cluster
    assert parse_requests(json.dumps(requests_to_dict([request]))) == (request,)


def test_decisions_of_strangers_are_checked() -> None:
    """A decision without a server, on a negative core, or of another schema version is an error that says so."""
    item = {"server": "a", "socket": 0, "core": 0, "workload": "lpm"}
    decision = {"request": "r", "accepted": True, "policy": "predicted", "reasons": [], "refused": None}

    def parsed(**fields):
        return Decision.from_dict({**decision, "assignments": [item], **fields})

    assert parsed().servers == ("a",)
    with pytest.raises(ConfigurationError, match=r"assignments\.0\.core"):
        parsed(assignments=[{**item, "core": -1}])
    with pytest.raises(ConfigurationError, match="lacks the required field 'server'"):
        parsed(assignments=[{"socket": 0, "core": 0, "workload": "lpm"}])
    with pytest.raises(ConfigurationError, match="schema version 7"):
        parsed(schema_version=7)
