"""Is `confidence` a probability: servers that are full break as often as was asked, on machines nothing was set on.

Every machine is profiled as a user would (`slomo profile`, plan `all`), and requests of many different SLOs are placed
at each confidence. Full servers, on which no other request of the batch would fit, are run by the simulator; equal
tenants of a server count by their mean, as what they differ by is the run's scatter. "expected" is what
`Placer.breaking` says of them; "at the edge" promises each tenant of these servers exactly what the verdict counts on;
"surely" counts those of them that miss it by more than two standard errors of the run; "no core left" are full servers
of which every core is taken, and "edge, no core left" those of them that break at the edge. Then one batch at 90 % is
packed, and packed again with the simulator itself as predictor (`oracle.py`), with the judge's tolerance and without:
how many servers too many. With --measure N, the N mixes that `worth_measuring` names are run three times each, models
trained again, and the batch packed once more.

    python benchmarks/placement/knob.py --shipped        shipped calibration mixes, parts of them left out
    python benchmarks/placement/knob.py DIR --machine benchmarks/placement/machines/six-cores.yaml --seed 4711
    python benchmarks/placement/knob.py DIR --machine FILE --seed 4711 --ten --packed-mixes 60    as documented

Targets: asked 5, 10 and 20 %, found 3 to 7, 7 to 13, 15 to 25; at most 1.05 of the oracle's servers (60 runs: 1.10).
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
from oracle import TOLERANCE, Truth, oracle

from slomo.equilibrium.server import solve_joint
from slomo.models.library import ModelLibrary
from slomo.placement.feasibility.bounds import different_in, lower_mpps
from slomo.placement.feasibility.mixes import tenants_of
from slomo.placement.online.placer import Placer
from slomo.placement.over_time.worth_measuring import worth_measuring
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request
from slomo.profiling.plans.basic import STREAMS
from slomo.records.dataset import ProfileDataset
from slomo.records.storage import load_dataset
from slomo.training.calibration import calibrated_on, mix_rows
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload_text import parse_workload
from slomo.workflow.profile import profile
from slomo.workflow.train import train

CONFIDENCES = (0.95, 0.9, 0.8)
FOUND = {0.95: (3.0, 7.0), 0.9: (7.0, 13.0), 0.8: (15.0, 25.0)}
#: What is counted of full servers at each confidence.
COUNTED = ("full", "expected", "broken", "edge", "surely", "no core left", "edge, no core left")
#: From the seed of a batch of requests to that of the next.
BETWEEN = 70_000
#: Standard errors of a run beyond which a promise is surely missed.
SURE = 2.0
FOLDER = Path(__file__).parents[2] / "datasets"
FUNCTIONS = ("ip-router", "maglev", "mazunat", "flowstats", "snort")
#: What --ten sets, as in the tables of docs/concepts/placement.md.
TEN = {
    "nf": [*FUNCTIONS, "lpm", "stats", "ipsec", "efficuts", "pfsense"],
    "mixes": 200, "requests": 4000, "batches": 2, "servers": 400,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?", help="keeps runs and models")
    parser.add_argument("--shipped", action="store_true", help="run nothing")
    parser.add_argument("--machine", action="append", default=[], help="name or YAML file, repeatable")
    parser.add_argument("--nf", action="append", help="network function, repeatable")
    parser.add_argument("--runs", type=int, default=60, help="per network function")
    parser.add_argument("--mixes", type=int, default=120, help="that calibrate")
    parser.add_argument("--packed-mixes", type=int, default=0, help="further ones, as placement fills servers")
    parser.add_argument("--stream", choices=STREAMS, default="calibration", help="half of all mixes that calibrates")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--batches", type=int, default=1, help="of requests; their full servers count together")
    parser.add_argument("--ten", action="store_true", help="ten functions, 200 mixes, two batches of 4,000 requests")
    parser.add_argument("--servers", type=int, default=50, help="different ones to run, at each confidence")
    parser.add_argument("--packed", type=int, default=0, help="requests to pack with the simulator as predictor, too")
    parser.add_argument("--measure", type=int, default=0, help="mixes to measure for the packed batch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    if parser.parse_known_args()[0].ten:
        parser.set_defaults(**TEN)
    given = parser.parse_args()
    if given.shipped:
        for name in ("slomo-e5-2620v4", "slomo-silver-4110"):
            left_out(name)
        return 0
    rows = []
    for machine in given.machine:
        rows.append(judged(machine, models(machine, given), given))
        if given.json:
            given.json.write_text(json.dumps({"seed": given.seed, "rows": rows}, indent=1) + "\n")
    print(f"\n{'asked':>6} {'servers':>8} {'expected':>9} {'as placed':>10} {'at the edge':>12} {'surely':>7}")
    for confidence in CONFIDENCES:
        names = ("full", "expected", "broken", "edge", "surely")
        full, *counts = (sum(row[str(confidence)][name] for row in rows) for name in names)
        if not full:
            print(f"{100.0 * (1.0 - confidence):5.0f}%        0 full servers: more --requests are needed")
            continue
        expected, found, edge, surely = (100.0 * count / full for count in counts)
        off = "" if FOUND[confidence][0] <= edge <= FOUND[confidence][1] else " OFF"
        asked = 100.0 * (1.0 - confidence)
        print(f"{asked:5.0f}% {full:8.0f} {expected:8.1f}% {found:9.1f}% {edge:11.1f}% {surely:6.1f}%{off}")
        print("       at the edge by machine: " + ", ".join(by_machine(row, confidence) for row in rows))
    return 0


def by_machine(row: dict, confidence: float) -> str:
    """Say what broke at the edge on one machine, and by how much that scatters where every probability is exact.

    Both the servers that are run and the mixes that calibrated are a draw.
    """
    counts = row[str(confidence)]
    scatter = (confidence * (1.0 - confidence) * (1.0 / max(counts["full"], 1) + 1.0 / row["mixes"])) ** 0.5
    return f"{row['machine']} {100.0 * counts['edge'] / max(counts['full'], 1):.0f} ± {100.0 * scatter:.0f} %"


def left_out(name: str, draws: int = 15) -> None:
    """Calibrate on a part of a dataset's mixes, promise the others what the bounds say, count broken servers."""
    dataset = load_dataset(FOLDER / name)
    library = train(dataset.select(plan=["solo", "pressure"]))  # mixes are learned, too
    models = list(library.values())
    rows = mix_rows(dataset, models, library.machines[0]).saturated()
    members = np.column_stack([rows.target, rows.members])
    mpps = solve_joint(models, members, np.full(members.shape, np.nan)).throughput_mpps
    run = np.unique(np.sort(members, axis=1), axis=0, return_inverse=True)[1].ravel()
    solo = np.array([model.solo_mpps for model in models])
    for share in (0.5, 0.8):
        found: dict[float, list[float]] = {confidence: [] for confidence in CONFIDENCES}
        for draw in range(draws):
            known = np.random.default_rng(100 + draw).permutation(run.max() + 1) < share * (run.max() + 1)
            kept = known[run]
            made = calibrated_on(models, rows.chosen(kept), mpps[kept, 0])
            for confidence, broken in found.items():
                there = members[~kept]
                low = lower_mpps(made, solo, there, mpps[~kept], confidence, different_in(there))[:, 0]
                short = run[~kept][rows.mpps[~kept] < low]
                broken.append(100.0 * len(np.unique(short)) / (~known).sum())
        told = ", ".join(f"asked {1 - c:.0%} found {np.mean(each):.1f} %" for c, each in found.items())
        print(f"{name}, {share:.0%} of {run.max() + 1} mixes calibrate: {told}", flush=True)


def models(machine: str, given: argparse.Namespace) -> ModelLibrary:
    """Profile and train, going on where that stopped."""
    folder = given.directory / f"{load_machine(machine).name}-{given.runs}"
    if not (folder / "models").exists():
        train(profiled(machine, given), seed=given.seed).save(folder / "models")
    return ModelLibrary.load(folder / "models")


def profiled(machine: str, given: argparse.Namespace) -> ProfileDataset:
    """Profile, going on where that stopped."""
    folder = given.directory / f"{load_machine(machine).name}-{given.runs}"
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.process_time()
    dataset = profile(
        list(given.nf or FUNCTIONS), machine=machine, runs=given.runs, mixes=given.mixes, stream=given.stream,
        packed_mixes=given.packed_mixes,
        store=folder / "profile.sqlite", jobs=1, seed=given.seed,
    )  # fmt: skip
    print(f"{machine}: {len(dataset)} rows, {time.process_time() - begun:.0f} s of CPU", file=sys.stderr)
    return dataset


def judged(machine: str, library: ModelLibrary, given: argparse.Namespace) -> dict:
    """Place at each confidence, run full servers; pack one batch by the truth."""
    host = load_machine(machine)
    name, truth = host.name, Truth(machines=[host])
    batches = [drawn(given, given.seed + number * BETWEEN) for number in range(given.batches)]
    row: dict = {"machine": name, "runs": given.runs, "mixes": given.mixes}
    for confidence in CONFIDENCES:
        counted, used = dict.fromkeys(COUNTED, 0.0), 0
        seen: set[tuple] = set()
        for requests in batches:
            placer = Placer(library, Cluster.uniform(machine, given.requests), "predicted", confidence=confidence)
            placer.place_all(requests)
            used += placer.servers_used
            count_broken(placer, truth, given.servers, counted, seen)
        row[str(confidence)] = {"servers_used": used, **counted}
        print(f"{name:20} asked {1 - confidence:.0%}: {row[str(confidence)]}", flush=True)
    nfs = [request.chain[0].nf for request in batches[0]]
    if given.packed:
        row["packed"], placer = packed(machine, library, truth, nfs[: given.packed])
        print(f"{name:20} {row['packed']}", flush=True)
        told = worth_measuring(placer, given.measure) if given.measure else None
        if told and told.mixes:
            named = [each.mix for each in told.mixes]
            more = profile([], machine=machine, plan="mixes", mixes=named, replicates=3, seed=given.seed)
            learned = train(profiled(machine, given).merge(more), seed=given.seed)
            row["measured"], _ = packed(machine, learned, truth, nfs[: given.packed])
            print(f"{name:20} {told.text}; then {row['measured']}", flush=True)
    return row


def drawn(given: argparse.Namespace, seed: int) -> list[Request]:
    """Draw requests."""
    generator = np.random.default_rng([seed, 0x6B6E6F])
    nfs = [str(nf) for nf in generator.choice(list(given.nf or FUNCTIONS), given.requests)]
    shares = generator.integers(70, 98, given.requests) / 100.0
    asked = enumerate(zip(nfs, shares, strict=True))
    return [Request(f"r{i}", nf, SLO(min_share=float(share))) for i, (nf, share) in asked]


def count_broken(placer: Placer, truth: Truth, most: int, counted: dict[str, float], seen: set[tuple]) -> None:
    """Run full servers with neighbours whose mix was not `seen`; count those that break: as placed, and at the edge."""
    state, judge = placer._core.state, placer.policy.oracle
    classes = {number for place in state.sockets for number in place.signature}
    layout, risk = placer.layout(), placer.breaking()
    used = {
        tuple(
            sorted(tenants_of(state.pieces.of(place.signature)))
        ): place  # equal mixes err alike, whatever is promised
        for place in state.sockets
        if len(place.cores) > 1
    }
    for mix, place in used.items():
        if counted["full"] == most:
            break
        if mix in seen or any(judge.holding(place.host, piece, [place.signature], hopeful=False) for piece in classes):
            continue
        name = state.servers[place.server].name
        items = [item for item in layout[name] if item.socket == place.socket]
        rates = truth.means(place.host.machine, [parse_workload(item.workload) for item in items])
        short = [(item.low_mpps - rates[item.workload][0]) / rates[item.workload][1] for item in items]
        seen.add(mix)
        no_core = len(place.cores) == place.host.cores
        counted["full"] += 1
        counted["no core left"] += no_core
        counted["expected"] += risk[name]
        counted["broken"] += any(rates[item.workload][0] < item.needed_mpps for item in items)
        counted["edge"] += max(short) > 0.0
        counted["edge, no core left"] += no_core and max(short) > 0.0
        counted["surely"] += max(short) > SURE


def packed(machine: str, library: ModelLibrary, truth: Truth, nfs: list[str]) -> tuple[dict[str, object], Placer]:
    """Return the servers that one batch at 90 % takes, how many break, and the fewest that the simulator would."""
    requests = [Request(f"p{i}", nf, SLO(min_share=0.9)) for i, nf in enumerate(nfs)]
    placer = Placer(library, Cluster.uniform(machine, len(nfs)), "predicted")
    placer.place_all(requests)
    host = load_machine(machine)
    kind, best = (host.name, host.cores_per_socket), {}
    for truth.tolerance in (TOLERANCE, 0.0):
        best[truth.tolerance] = oracle(
            truth, requests, {kind: len(nfs)}, lambda name, r: 0.9 * truth.solo(name, r.chain[0])
        )
    used, broken = placer.servers_used, 0
    for items in placer.layout().values():
        rates = truth.rates(host.name, [parse_workload(item.workload) for item in items])
        broken += len(items) > 1 and any(rates[item.workload] < item.needed_mpps for item in items)
    ratios = {f"over the oracle at {each:.1%}": round(used / servers, 3) for each, servers in best.items()}
    return {"servers": used, "broken": broken, **ratios}, placer


if __name__ == "__main__":
    sys.exit(main())
