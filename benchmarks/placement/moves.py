"""What moves buy: servers in use between "admit only" and "plan afresh", as the budget of moves grows.

Tenants come and go; every ten minutes the cluster is re-optimised with a budget, a share of the tenants that run. Each
line has the servers in use beside what a plan from nothing takes at the same moments, the tenants moved per hour, and
throughput served of throughput promised (ANAT), less an outage per move.

    python benchmarks/placement/prepare.py DIR --machine e5-2620v4 ...
    python benchmarks/placement/moves.py DIR --seed 11 --json moves.json
    python benchmarks/placement/moves.py --seed 31 --draws 3 --share 0.05 --churn 0.05 --tenants 150 --hours 1.5 --batch
        three functions made by hand; a twentieth of the tenants leaves per tick, as many come and are placed together;
        with --together in place of --batch they are planned together with the moves

"bound": fewest servers that any plan with so many moves reaches from where the cluster stands, averaged like servers.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from slomo.models.library import ModelLibrary
from slomo.placement.online.placer import Placer
from slomo.placement.over_time.reoptimise import reoptimise
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request
from slomo.placement.workloads import Event, arrivals
from slomo.workflow.place import make_judge
from tests.placement.conftest import FUNCTIONS, nf_model

#: Shares of the tenants that may move at each re-optimisation; None for any number.
BUDGETS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, None)
#: What a move costs in servers, without a budget.
COSTS = (0.05, 0.1, 0.2, 0.5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?", help="what prepare.py wrote")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--draws", type=int, default=1, help="seeds from --seed on, averaged")
    parser.add_argument("--tenants", type=int, default=100, help="present on average")
    parser.add_argument("--hours", type=float, default=3.0)
    parser.add_argument("--stay-h", type=float, default=1.0, help="mean time a tenant stays")
    parser.add_argument("--churn", type=float, help="share of the tenants that leaves and comes per tick, not --stay-h")
    parser.add_argument("--batch", action="store_true", help="place those who come in one tick together")
    parser.add_argument("--together", action="store_true", help="plan those who come together with the moves")
    parser.add_argument("--every-s", type=float, default=600.0)
    parser.add_argument("--outage-s", type=float, default=1.0, help="for which a moved tenant serves nothing")
    parser.add_argument("--share", type=float, action="append", help="budget of a tick, repeatable; many by default")
    parser.add_argument("--check", action="store_true", help="judge what is placed at the end")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    by_hand = given.directory is None
    library = (
        ModelLibrary([nf_model(nf) for nf in FUNCTIONS]) if by_hand else ModelLibrary.load(given.directory / "models")
    )
    draws = [comings_and_goings(library, given, given.seed + draw) for draw in range(given.draws)]
    lines = [("admit only" if share == 0.0 else "plan afresh" if share is None else f"{share:.0%} a tick", share, 0.0)
             for share in given.share or BUDGETS]  # fmt: skip
    lines += [] if given.share else [(f"{cost:g} servers a move", None, cost) for cost in COSTS]
    print(
        f"{'budget':20}{'servers':>9}{'afresh':>8}{'bound':>8}{'over':>8}{'moved/h':>9}{'outage':>9}{'broken':>8}",
        flush=True,
    )
    rows = []
    for name, share, cost in lines:
        row = {"budget": name, **averaged([played(library, events, given, share, cost) for events in draws])}
        over = f"{100 * row['over']:7.1f}%{100 * row['moved_per_hour']:8.1f}%{100 * row['outage']:8.3f}%"
        print(
            f"{name:20}{row['servers']:9.1f}{row['afresh']:8.1f}{row['bound']:8.1f}{over}{row['broken']:>8}", flush=True
        )
        rows.append(row)
    if given.json:
        given.json.write_text(json.dumps({"seed": given.seed, "rows": rows}, indent=1) + "\n")
    return 0


def averaged(rows: list[dict]) -> dict:
    """Return the means over draws, and how many servers more than afresh there are in all of them."""
    row = {name: float(np.mean([each[name] for each in rows])) for name in rows[0] if name != "broken"}
    return {**row, "over": row["servers"] / row["afresh"] - 1.0, "broken": ", ".join(each["broken"] for each in rows)}


def comings_and_goings(library: ModelLibrary, given: argparse.Namespace, seed: int) -> list[Event]:
    machine = library.machines[0]
    nfs = sorted({key.split("@")[0] for key in library.workloads(machine) if not key.startswith("synthetic")})
    generator = np.random.default_rng(seed)
    per_s = given.tenants / (3600.0 * given.stay_h)
    ticks = int(3600.0 * given.hours / given.every_s)
    new = given.tenants + ticks * int((given.churn or 0.0) * given.tenants)
    count = int(3600.0 * given.hours * per_s) if given.churn is None else new
    drawn = zip(generator.choice(nfs, size=count).tolist(), generator.choice([0.7, 0.8, 0.9], size=count).tolist(),
                strict=True)  # fmt: skip
    requests = [Request(f"r{i}", nf, SLO(min_share=share)) for i, (nf, share) in enumerate(drawn)]
    if given.churn is not None:
        return replaced(requests, generator, given)
    return list(arrivals(requests, per_s=per_s, mean_stay_s=3600.0 * given.stay_h, seed=seed))


def replaced(requests: list[Request], generator: np.random.Generator, given: argparse.Namespace) -> list[Event]:
    """Return events: all arrive, then a share leaves and as many come right before each tick."""
    present, waiting = requests[: given.tenants], requests[given.tenants :]
    events = [Event(0.0, arrives=True, request=request) for request in present]
    some, tick = int(given.churn * given.tenants), given.every_s
    while waiting[:some] and some:
        leave = {int(number) for number in generator.choice(len(present), some, replace=False)}
        events += [Event(tick, arrives=False, request=present[number]) for number in sorted(leave)]
        events += [Event(tick, arrives=True, request=request) for request in waiting[:some]]
        present = [request for number, request in enumerate(present) if number not in leave] + waiting[:some]
        waiting, tick = waiting[some:], tick + given.every_s
    return events


def played(
    library: ModelLibrary, events: list[Event], given: argparse.Namespace, share: float | None, cost: float
) -> dict:
    """Play one budget; servers are averaged over the ticks of the second half, when the cluster is full."""
    machine, end = library.machines[0], 3600.0 * given.hours
    placer, again = (Placer(library, Cluster.uniform(machine, given.tenants)) for _ in range(2))
    used, fresh, bounds, moved, present, placed_s = [], [], [], 0, [], 0.0
    tick, queue = given.every_s, [event for event in events if event.time_s <= end]
    while tick <= end:
        due, queue = [e for e in queue if e.time_s <= tick], [e for e in queue if e.time_s > tick]
        come = happen(placer, due, batch=given.batch, together=given.together)
        reached = None
        if share != 0.0:
            most = None if share is None else int(share * (len(placer.requests) + len(come)))
            done = reoptimise(placer, 0.0, max_moves=most, cost_per_move=cost, max_share=1.0, arriving=come)
            moved, reached = moved + len(done.moves), done.lower_bound
        present.append(len(placer.requests))
        placed_s += len(placer.requests) * given.every_s
        if tick > end / 2:
            for request in again.requests:
                again.remove(request.id)
            again.place_all(placer.requests)
            used.append(placer.servers_used)
            fresh.append(again.servers_used)
            bounds.append(placer.servers_used if reached is None else reached)  # None: nothing to gain by moves
        tick += given.every_s
    broken = "-"
    if given.check:
        judged = make_judge().judge(placer)
        broken = f"{len({item.request for item in judged.violations})}/{judged.placed}"
    return {
        "servers": float(np.mean(used)), "afresh": float(np.mean(fresh)), "bound": float(np.mean(bounds)),
        "moved_per_hour": moved / float(np.mean(present)) / given.hours,
        "outage": moved * given.outage_s / placed_s, "broken": broken,
    }  # fmt: skip


def happen(placer: Placer, events: list[Event], *, batch: bool, together: bool) -> list[Request]:
    """Let tenants go and come, in order; return those who wait for a common plan.

    With `batch`, those who come are placed together after the others went; with `together`, they wait.
    """
    for event in events:
        if not event.arrives and event.request.id in {request.id for request in placer.requests}:
            placer.remove(event.request.id)
        elif event.arrives and not batch and not together:
            placer.admit(event.request)
    gone = {event.request.id for event in events if not event.arrives}
    come = [event.request for event in events if event.arrives and event.request.id not in gone]
    if batch and come:
        placer.place_all(come)
    return come if together else []


if __name__ == "__main__":
    sys.exit(main())
