"""NFs behind one NIC port: predicted by its max-min share, beside the simulator, where packets take turns on the wire.

Random mixes of a library's NFs on one socket, all behind one port that is narrower than what they could serve.

    python benchmarks/placement/prepare.py DIR --machine e5-2620v4
    python benchmarks/shared_port.py DIR --seed 5
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from slomo.models.library import ModelLibrary
from slomo.prediction.question import solve_server
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.server_setting import ServerSetting
from slomo.vocabulary.workload import Workload

#: Line rate of the port as a share of what the NFs would carry alone.
SHARES = (0.3, 0.6, 0.9)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="what prepare.py wrote")
    parser.add_argument("--mixes", type=int, default=20, help="for each width of the port")
    parser.add_argument("--seed", type=int, required=True)
    given = parser.parse_args()
    library = ModelLibrary.load(given.directory / "models")
    generator = np.random.default_rng(given.seed)
    print(f"{'port':>14}{'NFs':>6}{'mean error %':>14}{'largest':>9}{'intervals hold %':>18}{'without port %':>16}")
    for share in SHARES:
        rows = [row for _ in range(given.mixes) for row in compared(library, generator, share)]
        errors, held, blind = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
        numbers = (
            f"{100 * errors.mean():14.2f}{100 * errors.max():9.1f}{100 * held.mean():18.0f}{100 * blind.mean():16.1f}"
        )
        print(f"{share:>11.0%} of{len(rows):>6}{numbers}")
    return 0


def compared(library: ModelLibrary, generator: np.random.Generator, share: float) -> list[tuple[float, bool, float]]:
    """Return error, whether the interval holds, and the error of an answer that knows no port, for each NF of a mix."""
    machine = library.machines[0]
    names = sorted({library[key].workload.nf for key in library} - {"synthetic"})
    testbed = SimulatedTestbed(machine)
    count = int(generator.integers(2, testbed.machine.cores_per_socket))
    mix = tuple(Workload(str(nf)) for nf in generator.choice(names, size=count))
    alone = [library[machine, each.key].solo_mpps * 8e-3 * (each.traffic.packet_size_b + 20) for each in mix]
    port = round(share * sum(alone), 3)
    record = testbed.run(Colocation(machine, mix[0], mix[1:], port_gbps=port), seed=int(generator.integers(1 << 30)))
    served = [tenant.throughput_mpps for tenant in record.beside.tenants]
    told, blind = (
        solve_server(library, mix, machine, setting=ServerSetting(port_gbps=each)).tenants for each in (port, None)
    )
    return [
        (
            abs(one.throughput_mpps / mpps - 1.0),
            one.interval[0] * 0.998 <= mpps <= one.interval[1] * 1.002,
            abs(other.throughput_mpps / mpps - 1.0),
        )
        for one, other, mpps in zip(told, blind, served, strict=True)
    ]


if __name__ == "__main__":
    sys.exit(main())
