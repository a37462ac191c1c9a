"""Check the equipment for network functions: cores, NICs and their NUMA node, DPDK, Click, a C compiler.

SLOMO (SIGCOMM'20, section 4.1) keeps target, competitors and NIC on one socket.
"""

from slomo.host.cores import node_of, socket_of
from slomo.testbed.host.doctor.check import Check, Finding, System, check, fail, ok, warn

_GROUP = "equipment"
_DPDK_DRIVERS = ("vfio-pci", "igb_uio", "uio_pci_generic")


def checks(system: System) -> list[Check]:
    """Return all findings about equipment."""
    return [cores(system), numa(system), network_cards(system), compiler(system), dpdk(system), click(system)]


@check(_GROUP, "cores")
def cores(system: System) -> Finding:
    """Check that one socket has enough cores: one for the target, and at least one for competitors."""
    home = [core for core in system.cores if socket_of(core) == socket_of(system.cores[0])]
    if len(home) < 2:
        return fail(
            f"{len(home)} usable core on its socket, needed 2", "give this process a second core: taskset, cpuset"
        )
    return ok(f"{len(home)} usable on one socket")


@check(_GROUP, "NUMA nodes")
def numa(system: System) -> Finding:
    """Check that the cores are on one memory node."""
    nodes = {node_of(core) for core in system.cores} - {None}
    if len(nodes) > 1:
        return warn(f"cores lie on {len(nodes)} nodes", "apt-get install numactl   # then name cores of one node")
    return ok("one")


@check(_GROUP, "NIC")
def network_cards(system: System) -> Finding:
    """List NICs, whether DPDK drives them, and whether they are on the same memory node as the cores."""
    cards = {path.name: path / "device" for path in system.glob("/sys/class/net/*") if (path / "device").exists()}
    for driver in _DPDK_DRIVERS:
        cards |= {f"{p.name} ({driver})": p for p in system.glob(f"/sys/bus/pci/drivers/{driver}/*:*:*.*")}
    if not cards:
        return ok("none; captures, memif and generated packets need none")
    home = node_of(system.cores[0]) or 0
    far = []
    for name, device in cards.items():
        node = system.read(f"/{(device / 'numa_node').relative_to(system.root)}")
        if node and node.isdigit() and int(node) != home:
            far.append(f"{name} on node {node}")
    if far:
        return warn(f"{', '.join(far)}; cores on node {home}", "use cores of the NIC's node: lscpu -e")
    return ok(", ".join(cards))


@check(_GROUP, "C compiler")
def compiler(system: System) -> Finding:
    """Check for a C compiler, which builds the portable network functions."""
    version = next((text for name in ("cc", "gcc", "clang") if (text := system.version_of((name, "--version")))), None)
    if version is None:
        return fail("none: the shipped network functions cannot be built", "apt-get install gcc libc6-dev")
    return ok(version)


@check(_GROUP, "DPDK")
def dpdk(system: System) -> Finding:
    """Check for DPDK, which the fast build and testpmd need."""
    version = system.version_of(("pkg-config", "--modversion", "libdpdk"))
    testpmd = system.version_of(("dpdk-testpmd", "--version"))
    if version is None or not version[:1].isdigit():
        return warn(
            "not installed: only the portable network functions run", "apt-get install libdpdk-dev dpdk-dev meson"
        )
    return ok(f"{version}{'' if testpmd is None else ', with testpmd'}")


@check(_GROUP, "Click")
def click(system: System) -> Finding:
    """Check for Click, which runs Click network functions."""
    version = system.version_of(("click", "--version"))
    if version is None:
        return warn("not installed", "build FastClick: https://github.com/tbarbette/fastclick")
    return ok(version)
