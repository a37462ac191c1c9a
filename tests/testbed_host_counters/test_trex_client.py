"""The real Python client of TRex, where its source is at hand; no TRex server was ever met.

Set SLOMO_TREX to ``automation/trex_control_plane/interactive`` of a TRex (its ``external_libs`` beside ``automation``).
"""

import json
import os
import sys
from pathlib import Path

import pytest

from slomo.host.tool import run_tool

PROGRAM = Path(__file__).parent / "programs" / "ask_trex.py"


def test_the_real_client_takes_our_streams_and_calls() -> None:
    """Every call fits its signatures; rate, destinations, latency are as asked for; no server is one line of ours."""
    folder = os.environ.get("SLOMO_TREX", "")
    if not (Path(folder) / "trex" / "stl" / "api.py").exists():
        pytest.skip("no TRex is here; set SLOMO_TREX to the folder of its Python package")

    finished = run_tool([sys.executable, "-W", "ignore", str(PROGRAM), folder], 60.0)

    assert finished.code == 0, finished.last_words(8)
    told = json.loads(finished.stdout.splitlines()[-1])
    load, probe = told["streams"]
    assert load["mode"] == {"rate": {"type": "pps", "value": 2e6}, "type": "continuous"}
    variable, write, fix = load["vm"]["instructions"]
    assert (variable["min_value"], variable["max_value"], variable["op"]) == (10 << 24, (10 << 24) + 499, "random")
    assert (write["name"], write["pkt_offset"]) == ("destination", 30)
    assert fix == {"type": "fix_checksum_ipv4", "pkt_offset": 14}
    assert (probe["flow_stats"]["rule_type"], probe["flow_stats"]["stream_id"]) == ("latency", 7)
    assert "'127.0.0.1' does not answer: TRexError" in told["fault"]
