"""The command line: knobs.yaml is its only source, and mistakes get a message, a hint and exit code 2 or 3."""

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

SOURCES = Path(__file__).resolve().parents[2] / "synthetic_nf"


def test_header_of_the_native_code_is_current():
    """`src/knobs_table.h` is what the generator makes of knobs.yaml."""
    done = subprocess.run([sys.executable, SOURCES / "generate_knobs_table.py", "--check"], check=False)

    assert done.returncode == 0, "run synthetic_nf/generate_knobs_table.py"


def test_the_program_knows_exactly_the_knobs_of_the_yaml(program):
    """Names, units, ranges and defaults printed by the program are those of knobs.yaml."""
    knobs = {
        knob["name"]: knob for knob in yaml.safe_load((SOURCES / "knobs.yaml").read_text(encoding="utf-8"))["knobs"]
    }

    lines = program.run("--knobs").lines

    assert [line["name"] for line in lines] == list(knobs)
    for line in lines:
        knob = knobs[line["name"]]
        assert line["default"] == knob["default"]
        assert line["unit"] == (knob["unit"] or "")
        if line["name"] != "pattern":
            assert [line["least"], line["most"]] == knob["range"]


def test_help_names_every_knob(program):
    """--help has a line for every knob."""
    done = subprocess.run([program.path, "--help"], capture_output=True, text=True, check=True)

    for knob in yaml.safe_load((SOURCES / "knobs.yaml").read_text(encoding="utf-8"))["knobs"]:
        assert f"--{knob['name'].replace('_', '-')} " in done.stdout


CAPTURES = {
    "empty": struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1),
    "nothing": b"",
    "text": b"this is no capture at all, but a text",
    "wifi": struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 105) + bytes(60),
    "pcapng": bytes.fromhex("0a0d0d0a") + bytes(60),
    "huge-frame": struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    + struct.pack("<IIII", 0, 0, 70000, 70000)
    + bytes(70000),
}
MISTAKES = [
    (["--nf", "rooter"], 2, "no network function 'rooter'"),
    (["--data-size", "3"], 2, "did you mean --data-size-mib?"),
    (["--data-size-mib", "many"], 2, "needs a number, got 'many'"),
    (["--data-size-mib", "-1"], 2, "0.0625..16384, got -1"),
    (["--reads-per-packet", "1.5"], 2, "whole number"),
    (["--rate-mpps", "nan"], 2, "needs a number"),
    (["--pattern", "zigzag"], 2, "does not know 'zigzag'"),
    (["--burst"], 2, "needs a value"),
    (["stray"], 2, "unexpected 'stray'"),
    (["--replay", "once"], 2, "needs a capture"),
    (["--replay", "twice"], 2, "forever once"),
    (["--cores", "4095"], 2, "does not understand"),
    (["--cores", "1000"], 3, "CPU 1000 does not exist"),
    (["--cores", "0,0", "--instances", "2"], 2, "named twice"),
    (["--cores", "0", "--instances", "2"], 2, "2 instances"),
    (["--pcap", "/nowhere/at.pcap"], 2, "cannot read the capture"),
    (["--nf", "router", "--routes-file", "/nowhere/routes"], 2, "cannot read '/nowhere/routes'"),
]


@pytest.mark.parametrize(("flags", "code", "words"), MISTAKES)
def test_mistakes_get_a_message_and_a_hint(program, flags, code, words):
    """A wrong flag ends with its exit code, says what was wrong and what would help, and prints nothing to stdout."""
    run = program.run(*flags, "--packets", 1)

    assert run.returncode == code
    assert run.lines == []
    assert "slomo-nf: error: " in run.errors
    assert "\nhint: " in run.errors
    assert words in run.errors


@pytest.mark.parametrize("kind", CAPTURES)
def test_captures_that_cannot_be_replayed_are_refused(program, tmp_path, kind):
    """No packets, no capture, not Ethernet, another format, oversized frames: exit code 2 and the file's name."""
    path = tmp_path / f"{kind}.pcap"
    path.write_bytes(CAPTURES[kind])

    run = program.run("--nf", "l2fwd", "--pcap", path, "--packets", 1)

    assert run.returncode == 2
    assert str(path) in run.errors


@pytest.mark.parametrize(
    ("nf", "flag", "line"),
    [
        ("router", "--routes-file", "10.0.0.0/33 1"),
        ("router", "--routes-file", "10.0.0.0/8 70000"),
        ("firewall", "--rules-file", "forbid everything"),
    ],
)
def test_a_wrong_line_of_a_table_is_named(program, tmp_path, nf, flag, line):
    """The message names file and line number."""
    path = tmp_path / "table"
    path.write_text(f"# comment\n\n{line}\n", encoding="utf-8")

    run = program.run("--nf", nf, flag, path, "--packets", 1)

    assert run.returncode == 2
    assert "line 3 is no r" in run.errors
    assert line in run.errors


def test_the_portable_build_says_what_it_cannot_do(portable):
    """ipsec, ports and regular expressions need other builds, and the message says which."""
    assert "needs the DPDK build" in portable.run("--nf", "ipsec").errors
    assert "needs the DPDK build" in portable.run("--vdev", "net_null0").errors
    assert "needs hyperscan" in portable.run("--nf", "dpi", "--patterns-file", SOURCES / "knobs.yaml", "--regex").errors


def test_lines_are_json_whatever_names_hold(portable, captures):
    """A quotation mark in a file name does not break the lines."""
    path = captures.write([captures.packet()], name='a "quoted" name.pcap')

    run = portable.run("--nf", "l2fwd", "--pcap", path, "--packets", 1, "--file-prefix", 'x"y')

    assert json.dumps(run.one("ready"))
    assert run.end["packets"] == 1
