"""Do conclusions hold on another last-level cache? The whole chain where the LLC puts new lines first, and adaptively.

Profiles six NFs, trains, and predicts mixes that were never run, on the same machine with each `llc_insertion` and two
seeds. A conclusion is one if every row shows it: the default is ahead of every baseline, and its 90 % intervals hold
for 85 to 96 %. Ends with 1 if a row does not.

    python benchmarks/robustness.py [--machine e5-2620v4] [--runs 60] [--mixes 60]
"""

import argparse
import sys
from dataclasses import replace

from slomo.vocabulary.machine import load_machine
from slomo.workflow.evaluate import evaluate
from slomo.workflow.profile import profile
from slomo.workflow.train import train

NETWORK_FUNCTIONS = ("lpm", "stats", "mazunat", "snort", "endre", "flowstats")
BASELINES = ("dobrescu", "dobrescu-curve", "bubbleup", "mean")
INSERTIONS = ("recent", "adaptive")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", default="e5-2620v4")
    parser.add_argument("--runs", type=int, default=60, help="of each NF beside the competitor")
    parser.add_argument("--mixes", type=int, default=60, help="to calibrate, and as many to judge")
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12])
    chosen = parser.parse_args()
    print(f"{'insertion':>10}{'seed':>6}{'runs left out':>15}{'default %':>11}{'p95 %':>8}{'hold %':>8}  best baseline")
    off = False
    for insertion in INSERTIONS:
        machine = replace(load_machine(chosen.machine), name=f"{chosen.machine}-{insertion}", llc_insertion=insertion)
        for seed in chosen.seeds:
            dataset = profile(NETWORK_FUNCTIONS, machine=machine, runs=chosen.runs, mixes=chosen.mixes, seed=seed)
            library = train(dataset, seed=seed)
            judged = profile(
                NETWORK_FUNCTIONS, machine=machine, plan="mixes", mixes=chosen.mixes, stream="test", seed=seed
            )
            models = evaluate(library, judged).models
            default = next(iter(models.values()))
            baselines = {name: model.mape for name, model in models.items() if name.split()[0] in BASELINES}
            best = min(baselines, key=baselines.__getitem__)
            wrong = default.mape >= baselines[best] or not 85.0 <= default.coverage <= 96.0
            off |= wrong
            left_out = len(dataset) - len(dataset.converged())
            print(
                f"{insertion:>10}{seed:>6}{left_out:>15}{default.mape:>11.2f}"
                f"{default.p95:>8.2f}{default.coverage:>8.1f}  {best} {baselines[best]:.2f} %"
                f"{'  OFF' if wrong else ''}",
                flush=True,
            )
    return int(off)


if __name__ == "__main__":
    sys.exit(main())
