"""Mutated files: whatever stands in a file, reading it gives a value or an error that names it.

`make fuzz` runs more of the same (``SLOMO_FUZZ`` examples of each reader).
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slomo.errors import SlomoError
from slomo.models.library import ModelLibrary
from slomo.training.families.registry import model_names
from tests.faults.counts import bounded, note
from tests.faults.readers import Reader, family_reader, readers

#: Rows and runs that were changed are told in a warning and left out.
pytestmark = pytest.mark.filterwarnings("ignore:.*not what was written:UserWarning")
EXAMPLES = int(os.environ.get("SLOMO_FUZZ", "0")) or 25
#: What parsers stumble over, as it stands in a text.
TOKENS = (
    b"NaN", b"-1", b"0", b"1e400", b"2.5", b"9" * 25, b"9" * 5000, b'""', b"null", b"true", b"[]", b"{}", b"[" * 3000,
    b'{"a":' * 2000, b"\xff\xfe", b"\x00", b"\n", b"\t", b":", b"*a", b"&a ", b"<<: *a\n",
    b"!!python/object:os.system x",
    b",", b'"', b"- ", b"\xed\xa0\x80", b"1:30", b"2020-01-01", b".inf", b"\\ud800", b"0x" + b"f" * 40, "é".encode(),
)  # fmt: skip
#: What a field may hold instead of what it holds.
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2.5, -0.0, 1e308, 10**18, 10**30, "", "x", "a" * 5000, [], {}, [[]], {"a": {}}, [None],
    "0x7f",     "../../etc/passwd", "\ud7ff\0", "\ud800", [1, 2, 3], {"1": 2},
)  # fmt: skip

edits = st.lists(
    st.tuples(st.sampled_from(("flip", "cut", "insert", "repeat", "truncate")), st.floats(0, 1), st.integers(0, 255)),
    min_size=1,
    max_size=4,
)


def mutated(content: bytes, changes: list[tuple[str, float, int]]) -> bytes:
    """Return the content with bytes flipped, cut out, put in, repeated, or its end cut off."""
    data = bytearray(content)
    for kind, share, number in changes:
        place = int(share * len(data))
        if kind == "flip" and place < len(data):
            data[place] ^= 1 << (number % 8)
        elif kind == "cut":
            del data[place : place + number]
        elif kind == "insert":
            data[place:place] = TOKENS[number % len(TOKENS)]
        elif kind == "repeat":
            data[place:place] = data[place : place + number] * (number % 5)
        elif kind == "truncate":
            del data[place:]
    return bytes(data)


def place_in(data: Any, share: float) -> tuple[Any, ...]:
    """Return the place of a field: each level's are as likely as each other, however much stands below them."""
    place: list[Any] = []
    while isinstance(data, dict | list) and data:
        keys = list(data) if isinstance(data, dict) else range(len(data))
        share *= len(keys) + bool(place)  # one more, for what stands here
        number = int(share)
        if number >= len(keys):
            break
        share -= number
        place.append(keys[number])
        data = data[keys[number]]
    return tuple(place)


def replaced(data: Any, place: tuple[Any, ...], number: int) -> Any:
    """Return the document with another value, no value, or another key at a place."""
    held = data
    for key in place[:-1]:
        held = held[key]
    if number >= 2 * len(VALUES):
        value = held.pop(place[-1])
        if number % 2 and isinstance(held, dict):
            held["surprise"] = value
    else:
        held[place[-1]] = VALUES[number % len(VALUES)]
    return data


def attempt(reader: Reader, path: Path, content: bytes) -> str:
    """Read a file; return the error's kind, empty where it was read; anything but an error of ours is raised."""
    path.write_bytes(content)
    try:
        with contextlib.redirect_stderr(io.StringIO()), bounded((reader.name, content[:2000])):
            reader.read(path)
    except SlomoError as error:
        if error.exit_code not in (2, 3, 4, 5):
            raise
        return type(error).__name__
    return ""


@pytest.fixture(scope="module")
def all_readers(tmp_path_factory: pytest.TempPathFactory, toy_library: ModelLibrary) -> dict[str, Reader]:
    """Return every reader with a right file."""
    folder = tmp_path_factory.mktemp("right")
    listed = [*readers(folder / "seeds", toy_library), *(family_reader(folder, name) for name in FAMILIES)]
    return {reader.name: reader for reader in listed}


#: Families whose models are mutated, too, by `make fuzz`: they take a minute to train.
FAMILIES = model_names() if EXAMPLES > 99 else ()
NAMES = (
    *(f"model-{name}" for name in FAMILIES),
    "machine", "nf", "nf-host", "chains", "service-chains", "control", "noisy-neighbour", "noisy-host", "requests",
    "requests-json", "rated-chains", "cluster", "plan", "plan-of-decisions", "ways",
    "rmd", "policies", "settings", "host", "calibration", "mapping", "table", "pcm", "pcm-faults", "dataset-csv",
    "dataset-parquet", "store", "partitions", "snapshot", "probes", "library-library.json", "library-manifest.json",
    "run", "dataset-of-others", "pairs", "probe-mapping", "probe-levels", "table-parquet", "mixes", "hosts",
    "fleet-plan", "claim", "room", "functions", "shared-models", "shared-index", "pcm-results",
    "library-saved-over", "library-left-over", "library-found", "library-served",
    "model", "tokens", "control-status", "host-nf",
    "capture", "champsim-configuration", "champsim-statistics", "champsim-run", "champsim-trace",
    "journal", "state", "pod-token", "pod-namespace", "agent-token", "pod", "node", "watch", "client-answer",
    "chain-looks", "perf", "pcm-pcie",
    "nf-output",
)  # fmt: skip


def quickly(examples: int) -> settings:
    """Return settings for so many examples: the same ones each time in `make test`, others in `make fuzz`."""
    return settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        derandomize=EXAMPLES < 99,
    )  # fmt: skip


quick = quickly(EXAMPLES)


def test_right_files_are_read(all_readers: dict[str, Reader], tmp_path: Path) -> None:
    """Every file that the fuzz starts from is one that is read, and every reader is fuzzed."""
    assert set(all_readers) - {"library-model.json", "library-superseded.json"} == set(NAMES)
    for name, reader in all_readers.items():
        assert attempt(reader, tmp_path / f"{name}{reader.suffix}", reader.content) == "", name


@pytest.mark.parametrize("name", NAMES)
def test_mutated_files_are_read_or_refused(name: str, all_readers: dict[str, Reader], tmp_path: Path) -> None:
    """Bytes flipped, cut, put in or repeated end in a value or an error of ours, never in a fault of the program."""
    reader, number = all_readers[name], iter(range(sys.maxsize))

    @quick
    @given(edits)
    def check(changes: list[tuple[str, float, int]]) -> None:
        attempt(reader, tmp_path / f"{next(number) % 50}{reader.suffix}", mutated(reader.content, changes))

    check()
    note("mutations of files", name, next(number))


@pytest.mark.parametrize("name", NAMES)
def test_fields_of_any_kind_are_read_or_refused(name: str, all_readers: dict[str, Reader], tmp_path: Path) -> None:
    """A field that holds another kind of value, is missing or not known ends in a value or an error of ours."""
    reader, number = all_readers[name], iter(range(sys.maxsize))
    if (text := as_json(reader)) is None:
        pytest.skip(f"{name} is no document of fields")

    @quick
    @given(st.floats(0, 1, exclude_max=True), st.integers(0, 3 * len(VALUES)))
    def check(share: float, kind: int) -> None:
        data = json.loads(text)
        changed = replaced(data, place_in(data, share), kind)
        attempt(reader, tmp_path / f"{next(number) % 50}{reader.suffix}", json.dumps(changed).encode())

    check()
    note("mutations of fields", name, next(number))


def as_json(reader: Reader) -> str | None:
    """Return a YAML or JSON document as JSON."""
    import yaml

    if reader.suffix not in (".yaml", ".json"):
        return None
    return json.dumps(yaml.safe_load(reader.content))
