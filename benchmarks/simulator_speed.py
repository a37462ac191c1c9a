"""How fast the simulator is: its cache kernel beside pycachesim on one trace, the whole of it, its error of scale.

Run ``python benchmarks/simulator_speed.py``; add ``scale`` for the table of docs/concepts/simulator.md (minutes, as
scale 1 is large). Speeds are per processor time, best of five, so that other work on the machine counts less. With
``against CHECKOUT ...`` whole simulations of other checkouts, such as of an earlier commit, run in turns with this one.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from slomo.simulator.engine import Tenant, simulate
from slomo.simulator.hardware.cache import count_misses
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import load_network_function
from slomo.vocabulary.workload import Traffic, Workload

MACHINE = load_machine("e5-2620v4")


def seats(*names: str, packet_size_b: int = 64) -> list[Tenant]:
    traffic = Traffic(packet_size_b)
    return [Tenant(Workload(name, {}, traffic), load_network_function(name), core) for core, name in enumerate(names)]


HOG = Workload("synthetic", {"data_size_mib": 20, "reads_per_packet": 1000})
MIXES = {
    "lpm alone": seats("lpm"),
    "stats beside 3 x mazunat": seats("stats", *["mazunat"] * 3),
    "ip-router beside 7 unlike NFs": seats(
        "ip-router", "snort", "maglev", "vpn", "flowstats", "suricata", "pfsense", "stateless-firewall"
    ),
    "ip-router beside 7 x 20 MiB": [
        *seats("ip-router"),
        *(Tenant(HOG, load_network_function("synthetic"), core) for core in range(1, 8)),
    ],
    "7 NFs at 1500 B, 160 Gbit/s": seats(
        "ip-router", "ip-router", "flowstats", "mazunat", "stateless-firewall", "lpm", "stats", packet_size_b=1500
    ),
}
#: Line rate of a port for all, where it is not the machine's [Gbit/s].
PORTS = {"7 NFs at 1500 B, 160 Gbit/s": 160.0}


def timed(work: Callable[[], Any], rounds: int = 5) -> tuple[float, Any]:
    """Return the best processor time [s] and the result."""
    best, result = float("inf"), None
    for _ in range(rounds):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return best, result


def kernel_speed(sets: int, ways: int, accesses: int) -> None:
    """Print the LRU kernel's speed beside pycachesim's on the same trace, and both miss counts."""
    lines = np.random.default_rng(1).integers(0, 2 * sets * ways, accesses)
    count_misses(lines[:10], sets, ways)
    seconds, misses = timed(lambda: count_misses(lines, sets, ways))
    print(f"{sets} x {ways}: slomo {accesses / seconds / 1e6:7.1f} M/s, {misses} misses")
    try:
        import cachesim
    except ImportError:
        print("  pycachesim is not installed: pip install pycachesim")
        return
    memory = cachesim.MainMemory()
    level = cachesim.Cache("L3", sets, ways, 64, "LRU")
    memory.load_to(level)
    memory.store_from(level)
    simulator = cachesim.CacheSimulator(level, memory)
    addresses = [((int(line) * 64,), None) for line in lines]
    start = time.process_time()
    simulator.loadstore(addresses, length=1)  # its fastest way: the loop is in C
    spent = time.process_time() - start
    same = "equal" if level.stats()["MISS_count"] == misses else "DIFFERENT"
    print(f"  pycachesim {accesses / spent / 1e6:.1f} M/s, {level.stats()['MISS_count']} misses: {same}")


def engine_speed() -> None:
    """Print the speed of whole simulations and the spread of the target's throughput over seeds."""
    for name, tenants in MIXES.items():
        simulate(MACHINE, tenants, seed=0)
        seconds, result = timed(lambda tenants=tenants: simulate(MACHINE, tenants, seed=0))
        mpps = [simulate(MACHINE, tenants, seed=seed).tenants[0].throughput_mpps for seed in range(8)]
        spread = 100 * np.std(mpps) / np.mean(mpps)
        speed = result.accesses / seconds / 1e6
        print(f"{name:32} {speed:5.1f} M accesses/s, {1e3 * seconds:4.0f} ms, spread over seeds {spread:.2f} %")


def in_turns(checkouts: list[str], rounds: int = 7) -> None:
    """Print the speed of whole simulations by several checkouts [M accesses/s], and how many times the first's it is.

    One process for each plays all mixes, then waits for the next round; best of the rounds, median of the ratios.
    """
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "rounds"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": checkout},
            text=True,
        )
        for checkout in checkouts
    ]
    speeds = np.empty((rounds, len(processes), len(MIXES)))
    for number in range(rounds):
        for place, process in enumerate(processes):
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            speeds[number, place] = json.loads(process.stdout.readline())
    for process in processes:
        process.communicate()
    times = np.median(speeds / speeds[:, :1], axis=0)
    for name, best, ratios in zip(MIXES, speeds.max(axis=0).T, times.T, strict=True):
        shown = [f"{speed:5.1f} ({ratio:.2f})" for speed, ratio in zip(best, ratios, strict=True)]
        print(f"{name:32} {'  '.join(shown)}")


def play_rounds() -> None:
    """Play all mixes for every line read, and print their speeds."""
    for tenants in MIXES.values():
        simulate(MACHINE, tenants, seed=0)
    for _ in sys.stdin:
        runs = [timed(lambda tenants=tenants: simulate(MACHINE, tenants, seed=0), 2) for tenants in MIXES.values()]
        print(json.dumps([result.accesses / seconds / 1e6 for seconds, result in runs]), flush=True)


def errors() -> None:
    """Print how far scaled-down sizes and coarser interleaving are from scale 1 and from the finest interleaving."""
    for name, tenants in MIXES.items():
        played = partial(simulate, MACHINE, tenants, seed=1, port_gbps=PORTS.get(name))
        used = played().sockets[0]
        share = (used["READ"] + used["WRITE"]) / MACHINE.usable_memory_gb_s
        print(f"{name:32} memory channels {100 * share:.0f} % used")
        exact = played(scale=1, accesses=20_000_000)
        for scale in (4, 8, 16, 32):
            ours = played(scale=scale, accesses=2_000_000)
            off = [
                100 * abs(a.throughput_mpps / b.throughput_mpps - 1)
                for a, b in zip(ours.tenants, exact.tenants, strict=True)
            ]
            print(f"{name:32} scale {scale:2}: throughput off by {np.mean(off):.2f} % mean, {max(off):.2f} % most")
        fine = played(slack_ns=0.0, accesses=2_000_000)
        for slack in (50.0, 100.0, 400.0):
            ours = played(slack_ns=slack, accesses=2_000_000)
            off = [
                100 * abs(a.throughput_mpps / b.throughput_mpps - 1)
                for a, b in zip(ours.tenants, fine.tenants, strict=True)
            ]
            print(
                f"{name:32} slack {slack:3.0f} ns: throughput off by {np.mean(off):.2f} % mean, {max(off):.2f} % most"
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["rounds"]:
        play_rounds()
    elif sys.argv[1:2] == ["against"]:
        in_turns([*sys.argv[2:], str(Path(__file__).resolve().parents[1])])
    else:
        kernel_speed(20_480, 16, 2_000_000)
        kernel_speed(1_024, 20, 2_000_000)
        engine_speed()
    if "scale" in sys.argv[1:]:
        errors()
