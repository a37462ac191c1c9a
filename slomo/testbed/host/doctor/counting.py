"""Check counters: model-specific registers, performance counters, RDT, and other programs that use them.

PCM needs model-specific registers and counters (doc/ of opcm/pcm); perf needs a PMU and a kernel setting; resctrl and
pqos need RDT.
"""

import os

from slomo.host.ddio import DdioWays
from slomo.testbed.host.counters.sensor_server import SensorServerReader
from slomo.testbed.host.doctor.check import Check, System, ok, warn

_GROUP = "counters"
_TOOLS = (("pcm", "pcm"), ("perf", "linux-perf"), ("pqos", "intel-cmt-cat"))
_PROBE = "slomo profile --testbed host   # probes pressure without counters"


def checks(system: System) -> list[Check]:
    """Return all findings about counters."""
    return [
        registers(system),
        lockdown(system),
        virtual_counters(system),
        watchdog(system),
        paranoid(system),
        resctrl(system),
        monitoring_ids(system),
        pqos_lock(system),
        *tools(system),
        ddio(system),
    ]


def registers(system: System) -> Check:
    """Check for access to model-specific registers, which PCM and pqos read."""
    path = f"/dev/cpu/{system.cores[0]}/msr"
    if not system.exists(path):
        return warn(
            _GROUP, "MSR access", f"no {path}", "modprobe msr   # as root; unavailable in most virtual machines"
        )
    if not os.access(system.root / path.lstrip("/"), os.R_OK | os.W_OK):
        return warn(
            _GROUP, "MSR access", f"{path} is there, but may not be opened", "sudo slomo doctor   # run as root"
        )
    return ok(_GROUP, "MSR access", f"{path} can be opened")


def lockdown(system: System) -> Check:
    """Check for kernel lockdown, which forbids writing registers even to root."""
    text = system.read("/sys/kernel/security/lockdown")
    mode = next((word.strip("[]") for word in (text or "").split() if word.startswith("[")), "none")
    if mode == "none":
        return ok(_GROUP, "kernel lockdown", "off" if text else "not built in, or not shown")
    return warn(_GROUP, "kernel lockdown", mode, "mokutil --disable-validation   # or boot with lockdown=none")


def virtual_counters(system: System) -> Check:
    """Check for performance counters; a virtual machine has them only with a vPMU."""
    devices = {path.name for path in system.glob("/sys/bus/event_source/devices/*")}
    virtual = "hypervisor" in system.flags()
    if any(name == "cpu" or name.startswith(("cpu_", "armv8")) for name in devices):
        return ok(_GROUP, "performance counters", "vPMU" if virtual else "PMU of the processor")
    where = "virtual machine without vPMU" if virtual else "the kernel shows no PMU of the processor"
    return warn(_GROUP, "performance counters", where, f"enable the vPMU in the hypervisor, or: {_PROBE}")


def watchdog(system: System) -> Check:
    """Check the NMI watchdog, which occupies one counter per core."""
    text = system.read("/proc/sys/kernel/nmi_watchdog")
    if text == "1":
        return warn(_GROUP, "NMI watchdog", "on: it occupies a counter of every core", "sysctl kernel.nmi_watchdog=0")
    return ok(_GROUP, "NMI watchdog", "off" if text == "0" else "not shown")


def paranoid(system: System) -> Check:
    """Check the kernel setting (`perf_event_paranoid`) that decides who may count whole CPUs."""
    text = system.read("/proc/sys/kernel/perf_event_paranoid")
    if text is None:
        return warn(
            _GROUP, "perf_event_paranoid", "no perf events in this kernel", f"boot a kernel with them, or: {_PROBE}"
        )
    level = int(text) if text.lstrip("-").isdigit() else 2
    if level <= 0 or os.geteuid() == 0:
        return ok(_GROUP, "perf_event_paranoid", f"{level}{', and we are root' if level > 0 else ''}")
    return warn(
        _GROUP, "perf_event_paranoid", f"{level}: whole CPUs only for root", "sysctl kernel.perf_event_paranoid=0"
    )


def resctrl(system: System) -> Check:
    """Check whether the kernel's resctrl tree can allocate and monitor."""
    if system.exists("/sys/fs/resctrl/info"):
        features = [path.name for path in system.glob("/sys/fs/resctrl/info/*") if path.name != "last_cmd_status"]
        return ok(_GROUP, "resctrl", f"mounted: {', '.join(features)}")
    rdt = system.flags() & {"cat_l3", "cqm_occup_llc", "cqm_mbm_local", "mba"}
    if rdt:
        return warn(
            _GROUP,
            "resctrl",
            f"not mounted ({', '.join(sorted(rdt))} there)",
            "mount -t resctrl resctrl /sys/fs/resctrl",
        )
    return warn(
        _GROUP, "resctrl", "this processor or virtual machine shows no RDT", f"use a bare-metal server, or: {_PROBE}"
    )


def monitoring_ids(system: System) -> Check:
    """Count the free RMIDs for monitoring groups."""
    text = system.read("/sys/fs/resctrl/info/L3_MON/num_rmids")
    if text is None or not text.isdigit():
        return ok(_GROUP, "RMIDs", "none needed: resctrl does not monitor here")
    patterns = (
        "/sys/fs/resctrl/*/schemata",
        "/sys/fs/resctrl/mon_groups/*/tasks",
        "/sys/fs/resctrl/*/mon_groups/*/tasks",
    )
    used = 1 + sum(len(system.glob(pattern)) for pattern in patterns)
    free = int(text) - used
    if free < len(system.cores):
        return warn(
            _GROUP, "RMIDs", f"{max(free, 0)} of {text} free, one per core needed", "rmdir /sys/fs/resctrl/mon_groups/*"
        )
    return ok(_GROUP, "RMIDs", f"{free} of {text} free")


def pqos_lock(system: System) -> Check:
    """Check whether another program holds the lock under which libpqos changes cache allocation."""
    for path in ("var/lock/libpqos", "run/lock/libpqos"):
        try:
            inode = (system.root / path).stat().st_ino
        except OSError:
            continue
        holder = next((f[4] for f in _locks(system) if f[5].rpartition(":")[2] == str(inode)), None)
        if holder is not None:
            return warn(_GROUP, "pqos lock", f"held by process {holder}", f"kill {holder}   # or wait until it ends")
    return ok(_GROUP, "pqos lock", "free")


def _locks(system: System) -> list[list[str]]:
    """Return the kernel's file locks, each with number, kind, mode, access, process, device and inode."""
    rows = [line.split() for line in (system.read("/proc/locks") or "").splitlines()]
    return [row for row in rows if len(row) >= 6 and row[1] != "->"]


def tools(system: System) -> list[Check]:
    """Query counter programs for their versions and features, without starting to count."""
    tool_checks = [_tool(system, name, package) for name, package in _TOOLS]
    if str(system.root) == "/":
        served, where = SensorServerReader().available()
        tool_checks += [ok(_GROUP, "pcm-sensor-server", where)] if served else []
    return tool_checks


def _tool(system: System, name: str, package: str) -> Check:
    version = system.version_of((name, "--version"))
    if version is None:
        return warn(_GROUP, name, "not installed", f"apt-get install {package}")
    return ok(_GROUP, name, version)


def ddio(system: System) -> Check:
    """Check whether the cache ways that devices write to (DDIO) can be read and set."""
    usable, why = DdioWays(system.cores[0], system.root / "dev/cpu").available()
    if usable:
        return ok(_GROUP, "DDIO ways", why)
    return warn(_GROUP, "DDIO ways", why, "modprobe msr   # as root; only Intel servers since Skylake let them be set")
