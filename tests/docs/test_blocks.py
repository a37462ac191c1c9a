"""The examples of pages run, in order, against the wheel that is built from this checkout.

A block that cannot run in a test says why in a comment on the line above it, ``<!-- not run: reason -->``; one that may
end with another code than 0 says so, ``<!-- exit 0 or 1: reason -->``; a service that the rest of the page asks says
``<!-- started: reason -->`` and gets a free port. Every page starts in an empty folder and makes
what it needs. Campaigns are made smaller (fewer runs and mixes), nothing else is changed; what a page makes by the same
commands as a page before, in the same order and from nothing, is not made twice.
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
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest

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
    (r"--runs \d+ --out", "--runs 8 --mixes 8 --out"),
    (r"--runs \d+", "--runs 8"),
    (r"--mixes 50\b", "--mixes 2"),
    (r"(slomo\.profile\(.*)\bruns=\d+", r"\1runs=8, mixes=8"),
    (r"\bruns=\d{2,}", "runs=8"),
    (r"\bbudget=\d+", "budget=8"),
    (r"\bsteps: \d+", "steps: 2"),
)
#: Languages of files and of what is printed; anything else is run.
WRITTEN = ("yaml", "toml", "json", "text")
EXITS = re.compile(r"exit (\d+)((?: or \d+)*): ")


@dataclass(frozen=True)
class Block:
    """One example: language, text, line, why it is not run (or empty), codes it may end with, whether it goes on."""

    language: str
    code: str
    line: int
    reason: str
    exits: tuple[int, ...] = (0,)
    started: bool = False


def blocks(page: Path) -> list[Block]:
    """Return the examples of a page, in order; one that begins with ``# name.yaml`` is a file."""
    text, listed = page.read_text(encoding="utf-8"), []
    for match in FENCE.finditer(text):
        mark = match["mark"] or ""
        reason = mark.removeprefix("not run:").strip() if mark.startswith("not run:") else ""
        told = EXITS.match(mark)
        exits = tuple(int(code) for code in re.findall(r"\d+", told[0])) if told else (0,)
        line, started = text.count("\n", 0, match.start()) + 1, mark.startswith("started:")
        listed.append(Block(match["language"], match["code"], line, reason, exits, started))
    return listed


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
    for made in (REPOSITORY / "slomo/simulator/__pycache__").glob("*.nb?"):  # valid for sources that are equal
        shutil.copy(made, site / "slomo/simulator/__pycache__" / made.name)
    return environment / "bin"


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
    kept = made / hashlib.sha256("\n".join([*before, line]).encode()).hexdigest()
    if campaign(line) and kept.is_dir():
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        return subprocess.CompletedProcess(line, 0, "", "")
    done = run(["sh", "-c", line], folder, installed)
    if campaign(line) and all(map(campaign, before)) and done.returncode == 0:
        shutil.copytree(folder, kept, ignore=shutil.ignore_patterns(".*", "*.yaml"))
    return done


def run(command: list[str], folder: Path, installed: Path) -> subprocess.CompletedProcess[str]:
    """Run a command against the wheel, outside the checkout."""
    path = f"{installed}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SLOMO_DATASETS")}
    environment = {**kept, "PATH": path, "HOME": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=900
    )


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
    lines: list[str] = []
    port = 8080
    for block in blocks(page):
        if block.started:
            port = services.enter_context(started(block.code.strip(), tmp_path, installed))
        elif block.language in WRITTEN:
            if named := re.match(r"# ([\w.-]+\.(?:ya?ml|csv))\b", block.code):
                (tmp_path / named[1]).write_text(shortened(block.code), encoding="utf-8")
        elif not block.reason and block.language == "python":
            told.append(shortened(block.code).replace(":8080", f":{port}"))
        elif not block.reason:
            assert block.language == "sh", (
                f"{page.name}, line {block.line}: '{block.language}' is no language that runs"
            )
            for line in shortened(block.code).replace("\\\n", " ").replace(":8080", f":{port}").splitlines():
                done = run_line(line, lines, tmp_path, installed, made)
                lines += [] if "--dry-run" in line or " list" in line else [line]
                assert done.returncode in block.exits, (
                    f"{page.name}, line {block.line}: {line} ended with {done.returncode}\n{done.stderr[-2000:]}"
                )
    if told:
        done = run([str(installed / "python"), "-c", "\n".join(told)], tmp_path, installed)
        assert done.returncode == 0, f"{page.name}:\n{done.stderr[-2000:]}"


def test_reasons_are_given() -> None:
    """Whoever marks an example as not run says why in some words."""
    assert all(len(block.reason.split()) >= 3 for page in PAGES for block in blocks(page) if block.reason)
