"""Measure every figure and table of the five papers, keep what was measured, and write docs/papers.md from it.

    python benchmarks/papers.py                    # what is not there yet, one after the other; hours (make papers)
    python benchmarks/papers.py --figure nfvnice-chain --figure resq-fig2a --seeds 5     # these again
    python benchmarks/papers.py --scheduler tcp://HOST:8786     # by Dask's workers, started with PYTHONPATH=benchmarks
    python benchmarks/papers.py --page             # only write the page from what is kept

Each figure has a file in docs/papers/, written when it is done, and NAME.seeds meanwhile: a stopped run goes on
with the next seed, if nothing was changed since. A row that is not measured again keeps its date and the commit it was
measured with. `--models` names the folder of benchmarks/placement/prepare.py, for the figures that take models. What
runs on this host itself stays here, one seed after the other.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from slomo.errors import SlomoError

if TYPE_CHECKING:
    from papers_figures import Figure
    from phenomena_runs import Line

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
KEPT, PAGE = DOCS / "papers", DOCS / "papers.md"
IN, OFF = "in", "**off**"
#: Verdict of a number for which no range could be missed: the paper names none, or it holds however the run ends.
BARE, NO_RANGE = "no range", "-"


@dataclass(frozen=True)
class Row:
    """One claim of a figure: the paper's number, its range, ours with its spread, and why it is off."""

    what: str
    paper: str
    range: str
    ours: str
    seeds: int
    fitted: bool
    inside: bool
    cause: str = ""
    values: tuple[float, ...] = ()

    @property
    def verdict(self) -> str:
        """In, off, in but fitted, or without a range that it could miss."""
        if self.range == NO_RANGE:
            return BARE
        return ("fitted" if self.fitted else IN) if self.inside else OFF


@dataclass(frozen=True)
class Kept:
    """What was measured of a figure, when, and with which commit."""

    figure: str
    rows: tuple[Row, ...]
    date: str
    commit: str
    minutes: float = 0.0
    seeds: int = 0
    notes: tuple[str, ...] = field(default=())


def cause_of(what: str, causes: Mapping[str, str], before: str = "not tested") -> str:
    """Return why a row is off, by the start of its text."""
    return next((why for start, why in causes.items() if what.startswith(start)), before)


def row_of(lines: Sequence[Line], causes: Mapping[str, str]) -> Row | None:
    """Return the row of one claim from its lines under several seeds; None where there is no range."""
    first = lines[0]
    low, high = first.low, first.high
    if low is None or high is None:
        return None
    values = tuple(float(line.ours) for line in lines)
    mean = statistics.fmean(values)
    spread = f" ± {statistics.stdev(values) / len(values) ** 0.5:.1g}" if len(values) > 1 else ""
    inside = low <= mean <= high
    cause = cause_of(first.what, causes)
    span = NO_RANGE if low == -math.inf else f"{low:g} to {high:g}" if high < 1e6 else f"{low:g} or more"
    return Row(
        first.what, first.paper or "-", span,
        f"{mean:.3g}{spread}", len(values), first.fitted, inside, "" if inside else cause, values,
    )  # fmt: skip


def commit() -> str:
    """Return the short name of the commit, with a plus where files differ from it."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(HERE.parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "slomo", "benchmarks") else "")


def keep(kept: Kept) -> None:
    """Write what was measured, whole or not at all."""
    KEPT.mkdir(exist_ok=True)
    path = KEPT / f"{kept.figure}.json"
    text = json.dumps(asdict(kept), indent=1, ensure_ascii=False) + "\n"
    unfinished = path.with_suffix(".json.part")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def read_kept(folder: Path = KEPT) -> dict[str, Kept]:
    """Return what is kept of each figure."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        rows = tuple(Row(**{**row, "values": tuple(row["values"])}) for row in data.pop("rows"))
        found[data["figure"]] = Kept(**{**data, "rows": rows, "notes": tuple(data["notes"])})
    return found


def seeds_before(path: Path, made_with: str) -> list[list[Line]]:
    """Return the lines of the seeds that a stopped run has played with the same commit and models."""
    from phenomena_runs import Line

    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # there is none, or it was being written
        return []
    if data["made_with"] != made_with or "+" in made_with.split()[0]:
        return []
    return [[Line(**line) for line in lines] for lines in data["seeds"]]


def measure(
    figure: Figure,
    seeds: int,
    causes: Mapping[str, str],
    models: Path | None = None,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
) -> Kept:
    """Measure a figure under seeds 1 to `seeds`, one a process or worker; raises what its benchmark raises."""
    from papers_figures import play

    from slomo.fleet.spread import spread

    begun, count = time.monotonic(), min(seeds, figure.most_seeds)
    parts = [(figure.name, seed, models) for seed in range(1, count + 1)]
    where = {"jobs": 1} if figure.here else {"jobs": jobs, "scheduler": scheduler}
    unfinished, made_with = KEPT / f"{figure.name}.seeds", f"{commit()} {models}"
    played = seeds_before(unfinished, made_with)[:count]
    KEPT.mkdir(exist_ok=True)
    for lines in spread(play, parts[len(played) :], **where):
        played.append(lines)
        text = json.dumps(
            {"made_with": made_with, "seeds": [[asdict(line) for line in each] for each in played]}, default=float
        )
        unfinished.write_text(text, encoding="utf-8")
        print(f"  {len(played)} of {count} seeds", file=sys.stderr, flush=True)
    rows = tuple(row for lines in zip(*played, strict=True) if (row := row_of(lines, causes)) is not None)
    unfinished.unlink(missing_ok=True)
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return Kept(figure.name, rows, today, commit(), round((time.monotonic() - begun) / 60, 1), count)


def with_causes(kept: Kept, causes: Mapping[str, str]) -> Kept:
    """Return what was measured, with today's causes of rows that are off."""
    rows = (row if row.inside else replace(row, cause=cause_of(row.what, causes, row.cause)) for row in kept.rows)
    return replace(kept, rows=tuple(rows))


def page(kept: Mapping[str, Kept], figures: Iterable[Figure]) -> str:
    """Return docs/papers.md."""
    figures = list(figures)
    rows = [row for figure in figures for row in (kept[figure.name].rows if figure.name in kept else ())]
    counts = {name: sum(row.verdict == name for row in rows) for name in (IN, "fitted", OFF, BARE)}
    ours = sum(row.verdict == OFF and row.paper == "-" for row in rows)
    missing = [figure.name for figure in figures if figure.impossible is None and figure.name not in kept]
    impossible = sum(figure.impossible is not None for figure in figures)
    text = (
        "# The five papers\n\n"
        "<!-- generated by benchmarks/papers.py from docs/papers/*.json -->\n\n"
        "Every figure and table of the papers that slomo descends from: what the paper says, what is measured here, "
        "and whether that is in\nthe range set for it. Make a figure again, this one in a minute:\n\n"
        "<!-- long, needs clone: a minute of simulation -->\n"
        "```sh\npython benchmarks/papers.py --figure slomo-fig7\n```\n\n"
        "Other figures take up to twenty minutes. "
        "`make papers` makes every figure that has no file in `docs/papers/`.\n\n"
        "| Verdict | Rows |\n| --- | --- |\n"
        f"| in its range, nothing fitted to it | {counts[IN]} |\n"
        f"| fitted: a constant was set by it, no evidence | {counts['fitted']} |\n"
        f"| **off** | {counts[OFF]}, of which {ours} are off a range of ours, since the paper has no figure |\n"
        f"| no range that it could miss, no evidence | {counts[BARE]} |\n"
        f"| figures not measured with this script yet | {', '.join(missing) or 0} |\n"
        f"| not possible here | {impossible} |\n\n"
        "`±` is the standard error over seeds; with one seed there is none, and it is 0 where nothing is random. "
        "A plus after a commit means changes that were not committed. Simulated unless said\n"
        "otherwise: no rack was at hand. Causes with figures of another machine or function were played as the "
        "docstring of\n`benchmarks/phenomena.py` shows: a shipped file, changed in what the cause names.\n"
    )
    papers = dict.fromkeys(figure.paper for figure in figures)
    return text + "".join(_section(paper, [f for f in figures if f.paper == paper], kept) for paper in papers)


def _section(paper: str, figures: Sequence[Figure], kept: Mapping[str, Kept]) -> str:
    text = (
        f"\n## {paper}\n\n| Figure | What | Paper | Range | Ours | Seeds | Verdict | Measured |\n"
        + "| --- " * 8
        + "|\n"
    )
    causes: dict[tuple[str, str], list[str]] = {}
    for figure in figures:
        if figure.name not in kept:
            why = "not measured yet" if figure.impossible is None else f"not possible here: {figure.impossible}"
            text += f"| {figure.label} | {figure.title} | - | - | - | - | {why} | - |\n"
        for row in kept[figure.name].rows if figure.name in kept else ():
            made = kept[figure.name]
            text += (
                f"| {figure.label} | {row.what} | {row.paper} | {row.range} | {row.ours} | {row.seeds} | {row.verdict} "
                f"| {made.date}, {made.commit} |\n"
            )
            if not row.inside:
                causes.setdefault((figure.label, row.cause), []).append(row.what)
    if causes:
        text += "\nWhy rows are off, and the command that shows it:\n\n| Figure | What | Cause |\n| --- | --- | --- |\n"
        text += "".join(f"| {label} | {'; '.join(rows)} | {cause} |\n" for (label, cause), rows in causes.items())
    return text


def main() -> int:
    """Measure what is asked for or missing, keep it, write the page."""
    from papers_figures import CAUSES, FIGURES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", action="append", metavar="NAME", help="measure it again; repeatable")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--models", type=Path, help="folder made by benchmarks/placement/prepare.py")
    parser.add_argument("--jobs", type=int, default=1, help="seeds at a time, each in a process")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask scheduler whose workers play instead")
    parser.add_argument("--page", action="store_true", help="only write the page")
    given = parser.parse_args()
    figures = {figure.name: figure for figure in FIGURES}
    unknown = [name for name in given.figure or () if name not in figures or figures[name].impossible]
    if unknown:
        print(f"no figure {', '.join(unknown)} can be measured; there are: {' '.join(figures)}", file=sys.stderr)
        return 2
    kept, failed = read_kept(), []
    if not given.page:
        missing = [name for name, each in figures.items() if each.impossible is None and name not in kept]
        wanted = given.figure or missing
        for place, name in enumerate(wanted):
            print(f"[{place + 1}/{len(wanted)}] {name}: {figures[name].title}", file=sys.stderr, flush=True)
            if figures[name].takes_models and given.models is None:
                print("  left out: it takes --models", file=sys.stderr)
                continue
            how = {"jobs": given.jobs, "scheduler": given.scheduler}
            try:
                one = measure(figures[name], given.seeds, CAUSES, given.models, **how)
            except SlomoError as problem:  # the next figure may need nothing that is missing here
                print(f"  not measured: {problem}", file=sys.stderr, flush=True)
                failed.append(name)
                continue
            keep(one)
            for row in one.rows:
                print(f"  {row.what}: paper {row.paper}, ours {row.ours} ({row.range}) {row.verdict}", flush=True)
            PAGE.write_text(page(read_kept(), FIGURES), encoding="utf-8")
    for one in read_kept().values():
        if (today := with_causes(one, CAUSES)) != one:
            keep(today)
    PAGE.write_text(page(read_kept(), FIGURES), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
