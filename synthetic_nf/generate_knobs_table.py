"""Write `src/knobs_table.h` from `knobs.yaml`, so that the native code has no second list of knobs.

Run it after changing a knob: `python generate_knobs_table.py`; `--check` only says whether the header is current.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
HEADER = HERE / "src" / "knobs_table.h"
PREFACE = """\
/* The knobs of the competitor. Generated from knobs.yaml by generate_knobs_table.py: do not edit. */
#ifndef SLOMO_KNOBS_TABLE_H
#define SLOMO_KNOBS_TABLE_H

#include <stddef.h>

enum knob_kind { KNOB_KIND_INTEGER, KNOB_KIND_REAL, KNOB_KIND_CHOICE };

struct knob_row {
	enum knob_kind kind;
	const char *name;
	const char *unit;
	const char *const *choices; /* NULL-terminated; NULL unless kind is choice */
	double least;
	double most;
	double initial; /* index into choices where kind is choice */
	const char *description;
};
"""


def read_knobs(path: Path) -> list[dict[str, Any]]:
    """Return the knobs in file order, each as a mapping with its `name`."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    knobs = document.get("knobs", document)
    if isinstance(knobs, dict):
        return [{"name": name, **row} for name, row in knobs.items() if isinstance(row, dict)]
    return [dict(row) for row in knobs]


def choices_of(knob: dict[str, Any]) -> list[str] | None:
    """Return the words a knob may take, or None for a number."""
    words = knob.get("choices", knob.get("values", knob.get("range")))
    if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
        return words
    return None


def bounds_of(knob: dict[str, Any]) -> tuple[float, float]:
    """Return the least and the greatest value of a numeric knob."""
    span = knob.get("range", [knob.get("minimum", knob.get("min")), knob.get("maximum", knob.get("max"))])
    least, most = (span["min"], span["max"]) if isinstance(span, dict) else span
    return float(least), float(most)


def is_real(knob: dict[str, Any]) -> bool:
    """Tell whether a numeric knob may have a fraction: said by its kind, else by its unit."""
    kind = knob.get("kind", knob.get("type"))
    if kind is not None:
        return kind in ("real", "float", "number")
    return str(knob["name"]).endswith(("_mib", "_mpps"))


def row_of(knob: dict[str, Any]) -> str:
    """Return the C initialiser of one knob."""
    name, words = knob["name"], choices_of(knob)
    if words is not None:
        kind, choices, span = "CHOICE", f"{name.upper()}_WORDS", (0.0, float(len(words) - 1))
        initial = float(words.index(knob["default"]))
    else:
        kind, choices, span = "REAL" if is_real(knob) else "INTEGER", "NULL", bounds_of(knob)
        initial = float(knob["default"])
    numbers = ", ".join(f"{value:.17g}" for value in (*span, initial))
    unit = json.dumps(str(knob.get("unit") or ""))
    description = json.dumps(" ".join(str(knob["description"]).split()))
    return f'\t{{ KNOB_KIND_{kind}, "{name}", {unit}, {choices}, {numbers},\n\t  {description} }},'


def render(knobs: list[dict[str, Any]]) -> str:
    """Return the whole header."""
    lines = [PREFACE, "enum knob {"]
    lines += [f"\tKNOB_{knob['name'].upper()}," for knob in knobs]
    lines += ["\tKNOB_COUNT", "};", ""]
    for knob in knobs:
        words = choices_of(knob)
        if words is None:
            continue
        name = knob["name"].upper()
        lines += [f"enum {knob['name']} {{ " + ", ".join(f"{name}_{word.upper()}" for word in words) + " };"]
        quoted = ", ".join(json.dumps(word) for word in words)
        lines += [f"static const char *const {name}_WORDS[] = {{ {quoted}, NULL }};", ""]
    lines += ["static const struct knob_row KNOB_TABLE[KNOB_COUNT] = {", *map(row_of, knobs), "};", "", "#endif", ""]
    return "\n".join(lines)


def main() -> int:
    """Write the header, or with `--check` compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 when the header is stale")
    check = parser.parse_args().check
    text = render(read_knobs(HERE / "knobs.yaml"))
    if check:
        return 0 if HEADER.exists() and HEADER.read_text(encoding="utf-8") == text else 1
    HEADER.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
