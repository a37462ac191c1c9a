"""Let the real Python client of TRex make our streams and check our calls; in a process of its own.

It changes how Python imports. Prints JSON; its argument is the folder of the package.
"""

# ruff: noqa: T201
import inspect
import json
import os
import sys
from pathlib import Path

from slomo.errors import TestbedError
from slomo.testbed.host.traffic.trex import TrexGenerator
from slomo.vocabulary.workload import Traffic

CALLS = {
    "acquire": {"ports": [0, 1], "force": True},
    "reset": {"ports": [0, 1]},
    "clear_stats": {},
    "add_streams": {"streams": [], "ports": [0]},
    "start": {"ports": [0], "force": True},
    "get_stats": {},
    "stop": {"ports": [0]},
    "release": {},
    "disconnect": {},
}


def main(folder: Path) -> None:
    """Ask."""
    os.environ.setdefault("TREX_EXT_LIBS", str(folder.parents[2] / "external_libs"))
    generator = TrexGenerator("127.0.0.1", api_folder=folder)
    traffic = Traffic(packet_size_b=128, flow_count=500, offered_mpps=2.0)
    told = {"streams": [stream.to_json() for stream in generator._streams(traffic)]}
    for name, given in CALLS.items():
        inspect.signature(getattr(generator._api().STLClient, name)).bind(None, **given)
    try:
        generator.start(traffic)
    except TestbedError as problem:
        told["fault"] = problem.message
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
