"""`slomo place` and the judge: one truth for all policies, JSON for machines, errors for people."""

import json
from dataclasses import replace

import pytest

from slomo.cli.main import main
from slomo.cli.verbs.place_output import show_prices
from slomo.errors import ConfigurationError, InvalidValueError
from slomo.models.library import ModelLibrary
from slomo.models.partition_profile import load_profiles, save_profiles
from slomo.models.responses.sensitivity import LinearSensitivity
from slomo.placement.online.placer import Placer
from slomo.placement.over_time.judge import Judge
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request, requests_to_dict
from slomo.placement.workloads import arrivals, numasfp_chains, resq_requests, slomo_requests
from slomo.records.run import Phase, RunRecord, TenantSample
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector
from slomo.workflow.place import PRICED, Priced, make_judge, place_at_price

MACHINE = "e5-2620v4"
FUNCTIONS = {"lpm": (5.0, 20.0, 0.002), "stats": (3.6, 30.0, 0.001), "firewall": (0.4, 1.0, 0.0)}


class Truth:
    """A testbed that is the hand-made models' formula; whoever owns cache ways runs at full speed."""

    def __init__(self, slower=1.0):
        self.runs, self.slower = 0, slower

    def run(self, colocation):
        self.runs += 1
        tenants = colocation.tenants
        total = sum(FUNCTIONS[item.nf][1] for item in tenants)
        samples = []
        for place, item in enumerate(tenants):
            solo, accesses, slope = FUNCTIONS[item.nf]
            alone = colocation.isolation is not None and colocation.isolation[place].llc_way_mask is not None
            mpps = self.slower * solo * (1.0 if alone else 1.0 - slope * (total - accesses))
            late = 15.0 if item.traffic.offered_mpps else 500.0
            samples.append(TenantSample(mpps, MetricVector({}, scope=Scope.CORE), latency_p95_us=late))
        phase = Phase(tuple(samples), MetricVector({}))
        alone_phase = phase if colocation.target is None else None
        return RunRecord(colocation, 0, alone_phase, None if alone_phase else phase, {})


def test_judge_counts_the_slos_that_break(library, ask) -> None:
    """Eight lpm on one server all break; three on a server do not; both by the same truth."""
    truth = Truth()
    judge = Judge(truth.run)
    judgements = {}
    for policy in ("first-fit", "predicted"):
        placer = Placer(library, Cluster.uniform(MACHINE, 6), policy)
        placer.place_all(ask(f"r{i}") for i in range(8))
        judgements[policy] = judge.judge(placer)

    assert (judgements["first-fit"].servers_used, judgements["first-fit"].violated_share) == (1, 1.0)
    assert (judgements["predicted"].servers_used, judgements["predicted"].violations) == (3, ())
    assert judgements["predicted"].anat == 1.0
    assert judgements["first-fit"].anat == pytest.approx((1 - 0.002 * 140) / 0.9)
    assert judgements["first-fit"].utilisation == 1.0
    assert judge.mixes_run == truth.runs == 3  # eight, three and two lpm


def test_judge_adds_instances_up_and_takes_a_chains_slowest_stage(library, cluster) -> None:
    """Replicas serve together; a chain serves what its slowest stage does."""
    placer = Placer(library, cluster)
    placer.admit(Request("wide", ("lpm",), SLO(min_mpps=12.0), replicas=4))
    placer.admit(Request("long", ("firewall", "lpm"), SLO(min_mpps=0.3)))
    judge = Judge(Truth(slower=0.7).run)
    verdict = judge.judge(placer)

    assert {item.request: item.promised for item in verdict.violations} == {"wide": 12.0, "long": 0.3}
    assert next(item.measured for item in verdict.violations if item.request == "long") == pytest.approx(0.28)


def test_judge_measures_latency_at_the_load_promised(library, profiles, cluster) -> None:
    """Latency is taken under the offered load, not under saturation; 15 us break a promise of 12 us only."""
    placer = Placer(library, cluster, profiles=profiles)
    placer.admit(Request("loose", ("lpm",), SLO(min_mpps=2.0, p95_us=20.0)))
    placer.admit(Request("tight", ("lpm",), SLO(min_mpps=2.0, p95_us=12.0)))

    assert [(item.request, item.what, item.measured) for item in Judge(Truth().run).judge(placer).violations] == [
        ("tight", "latency", 15.0)
    ]


def test_workloads_are_seeded_and_of_the_families_named() -> None:
    """The same seed draws the same requests; ResQ's families hold the classes of Table 1."""
    assert resq_requests("combination", 50, seed=3) == resq_requests("combination", 50, seed=3)
    assert resq_requests("combination", 50, seed=3) != resq_requests("combination", 50, seed=4)
    assert {request.label for request in resq_requests("sensitive")} == {"lpm", "mazunat", "snort", "stats"}
    assert len({request.label for request in resq_requests("combination")}) == 9
    assert {request.slo.min_share for request in slomo_requests()} == {0.75, 0.8, 0.85, 0.9, 0.95}
    assert all(1.0 <= rate <= 10.0 for chain in numasfp_chains() for rate in chain.gbps)
    events = arrivals(resq_requests("sensitive", 20), seed=1)
    assert [event.time_s for event in events] == sorted(event.time_s for event in events)
    assert sum(event.arrives for event in events) == 20


@pytest.fixture
def folder(library, tmp_path):
    """Save the hand-made models, a cluster and requests as files."""
    saved = []
    for model in library.values():
        solo, _, slope = FUNCTIONS[model.workload.nf]
        line = LinearSensitivity("dobrescu", ("L2MISS",), "solo", solo, -slope * solo)
        calibration = {"dobrescu": model.calibration["dobrescu"]}
        saved.append(replace(model, sensitivity={"dobrescu": line}, calibration=calibration))
    ModelLibrary(saved).save(tmp_path / "models")
    (tmp_path / "c.yaml").write_text(f"servers: [{{name: rack, machine: {MACHINE}, count: 3}}]\n")
    requests = [Request(f"r{i}", ("lpm",), SLO(min_share=0.9)) for i in range(4)]
    (tmp_path / "r.json").write_text(json.dumps(requests_to_dict(requests)))
    return tmp_path


def run(folder, *words):
    files = [str(folder / "c.yaml"), str(folder / "r.json")]
    return main(["place", *words, *files, "--models", str(folder / "models"), "--model", "dobrescu"])


def test_place_prints_decisions_as_json(folder, capsys) -> None:
    """`slomo place CLUSTER REQUESTS --json` is one document with a decision per request."""
    assert run(folder, "--json") == 0
    document = json.loads(capsys.readouterr().out)

    assert document["servers_used"] == 2
    assert [item["accepted"] for item in document["decisions"]] == [True] * 4
    assert document["decisions"][0]["assignments"][0]["server"] == "rack-1"


def test_refused_requests_end_with_exit_code_5(folder, capsys) -> None:
    """What fits is placed, what does not is named with the best there was, and the exit code says so."""
    requests = [Request("a", ("lpm",), SLO(min_share=0.9)), Request("b", ("lpm",), SLO(min_mpps=99.0))]
    (folder / "r.json").write_text(json.dumps(requests_to_dict(requests)))
    assert run(folder) == 5
    printed = capsys.readouterr()

    assert "refused: b: throughput of 'b' (lpm@64B,100000f) on e5-2620v4: needed 99, at best 5 Mpps" in printed.err
    assert "rack-1/0" in printed.out


@pytest.mark.parametrize(("promised", "code"), [(0.9, 1), (1e-3, 0)])
def test_slos_broken_in_simulation_end_with_exit_code_1(folder, capsys, promised, code) -> None:
    """`--check` is a check: its exit code tells of broken SLOs, and those that are not listed are counted."""
    requests = [Request(f"r{i}", ("stats",), SLO(min_mpps=3.6 * promised)) for i in range(7)]
    (folder / "r.json").write_text(json.dumps(requests_to_dict(requests)))
    simulated = Judge(Truth(slower=0.5).run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slomo.cli.verbs.place._judge", lambda *_: simulated)
        assert run(folder, "--policy", "first-fit", "--check") == code
    assert ("broken under first-fit: and 2 more (--json lists all)" in capsys.readouterr().err) == bool(code)


def test_table_shows_what_replicas_serve_together(folder, capsys) -> None:
    """`min_share` is of one instance and for all together, so the table has both numbers."""
    asked = Request("wide", ("lpm",), SLO(min_share=2.7), replicas=3, min_replicas=3)
    (folder / "r.json").write_text(json.dumps(requests_to_dict([asked])))
    assert run(folder) == 0
    head, *rows = capsys.readouterr().out.splitlines()

    assert "all instances [Mpps]" in head
    assert len(rows) == 3
    assert all("4.50" in row and "13.50" in row for row in rows)


def test_snapshot_of_the_command_line_can_be_restored(folder) -> None:
    """`--snapshot FILE` writes what `Placer.restore` reads."""
    assert run(folder, "--snapshot", str(folder / "s.json")) == 0
    placer = Placer(
        ModelLibrary.load(folder / "models"),
        Cluster.from_dict({"servers": [{"name": "rack", "machine": MACHINE, "count": 3}]}),
        model="dobrescu",
    )
    placer.restore(json.loads((folder / "s.json").read_text()))

    assert len(placer.requests) == 4


@pytest.mark.parametrize(
    ("policy", "slo", "noted"),
    [
        ("predicted", SLO(min_share=0.5), True),
        ("first-fit", SLO(min_share=0.5), True),
        ("predicted", SLO(min_share=0.5, p99_us=900.0), False),
        ("predicted", SLO(kind="on-demand"), False),
        ("slomo-search", SLO(min_share=0.5), False),
        ("resq-greedy", SLO(min_share=0.5), False),
    ],
)
def test_profiles_that_a_policy_does_not_read_are_noted(folder, profiles, capsys, policy, slo, noted) -> None:
    """`--profiles` for a policy that gives no ways is noted on stderr, unless a request's SLO needs the profile."""
    save_profiles(profiles, folder / "p.json")
    (folder / "r.json").write_text(json.dumps(requests_to_dict([Request("a", ("lpm",), slo)])))
    run(folder, "--policy", policy, "--profiles", str(folder / "p.json"), "--snapshot", str(folder / "s.json"))
    placed = capsys.readouterr().err
    words = ("--models", str(folder / "models"), "--profiles", str(folder / "p.json"))
    assert main(["place", "change", str(folder / "s.json"), "at-risk", *words]) == 0
    changed = capsys.readouterr().err

    expected = f"policy {policy} gives no cache ways by --profiles (slomo-search, resq-greedy, resq-milp do)"
    assert [expected in said for said in (placed, changed)] == [noted, noted]


def test_profiles_that_a_policy_for_chains_does_not_read_are_noted(folder, profiles, capsys) -> None:
    """Of the policies for chains on NUMA nodes only `numasfp` reads `--profiles`."""
    save_profiles(profiles, folder / "p.json")
    (folder / "r.json").write_text('{"requests": [{"id": "web", "chain": ["lpm"], "gbps": [1]}]}')
    for policy, noted in (("octans", True), ("numasfp", False)):
        run(folder, "--policy", policy, "--profiles", str(folder / "p.json"))
        assert (f"policy {policy} does not read --profiles; numasfp does" in capsys.readouterr().err) == noted


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--policy", "prdicted"), "did you mean 'predicted'"),
        (("--confidence", "2"), "'--confidence': '2' is not a number from 0 to 1"),
        (("--profiles", "nowhere.json"), "nowhere.json"),
        (("compare", "--policy", "firstfit"), "did you mean 'first-fit'"),
    ],
)
def test_bad_options_end_with_exit_code_2(folder, capsys, words, says) -> None:
    """A wrong option is a message, not a traceback."""
    assert run(folder, *words) == 2
    assert says in capsys.readouterr().err


def test_unknown_network_function_in_a_file_is_named(folder, capsys) -> None:
    """A slip in a requests file is answered with the name meant."""
    (folder / "r.json").write_text('{"requests": [{"id": "a", "nf": "lpn"}]}')
    assert run(folder) == 2
    assert "did you mean 'lpm'" in capsys.readouterr().err


@pytest.mark.slow
def test_policies_are_compared_by_one_truth(folder, capsys) -> None:
    """`compare --json --report` judges every policy on the simulator, and writes a page."""
    names = ("--policy", "first-fit", "--policy", "predicted")
    assert run(folder, "compare", *names, "--json", "--report", str(folder / "p.html")) == 0
    document = json.loads(capsys.readouterr().out)

    assert [item["policy"] for item in document["policies"]] == ["first-fit", "predicted"]
    assert document["policies"][0]["servers_used"] == 1
    assert (folder / "p.html").read_text().count("data:image/svg+xml") == 1


@pytest.mark.slow
def test_profiles_are_measured_on_the_simulator(folder, capsys) -> None:
    """`slomo place profiles` writes curves that rise with the ways, and latencies that rise with the load."""
    assert main(["place", "profiles", "lpm", "--machine", MACHINE, "--out", str(folder / "p.json")]) == 0
    (profile,) = load_profiles(folder / "p.json")
    (response,) = profile.responses.values()
    rates = [mpps for _, mpps in response.curve]

    assert len(rates) <= 12
    assert rates[-1] > rates[0]
    assert [row[1] for row in response.latency] == sorted(row[1] for row in response.latency)
    assert load_profiles(save_profiles([profile], folder / "q.json")) == (profile,)


def test_workload_command_writes_requests(folder) -> None:
    """`slomo place workload sensitive` writes what `slomo place` reads."""
    assert main(["place", "workload", "sensitive", "--count", "3", "--out", str(folder / "r.json")]) == 0
    assert len(json.loads((folder / "r.json").read_text())["requests"]) == 3


@pytest.mark.parametrize(("count", "told"), [(1, "1 request in"), (2, "2 requests in")])
def test_one_thing_is_told_in_the_singular(folder, capsys, count, told) -> None:
    """A message counts one request, and more than one, as people write them."""
    assert main(["place", "workload", "sensitive", "--count", str(count), "--out", str(folder / "r.json")]) == 0

    assert capsys.readouterr().err.startswith(told)


def test_method_is_chosen_on_the_command_line(folder, capsys) -> None:
    """Decisions name the model that composed; the equilibrium uses none, so `--model` beside it is refused."""
    for method in ("auto", "composed"):
        assert run(folder, "--method", method, "--json") == 0
        assert {item["model"] for item in json.loads(capsys.readouterr().out)["decisions"]} == {"dobrescu"}
    assert run(folder, "--method", "equilibrium") == 2
    assert "model is 'dobrescu', but method 'equilibrium'" in capsys.readouterr().err


def test_a_snapshot_is_changed_from_the_command_line(folder, capsys) -> None:
    """A drain is said with --what-if, then done and written back; one that cannot be done ends in 5."""
    path = folder / "s.json"
    assert run(folder, "--snapshot", str(path), "--stats") == 0
    before = path.read_bytes()

    def changed(*words):
        return main(["place", "change", str(path), *words, "--models", str(folder / "models")])

    assert changed("drain", "rack-1", "--what-if") == 0
    assert path.read_bytes() == before
    assert changed("drain", "rack-1", "--max-moves", "1") == 5
    assert changed("cordon", "rack-1", "--max-moves", "1") == 2
    assert path.read_bytes() == before
    assert changed("drain", "rack-1") == 0
    servers = {piece["server"] for item in json.loads(path.read_text())["placed"] for piece in item["pieces"]}
    assert "rack-1" not in servers
    assert changed("at-risk") == 0
    assert "promises, none at risk: done" in capsys.readouterr().err
    assert changed("at-risk", "rack-1") == 2
    for action, flag, *value in (
        (("at-risk",), "--taint", "a"),
        (("reoptimise",), "--no-surge"),
        (("uncordon", "rack-1"), "--threshold", "0.3"),
        (("fail", "rack=r1"), "--cost-per-move", "1"),
    ):
        assert changed(*action, flag, *value) == 2
        assert f"change '{action[0]}' takes no option {flag}" in capsys.readouterr().err
    assert changed("drain", "rack-1", "--no-surge") == 2
    assert "it takes --max-moves" in capsys.readouterr().err
    newcomer = folder / "newcomer.yaml"
    newcomer.write_text("requests: [{id: newcomer, chain: [lpm], slo: {min_share: 0.5}}]\n")
    assert changed("reoptimise", str(newcomer)) == 0
    assert "newcomer" in [item["request"]["id"] for item in json.loads(path.read_text())["placed"]]
    before = path.read_bytes()
    newcomer.write_text("requests: [{id: x, nf: lpm, slo: {min_share: 0.5}}, {id: y, nf: lpm, slo: {min_mpps: 9}}]\n")
    assert changed("preempt", str(newcomer)) == 5
    assert path.read_bytes() == before
    assert changed("cordon", "rack-9") == 2
    assert "unknown server 'rack-9'" in capsys.readouterr().err


def test_a_judge_of_another_machine_of_the_same_name_refuses(library, ask) -> None:
    """Mixes placed on one e5-2620v4 are not judged on another: no number of the wrong machine is reported."""
    small = replace(load_machine(MACHINE), llc_mib=2.0)
    placer = Placer(library, Cluster.uniform(MACHINE, 2), "first-fit")
    placer.place_all([ask("a")])

    with pytest.raises(ConfigurationError, match="another machine 'e5-2620v4'"):
        make_judge(machines=[small]).judge(placer)


def test_a_price_chooses_the_confidence(make_library, ask) -> None:
    """Where a broken server costs nothing the fewest servers are taken; where it costs much, those that hold."""
    library, cluster = make_library(spread=0.02), Cluster.uniform(MACHINE, 8)
    requests = [ask(f"r{i}", share=0.9) for i in range(8)]
    placed = {}
    for price in (0.0, 1000.0):
        placer, priced = place_at_price(cluster, requests, library, price_per_broken=price)
        best = next(each for each in priced if each.confidence == placer.settings.confidence)
        assert best.cost == min(each.cost for each in priced) == pytest.approx(best.servers + price * best.broken)
        assert best.broken == pytest.approx(sum(placer.breaking().values()))
        placed[price] = best
    assert placed[0.0].servers == min(each.servers for each in priced)
    assert placed[1000.0].broken == min(each.broken for each in priced)
    assert placed[0.0].broken >= placed[1000.0].broken


def test_a_price_is_refused_beside_a_confidence(library, cluster, ask) -> None:
    """A price below 0, a confidence of one's own and a policy that predicts nothing are refused by name."""
    for options, message in (
        ({"price_per_broken": -1.0}, "price_per_broken"),
        ({"price_per_broken": 1.0, "confidence": 0.9}, "the price chooses"),
        ({"price_per_broken": 1.0, "policy": "first-fit"}, "first-fit"),
    ):
        with pytest.raises(InvalidValueError, match=message):
            place_at_price(cluster, [ask("r")], library, **options)


def test_the_command_shows_what_each_confidence_costs(folder, capsys) -> None:
    """`--price-per-broken` prints the cost of every confidence, and is refused beside `--confidence`."""
    assert run(folder, "--price-per-broken", "2", "--json") == 0
    priced = json.loads(capsys.readouterr().out)["priced"]
    assert [each["confidence"] for each in priced] == list(PRICED)
    assert all(each["cost"] == pytest.approx(each["servers"] + 2 * each["broken"]) for each in priced)
    assert run(folder, "--price-per-broken", "2", "--confidence", "0.9") == 2
    assert "the price chooses the confidence" in capsys.readouterr().err
    show_prices([Priced(confidence, 8, 3.0, 0.0, 3.0) for confidence in PRICED], 0.995)
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert shown == [f"{confidence:g}" for confidence in PRICED]
