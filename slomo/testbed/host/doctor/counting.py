"""Check counters: model-specific registers, performance counters, RDT, and other programs that use them.

PCM needs model-specific registers and counters (doc/ of opcm/pcm); perf needs a PMU and a kernel setting; resctrl and
pqos need RDT.
"""

import os

from slomo.host.ddio import DdioWays
from slomo.testbed.host.counters.sensor_server import SensorServerReader
from slomo.testbed.host.doctor.check import Check, Finding, System, check, ok, warn

_GROUP = "counters"
_TOOLS = (("pcm", "pcm"), ("perf", "linux-perf"), ("pqos", "intel-cmt-cat"))
_PROBE = "slomo profile --testbed host   # probes pressure without counters"


def checks(system: System) -> list[Check]:
    """Return all findings about counters."""
    before = (registers, lockdown, virtual_counters, watchdog, paranoid, resctrl, monitoring_ids, pqos_lock)
    return [*(look(system) for look in before), *tools(system), ddio(system)]


@check(_GROUP, "MSR access")
def registers(system: System) -> Finding:
    """Check for access to model-specific registers, which PCM and pqos read."""
    path = f"/dev/cpu/{system.cores[0]}/msr"
    if not system.exists(path):
        return warn(f"no {path}", "modprobe msr   # as root; unavailable in most virtual machines")
    if not os.access(system.root / path.lstrip("/"), os.R_OK | os.W_OK):
        return warn(f"{path} is there, but may not be opened", "sudo slomo doctor   # run as root")
    return ok(f"{path} can be opened")


@check(_GROUP, "kernel lockdown")
def lockdown(system: System) -> Finding:
    """Check for kernel lockdown, which forbids writing registers even to root."""
    text = system.read("/sys/kernel/security/lockdown")
    mode = next((word.strip("[]") for word in (text or "").split() if word.startswith("[")), "none")
    if mode == "none":
        return ok("off" if text else "not built in, or not shown")
    return warn(mode, "mokutil --disable-validation   # or boot with lockdown=none")


@check(_GROUP, "performance counters")
def virtual_counters(system: System) -> Finding:
    """Check for performance counters; a virtual machine has them only with a vPMU."""
    devices = {path.name for path in system.glob("/sys/bus/event_source/devices/*")}
    virtual = "hypervisor" in system.flags()
    if any(name == "cpu" or name.startswith(("cpu_", "armv8")) for name in devices):
        return ok("vPMU" if virtual else "PMU of the processor")
    where = "virtual machine without vPMU" if virtual else "the kernel shows no PMU of the processor"
    return warn(where, f"enable the vPMU in the hypervisor, or: {_PROBE}")


@check(_GROUP, "NMI watchdog")
def watchdog(system: System) -> Finding:
    """Check the NMI watchdog, which occupies one counter per core."""
    text = system.read("/proc/sys/kernel/nmi_watchdog")
    if text == "1":
        return warn("on: it occupies a counter of every core", "sysctl kernel.nmi_watchdog=0")
    return ok("off" if text == "0" else "not shown")


@check(_GROUP, "perf_event_paranoid")
def paranoid(system: System) -> Finding:
    """Check the kernel setting (`perf_event_paranoid`) that decides who may count whole CPUs."""
    text = system.read("/proc/sys/kernel/perf_event_paranoid")
    if text is None:
        return warn("no perf events in this kernel", f"boot a kernel with them, or: {_PROBE}")
    level = int(text) if text.lstrip("-").isdigit() else 2
    if level <= 0 or os.geteuid() == 0:
        return ok(f"{level}{', and we are root' if level > 0 else ''}")
    return warn(f"{level}: whole CPUs only for root", "sysctl kernel.perf_event_paranoid=0")


@check(_GROUP, "resctrl")
def resctrl(system: System) -> Finding:
    """Check whether the kernel's resctrl tree can allocate and monitor."""
    if system.exists("/sys/fs/resctrl/info"):
        features = [path.name for path in system.glob("/sys/fs/resctrl/info/*") if path.name != "last_cmd_status"]
        return ok(f"mounted: {', '.join(features)}")
    rdt = system.flags() & {"cat_l3", "cqm_occup_llc", "cqm_mbm_local", "mba"}
    if rdt:
        return warn(f"not mounted ({', '.join(sorted(rdt))} there)", "mount -t resctrl resctrl /sys/fs/resctrl")
    return warn("this processor or virtual machine shows no RDT", f"use a bare-metal server, or: {_PROBE}")


@check(_GROUP, "RMIDs")
def monitoring_ids(system: System) -> Finding:
    """Count the free RMIDs for monitoring groups."""
    text = system.read("/sys/fs/resctrl/info/L3_MON/num_rmids")
    if text is None or not text.isdigit():
        return ok("none needed: resctrl does not monitor here")
    patterns = (
        "/sys/fs/resctrl/*/schemata",
        "/sys/fs/resctrl/mon_groups/*/tasks",
        "/sys/fs/resctrl/*/mon_groups/*/tasks",
    )
    used = 1 + sum(len(system.glob(pattern)) for pattern in patterns)
    free = int(text) - used
    if free < len(system.cores):
        return warn(f"{max(free, 0)} of {text} free, one per core needed", "rmdir /sys/fs/resctrl/mon_groups/*")
    return ok(f"{free} of {text} free")


@check(_GROUP, "pqos lock")
def pqos_lock(system: System) -> Finding:
    """Check whether another program holds the lock under which libpqos changes cache allocation."""
    for path in ("var/lock/libpqos", "run/lock/libpqos"):
        try:
            inode = (system.root / path).stat().st_ino
        except OSError:
            continue
        holder = next((f[4] for f in _locks(system) if f[5].rpartition(":")[2] == str(inode)), None)
        if holder is not None:
            return warn(f"held by process {holder}", f"kill {holder}   # or wait until it ends")
    return ok("free")


def _locks(system: System) -> list[list[str]]:
    """Return the kernel's file locks, each with number, kind, mode, access, process, device and inode."""
    rows = [line.split() for line in (system.read("/proc/locks") or "").splitlines()]
    return [row for row in rows if len(row) >= 6 and row[1] != "->"]


def tools(system: System) -> list[Check]:
    """Query counter programs for their versions and features, without starting to count."""
    tool_checks = []
    for name, package in _TOOLS:
        version = system.version_of((name, "--version"))
        answer = ok(version) if version else warn("not installed", f"apt-get install {package}")
        tool_checks.append(Check(_GROUP, name, *answer))
    if str(system.root) == "/":
        served, where = SensorServerReader().available()
        tool_checks += [Check(_GROUP, "pcm-sensor-server", *ok(where))] if served else []
    return tool_checks


@check(_GROUP, "DDIO ways")
def ddio(system: System) -> Finding:
    """Check whether the cache ways that devices write to (DDIO) can be read and set."""
    usable, why = DdioWays(system.cores[0], system.root / "dev/cpu").available()
    if usable:
        return ok(why)
    return warn(why, "modprobe msr   # as root; only Intel servers since Skylake let them be set")
