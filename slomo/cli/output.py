"""Print results of commands: aligned tables for people, or one JSON document for programs.

As in uv, data go to stdout and everything else to stderr, readable without colour.
"""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from slomo.errors import ConfigurationError
from slomo.files.stored import stored
from slomo.vocabulary.display import cell


def output_path(name: str, what: str, suffixes: Sequence[str] = ()) -> Path:
    """Return the path of the file that a command will write, after checking it before any computation."""
    path = Path(name)
    if suffixes and path.suffix not in suffixes:
        raise ConfigurationError(
            f"no {what} is stored as '{path.suffix}'", hint=f"needed: {', '.join(filter(None, suffixes))}"
        )
    if path.is_dir():
        raise ConfigurationError(f"cannot write the {what} to '{name}': it is a folder", hint="name a file in it")
    if not path.absolute().parent.is_dir():
        raise ConfigurationError(
            f"cannot write '{name}': there is no folder '{path.parent}'", hint=f"mkdir -p {path.parent}"
        )
    if not os.access(path.absolute().parent, os.W_OK):
        raise ConfigurationError(
            f"cannot write '{name}': folder '{path.parent}' is read-only", hint="choose a place you may write to"
        )
    return path


def figure_path(name: str | None) -> Path | None:
    """Return the checked path of the figure to draw; None if no figure is asked for."""
    return None if name is None else output_path(name, "figure", (".png", ".svg", ".pdf"))


def emit_json(document: Any) -> None:
    """Print one JSON document on stdout; values are written in their stored form, non-finite numbers as null.

    Examples
    --------
    >>> emit_json({"high_mpps": float("nan")})
    {
      "high_mpps": null
    }
    """
    plain = stored(document)
    try:
        text = json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):  # a set, or a number that is not finite
        text = msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()
    click.echo(text)


def emit(document: Any, headers: Sequence[str], rows: Sequence[Sequence[object]], *, as_json: bool) -> None:
    """Print `document` as JSON if `as_json` is set, else the table `headers` and `rows`."""
    if as_json:
        emit_json(document)
    else:
        emit_table(headers, rows)


def tell(document: Any, text: str, *, as_json: bool) -> None:
    """Print `document` as JSON on stdout if `as_json` is set, else `text` on stderr."""
    if as_json:
        emit_json(document)
    else:
        note(text)


#: Note for results from an imported table whose rates are shares of solo throughput.
SHARES = "note: the imported table has shares: 1 Mpps stands for what a function does alone"


def emit_text(text: str) -> None:
    """Print a text on stdout without changing it."""
    click.echo(text, nl=not text.endswith("\n"))


def note(text: str) -> None:
    """Print a message to the user on stderr."""
    click.echo(text, err=True)


def note_reasons(verdicts: Iterable[tuple[str, str, Sequence[str]]]) -> None:
    """Print verdicts that have reasons, and the reasons, on stderr; tenants for which both are equal share a line."""
    alike: dict[str, list[str]] = {}
    for tenant, verdict, reasons in verdicts:
        if reasons:
            alike.setdefault(f"{verdict}; {'; '.join(reasons)}", []).append(tenant)
    for text, tenants in alike.items():
        note(f"{', '.join(tenants)}: {text}")


def emit_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table on stdout, with numbers aligned right, text aligned left and no lines."""
    click.echo(format_table(headers, rows))


def format_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return an aligned plain-text table.

    Examples
    --------
    >>> print(format_table(["nf", "Mpps"], [["lpm", 5.4], ["stats", 13.25]]))
    nf      Mpps
    lpm     5.40
    stats  13.25
    """
    texts = [[cell(value, "-") for value in row] for row in rows]
    widths = [max([len(header), *(len(row[i]) for row in texts)]) for i, header in enumerate(headers)]
    right = [
        all(isinstance(row[i], (int, float)) or row[i] is None for row in rows) and bool(rows)
        for i in range(len(headers))
    ]
    lines = [list(headers), *texts]
    return "\n".join(
        "  ".join(
            text.rjust(width) if flush else text.ljust(width)
            for text, width, flush in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )
