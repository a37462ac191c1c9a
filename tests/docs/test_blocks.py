"""The examples of pages run, in order, against the wheel that is built from this checkout.

A comment on the line above a block says how it runs, and why, ``<!-- long, needs root, exit 0 or 4: reason -->``:

- ``long`` (minutes of computing) and ``needs NAME`` (a name of tests/docs/needs.py): only `make docs-blocks` runs it,
  where that is to be had; a block that needs ``clone`` runs in a clone of this checkout;
- ``exit 0 or 1``: the codes that it may end with;
- ``exit 3 without NAME``: what the page states for a machine that lacks something: there a command of the block must
  end with this code (the others with 0) and say what the ``text`` block behind it shows; elsewhere as ``needs NAME``;
- ``started``: a service that runs until the page ends; the rest of the page asks the first one.

Every page starts in an empty folder and makes what it needs. Campaigns are made smaller (fewer runs, mixes and families
of models), nothing else is changed; what a page makes by the same commands as a page before, in the same order and from
nothing, is not made twice. A line `slomo profile` that names no file of the folder reads nothing there: it counts as
the first line of its page.
"""

import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest

from slomo.simulator.sharing.engine import simulate_chains
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.service_chains import parse_chains
from slomo.vocabulary.workload import Workload
from tests.docs.needs import NEEDS, TABLES, cluster

REPOSITORY = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"(<!-- (?P<mark>[^\n]*?) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S)
#: Every page with examples, but the generated reference, whose examples are doctests.
PAGES = tuple(
    page
    for page in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md")))
    if page.parent.name != "reference" and "```" in page.read_text(encoding="utf-8")
)
#: What is made smaller: a campaign of a hundred runs tells a test no more than one of eight.
SMALLER = (
    (r"--runs \d{2,} --out", "--runs 8 --mixes 8 --out"),
    (r"--runs \d{2,}", "--runs 8"),
    (r"--mixes 50\b", "--mixes 2"),
    (r"--latency --out", "--runs 40 --latency --out"),
    (r"(lpm snort .*--runs) 8 --mixes 8", r"\1 12 --mixes 20"),  # a promise beside others needs errors of mixes
    (r"(--machine \S+\.yaml) --out", r"\1 --runs 8 --mixes 2 --out"),
    (r"(slomo train slomo-\S+)", r"\1 --target ip-router --target snort --target vpn"),
    (r'(slomo\.train\("slomo-[\w-]+")\)', r'\1, targets=("ip-router", "snort"), models=["slomo-xgb"])'),
    # one family and the baseline that placement compares with; getting-started trains all
    (
        r"(slomo train (?:acl|both|dpi|flows|mirror|my-nf|profile)\.parquet --models \S+)",
        r"\1 --model slomo-xgb --model dobrescu",
    ),
    (r"(slomo train mirror\.parquet)", r"\1 --model slomo-xgb"),
    (r"slomo\.train\(dataset\)", 'slomo.train(dataset, models=["slomo-xgb"])'),
    (r"--every-s 60\b", "--every-s 3600"),
    (r"make test\b", "make test CHOSEN=tests/vocabulary"),
    (r"(slomo\.profile\(.*)\bruns=\d+", r"\1runs=8, mixes=2"),
    (r"\bruns=\d{2,}", "runs=8"),
    (r"\bbudget=\d+", "budget=8"),
    (r"\bsteps: \d+", "steps: 2"),
)
#: Languages of files and of what is printed; anything else is run.
WRITTEN = ("yaml", "toml", "json", "text")
NAMED = re.compile(r"# ([\w.-]+\.(?:ya?ml|csv|toml|py))\b")
#: A block whose lines share a variable, a function, a loop or a text is one script.
SCRIPT = re.compile(r"^\s*(\w+=|\w+\(\)|export |for |\()|<<", re.M)
MARK = re.compile(r"long|started|exit \d+( or \d+)*|exit \d+ without \w+|needs \w+")
WITHOUT = re.compile(r"exit (\d+) without (\w+)")
#: Exit code of a machine that is too restless to measure on.
UNSTABLE = 4
#: What a line of an answer is about: `  verdict     supported`.
LABEL = re.compile(r"^  (\w[\w ]*?)  ", re.M)
#: Whether blocks run that are long or need something: `make docs-blocks`.
ALL = os.environ.get("SLOMO_BLOCKS") == "all"


@dataclass(frozen=True)
class Block:
    """One example: language, text, line, and what the comment above it says."""

    language: str
    code: str
    line: int
    marks: tuple[str, ...] = ()
    reason: str = ""
    answer: str = ""  #: what is printed where something is lacking: the ``text`` block behind

    @property
    def exits(self) -> tuple[int, ...]:
        """Return the codes that it may end with."""
        if self.refused is not None:
            return 0, self.refused
        told = [mark for mark in self.marks if mark.startswith("exit ") and not WITHOUT.fullmatch(mark)]
        return tuple(int(code) for mark in told for code in re.findall(r"\d+", mark)) or (0,)

    @property
    def needs(self) -> tuple[str, ...]:
        """Return what it needs."""
        told = [mark.removeprefix("needs ") for mark in self.marks if mark.startswith("needs ")]
        return (*told, *(match[2] for mark in self.marks if (match := WITHOUT.fullmatch(mark))))

    @property
    def refused(self) -> int | None:
        """Return the exit code that the page states for a machine like this one, which lacks something, or None."""
        stated = [match for mark in self.marks if (match := WITHOUT.fullmatch(mark)) and not NEEDS[match[2]]()]
        return int(stated[0][1]) if stated else None

    def lacks(self) -> str:
        """Return why it does not run here now, or nothing."""
        refused = self.refused is not None
        if not ALL and ("long" in self.marks or (self.needs and not refused)):
            return self.reason
        return "" if refused else ", ".join(f"needs {name}" for name in self.needs if not NEEDS[name]())

    def check_answer(self, codes: list[int], said: str, shown: str = "") -> None:
        """Check that an answer has the lines of the page, or that what lacks is told with its code and words."""
        if self.refused is None:
            labels = LABEL.findall(self.answer)
            assert not labels or LABEL.findall(shown) == labels, (self, shown)
            return
        assert self.refused in codes, (self, codes)
        assert self.answer, f"line {self.line}: the page does not show what is said without it"
        for line in self.answer.splitlines():
            assert all(part in said for part in line.split("...")), (line, said)


def blocks(page: Path) -> list[Block]:
    """Return the examples of a page, in order; one that begins with ``# name.yaml`` is a file."""
    text, listed = page.read_text(encoding="utf-8"), []
    for match in FENCE.finditer(text):
        marks, _, reason = (match["mark"] or "").partition(": ")
        line = text.count("\n", 0, match.start()) + 1
        listed.append(Block(match["language"], match["code"], line, tuple(filter(None, marks.split(", "))), reason))
    behind = [after.code if after.language == "text" else "" for after in listed[1:]] + [""]
    return [replace(block, answer=answer) for block, answer in zip(listed, behind, strict=True)]


def shortened(code: str) -> str:
    """Return an example with smaller campaigns."""
    for pattern, shorter in SMALLER:
        code = re.sub(pattern, shorter, code)
    return code


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and install it into an environment of its own, beside the packages here; return its bin."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    quiet = {"check": True, "capture_output": True, "text": True}
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(REPOSITORY)]
    subprocess.run([*pip, *build], **quiet)  # type: ignore[call-overload]
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], **quiet)  # type: ignore[call-overload]
    (wheel,) = folder.glob("*.whl")
    python = environment / "bin" / "python"
    subprocess.run(
        [*pip, "--python", str(python), "install", "--no-deps", str(wheel)],
        **quiet,  # type: ignore[call-overload]
    )
    (site,) = (environment / "lib").glob("python*/site-packages")
    beside = {sysconfig.get_paths()["purelib"], str(Path(np.__file__).parents[1])}  # packages may stand elsewhere
    (site / "beside.pth").write_text("\n".join(sorted(beside)) + "\n", encoding="utf-8")
    compile_here()
    for made in (REPOSITORY / "slomo").rglob("__pycache__/*.nb?"):  # valid for sources that are equal
        shutil.copy(made, site / made.relative_to(REPOSITORY))
    return environment / "bin"


def compile_here() -> None:
    """Have the machine code of this checkout compiled, by whoever is first: other tests need it, too."""
    SimulatedTestbed(scale=64, accesses=10_000).run(Colocation("e5-2620v4", Workload("lpm")))
    chain = parse_chains("{stages: {a: {cycles: 400, core: 0}}, chains: {x: {stages: [a], mpps: 9}}}")
    simulate_chains(load_machine("e5-2620v4"), chain, {}, duration_ms=1.0, warm_ms=1.0)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that keeps what lines of pages made, one folder for each sequence of lines."""
    return tmp_path_factory.mktemp("made")


def campaign(line: str) -> bool:
    """Return whether a line measures or trains and nothing else, so that its files are all that it does."""
    return bool(re.match(r"slomo (profile .*--out|train )", line)) and "--nf" not in line and "--dry-run" not in line


def run_line(
    line: str, before: list[str], folder: Path, installed: Path, made: Path
) -> subprocess.CompletedProcess[str]:
    """Run a line of a page; campaigns that another page began with, too, are taken from there."""
    alone = line.startswith("slomo profile ") and not any((folder / word).exists() for word in line.split())
    start = [] if alone else before
    kept = made / hashlib.sha256("\n".join([*start, line]).encode()).hexdigest()
    if campaign(line) and kept.is_dir():
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        return subprocess.CompletedProcess(line, 0, "", "")
    there = {path.name for path in folder.iterdir()} if alone else set()
    done = run(["sh", "-ec", line], folder, installed)
    if campaign(line) and (alone or all(map(campaign, before))) and done.returncode == 0:
        shutil.copytree(folder, kept, ignore=shutil.ignore_patterns(".*", "*.yaml", *there))
    return done


def run(command: list[str], folder: Path, installed: Path) -> subprocess.CompletedProcess[str]:
    """Run a command against the wheel, outside the checkout; in a clone of it the home is the folder around."""
    path = f"{installed}{os.pathsep}{os.environ['PATH']}"
    dropped = ("PYTHONPATH", "SLOMO_DATASETS", "SLOMO_BLOCKS", "MAKEFLAGS", "MAKELEVEL")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    home = folder.parent if folder.name == "clone" else folder
    environment = {**kept, "PATH": path, "HOME": str(home), "SLOMO_JOURNAL": str(home / ".journal")}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=3600 if ALL else 900
    )


def printed(done: subprocess.CompletedProcess[str]) -> str:
    """Return the end of what an example that failed has printed: a test run writes its failures to stdout."""
    return f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"


@contextmanager
def started(line: str, folder: Path, installed: Path) -> Iterator[int]:
    """Start a service on a free port until the page ends; yield the port once it is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(installed / "python"), "-m", *line.split(), "--port", str(port)]
    environment = {**os.environ, "HOME": str(folder)}
    with (folder / "service.log").open("w") as log:
        service = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        for _ in range(1200):
            assert service.poll() is None, (folder / "service.log").read_text()
            with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
                if answer.status == 200:
                    break
            time.sleep(0.5)
        yield port
    finally:
        service.terminate()
        service.wait(30)


def test_the_wheel_finds_what_it_ships(installed: Path, tmp_path: Path) -> None:
    """From the wheel, outside a checkout: the package is the wheel's, it is typed, datasets and mappings are found."""
    program = "import slomo, pathlib; p = pathlib.Path(slomo.__file__).parent; print(p, (p / 'py.typed').exists())"
    where = run([str(installed / "python"), "-c", program], tmp_path, installed).stdout
    listed = run([str(installed / "python"), "-m", "slomo", "dataset", "list"], tmp_path, installed)
    mapped = "from slomo.records.importing.mapping import load_mapping; print(load_mapping('yala-regex').name)"

    (site,) = (installed.parent / "lib").glob("python*/site-packages")
    ours = {place.name for place in site.iterdir() if place.suffix not in (".dist-info", ".pth")}
    knobs = "from slomo.vocabulary.knobs import native_sources; print((native_sources() / 'src/chain.h').is_file())"

    assert ours == {"slomo"}
    assert "True" in run([str(installed / "python"), "-c", knobs], tmp_path, installed).stdout
    assert str(installed.parent) in where
    assert "True" in where
    assert {"slomo-e5-2620v4", "slomo-silver-4110"} <= set(listed.stdout.split())
    assert "yala-regex.yaml" in run([str(installed / "python"), "-c", mapped], tmp_path, installed).stdout


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_examples_run(page: Path, installed: Path, made: Path, tmp_path: Path) -> None:
    """The commands of a page run one after the other in one empty folder, then its Python as one program."""
    with ExitStack() as services:
        run_page(page, installed, made, tmp_path, services)


def run_page(page: Path, installed: Path, made: Path, tmp_path: Path, services: ExitStack) -> None:
    """Run the examples of a page; services that they start end with the stack."""
    told: list[str] = []
    exits: set[int] = set()
    lines: list[str] = []
    port = ""
    for block in blocks(page):
        code = shortened(block.code).replace(":8080", f":{port or 8080}")
        if named := NAMED.match(code):
            (tmp_path / named[1]).write_text(code, encoding="utf-8")
        elif block.language in WRITTEN or block.lacks():
            continue
        elif "started" in block.marks:
            began = services.enter_context(started(code.strip(), tmp_path, installed))
            port = port or str(began)
        elif block.language == "python" and block.refused is not None:
            done = run([str(installed / "python"), "-c", "\n".join([*told, code])], tmp_path, installed)
            block.check_answer([done.returncode], done.stderr)
        elif block.language == "python":
            told.append(code)
            exits.update(block.exits)
        else:
            assert block.language == "sh", f"{page.name}, line {block.line}: '{block.language}' does not run"
            prepare(block.needs, tmp_path, services)
            whole = "clone" in block.needs or SCRIPT.search(code)
            codes, said = [], ""
            for line in [code] if whole else code.replace("\\\n", " ").splitlines():
                where = tmp_path / "clone" if "clone" in block.needs else tmp_path
                done = run_line(line, lines, where, installed, made)
                lines += [] if "--dry-run" in line or " list" in line else [line]
                assert done.returncode in block.exits, (
                    f"{page.name}, line {block.line}: {line} ended with {done.returncode}\n{printed(done)}"
                )
                codes, said = [*codes, done.returncode], said + done.stderr
                if done.returncode == UNSTABLE:  # nothing to go on with
                    break
            block.check_answer(codes, said, done.stdout)
    if told:
        done = run([str(installed / "python"), "-c", "\n".join(told)], tmp_path, installed)
        ended = UNSTABLE if "UnstableMeasurementError: " in done.stderr else done.returncode  # Python itself says 1
        assert ended in exits, f"{page.name}:\n{printed(done)}"
    if lacking := [f"line {block.line}: {why}" for block in blocks(page) if ALL and (why := block.lacks())]:
        pytest.skip(f"all but {'; '.join(lacking)}")


def prepare(needs: tuple[str, ...], folder: Path, services: ExitStack) -> None:
    """Bring what a block needs into a page's folder, once."""
    if "clone" in needs and not (folder / "clone").exists():
        subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(folder / "clone")], check=True)
    if "tables" in needs:
        shutil.copytree(TABLES, folder, dirs_exist_ok=True)
    if "kube" in needs and not (folder / ".kube").exists():
        services.enter_context(cluster(folder))


def test_marks_are_known_and_reasons_given() -> None:
    """A mark is one that this file explains, a need one that can be looked for, and a reason has some words."""
    marked = [block for page in PAGES for block in blocks(page) if block.marks]

    for block in marked:
        assert all(MARK.fullmatch(mark) for mark in block.marks), block
        assert set(block.needs) <= set(NEEDS), block
        assert len(block.reason.split()) >= 3, block
