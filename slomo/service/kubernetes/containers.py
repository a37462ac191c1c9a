"""Find the control groups of a node's pods, with the CPUs and threads of each container.

Both cgroup drivers of the kubelet are supported: ``kubepods/burstable/podUID/ID`` (cgroupfs) and
``kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope`` (systemd), below
other groups too, as in nodes that are containers themselves.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from slomo.errors import SlomoError, TestbedError
from slomo.host.cgroup import CgroupKnobs
from slomo.host.cores import parse_cpu_list

_POD = re.compile(r"pod([0-9a-f]{8}-[0-9a-f-]{27})(\.slice)?", re.ASCII)
_ABOVE = re.compile(r"kube|^(burstable|besteffort)$")
#: Largest number of groups between a pod's group and the hierarchy's root.
_DEEPEST = 5


@dataclass(frozen=True)
class Container:
    """Control group of one container."""

    #: Path of the group below the hierarchy's root, without leading slash.
    group: str
    #: CPUs that the container may use.
    cpus: tuple[int, ...]
    #: Threads of the container.
    threads: tuple[int, ...]


class PodGroups:
    """Finds the control groups of pods below the mount point `root`."""

    def __init__(self, root: Path = Path("/sys/fs/cgroup")) -> None:
        self._knobs = CgroupKnobs(root)

    def containers(self, uid: str, ids: Iterable[str]) -> tuple[Container, ...]:
        """Return a pod's containers by their ids; the pause container is left out, as it is in a pod's status."""
        base = self._knobs.root / self._knobs.hierarchy("cpuset")
        folder = next((path for name, path in _pods(base, _DEEPEST) if name == uid), None)
        if folder is None:
            hint = "mount the node's control groups into the agent"
            raise TestbedError(f"pod {uid} has no control group below '{self._knobs.root}'", hint=hint)
        names = tuple(ids)
        groups = [item for item in _folders(folder) if any(name and name in item.name for name in names)]
        if not groups:
            raise TestbedError(f"pod {uid}: no container of its status is in '{folder}'", hint="it starts or ends")
        return tuple(self._container(base, group) for group in groups)

    def _container(self, base: Path, folder: Path) -> Container:
        is_second = self._knobs.version == 2
        group = str(folder.relative_to(base))
        prefix = f"{self._knobs.hierarchy('cpuset')}/{group}".lstrip("/")
        try:
            cpus = parse_cpu_list(self._knobs.text(f"{prefix}/cpuset.cpus{'.effective' if is_second else ''}"))
        except TestbedError:
            cpus = ()
        threads = self._knobs.text(f"{prefix}/{'cgroup.threads' if is_second else 'tasks'}").split()
        return Container(group, cpus, tuple(int(thread) for thread in threads))


def _pods(folder: Path, depth: int) -> Iterator[tuple[str, Path]]:
    """Yield the control groups of pods below a folder, by uid."""
    for item in _folders(folder):
        match = _POD.search(item.name.replace("_", "-"))
        if match is not None:
            yield match[1], item
        elif depth and _ABOVE.search(item.name):
            yield from _pods(item, depth - 1)


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(item for item in folder.iterdir() if item.is_dir() and not item.is_symlink())
    except OSError:
        return []


def one_core(containers: "tuple[Container, ...] | SlomoError") -> int | str:
    """Return the CPU that only this pod uses, or the reason why its counters cannot be read."""
    if isinstance(containers, SlomoError):
        return containers.message
    cpus = sorted({cpu for item in containers for cpu in item.cpus})
    if not cpus:
        return "its control group does not say on which CPUs it runs"
    if len(cpus) > 1:
        listed = f"{cpus[:8]}{' and more' if len(cpus) > 8 else ''}"
        return (
            f"it may run on CPUs {listed}, and counters are per CPU: it needs the static CPU manager policy and one CPU"
        )
    return cpus[0]
