"""Set CPUs, memory node, weights and quotas through control groups, version 1 and 2.

The knobs are those of `slomo.host.cgroup`. A CPU weight of 1 becomes ``cpu.shares`` 1024 in version 1 and
``cpu.weight`` 100 in version 2.
"""

import os
import re
from collections.abc import Iterable, Iterator

from slomo.enforce.change import Backend
from slomo.enforce.conflicts import protection
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import InvalidValueError, RefusedSettingError
from slomo.host.cgroup import WEIGHTS, CgroupKnobs
from slomo.host.cores import format_cpu_list, parse_cpu_list
from slomo.host.knobs import PRESENT, Wish

PARENT = "slomo"
PERIOD_US = 100_000
#: Least quota that the kernel accepts [us].
_LEAST_QUOTA_US = 1000


class CgroupBackend(CgroupKnobs, Backend):
    """Makes control groups and sets their files as a plan requires; see `CgroupKnobs` for the parameters."""

    acts_on_processes = True

    def available(self) -> tuple[bool, str]:
        """Return whether control groups can set CPUs on this host, and the reason if not."""
        if self.version == 2:
            there = set(self.text("cgroup.controllers").split()) & {"cpu", "cpuset"}
        else:
            there = {name for name in ("cpu", "cpuset") if (self.root / name / "cgroup.procs").exists()}
        if not there:
            return False, f"no controller cpu or cpuset below '{self.root}'"
        if not os.access(self.root / self.hierarchy(min(there)), os.W_OK):
            return False, f"'{self.root}' cannot be written; run as root"
        return True, f"version {self.version}, controllers {', '.join(sorted(there))}"

    def wishes(self, plan: EnforcementPlan) -> tuple[Wish, ...]:
        """Return the settings to write, in order: the plan's groups, their files, then the processes in them."""
        wishes: list[Wish] = []
        for tenant in plan.tenants:
            for wish in self._tenant(tenant):
                if wish not in wishes:
                    wishes.append(wish)
        return tuple(wishes)

    def _tenant(self, tenant: TenantSetting) -> list[Wish]:
        files = self._files(tenant)
        wishes: list[Wish] = []
        for controller in dict.fromkeys(name.partition(".")[0] for name in files):
            base = self._base(controller)
            mine = {name: text for name, text in files.items() if name.partition(".")[0] == controller}
            if tenant.cgroup is not None:
                folder = f"{base}{tenant.cgroup.strip('/')}"
                self._require_tenants(folder, tenant)
            elif tenant.process_ids:
                name = re.sub(r"[^A-Za-z0-9_.-]+|^\.+$", "-", tenant.tenant)
                folder = f"{base}{PARENT}/{name}"
                wishes += self._make(controller, base, folder, set(mine))
            else:
                raise RefusedSettingError(
                    f"tenant '{tenant.tenant}' has neither processes nor a control group",
                    hint="name process_ids or cgroup in the plan",
                )
            wishes += [Wish(f"file:{folder}/{name}", text) for name, text in mine.items()]
            if tenant.cgroup is None:
                wishes += [Wish(f"member:{controller}:{pid}", folder) for pid in tenant.process_ids]
        return list(dict.fromkeys(wishes))

    def _make(self, controller: str, base: str, folder: str, mine: set[str]) -> list[Wish]:
        wishes: list[Wish] = []
        for made in (f"{base}{PARENT}", folder):
            wishes.append(Wish(f"group:{made}", PRESENT))
            if self.version == 1 and controller == "cpuset":  # empty at first; no process may enter before they are set
                names = sorted({"cpuset.cpus", "cpuset.mems"} - (mine if made == folder else set()))
                texts = {name: self.read(f"file:{made}/{name}") or self.text(f"{base}{name}") for name in names}
                wishes += [Wish(f"file:{made}/{name}", text) for name, text in texts.items()]
        if self.version == 2:
            above = (base.rstrip("/"), f"{base}{PARENT}")
            enabled = [Wish(f"enabled:{controller}:{folder}", PRESENT) for folder in above]
            wishes = [enabled[0], wishes[0], enabled[1], *wishes[1:]]
        return wishes

    def _files(self, tenant: TenantSetting) -> dict[str, str]:
        files: dict[str, str] = {}
        second = self.version == 2
        if tenant.cores:
            self._require_there(tenant, "CPU", "cpuset.cpus", tenant.cores)
            files["cpuset.cpus"] = format_cpu_list(tenant.cores)
        if tenant.memory_node is not None:
            self._require_there(tenant, "memory of node", "cpuset.mems", (tenant.memory_node,))
            files |= {} if second else {"cpuset.memory_migrate": "1"}
            files["cpuset.mems"] = str(tenant.memory_node)
        if tenant.cpu_weight is not None:
            name, least, most, one = WEIGHTS[self.version]
            files[name] = str(min(most, max(least, round(tenant.cpu_weight * one))))
        if tenant.cpu_quota is not None:
            quota = max(_LEAST_QUOTA_US, round(tenant.cpu_quota * PERIOD_US))
            own = {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota)}
            files |= {"cpu.max": f"{quota} {PERIOD_US}"} if second else own
        return files

    def _require_there(self, tenant: TenantSetting, what: str, file: str, numbers: Iterable[int]) -> None:
        there = parse_cpu_list(self.text(f"{self._base('cpuset')}{file}{'.effective' if self.version == 2 else ''}"))
        unknown = sorted(set(numbers) - set(there))
        if there and unknown:
            raise RefusedSettingError(
                f"tenant '{tenant.tenant}': {what} {unknown[0]} is not on this host",
                hint=f"there are {', '.join(map(str, there))}",
            )

    def _base(self, controller: str) -> str:
        folder = self.hierarchy(controller)
        if not (self.root / folder / "cgroup.procs").exists():
            raise RefusedSettingError(f"control group hierarchy '{self.root}' has no controller {controller}")
        return f"{folder}/" if folder else ""

    def knobs(self) -> Iterator[str]:
        """Return the names of the groups that slomo made, and of their files."""
        files = ("cpuset.cpus", "cpuset.mems", "cpu.shares", "cpu.weight", "cpu.cfs_quota_us", "cpu.max")
        for base in dict.fromkeys(self.hierarchy(name) for name in ("cpuset", "cpu")):
            for folder in sorted((self.root / base).glob(f"{PARENT}/*/")):
                name = str(folder.relative_to(self.root))
                yield f"group:{name}"
                yield from (f"file:{name}/{file}" for file in files if (folder / file).exists())

    def _require_tenants(self, folder: str, tenant: TenantSetting) -> None:
        """Raise an error if a group does not exist or contains a process on which the machine depends."""
        path = self.path(folder)
        if not path.is_dir():
            raise RefusedSettingError(f"no control group '{folder}' below '{self.root}'", hint="name one that is there")
        members = (path / "cgroup.procs").read_text(encoding="ascii").split()
        protected = [pid for pid in members if protection(int(pid), self._processes)]
        if protected or not (tenant.cgroup or "").strip("/"):
            raise InvalidValueError(
                f"tenant '{tenant.tenant}': control group '/{(tenant.cgroup or '').strip('/')}' holds process "
                f"{protected[0] if protected else 1}, which must not be touched",
                hint="name a group that holds the tenant alone",
            )
