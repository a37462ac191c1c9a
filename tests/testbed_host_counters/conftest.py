"""Stand-ins: other people's tools as small programs, and a resctrl tree that behaves like the kernel's."""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slomo.host.cores import parse_cpu_list
from slomo.host.journal import open_receipts
from slomo.host.marker import boot_identity
from slomo.host.orphans import marked_processes, run_directories
from slomo.host.resctrl_tree import ResctrlTree, parse_schemata

HERE = Path(__file__).parent
DATA = HERE.parent / "data"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Return a maker that puts a stand-in on the PATH under a tool's name."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def make(name: str, stand_in: str) -> Path:
        file = folder / name
        file.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -S "{HERE / "programs" / stand_in}" "$@"\n', encoding="utf-8"
        )
        file.chmod(0o755)
        return file

    return make


@pytest.fixture(scope="session", autouse=True)
def journals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep what runs write down out of the user's cache, where compiled programs stay."""
    folder = tmp_path_factory.mktemp("journals")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLOMO_JOURNAL", str(folder))
        yield folder
        assert open_receipts() == ()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test after which a marked process or directory of ours is left."""
    yield
    assert not [pid for pid, mark in marked_processes().items() if mark.pid == os.getpid() and pid != os.getpid()]
    with contextlib.suppress(FileNotFoundError):
        mine = f"slomo-{boot_identity()}-{os.getpid()}-"
        assert not [path.name for path in run_directories().iterdir() if path.name.startswith(mine)]


class KernelLikeTree(ResctrlTree):
    """A copy of a tree that does what the kernel does: fills new groups, moves CPUs, refuses masks, grows counters."""

    def make_group(self, name: str) -> None:
        """Make a group with its files."""
        super().make_group(name)
        monitoring = "mon_groups/" in name
        self._put(f"{name}/cpus_list", "")
        shutil.copytree(self.root / "mon_data", self.root / name / "mon_data")
        if not monitoring:
            (self.root / name / "mon_groups").mkdir()
            self._put(f"{name}/schemata", "    MB:0=100\n    L3:0=7ff")

    def remove_group(self, name: str) -> None:
        """Remove a group; CPUs of one with masks go to the root group."""
        if "mon_groups/" not in name and (self.root / name).exists():
            self._put("cpus_list", _listed({*self.cpus(""), *self.cpus(name)}))
        shutil.rmtree(self.root / name, ignore_errors=True)

    def write(self, name: str, text: str) -> None:
        """Write as the kernel takes it."""
        group, _, file = name.rpartition("/")
        if file == "cpus_list":
            self._move(group, set(parse_cpu_list(text)))
        elif file == "schemata":
            self._set(name, text)

    def _move(self, group: str, cpus: set[int]) -> None:
        if not cpus <= {0, 1, 2, 3}:
            self._refuse("offline CPUs")
        if "mon_groups/" in group:
            others = self.monitoring_groups(group.partition("mon_groups/")[0].rstrip("/"))
        else:
            others = self.control_groups()
        for other in set(others) - {group}:
            self._put(f"{other}/cpus_list".lstrip("/"), _listed(set(self.cpus(other)) - cpus))
        if not group:  # the root group keeps what it has
            self._put("cpus_list", _listed({*self.cpus(""), *cpus}))
            return
        if "mon_groups/" not in group:
            left = set(self.cpus(group)) - cpus
            self._put("cpus_list", _listed({*self.cpus(""), *left} - cpus))
        self._put(f"{group}/cpus_list", _listed(cpus))

    def _set(self, name: str, text: str) -> None:
        wanted = parse_schemata(text)
        for mask in wanted.get("L3", {}).values():
            if "101" in f"{int(mask, 16):b}":
                self._refuse("L3: mask is not contiguous")
        settings = parse_schemata(self.read(name))
        for resource, domains in wanted.items():
            settings[resource] |= domains
        lines = [f"    {r}:{';'.join(f'{d}={v}' for d, v in masks.items())}" for r, masks in settings.items()]
        self._put(name, "\n".join(lines))

    def _refuse(self, why: str) -> None:
        self._put("info/last_cmd_status", why)
        with self._faults("refused"):
            raise OSError(22, "Invalid argument")

    def _put(self, name: str, text: str) -> None:
        (self.root / name).write_text(f"{text}\n", encoding="ascii")


def _listed(cpus: set[int]) -> str:
    """Return CPUs as the kernel lists them: runs as ranges."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


@pytest.fixture(scope="session")
def new_tree() -> Callable[[Path], KernelLikeTree]:
    """Return a maker of copies of the recorded tree."""
    return lambda folder: KernelLikeTree(Path(shutil.copytree(DATA / "resctrl", folder / "resctrl")))


@pytest.fixture
def tree(tmp_path: Path, new_tree: Callable[[Path], KernelLikeTree]) -> KernelLikeTree:
    """Return a copy of the recorded tree."""
    return new_tree(tmp_path)


@pytest.fixture(scope="session")
def text_of() -> Callable[[Path], dict[str, str]]:
    """Return a reader of a whole tree, for comparing before and after."""

    def read(root: Path) -> dict[str, str]:
        return {
            str(path.relative_to(root)): path.read_text(encoding="ascii")
            for path in sorted(root.rglob("*"))
            if path.is_file() and path.name != "last_cmd_status"
        }

    return read
