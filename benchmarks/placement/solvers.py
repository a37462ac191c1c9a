"""Side by side on the same instances and time limit: HiGHS on the assignment program, OR-Tools CP-SAT, and mixes.

Pieces own (cores, ways) on servers of 20 ways x 12 cores, about three options each, as in scale.py. HiGHS and CP-SAT
decide per instance, option and server, on a quarter more servers than the first plan needs, as best fit did. OR-Tools
comes with the extra `bench`.

    python benchmarks/placement/solvers.py --size 50 --size 200 --limit 20
"""

import argparse
import sys
import time

import numpy as np
from scale import HOST, column, first_plan, options

from slomo.placement.planning.pricing import Item, Knapsack
from slomo.placement.policies.search import cover

KINDS = 12


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, action="append", help="instances, repeatable; 50 and 200 by default")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds for each")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(
        f"{'instances':>9}  {'bound':>5}  {'first plan':>10}  {'mixes':>14}  {'HiGHS':>16}  {'CP-SAT':>16}   "
        "servers, seconds"
    )
    for size in given.size or (50, 200):
        generator = np.random.default_rng(given.seed)
        table = options(KINDS, generator)
        drawn = generator.integers(0, KINDS, size).tolist()
        demand = np.bincount(drawn, minlength=KINDS)
        items = [Item(4 * k + o, k, *steps[o]) for k, steps in enumerate(table) for o in range(len(steps))]
        knapsack = Knapsack(HOST, items, KINDS)
        packed = first_plan(table, demand, knapsack)
        klass = {item.piece: item.klass for item in items}
        start = [column(mix, klass, KINDS) for mix in [*packed, *((4 * k,) for k in range(KINDS))]]
        plan = cover(demand.tolist(), start, knapsack, time_limit_s=given.limit)
        first = sum(packed.values())
        most = -(-5 * first // 4)
        cells = [highs(drawn, table, most, given.limit), cp_sat(drawn, table, most, given.limit)]
        shown = "  ".join(f"{text:>16}" for text in cells)
        ours = f"{plan.count}, {plan.seconds:.2f} s"
        print(f"{size:9d}  {plan.lower_bound:5d}  {first:10d}  {ours:>14}  {shown}", flush=True)
    return 0


def highs(drawn: list[int], table: list, servers: int, limit: float) -> str:
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    keys = [(i, o, s) for i, k in enumerate(drawn) for o in range(len(table[k])) for s in range(servers)]
    number = {key: servers + at for at, key in enumerate(keys)}
    rows, columns, values = [], [], []
    for (i, o, s), at in number.items():
        cores, ways = table[drawn[i]][o]
        for row, value in ((i, 1.0), (len(drawn) + s, cores), (len(drawn) + servers + s, ways)):
            rows.append(row), columns.append(at), values.append(float(value))
    for s in range(servers):
        for row, value in ((len(drawn) + s, -HOST.cores), (len(drawn) + servers + s, -HOST.ways)):
            rows.append(row), columns.append(s), values.append(float(value))
    matrix = csr_array((values, (rows, columns)), shape=(len(drawn) + 2 * servers, servers + len(keys)))
    low = np.r_[np.ones(len(drawn)), np.full(2 * servers, -np.inf)]
    high = np.r_[np.ones(len(drawn)), np.zeros(2 * servers)]
    cost = np.r_[np.ones(servers), np.zeros(len(keys))]
    begun = time.perf_counter()
    solved = milp(
        cost, constraints=LinearConstraint(matrix, low, high), bounds=Bounds(0, 1), integrality=np.ones(len(cost)),
        options={"time_limit": limit},
    )  # fmt: skip
    servers_needed = "none" if solved.x is None else f"{round(solved.fun)}"
    return f"{servers_needed}, {time.perf_counter() - begun:.1f} s"


def cp_sat(drawn: list[int], table: list, servers: int, limit: float) -> str:
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        return "not installed"
    model = cp_model.CpModel()
    used = [model.new_bool_var("") for _ in range(servers)]
    at = {
        (i, o, s): model.new_bool_var("")
        for i, k in enumerate(drawn)
        for o in range(len(table[k]))
        for s in range(servers)
    }
    for i, k in enumerate(drawn):
        model.add_exactly_one(at[i, o, s] for o in range(len(table[k])) for s in range(servers))
    for s in range(servers):
        mine = [(i, o, variable) for (i, o, place), variable in at.items() if place == s]
        for which, room in ((0, HOST.cores), (1, HOST.ways)):
            model.add(sum(table[drawn[i]][o][which] * variable for i, o, variable in mine) <= room * used[s])
        if s:
            model.add_implication(used[s], used[s - 1])
    model.minimize(sum(used))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit
    solver.parameters.num_workers = 2
    begun = time.perf_counter()
    status = solver.solve(model)
    servers_needed = (
        "none" if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE) else f"{round(solver.objective_value)}"
    )
    return f"{servers_needed}, {time.perf_counter() - begun:.1f} s"


if __name__ == "__main__":
    sys.exit(main())
