"""Mount the emulated tree behind FUSE, and let the real pqos work on it.

Without an argument: apply a plan through the file system, and read it with pqos. ``drive``: allocate and monitor
through pqos, and print as JSON what it says. Run in a mount namespace of its own (unshare -m), as root; needs pqos,
/dev/fuse and fusepy. Says why where it cannot.
"""

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

ROOT = Path("/sys/fs/resctrl")


def serve() -> None:
    """Serve the emulation on the mount point until it is unmounted."""
    from fuse import FUSE, FuseOSError, Operations  # type: ignore[import-not-found]

    from tests.fake_resctrl.model import Flavour, ResctrlModel

    model = ResctrlModel(Flavour(cpus=os.cpu_count() or 2))
    # The kernel lists real tasks.
    model.flavour.tasks = [int(name) for name in os.listdir("/proc") if name.isdigit()]

    class Tree(Operations):  # type: ignore[misc]
        def getattr(self, path: str, fh: object = None) -> dict[str, int]:
            name = path.strip("/")
            if model.names(name) is not None:
                return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
            try:
                size = len(model.content(name))
            except OSError:
                raise FuseOSError(errno.ENOENT) from None
            return {"st_mode": stat.S_IFREG | 0o644, "st_nlink": 1, "st_size": size}

        def readdir(self, path: str, fh: object) -> list[str]:
            return [".", "..", *(model.names(path.strip("/")) or [])]

        def read(self, path: str, size: int, offset: int, fh: object) -> bytes:
            return model.content(path.strip("/")).encode()[offset : offset + size]

        def truncate(self, path: str, length: int, fh: object = None) -> int:
            return 0

        def write(self, path: str, data: bytes, offset: int, fh: object) -> int:
            try:
                model.write(path.strip("/"), data.decode())
            except OSError as problem:
                raise FuseOSError(problem.errno) from None
            return len(data)

        def mkdir(self, path: str, mode: int) -> None:
            try:
                model.mkdir(path.strip("/"))
            except OSError as problem:
                raise FuseOSError(problem.errno) from None

        def rmdir(self, path: str) -> None:
            model.rmdir(path.strip("/"))

        def rename(self, old: str, new: str) -> None:
            model.rename(old.strip("/"), new.strip("/"))

    FUSE(Tree(), str(ROOT), foreground=True, nothreads=True, direct_io=True, fsname="resctrl")


def main(look: Callable[[Path], int]) -> int:
    """Mount, look, unmount."""
    for needed, there in (("pqos", shutil.which("pqos")), ("/dev/fuse", Path("/dev/fuse").exists())):
        if not there:
            print(f"skipped: no {needed}")
            return 77
    try:
        import fuse  # type: ignore[import-not-found]  # noqa: F401
    except (ImportError, OSError) as problem:
        print(f"skipped: {problem}")
        return 77
    folder = Path(tempfile.mkdtemp())
    os.environ["XDG_CACHE_HOME"] = str(folder)
    flags = "cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local cqm rdt_a cat_l3 mba"
    info = Path("/proc/cpuinfo").read_text().splitlines()
    (folder / "cpuinfo").write_text("\n".join(f"{x} {flags}" if x.startswith("flags") else x for x in info) + "\n")
    (folder / "filesystems").write_text(Path("/proc/filesystems").read_text() + "nodev\tresctrl\n")
    for words in (
        ["mount", "--make-rprivate", "/"],
        ["mount", "-t", "tmpfs", "t", "/sys/fs"],
        ["mkdir", "-p", str(ROOT)],
        ["mount", "--bind", str(folder / "cpuinfo"), "/proc/cpuinfo"],
        ["mount", "--bind", str(folder / "filesystems"), "/proc/filesystems"],
    ):
        subprocess.run(words, check=True)
    server = subprocess.Popen([sys.executable, __file__, "serve"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if (ROOT / "cpus").exists():
                break
            time.sleep(0.1)
        return look(folder)
    finally:
        subprocess.run(["umount", str(ROOT)], check=False)
        server.wait(timeout=20)


def _look(folder: Path) -> int:
    """Set, look with pqos, undo, look again."""
    from slomo.enforce import EnforcementPlan, MemoryBandwidth, TenantSetting, apply, undo
    from slomo.enforce.backends.resctrl import ResctrlBackend

    def state() -> str:
        return subprocess.run(["pqos", "-I", "-s"], capture_output=True, text=True, check=False).stdout

    state()  # pqos makes its classes at its first call
    before = state()
    backend = ResctrlBackend(configuration=folder, prefix="")  # pqos sees groups named COSn
    tenants = (
        TenantSetting("COS1", cores=(0,), llc_way_mask=0x3, exclusive=True),
        TenantSetting("COS2", cores=(1,), llc_way_mask=0x7FC, memory_bandwidth=MemoryBandwidth(50)),
    )
    plan = EnforcementPlan("s", tenants)
    receipt = apply(plan, backend, receipts=folder)
    during = state()
    undo(receipt, backend)
    after = state()
    seen = [line.strip() for line in during.splitlines() if line not in before.splitlines()]
    expected = ("COS1 => MASK 0x3", "COS2 => MASK 0x7fc", "COS2 => 50%", "Core 0", "Core 1")
    missing = [text for text in expected if not any(text in line for line in seen)]
    same = after == before
    print(f"pqos sees {seen}; missing: {missing}; after undo it prints what it printed before: {same}")
    return 0 if same and not missing else 1


def _drive(_: Path) -> int:
    """Allocate and monitor through pqos; print its answers, the classes meanwhile and afterwards, and a sample."""
    from slomo.enforce.backends.pqos import PqosBackend
    from slomo.host.pqos import parse_pqos_state
    from slomo.testbed.host.counters.pqos import PqosReader
    from slomo.testbed.host.isolation import isolated
    from slomo.vocabulary.colocation import Isolation

    def said(*words: str) -> str:
        return subprocess.run(["pqos", "-I", *words], capture_output=True, text=True, check=False).stdout

    said("-s")  # makes its classes, and complains that there are none
    asked = (["-s"], ["-e", "llc:1=0x5"], ["-e", "llc:1=0x7;mba:1=50"], ["-a", "core:1=1"], ["-a", "core:1=77"])
    answers = {" ".join(words): said(*words) for words in (*asked, ["-e", "llc:1=0x7ff;mba:1=100"], ["-a", "core:0=1"])}
    before = parse_pqos_state(said("-s"))
    with isolated([(1,)], [Isolation(0x3, 50)], PqosBackend(("pqos", "-I"))):
        during = parse_pqos_state(said("-s"))
    reader = PqosReader(operating_system=True, has_pmu=False, interval_s=0.2)
    answers["-m"] = said(*reader._words([0, 1])[2:], "-t", "1")
    reader.start([0, 1])
    sample = reader.stop()
    moved = during.class_of[1]
    print(
        json.dumps(
            {
                "answers": answers,
                "during": [moved, during.classes[moved]],
                "undone": parse_pqos_state(said("-s")) == before,
                "metrics": sorted(sample.cores[0]),
            }
        )
    )
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        sys.exit(main(_drive if sys.argv[1:] == ["drive"] else _look))
