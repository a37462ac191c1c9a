"""Whether this checkout can be released: run by `make release-check`.

One version everywhere; the sdist and the checkout give the same wheel, byte for byte; the wheel, in an environment of
its own without this checkout, tells its version and answers; tests that the sdist carries pass against that wheel.

    python deploy/release_check.py [tests ...]      # default: tests/vocabulary tests/compose tests/models tests/cli
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from version import NEXT, version  # noqa: E402 - it lies beside pyproject.toml, for the build

#: What states the version by itself -> how.
STATED = {
    "CITATION.cff": r"^version: (\S+)",
    "deploy/helm/slomo/Chart.yaml": r'^appVersion: "(\S+)"',
    "deploy/helm/slomo/values.yaml": r'tag: "([\d.]+)"',
    "deploy/kubernetes/slomo-scheduler.yaml": r"image: slomo-service:(\S+)",
    "synthetic_nf/meson.build": r"version: '([\d.]+)'",
    "synthetic_nf/src/nf.h": r'SLOMO_NF_VERSION "(\S+)"',
}
TESTS = ("tests/vocabulary", "tests/compose", "tests/models", "tests/cli")


def versions() -> list[str]:
    """Return what is wrong with the versions that files state."""
    wrong = []
    for name, pattern in STATED.items():
        found = re.findall(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        wrong += [] if found and set(found) == {NEXT} else [f"{name} states {found or 'no version'}, needed {NEXT}"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if re.fullmatch(r"[\d.]+", version()) and version() == tagged() and f"## {version()}" not in changes:
        wrong.append(f"CHANGELOG.md has no section '## {version()}', and this is the tag of it")
    return wrong


def tagged() -> str | None:
    """Return the version of the tag that this commit has, if any."""
    command = ["git", "-C", str(ROOT), "describe", "--tags", "--exact-match", "--match", "v[0-9]*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip().removeprefix("v") or None


def build(source: Path, out: Path, *targets: str) -> None:
    """Build wheel or sdist of a source tree."""
    chosen = [part for target in targets for part in ("-t", target)]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", *chosen, "-d", str(out)],
        cwd=source,
        check=True,
        capture_output=True,
    )


def only(folder: Path, pattern: str) -> Path:
    """Return the one file of a folder."""
    (path,) = folder.glob(pattern)
    return path


def installed(wheel: Path, folder: Path) -> Path:
    """Install the wheel alone into an environment that sees the packages here; return its Python."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run([*pip, "install", "--no-deps", str(wheel)], check=True)
    site = only(folder, "lib/python*/site-packages")
    paths = [path for path in sys.path if path.endswith("site-packages")] or [sysconfig.get_paths()["purelib"]]
    (site / "beside.pth").write_text("\n".join(paths) + "\n", encoding="utf-8")
    return python


def main(tests: list[str]) -> int:
    """Check; print one line each; return 1 where something is off."""
    off = versions()
    print(f"version {version()}" + "".join(f"\nOFF: {line}" for line in off))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        build(ROOT, folder / "here", "sdist", "wheel")
        sdist = only(folder / "here", "*.tar.gz")
        with tarfile.open(sdist) as archive:
            archive.extractall(folder / "source", filter="data")
        source = only(folder / "source", "slomo-*")
        build(source, folder / "there", "wheel")
        wheels = [only(folder / place, "*.whl") for place in ("here", "there")]
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in wheels]
        same = digests[0] == digests[1]
        off += [] if same else ["the wheel of the sdist is another one than that of the checkout"]
        print(", ".join(f"{path.name} {path.stat().st_size / 1e6:.1f} MB" for path in (sdist, wheels[1])))
        print(f"sha256 {digests[1]}" + (", the same from the checkout" if same else "\nOFF: " + off[-1]))
        python = installed(wheels[1], folder / "environment")
        ask = "import slomo; print(slomo.__version__, slomo.__file__)"
        told = subprocess.run([str(python), "-c", ask], cwd=folder, check=True, capture_output=True, text=True).stdout
        fits = told.startswith(version()) and str(folder) in told
        off += [] if fits else [f"the installed wheel says {told.strip()}"]
        print(told.strip() + ("" if fits else "\nOFF: " + off[-1]))
        shutil.rmtree(source / "slomo")  # the tests must meet the wheel
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *(tests or TESTS)]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        code = subprocess.run(command, cwd=source, check=False, env=environment).returncode
        off += [] if code == 0 else ["tests of the sdist fail against its wheel"]
    print("\n".join(f"OFF: {line}" for line in off) or "it can be released")
    return int(bool(off))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
