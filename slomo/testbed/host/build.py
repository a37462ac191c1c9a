"""Find slomo's own network functions as a program, or compile them on demand into the user's cache.

The portable build needs only a C compiler; meson makes the DPDK build if libdpdk is installed.
"""

import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from slomo.errors import TestbedError
from slomo.files.durable import write_durably
from slomo.host.places import cache_directory
from slomo.host.tool import run_tool
from slomo.vocabulary.knobs import native_sources

_LIMIT_S = 600.0
_OVERRIDES = {"portable": "SLOMO_NF_PORTABLE", "dpdk": "SLOMO_NF_DPDK"}


def slomo_nf_binary(build: str = "portable") -> Path:
    """Return the path of `slomo-nf`; compile it first if the cache has no binary of the present sources.

    `build`, "portable" or "dpdk": which build; the environment variables SLOMO_NF_PORTABLE and SLOMO_NF_DPDK name
    binaries of your own.
    """
    override = os.environ.get(_OVERRIDES[build])
    if override:
        if not os.access(override, os.X_OK):
            raise TestbedError(
                f"{_OVERRIDES[build]} names '{override}', which is no program", hint="correct or unset the variable"
            )
        return Path(override)
    return _built(build, _compile_portable if build == "portable" else _compile_dpdk)


def build_traceable() -> Path:
    """Return a portable `slomo-nf` whose instructions do not depend on time: static, whole bursts, no watchdog."""
    flags = f"-static -no-pie -DSLICE_SECONDS=1e9 -DLOOK_NS={3_600_000_000_000}u"
    return _built("traceable", functools.partial(_compile_portable, flags=flags))


def _built(build: str, compile_into: Callable[[Path, Path], None]) -> Path:
    """Return a program in the cache; compile it if it is missing, and write it in one step, as others may too."""
    sources = native_sources()
    digest = hashlib.sha256(os.uname().machine.encode())
    for file in sorted([*sources.glob("src/*"), *sources.glob("*.sh"), *sources.glob("meson*")]):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    path = cache_directory() / f"slomo-nf-{build}-{digest.hexdigest()[:16]}"
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            draft = Path(folder, path.name)
            compile_into(sources, draft)
            write_durably(path, draft.read_bytes(), mode=0o777)
    return path


def _compile_portable(sources: Path, output: Path, flags: str | None = None) -> None:
    _run(
        ["sh", str(sources / "build-portable.sh"), str(output)],
        "the portable slomo-nf",
        "install a C compiler: apt-get install gcc libc6-dev",
        None if flags is None else {"CFLAGS": flags},
    )


def _compile_dpdk(sources: Path, output: Path) -> None:
    folder = output.with_suffix(".build")
    hint = f"install what it needs: sh {sources / 'install-debian-packages.sh'}, or use the portable build"
    try:
        _run(["meson", "setup", str(folder), str(sources), "--buildtype=release"], "slomo-nf on DPDK", hint)
        _run(["ninja", "-C", str(folder), "slomo-nf"], "slomo-nf on DPDK", hint)
        shutil.copy2(folder / "slomo-nf", output)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(words: list[str], what: str, hint: str, environment: Mapping[str, str] | None = None) -> None:
    try:
        done = run_tool(words, _LIMIT_S, environment)
    except TestbedError as problem:
        raise TestbedError(f"{what} cannot be compiled: {problem.message}", hint=hint) from None
    if done.code != 0:
        raise TestbedError(f"{what} cannot be compiled (exit code {done.code}): {done.last_words(3)}", hint=hint)
