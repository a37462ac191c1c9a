"""What examples of pages need beyond the wheel -> whether it is to be had on this machine."""

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from slomo.host.cores import cores_by_node
from tests.service.kubernetes.control_plane import TOKEN, ControlPlane

#: The tables of a SmartNIC that Yala's authors publish.
TABLES = Path(os.environ.get("SLOMO_DATA", "")) / "yala-flowmon"
#: What the operator of Prometheus adds to an API server.
RULES = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "prometheusrules.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"plural": "prometheusrules", "kind": "PrometheusRule"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def binaries() -> Path:
    """Return the folder of the control plane that `make kube-tools` builds."""
    return Path(os.environ.get("SLOMO_KUBE_BIN") or Path.home() / ".cache/slomo/kube/bin")


def programs(*names: str) -> Callable[[], bool]:
    """Return a check that programs are on the PATH."""
    return lambda: all(map(shutil.which, names))


#: Name -> whether it is there.
NEEDS: dict[str, Callable[[], bool]] = {
    "clone": programs("git", "make"),
    "cores": lambda: len(os.sched_getaffinity(0)) > 1 and bool(shutil.which("cc")),
    "nodes": lambda: len(cores_by_node()) > 1,
    "root": lambda: os.geteuid() == 0,
    "dpdk": programs("dpdk-testpmd", "meson"),
    "kube": lambda: (binaries() / "kube-apiserver").exists() and bool(shutil.which("kubectl")),
    "ssh": programs("ssh-keygen"),
    "resctrl": lambda: Path("/sys/fs/resctrl/schemata").exists() and os.geteuid() == 0,
    "champsim": lambda: bool(os.environ.get("SLOMO_CHAMPSIM")),
    "duckdb": lambda: importlib.util.find_spec("duckdb") is not None,
    "jq": programs("jq"),
    "pktgen": programs("pktgen"),
    "tables": TABLES.is_dir,
}


@contextmanager
def cluster(folder: Path) -> Iterator[None]:
    """Run a control plane until the page ends, with one node and kubectl's configuration in the page's home."""
    place = folder / ".control-plane"
    place.mkdir()
    (folder / ".cache/slomo").mkdir(parents=True, exist_ok=True)
    (folder / ".cache/slomo/kube").symlink_to(binaries().parent)
    with ControlPlane(binaries(), place, bare=True) as plane:
        plane.apply(RULES)
        plane.line.post("/api/v1/nodes", json={"kind": "Node", "apiVersion": "v1", "metadata": {"name": "worker-1"}})
        trusted = str(place / "certificates/apiserver.crt")
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "page",
            "clusters": [{"name": "page", "cluster": {"server": plane.address, "certificate-authority": trusted}}],
            "users": [{"name": "page", "user": {"token": TOKEN}}],
            "contexts": [{"name": "page", "context": {"cluster": "page", "user": "page"}}],
        }
        (folder / ".kube").mkdir()
        (folder / ".kube/config").write_text(yaml.safe_dump(document), encoding="utf-8")
        yield
