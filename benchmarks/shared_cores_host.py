"""Functions on one core of this machine beside a stream on another core: predicted from each alone, and measured.

    python benchmarks/shared_cores_host.py --rounds 5             # about eight minutes
    python benchmarks/shared_cores_host.py --set development      # those that the rules were derived on

Mixes of two and of four are drawn, half of the functions offered more than they can serve. Every round measures each
function alone and beside the reporter and runs the mixes, all in an order drawn anew, and predicts the mixes from the
former (`slomo.workflow.chains.shared_core`). An error is that of the median ratio over the rounds, for a virtual core's
speed moves by half within a minute; noise is the median deviation of a round's ratio from that. A run in which a
saturated core was not all theirs is made again. Aim: mean error of at most 8 %, or twice the noise.
"""

import argparse
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from slomo.host.marker import new_mark
from slomo.host.process import ManagedProcess
from slomo.testbed.host.build import slomo_nf_binary
from slomo.testbed.host.chains.looks import HostChainResult
from slomo.vocabulary.service_chains import ChainStage, ChainSystem, ServiceChain
from slomo.vocabulary.workload_text import parse_workload
from slomo.workflow.chains.shared_core import CoreReadings, predict_core, reading_systems, readings_of, runner

CORE, OTHER = max(os.sched_getaffinity(0)), min(os.sched_getaffinity(0))
CAPACITY, LINE_RATE_MPPS, GOAL = 2048, 14.88, 0.08
WHOLE, SATURATED, TRIES, PAUSE_S = 0.96, 0.8, 8, 0.5
SETS = {
    "development": (
        "synthetic(data_size_mib=4, reads_per_packet=200)",
        "firewall(rules=500)",
        "dpi(patterns=3000)",
        "synthetic(data_size_mib=1, reads_per_packet=400)",
        "router",
        "flowstats",
        "nat",
        "firewall(rules=20)",
    ),
    "judged": (
        "maglev",
        "l2fwd",
        "firewall(rules=100)",
        "dpi(patterns=300)",
        "synthetic(data_size_mib=0.5, reads_per_packet=60)",
        "synthetic(data_size_mib=16, reads_per_packet=50)",
        "synthetic(data_size_mib=1.5, reads_per_packet=150, writes_per_packet=50)",
        "firewall(rules=1500)",
    ),
}
LOADS_MPPS = (0.2, 0.5, 1.0, 2.0, 4.0)
#: A function and what it is offered [Mpps].
Mix = tuple[tuple[str, float], ...]


def drawn(names: Sequence[str], mixes: int, seed: int) -> list[Mix]:
    """Return mixes of two and of four, half of the functions saturated."""
    draw = random.Random(seed)  # noqa: S311
    return [
        tuple(
            (name, LINE_RATE_MPPS if draw.random() < 0.5 else draw.choice(LOADS_MPPS))
            for name in draw.sample(list(names), size)
        )
        for size in (2, 4)
        for _ in range(mixes)
    ]


def system_of(mix: Mix) -> ChainSystem:
    """Return functions side by side; stages bear their number in the mix."""
    stages = tuple(ChainStage(f"nf{i}", CORE, workload=parse_workload(name)) for i, (name, _) in enumerate(mix))
    chains = tuple(ServiceChain(s.name, (s.name,), mpps=rate) for s, (_, rate) in zip(stages, mix, strict=True))
    return ChainSystem(stages, chains, queue_capacity=CAPACITY)


class Host:
    """Runs systems, again where something else had the core."""

    def __init__(self, seconds: float) -> None:
        self._run, self.again = runner(seconds), 0

    def __call__(self, system: ChainSystem, policy: str) -> HostChainResult:
        """Run a system under a policy."""
        for _ in range(TRIES):
            result = self._run(system, policy)
            saturated = [c.delivered_mpps < SATURATED * c.offered_mpps for c in result.chains]
            whole = not all(saturated) or sum(stage.processor_share for stage in result.stages) > WHOLE
            if whole and all(chain.delivered_mpps for chain in result.chains):
                return result
            self.again += 1
            time.sleep(PAUSE_S)
        if not all(chain.delivered_mpps for chain in result.chains):
            raise SystemExit(f"something else has core {CORE}: in {TRIES} runs a function served nothing")
        return result


@contextmanager
def stream() -> Iterator[None]:
    """Run a stream through memory on the other core."""
    words = [str(slomo_nf_binary()), "--data-size-mib", "64", "--pattern", "sequential", "--reads-per-packet", "4096"]
    neighbour = ManagedProcess("neighbour", [*words, "--die-with-parent"], [OTHER], new_mark())
    neighbour.listen()
    try:
        yield
    finally:
        neighbour.stop()


def for_mix(mix: Mix, names: Sequence[str], readings: CoreReadings) -> CoreReadings:
    """Return the readings by the stages of a mix."""
    functions = {f"nf{i}": readings.functions[f"nf{names.index(name)}"] for i, (name, _) in enumerate(mix)}
    return CoreReadings(functions, readings.rules)


def by_shares(mix: Mix, policy: str, readings: CoreReadings) -> list[float]:
    """Return what shares of the core alone say, as if no ring were ever empty and no cache cold [Mpps]."""
    times = [reading.time_ns for reading in readings.functions.values()]
    loads = [time_ns * rate if policy == "nfvnice" else 1.0 for time_ns, (_, rate) in zip(times, mix, strict=True)]
    return [
        min(rate, 1e3 / time_ns * load / sum(loads)) for time_ns, load, (_, rate) in zip(times, loads, mix, strict=True)
    ]


#: Mix, policy, number in the mix -> ratios of predicted to measured, round by round: played, and by shares.
Ratios = dict[tuple[Mix, str, int], list[tuple[float, float]]]


def one_round(names: Sequence[str], mixes: Sequence[Mix], host: Host, order: random.Random, ratios: Ratios) -> None:
    """Measure everything once and keep the ratios."""
    whole = system_of(tuple((name, LINE_RATE_MPPS) for name in names))
    jobs: dict[tuple[object, str], ChainSystem] = {
        **{(what, "cfs"): alone for what, alone in reading_systems(whole).items()},
        **{(mix, policy): system_of(mix) for mix in mixes for policy in ("cfs", "nfvnice")},
    }
    done = {job: host(jobs[job], job[1]) for job in order.sample(list(jobs), len(jobs))}
    readings = readings_of(whole, {what: result for (what, _), result in done.items() if isinstance(what, str)})
    results = {(mix, policy): done[mix, policy] for mix in mixes for policy in ("cfs", "nfvnice")}
    for (mix, policy), result in results.items():
        here = for_mix(mix, names, readings)
        played = predict_core(system_of(mix), policy, here)
        for i, (one, shares, seen) in enumerate(zip(played, by_shares(mix, policy, here), result.chains, strict=True)):
            ratios[mix, policy, i].append((one.mpps / seen.delivered_mpps, shares / seen.delivered_mpps))


def tell(ratios: Ratios) -> bool:
    """Print every function of every mix, and the errors by size and policy; return whether all are good enough."""
    good = True
    errors: dict[tuple[int, str], list[tuple[float, float, float]]] = defaultdict(list)
    for (mix, policy, i), pairs in ratios.items():
        played, shares = (statistics.median(pair[which] for pair in pairs) for which in (0, 1))
        noise = statistics.median(abs(pair[0] / played - 1.0) for pair in pairs)
        errors[len(mix), policy].append((abs(played - 1.0), abs(shares - 1.0), noise))
        others = ", ".join(f"{name} {rate:g}" for j, (name, rate) in enumerate(mix) if j != i)
        what = f"{mix[i][0]} {mix[i][1]:g} beside {others}"
        spread = f"{min(pair[0] for pair in pairs):.2f}..{max(pair[0] for pair in pairs):.2f}"
        print(f"  {policy:8s} {what}: {played:.2f} ({spread}), by shares {shares:.2f}")
    for (size, policy), values in sorted(errors.items()):
        mean, plain, noise = (statistics.mean(value[which] for value in values) for which in range(3))
        fine = mean <= max(GOAL, 2.0 * noise)
        good &= fine
        print(
            f"{size} on a core, {policy}: mean error {mean:.1%} ({len(values)} functions, largest "
            f"{max(value[0] for value in values):.1%}), noise {noise:.1%}, by shares alone {plain:.1%}  "
            f"{'ok ' if fine else 'OFF'} goal {GOAL:.0%} or twice the noise"
        )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mixes", type=int, default=4, help="of each size")
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", choices=tuple(SETS), default="judged")
    given = parser.parse_args()
    names, host = SETS[given.set], Host(given.seconds)
    mixes, ratios = drawn(names, given.mixes, given.seed), defaultdict(list)
    order = random.Random(given.seed)  # noqa: S311
    with stream():
        for number in range(given.rounds):
            one_round(names, mixes, host, order, ratios)
            print(f"round {number + 1}, {host.again} runs made again so far", file=sys.stderr, flush=True)
    print(f"core {CORE}, {given.rounds} rounds of {given.seconds:g} s, {host.again} runs made again")
    return int(not tell(ratios))


if __name__ == "__main__":
    sys.exit(main())
