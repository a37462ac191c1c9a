"""NFs that share the machine's NIC ports: predicted from profiles of the same packet size, beside the simulator.

Profiles NFs at a packet size on the machine with the widest of the ports, trains, and predicts random mixes on one
socket behind ports of several widths. At 1500 B packet buffers leak to memory, so ports, cards and channels hold each
other back. Ends with 1 if the default is off by more than 3 % on average behind any of the ports; the error of an
answer that knows no port stands beside.

    python benchmarks/shared_port.py                           six NFs at 1500 B, ports of 40, 80 and 160 Gbit/s
    python benchmarks/shared_port.py --packet-size 64 --ports 4 8 12
"""

import argparse
import sys
from dataclasses import replace

import numpy as np

from slomo.models.library import ModelLibrary
from slomo.prediction.question import solve_server
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.server_setting import ServerSetting
from slomo.vocabulary.workload import Traffic, Workload
from slomo.workflow.profile import profile
from slomo.workflow.train import train

NETWORK_FUNCTIONS = ("lpm", "stats", "mazunat", "stateless-firewall", "flowstats", "ip-router")
#: Mean error that the default may have [%].
LIMIT = 3.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", default="e5-2620v4")
    parser.add_argument("--packet-size", type=int, default=1500, help="[B]")
    parser.add_argument("--ports", type=float, nargs="+", default=[40.0, 80.0, 160.0], help="[Gbit/s]")
    parser.add_argument("--runs", type=int, default=60, help="of each NF beside the competitor")
    parser.add_argument("--mixes", type=int, default=40, help="behind each port")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--scale", type=int, help="of the simulator; by default it follows from the packets")
    chosen = parser.parse_args()
    functions = [Workload(name, {}, Traffic(packet_size_b=chosen.packet_size)) for name in NETWORK_FUNCTIONS]
    named = load_machine(chosen.machine)
    machine = replace(named, name=f"{named.name}-wide", nic_gbps=max(chosen.ports) / (named.nic_ports or 1))
    testbed = SimulatedTestbed(machine, scale=chosen.scale)
    runs = {"runs": chosen.runs, "mixes": 60, "seed": chosen.seed}
    library = train(profile(functions, machine=machine, testbed=testbed, **runs))
    generator = np.random.default_rng(chosen.seed)
    columns = (
        "port Gbit/s",
        "NFs",
        "mean error %",
        "p95 %",
        "largest %",
        "intervals hold",
        "supported %",
        "without port %",
    )
    print("".join(f"{name:>17}" for name in columns))
    off = False
    for port in chosen.ports:
        rows = [row for _ in range(chosen.mixes) for row in compared(library, testbed, functions, generator, port)]
        errors, held, supported, blind = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
        off |= bool(100 * errors.mean() > LIMIT)
        numbers = [port, len(rows), *(100 * value for value in (
            errors.mean(), np.quantile(errors, 0.95), errors.max(), held.mean(), supported.mean(), blind.mean()
        ))]  # fmt: skip
        verdict = "  OFF" if 100 * errors.mean() > LIMIT else ""
        print("".join(f"{number:17.2f}" for number in numbers) + verdict, flush=True)
    return int(off)


def compared(
    library: ModelLibrary,
    testbed: SimulatedTestbed,
    functions: list[Workload],
    generator: np.random.Generator,
    port: float,
) -> list[tuple[float, bool, bool, float]]:
    """Return error, whether the interval holds, whether it is supported, and the error without a port, of a mix."""
    machine = library.machines[0]
    count = int(generator.integers(2, testbed.machine.cores_per_socket + 1))
    mix = tuple(functions[at] for at in generator.integers(0, len(functions), count))
    record = testbed.run(Colocation(machine, mix[0], mix[1:], port_gbps=port), seed=int(generator.integers(1 << 30)))
    assert record.beside is not None
    measured = [tenant.throughput_mpps for tenant in record.beside.tenants]
    behind, blind = (
        solve_server(library, mix, machine, setting=ServerSetting(port_gbps=width)).tenants for width in (port, 1e6)
    )
    return [
        (
            abs(one.throughput_mpps / mpps - 1.0),
            one.interval[0] * 0.998 <= mpps <= one.interval[1] * 1.002,
            str(one.verdict) == "supported",
            abs(other.throughput_mpps / mpps - 1.0),
        )
        for one, other, mpps in zip(behind, blind, measured, strict=True)
    ]


if __name__ == "__main__":
    sys.exit(main())
