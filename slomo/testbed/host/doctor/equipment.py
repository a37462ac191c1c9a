"""Check the equipment for network functions: cores, NICs and their NUMA node, DPDK, Click, a C compiler.

SLOMO (SIGCOMM'20, section 4.1) keeps target, competitors and NIC on one socket.
"""

from slomo.host.cores import node_of, socket_of
from slomo.testbed.host.doctor.check import Check, System, fail, ok, warn

_GROUP = "equipment"
_DPDK_DRIVERS = ("vfio-pci", "igb_uio", "uio_pci_generic")


def checks(system: System) -> list[Check]:
    """Return all findings about equipment."""
    return [cores(system), numa(system), network_cards(system), compiler(system), dpdk(system), click(system)]


def cores(system: System) -> Check:
    """Check that one socket has enough cores: one for the target, and at least one for competitors."""
    home = [core for core in system.cores if socket_of(core) == socket_of(system.cores[0])]
    if len(home) < 2:
        return fail(
            _GROUP,
            "cores",
            f"{len(home)} usable core on its socket, needed 2",
            "give this process a second core: taskset, cpuset",
        )
    return ok(_GROUP, "cores", f"{len(home)} usable on one socket")


def numa(system: System) -> Check:
    """Check that the cores are on one memory node."""
    nodes = {node_of(core) for core in system.cores} - {None}
    if len(nodes) > 1:
        return warn(
            _GROUP,
            "NUMA nodes",
            f"cores lie on {len(nodes)} nodes",
            "apt-get install numactl   # then name cores of one node",
        )
    return ok(_GROUP, "NUMA nodes", "one")


def network_cards(system: System) -> Check:
    """List NICs, whether DPDK drives them, and whether they are on the same memory node as the cores."""
    cards = {path.name: path / "device" for path in system.glob("/sys/class/net/*") if (path / "device").exists()}
    for driver in _DPDK_DRIVERS:
        cards |= {f"{p.name} ({driver})": p for p in system.glob(f"/sys/bus/pci/drivers/{driver}/*:*:*.*")}
    if not cards:
        return ok(_GROUP, "NIC", "none; captures, memif and generated packets need none")
    home = node_of(system.cores[0]) or 0
    far = []
    for name, device in cards.items():
        node = system.read(f"/{(device / 'numa_node').relative_to(system.root)}")
        if node and node.isdigit() and int(node) != home:
            far.append(f"{name} on node {node}")
    if far:
        return warn(_GROUP, "NIC", f"{', '.join(far)}; cores on node {home}", "use cores of the NIC's node: lscpu -e")
    return ok(_GROUP, "NIC", ", ".join(cards))


def compiler(system: System) -> Check:
    """Check for a C compiler, which builds the portable network functions."""
    version = next((text for name in ("cc", "gcc", "clang") if (text := system.version_of((name, "--version")))), None)
    if version is None:
        return fail(
            _GROUP, "C compiler", "none: the shipped network functions cannot be built", "apt-get install gcc libc6-dev"
        )
    return ok(_GROUP, "C compiler", version)


def dpdk(system: System) -> Check:
    """Check for DPDK, which the fast build and testpmd need."""
    version = system.version_of(("pkg-config", "--modversion", "libdpdk"))
    testpmd = system.version_of(("dpdk-testpmd", "--version"))
    if version is None or not version[:1].isdigit():
        return warn(
            _GROUP,
            "DPDK",
            "not installed: only the portable network functions run",
            "apt-get install libdpdk-dev dpdk-dev meson",
        )
    return ok(_GROUP, "DPDK", f"{version}{'' if testpmd is None else ', with testpmd'}")


def click(system: System) -> Check:
    """Check for Click, which runs Click network functions."""
    version = system.version_of(("click", "--version"))
    if version is None:
        return warn(_GROUP, "Click", "not installed", "build FastClick: https://github.com/tbarbette/fastclick")
    return ok(_GROUP, "Click", version)
