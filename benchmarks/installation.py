"""What an installation weighs and how long it takes, by extra; how long `slomo --help` takes beside bare click.

    python benchmarks/installation.py [EXTRA ...]      # default: core and all

Each is installed from a wheel of this checkout into an environment of its own, from the package index. Sizes are
those of site-packages, byte code included, without pip and setuptools. A line ends with OFF where a budget is missed:
core 95 MB, all 700 MB, `import slomo` and `slomo --help` 1.5 times what bare click takes.
"""

import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGET_MB = {"core": 95, "all": 700}
TIMES = 1.5
INSTALLER = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")
PIP = ["-m", "pip", "--disable-pip-version-check", "--quiet"]


def size_mb(folder: Path) -> float:
    """Return what an environment's packages weigh [MB], without the installer."""
    parts = [part for part in folder.iterdir() if not part.name.startswith(INSTALLER)]
    files = [file for part in parts for file in ([part] if part.is_file() else part.rglob("*")) if file.is_file()]
    return sum(file.stat().st_size for file in files) / 1e6


def byte_code_mb(folder: Path) -> float:
    """Return what of it is byte code, which pip writes and uv does not [MB]."""
    return size_mb(folder) - sum(size for _, size in weights(folder))


def weights(folder: Path) -> list[tuple[str, float]]:
    """Return each package's weight without byte code [MB], the heaviest first; a package's `.libs` count as it."""
    found: dict[str, float] = {}
    for file in folder.rglob("*"):
        name = file.relative_to(folder).parts[0].partition(".")[0]
        if file.is_file() and file.suffix != ".pyc" and not name.startswith(INSTALLER):
            found[name] = found.get(name, 0.0) + file.stat().st_size / 1e6
    return sorted(found.items(), key=lambda item: -item[1])


def seconds(command: list[str], rounds: int = 7) -> float:
    """Return the median run time of a command [s]."""
    taken = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken[1:])


def main(extras: list[str]) -> None:
    """Install, weigh, time."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        subprocess.run([sys.executable, *PIP, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)], check=True)
        (wheel,) = folder.glob("slomo-*.whl")
        for extra in extras:
            home = folder / extra
            venv.create(home, with_pip=True)
            python = str(home / "bin" / "python")
            print(f"installing {extra}: up to some minutes", file=sys.stderr)
            begin = time.perf_counter()
            what = str(wheel) if extra == "core" else f"{wheel}[{extra}]"
            subprocess.run([python, *PIP, "install", what], check=True)
            took = time.perf_counter() - begin
            (packages,) = home.glob("lib/python*/site-packages")
            size, budget = size_mb(packages), BUDGET_MB.get(extra)
            off = "  OFF" if budget is not None and size > budget else ""
            needed = "" if budget is None else f" (budget {budget})"
            code = byte_code_mb(packages)
            print(f"{extra:<10} {size:6.1f} MB{needed}, {code:.0f} of it byte code, installed in {took:.0f} s{off}")
            print("           " + ", ".join(f"{name} {weight:.0f}" for name, weight in weights(packages)[:12]))
            if extra == "core":
                click = seconds([python, "-c", "import click"])
                for name, command in (
                    ("import slomo", [python, "-c", "import slomo"]),
                    ("slomo --help", [str(home / "bin" / "slomo"), "--help"]),
                ):
                    times = seconds(command) / click
                    print(f"{name:<14} {times:.2f} times `import click`{'  OFF' if times > TIMES else ''}")


if __name__ == "__main__":
    main(sys.argv[1:] or ["core", "all"])
