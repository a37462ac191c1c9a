"""A stand-in for pqos -s, -e and -a: classes in a file, messages as pqos 4.5 prints them."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path


def answer(state_file: Path, words: Sequence[str]) -> str:
    """Do what the words say; return what is printed."""
    if state_file.exists():
        state = json.loads(state_file.read_text())
    else:
        state = {"llc": ["0x7ff"] * 4, "mba": [100] * 4, "core": [0] * 4}

    lines = ["Allocation configuration altered."]
    if words[0] == "-s":
        lines = ["L3CA/MBA COS definitions for Socket 0:"]
        lines += [f"    L3CA COS{number} => MASK {mask}" for number, mask in enumerate(state["llc"])]
        lines += [f"    MBA COS{number} => {percent}% available" for number, percent in enumerate(state["mba"])]
        lines += ["Core information for socket 0:"]
        lines += [f"    Core {core}, L2ID {core}, L3ID 0 => COS{number}" for core, number in enumerate(state["core"])]
    elif words[0] == "-e":
        for kind, number, value in re.findall(r"(llc|mba)@0:(\d+)=(\w+)", words[1]):
            state[kind][int(number)] = value if kind == "llc" else int(value)
    elif words[0] == "-a":
        number, core = re.fullmatch(r"core:(\d+)=(\d+)", words[1]).groups()
        state["core"][int(core)] = int(number)
    state_file.write_text(json.dumps(state))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(answer(Path(sys.argv[1]), sys.argv[2:]))
