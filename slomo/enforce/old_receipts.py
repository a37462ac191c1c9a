"""Receipts as slomo wrote them before it kept a journal: one file of JSON lines each, still good for an undo."""

import json
from pathlib import Path
from typing import Any

from slomo.errors import SlomoError, StoreError
from slomo.files.opening import read_bytes
from slomo.host.journal import Journal, Layer, Receipt
from slomo.host.places import cache_directory

_LARGEST_B = 64 << 20


def old_receipts(folder: Path) -> tuple[Path, ...]:
    """Return the files of a folder, and of the one where they were by default, that were not undone."""
    folders = dict.fromkeys(
        [folder, cache_directory() / "receipts"] if folder.name in ("slomo", "receipts") else [folder]
    )
    return tuple(path for each in folders for path in sorted(each.glob("*.jsonl")))


def adopt(path: Path, journal: Journal) -> Receipt:
    """Take an old receipt over into the journal; its file is renamed, since it is good no more.

    Raises StoreError if it is no receipt, or cannot be renamed.
    """
    head, *lines = _lines(path)
    if head.get("schema_version") != 1 or not {"backend", "place"} <= set(head):
        raise StoreError(f"'{path}' is no receipt of version 1", hint="remove it, if it is none")
    first: dict[str, tuple[str | None, str | None]] = {}
    for line in lines:
        if line.get("mark") == "undone":
            first.clear()
        elif "knob" in line:
            before = first[line["knob"]][0] if line["knob"] in first else line.get("before")
            first[str(line["knob"])] = (before, line.get("after"))
    receipt = journal.begin(str(head["backend"]), str(head["place"]), {"adopted": path.name})
    joined = "+" in str(head["backend"])
    places = dict(zip(str(head["backend"]).split("+"), str(head["place"]).split("; "), strict=False))
    with journal.transaction():
        for label, (before, after) in first.items():
            name, _, rest = label.partition("|") if joined else (str(head["backend"]), "", label)
            place = places.get(name, str(head["place"]))
            if not journal.stack(place, rest):
                journal.add(Layer(0, place, rest, label, None, before, before))
            journal.add(Layer(0, place, rest, label, receipt.number, after, before))
    try:
        path.rename(path.with_suffix(".adopted"))
    except OSError as problem:
        journal.close(receipt)
        raise StoreError(
            f"receipt '{path}': {problem.strerror}", hint="rename it by hand, or it is undone twice"
        ) from None
    return receipt


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        raw = read_bytes(path, _LARGEST_B, hint="undo by hand what it lists")
    except SlomoError as problem:
        raise StoreError(f"receipt {problem.message}", hint=problem.hint) from None
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(raw.split(b"\n")[:-1]):  # a torn last line is a change that was not made
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        if not isinstance(line, dict):
            raise StoreError(f"receipt '{path}', line {number + 1}, is not understood", hint="was it edited?")
        lines.append(line)
    if not lines:
        raise StoreError(f"receipt '{path}' is empty", hint="nothing was changed by it: remove it")
    return lines
