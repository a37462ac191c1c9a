"""Check for disturbances: frequency changes, idle states, hyper-threads, other tasks, memory pages.

The list follows DPDK's guide to Intel platforms (linux_gsg/nic_perf_intel_platform) and SLOMO's testbed (SIGCOMM'20,
section 6: hyper-threading and turbo off, cores isolated).
"""

import re

from slomo.host.cores import parse_cpu_list
from slomo.testbed.host.doctor.check import Check, Finding, System, check, ok, warn

_GROUP = "tuning"
_SLOW_IDLE_US = 10  # waking from a deeper idle state takes as long as some thousand packets
_CPUS = "/sys/devices/system/cpu"


def checks(system: System) -> list[Check]:
    """Return all findings about disturbances."""
    looks = (hugepages, hugepage_mount, governor, turbo, idle_states, hyper_threads, isolated, load, stolen)
    return [look(system) for look in looks]


@check(_GROUP, "hugepages")
def hugepages(system: System) -> Finding:
    """Count reserved hugepages, which DPDK needs."""
    sizes = {
        path.split("hugepages-")[1].partition("/")[0]: text
        for path, text in system.texts("/sys/kernel/mm/hugepages/hugepages-*/free_hugepages").items()
    }
    free = {size: int(text) for size, text in sizes.items() if text.isdigit() and int(text)}
    if free:
        return ok(", ".join(f"{count} x {size} free" for size, count in free.items()))
    return warn(
        "none free: DPDK runs at about half its speed",
        "echo 512 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    )


@check(_GROUP, "hugetlbfs")
def hugepage_mount(system: System) -> Finding:
    """Check whether hugepages are mounted."""
    lines = [line.split() for line in (system.read("/proc/mounts") or "").splitlines()]
    places = [fields[1] for fields in lines if len(fields) > 2 and fields[2] == "hugetlbfs"]
    if places:
        return ok(", ".join(places))
    return warn("not mounted", "mkdir -p /dev/hugepages && mount -t hugetlbfs none /dev/hugepages")


@check(_GROUP, "governor")
def governor(system: System) -> Finding:
    """Check the frequency governor of the cores."""
    governors = {system.read(f"{_CPUS}/cpu{core}/cpufreq/scaling_governor") for core in system.cores} - {None}
    if not governors:
        return warn("frequency is not shown (virtual machine?)", "set 'performance' on the machine below")
    if governors == {"performance"}:
        return ok("performance")
    return warn(", ".join(sorted(map(str, governors))), "cpupower frequency-set -g performance")


@check(_GROUP, "turbo")
def turbo(system: System) -> Finding:
    """Check whether turbo is on, since it makes a core's speed depend on what other cores do."""
    off, boost = system.read(f"{_CPUS}/intel_pstate/no_turbo"), system.read(f"{_CPUS}/cpufreq/boost")
    if off == "1" or (off is None and boost == "0"):
        return ok("off")
    if off is None and boost is None:
        return warn("not shown (virtual machine?)", "turn it off on the machine below, or in the firmware")
    path = f"1 > {_CPUS}/intel_pstate/no_turbo" if off is not None else f"0 > {_CPUS}/cpufreq/boost"
    return warn("on", f"echo {path}")


@check(_GROUP, "C-states")
def idle_states(system: System) -> Finding:
    """Check for idle states from which a core takes long to wake up."""
    states = f"{_CPUS}/cpu{system.cores[0]}/cpuidle/state*"
    latencies, disabled = system.texts(f"{states}/latency"), system.texts(f"{states}/disable")
    deep = []
    for path, text in latencies.items():
        folder = path.removesuffix("/latency")
        if text.isdigit() and int(text) > _SLOW_IDLE_US and disabled.get(f"{folder}/disable", "0") == "0":
            deep.append(f"{system.read(f'{folder}/name')} ({text} us)")
    if not latencies:
        return ok("not shown: the kernel does not manage them here")
    if deep:
        return warn(f"deep ones are on: {', '.join(deep)}", f"cpupower idle-set -D {_SLOW_IDLE_US}")
    return ok("only quick ones")


@check(_GROUP, "SMT")
def hyper_threads(system: System) -> Finding:
    """Check whether two CPUs in use are threads of one core; SLOMO assumes that a core's resources are not shared."""
    shared = {system.read(f"{_CPUS}/cpu{core}/topology/thread_siblings_list") or str(core) for core in system.cores}
    pairs = sorted(text for text in shared if len(parse_cpu_list(text)) > 1)
    if not pairs:
        return ok("off: one thread per core")
    return warn(f"on: {'; '.join(pairs[:4])} share a core", f"echo off > {_CPUS}/smt/control")


@check(_GROUP, "isolcpus")
def isolated(system: System) -> Finding:
    """Check whether the CPUs in use are isolated from the scheduler."""
    text = system.read(f"{_CPUS}/isolated") or ""
    if text:
        return ok(text)
    if len(system.cores) < 3:
        return warn("none: other tasks share the cores", "stop other tasks; two cores leave none over")
    span = f"{system.cores[1]}-{system.cores[-1]}"
    return warn("none: other tasks share the cores", f"boot with isolcpus={span} nohz_full={span}")


@check(_GROUP, "load")
def load(system: System) -> Finding:
    """Check whether other programs are running."""
    text = system.read("/proc/loadavg") or ""
    busy = float(text.split()[0]) if re.match(r"\d+\.\d+ ", text) else 0.0
    if busy > 0.25:
        return warn(f"{busy:.2f} tasks run besides", "ps -eo pcpu,pid,comm --sort=-pcpu | head   # stop them")
    return ok(f"{busy:.2f}")


@check(_GROUP, "stolen time")
def stolen(system: System) -> Finding:
    """Check how much CPU time the hypervisor has given to other guests since boot."""
    fields = (system.read("/proc/stat") or "").partition("\n")[0].split()[1:9]
    if len(fields) < 8 or not all(field.isdigit() for field in fields):
        return ok("not shown")
    share = int(fields[7]) / max(1, sum(map(int, fields)))
    if share > 0.01:
        return warn(f"{share:.1%} since boot", "pin the virtual CPUs on the machine below")
    return ok(f"{share:.1%} since boot")
