"""A stand-in for pqos -s, -e and -a: classes in a file, messages as pqos 4.5 prints them."""

import json
import re
import sys
from pathlib import Path


def main() -> None:
    """Do what the words say."""
    state_file, words = Path(sys.argv[1]), sys.argv[2:]
    if state_file.exists():
        state = json.loads(state_file.read_text())
    else:
        state = {"llc": ["0x7ff"] * 4, "mba": [100] * 4, "core": [0] * 4}

    if words[0] == "-s":
        print("L3CA/MBA COS definitions for Socket 0:")
        for number, mask in enumerate(state["llc"]):
            print(f"    L3CA COS{number} => MASK {mask}")
        for number, percent in enumerate(state["mba"]):
            print(f"    MBA COS{number} => {percent}% available")
        print("Core information for socket 0:")
        for core, number in enumerate(state["core"]):
            print(f"    Core {core}, L2ID {core}, L3ID 0 => COS{number}")
    elif words[0] == "-e":
        for kind, number, value in re.findall(r"(llc|mba)@0:(\d+)=(\w+)", words[1]):
            state[kind][int(number)] = value if kind == "llc" else int(value)
        print("Allocation configuration altered.")
    elif words[0] == "-a":
        number, core = re.fullmatch(r"core:(\d+)=(\d+)", words[1]).groups()
        state["core"][int(core)] = int(number)
        print("Allocation configuration altered.")
    state_file.write_text(json.dumps(state))


if __name__ == "__main__":
    main()
