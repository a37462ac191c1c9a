"""Boot a machine with two memory nodes and a stock kernel under QEMU, and run check.py in it.

    python deploy/numa-guest/boot.py /path/to/vmlinuz

Emulated (TCG): it needs no rights and no virtualisation, and its speed means nothing. The initial file system is this
interpreter with its standard library, this library with what it needs, and slomo-nf-portable, made anew each time.
Needs qemu-system-x86_64 and cpio. Exit code 0 where every part of the check passed.
"""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path

from slomo.testbed.host.build import slomo_nf_binary

HERE = Path(__file__).parent
LIMIT_S = 420
#: What enforcement and chains import, and what that imports.
PACKAGES = ("slomo", "yaml", "msgspec", "numpy")
#: Of the standard library, what no first process needs.
LEFT_OUT = ("test", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "site-packages", "dist-packages",
            "__pycache__", "config-*", "*.a", "tests")  # fmt: skip


def main(kernel: Path) -> int:
    for program in ("qemu-system-x86_64", "cpio"):
        if shutil.which(program) is None:
            print(f"there is no {program}\nhint: apt-get install qemu-system-x86 cpio", file=sys.stderr)
            return 3
    with tempfile.TemporaryDirectory() as folder:
        root, image = Path(folder) / "root", Path(folder) / "initrd"
        furnish(root)
        pack(root, image)
        told = boot(kernel, image)
    print(told)
    passed = "RESULT" in told and not any(line.startswith("FAIL") for line in told.splitlines())
    return 0 if passed else 1


def furnish(root: Path) -> None:
    """Copy what the guest runs to where it is here."""
    library, dynamic = Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_config_var("DESTSHARED"))
    interpreter, program = Path(sys.executable).resolve(), slomo_nf_binary("portable")
    put_tree(root, library)
    put(root, interpreter, interpreter)
    put(root, program, Path("/slomo-nf-portable"))
    put(root, HERE / "check.py", Path("/check.py"))
    for name in PACKAGES:
        origin = importlib.util.find_spec(name).origin
        if Path(origin).name == "__init__.py":
            put_tree(root, Path(origin).parent, Path("/packages") / name)
            if (libraries := Path(origin).parent.with_name(f"{name}.libs")).is_dir():
                put_tree(root, libraries, Path("/packages") / libraries.name)
        else:
            put(root, Path(origin), Path("/packages") / Path(origin).name)
    native = (root / "packages").rglob("*.so")
    for library_file in needed([interpreter, program, *dynamic.glob("*.so"), *native]):
        if not library_file.is_relative_to(root):  # a package's own library
            put(root, library_file, library_file)
    start = root / "init"
    start.write_text(f"#!{interpreter} -IS\nimport sys\nsys.path.insert(0, '/packages')\n"
                     "import runpy\nrunpy.run_path('/check.py', run_name='__main__')\n")  # fmt: skip
    start.chmod(0o755)
    for name in ("dev", "proc", "sys", "tmp", "run"):
        (root / name).mkdir(exist_ok=True)


def put(root: Path, source: Path, where: Path) -> None:
    target = root / where.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def put_tree(root: Path, source: Path, where: Path | None = None) -> None:
    target = root / (where or source).relative_to("/")
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True)


def needed(programs: Iterable[Path]) -> set[Path]:
    """Return the shared libraries that programs are linked with, the loader among them."""
    libraries: set[Path] = set()
    for program in programs:
        listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
        words = [word for line in listed.splitlines() for word in line.split() if word.startswith("/")]
        libraries.update(Path(word) for word in words)
    return libraries


def pack(root: Path, image: Path) -> None:
    names = "\0".join(str(path.relative_to(root)) for path in [root, *sorted(root.rglob("*"))]).encode()
    with image.open("wb") as stream:
        subprocess.run(["cpio", "-o", "-0", "-H", "newc", "--quiet"], input=names, stdout=stream, cwd=root, check=True)


def boot(kernel: Path, image: Path) -> str:
    """Return what the guest said."""
    nodes = []
    for node, cpus in ((0, "0-1"), (1, "2-3")):
        nodes += ["-object", f"memory-backend-ram,id=m{node},size=768M"]
        nodes += ["-numa", f"node,nodeid={node},cpus={cpus},memdev=m{node}"]
    words = [
        "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "4,sockets=2,cores=2", "-m", "1536",
        *nodes, "-numa", "dist,src=0,dst=1,val=21", "-kernel", str(kernel), "-initrd", str(image),
        "-append", "console=ttyS0 quiet panic=-1", "-nographic", "-no-reboot", "-nic", "none",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False, env=dict(os.environ)
        )
        said = done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"") + f"\nthe guest did not end within {LIMIT_S} s".encode()
    return said.decode(errors="replace").replace("\r", "")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel", type=Path, help="a kernel with NUMA and control groups, e.g. Debian's cloud kernel")
    sys.exit(main(parser.parse_args().kernel))
