"""The FastClick configurations: what a harness relies on is in each, and tables can be made of any size."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "synthetic_nf" / "click"
NAMES = sorted(path.stem for path in FOLDER.glob("*.click"))
ELEMENT = re.compile(r"\b([A-Z]\w+)\s*\(")


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text)


def made(name: str, entries: int, seed: int = 1) -> str:
    command = [sys.executable, str(FOLDER / "make.py"), name, "--entries", str(entries), "--seed", str(seed)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_competitor_and_the_functions_are_there():
    """The competitor and every function that slomo names has a configuration."""
    assert {"competitor", "router", "nat", "firewall", "lb", "ids"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_configuration_can_be_measured_and_ended(name):
    """Packets enter and leave by DPDK, a counter named c counts them, and a control socket answers on port $CS."""
    text = without_comments((FOLDER / f"{name}.click").read_text(encoding="utf-8"))

    assert re.search(r"define\([^)]*\$CS 7001", text)
    assert "ControlSocket(TCP, $CS)" in text
    assert re.search(r"^c\s+:: AverageCounter$", text, re.MULTILINE)
    assert re.search(r"^fd\b.*\bc\b", text, re.MULTILINE)
    assert text.rstrip().endswith("-> td")
    assert text.count("(") == text.count(")")


@pytest.mark.parametrize("name", NAMES)
def test_every_element_that_is_used_was_declared(name):
    """A lower-case name in a connection is an element declared above it."""
    text = without_comments((FOLDER / f"{name}.click").read_text(encoding="utf-8"))
    declared = set(re.findall(r"^(\w+)\s*::", text, re.MULTILINE))
    outside = re.sub(r"\([^()]*\)", "", re.sub(r"\([^()]*\)", "", text))

    used = {word for line in outside.splitlines() if "->" in line for word in re.findall(r"\b([a-z]\w*)\b", line)}

    assert used <= declared
    assert ELEMENT.search(text)


@pytest.mark.parametrize(("name", "pattern"), [("router", r"/\d+ 0"), ("firewall", "deny"), ("ids", r"\t[a-z]{12}\b")])
def test_tables_have_the_asked_length_and_depend_on_the_seed_alone(name, pattern):
    """`make.py` prints as many entries as asked for (a router has its default route beside them)."""
    text = made(name, 300)

    assert len(re.findall(pattern, text)) == 300 + (name == "router")
    assert made(name, 300) == text != made(name, 300, seed=2)
    assert without_comments(text).count("(") == without_comments(text).count(")")
