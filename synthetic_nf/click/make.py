"""Print a FastClick configuration with a table of any size: routes, firewall rules or strings.

Real tables are too long to keep; `python make.py router --entries 20000 --seed 1 > big.click` makes them anew, and the
same seed makes the same table.
"""

import argparse
import random
import re
import string
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
TABLE = re.compile(r"(// table begin\n\w+ :: \w+\().*?(\);\n// table end)", re.DOTALL)


def routes(entries: int, generator: random.Random) -> list[str]:
    """Return a default route and random prefixes of /16 to /24, as in a backbone's table."""
    table = ["0.0.0.0/0 0"]
    for _ in range(entries):
        length = generator.randint(16, 24)
        prefix = generator.getrandbits(length) << (32 - length)
        table.append(f"{dotted(prefix)}/{length} 0")
    return table


def rules(entries: int, generator: random.Random) -> list[str]:
    """Return deny rules for single networks and ports, and one that lets all else pass."""
    table = [
        f"deny src net {dotted(generator.getrandbits(24) << 8)}/24 && dst port {generator.randint(1, 65535)}"
        for _ in range(entries)
    ]
    return [*table, "allow all"]


def words(entries: int, generator: random.Random) -> list[str]:
    """Return random lower-case words of twelve letters."""
    return ["".join(generator.choices(string.ascii_lowercase, k=12)) for _ in range(entries)]


def dotted(address: int) -> str:
    """Return an address of 32 bits in dotted form."""
    return ".".join(str(byte) for byte in address.to_bytes(4, "big"))


TABLES: dict[str, Callable[[int, random.Random], list[str]]] = {
    "router": routes,
    "router_radix": routes,
    "firewall": rules,
    "ids": words,
}


def configuration(name: str, entries: int, seed: int) -> str:
    """Return the text of `<name>.click` with a generated table in place of its example."""
    text = (HERE / f"{name}.click").read_text(encoding="utf-8")
    table = ",\n\t".join(TABLES[name](entries, random.Random(seed)))  # noqa: S311  (no secret is made)
    return TABLE.sub(lambda match: f"{match[1]}\n\t{table}{match[2]}", text)


def main() -> int:
    """Print the configuration that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(TABLES))
    parser.add_argument("--entries", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    sys.stdout.write(configuration(arguments.name, arguments.entries, arguments.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
