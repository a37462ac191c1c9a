"""A real Kubernetes control plane on loopback, of binaries that `make kube-tools` builds: etcd, API server, schedulers.

No kubelet runs: nodes are objects, pods are bound and nothing more. Every process has ports and a folder of its own and
is ended by its handle.
"""

import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from slomo.service.kubernetes.pods import MACHINE, MIN_SHARE, NF
from slomo.service.kubernetes.wire import PROMISE_KEPT
from slomo.vocabulary.machine import load_machine

TOKEN, SLOMO_TOKEN = "a-token-of-this-test-alone", "a-token-of-slomo-in-this-test"
#: Who slomo is, and where it lives: as shipped, with the rights of the shipped roles and no others.
ACCOUNT = "system:serviceaccount:slomo:slomo-scheduler"
MANIFESTS = Path(__file__).resolve().parents[3] / "deploy/kubernetes"
_PLACES = {
    "Namespace": "/api/v1/namespaces", "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "SLOPolicy": "/apis/slomo.io/v1alpha1/namespaces/{}/slopolicies",
}  # fmt: skip


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


def waited(what: str, ready: Callable[[], bool], limit_s: float = 60.0) -> float:
    """Wait for something; return how long it took [s]."""
    begun = time.monotonic()
    while time.monotonic() - begun < limit_s:
        if ready():
            return time.monotonic() - begun
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {limit_s:g} s")


class ControlPlane:
    """An API server with its etcd, and the schedulers started beside it.

    Parameters
    ----------
    binaries : Path
        Folder of kube-apiserver, kube-scheduler and etcd.
    folder : Path
        For everything that is written.
    bare : bool
        Without slomo's namespace and roles.
    """

    def __init__(self, binaries: Path, folder: Path, *, bare: bool = False) -> None:
        self._binaries, self._folder, self._bare = binaries, folder, bare
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._port = free_port()
        self.address = f"https://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin(self) -> None:
        client, peer = free_port(), free_port()
        urls = [f"http://127.0.0.1:{port}" for port in (client, peer)]
        self.start("etcd", [str(self._binaries / "etcd"), "--data-dir", str(self._folder / "etcd"),
                            "--listen-client-urls", urls[0], "--advertise-client-urls", urls[0],
                            "--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1],
                            "--initial-cluster", f"default={urls[1]}", "--unsafe-no-fsync"])  # fmt: skip
        self._write_keys()
        self.start("apiserver", [str(self._binaries / "kube-apiserver"), *self._flags(urls[0])])
        waited("API server", self._is_up, 300.0)
        context = ssl.create_default_context(cafile=str(self._folder / "certificates/apiserver.crt"))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        self.line = httpx.Client(base_url=self.address, verify=context, headers=headers, timeout=30.0)
        waited("namespace", lambda: self.line.get("/api/v1/namespaces/default").status_code == 200)
        if self._bare:
            return
        self.apply({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "slomo"}})
        for item in yaml.safe_load_all((MANIFESTS / "slomo-scheduler.yaml").read_text(encoding="utf-8")):
            if "Role" in item["kind"]:
                self.apply(item)

    def __exit__(self, *_: object) -> None:
        for name in list(self._processes)[::-1]:
            self.stop(name)
        if hasattr(self, "line"):
            self.line.close()

    def apply(self, item: dict[str, Any]) -> None:
        """Create an object."""
        path = _PLACES[item["kind"]].format(item["metadata"].get("namespace", "default"))
        self.line.post(path, json=item).raise_for_status()

    def apply_file(self, name: str) -> None:
        """Create what a shipped manifest holds."""
        for item in yaml.safe_load_all((MANIFESTS / name).read_text(encoding="utf-8")):
            self.apply(item)

    def start(self, name: str, command: list[str], **environment: str) -> subprocess.Popen[bytes]:
        """Start a process whose words go to a file of its name."""
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._folder, env={**os.environ, **environment}
            )
        return self._processes[name]

    def stop(self, name: str) -> None:
        """Kill a process and wait for its end."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a process."""
        self._processes[name].send_signal(number)

    def said(self, name: str) -> str:
        """Return the last of what a process said."""
        return (self._folder / f"{name}.log").read_text(errors="replace")[-3000:]

    def unjudged(self) -> int:
        """Return how often the scheduler went on without the extender's answer."""
        return (self._folder / "slomo-scheduler.log").read_text(errors="replace").count("Skipping extender")

    def _write_keys(self) -> None:
        command = ["openssl", "genrsa", "-out", str(self._folder / "accounts.key"), "2048"]
        subprocess.run(command, check=True, capture_output=True)
        (self._folder / "tokens.csv").write_text(
            f"{TOKEN},tester,tester,system:masters\n{SLOMO_TOKEN},{ACCOUNT},slomo\n"
        )
        (self._folder / "token").write_text(SLOMO_TOKEN, encoding="utf-8")

    def _flags(self, etcd: str) -> list[str]:
        key = str(self._folder / "accounts.key")
        return [
            f"--etcd-servers={etcd}", f"--secure-port={self._port}", "--bind-address=127.0.0.1",
            f"--cert-dir={self._folder / 'certificates'}", "--service-account-issuer=https://slomo.test",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            f"--token-auth-file={self._folder / 'tokens.csv'}", "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged=true",
        ]  # fmt: skip

    def _is_up(self) -> bool:
        assert self._processes["apiserver"].poll() is None, self.said("apiserver")
        certificate = self._folder / "certificates/apiserver.crt"
        if not certificate.is_file():
            return False
        try:
            context = ssl.create_default_context(cafile=str(certificate))
            return httpx.get(f"{self.address}/readyz", verify=context, headers={"Authorization": f"Bearer {TOKEN}"},
                             timeout=5.0).status_code == 200  # fmt: skip
        except (httpx.HTTPError, OSError):
            return False

    def scheduler(self, name: str, extender: str | None = None) -> None:
        """Start a kube-scheduler of that name, with an extender as it is shipped, or without."""
        documents = yaml.safe_load_all((MANIFESTS / "slomo-scheduler.yaml").read_text(encoding="utf-8"))
        text = next(item for item in documents if item["kind"] == "ConfigMap")["data"]["scheduler.yaml"]
        config = yaml.safe_load(text)
        config["profiles"] = [{"schedulerName": name}]
        config["leaderElection"] = {"leaderElect": False}
        config["clientConnection"] = {"kubeconfig": str(self._kubeconfig())}
        if extender is None:
            del config["extenders"]
        else:
            config["extenders"][0]["urlPrefix"] = f"{extender}/scheduler"
        path = self._folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        command = [str(self._binaries / "kube-scheduler"), f"--config={path}", "--secure-port=0"]
        self.start(name, command)

    def _kubeconfig(self) -> Path:
        cluster = {
            "server": self.address,
            "certificate-authority": str(self._folder / "certificates/apiserver.crt"),
        }
        path = self._folder / "kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "tester", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "tester"}}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path

    def slomo(self, models: Path, port: int, confidence: float, name: str = "slomo", *options: str) -> None:
        """Start `slomo serve` on a port, watching this API server with the rights of the shipped roles."""
        command = [sys.executable, "-m", "slomo", "serve", "--models", str(models), "--port", str(port)]
        told = {
            "SLOMO_KUBE_TOKEN_FILE": str(self._folder / "token"),
            "SLOMO_KUBE_CA_FILE": str(self._folder / "certificates/apiserver.crt"),
        }
        command += ["--kubernetes", self.address, "--confidence", str(confidence), *options]
        self.start(name, command, **told)

    def add_nodes(self, nodes: Iterable[tuple[str, str]]) -> None:
        """Add nodes of a machine type each, ready for as many pods as its NIC's socket has cores."""
        for name, machine in nodes:
            labels = {MACHINE: machine, "kubernetes.io/hostname": name}
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
            self.line.post("/api/v1/nodes", json=body).raise_for_status()
            room = {"cpu": str(load_machine(machine).cores_per_socket), "memory": "256Gi", "pods": "110"}
            status = {"capacity": room, "allocatable": room,
                      "conditions": [{"type": "Ready", "status": "True", "reason": "Test"}]}  # fmt: skip
            kind = {"Content-Type": "application/merge-patch+json"}
            self.line.patch(f"/api/v1/nodes/{name}/status", json={"status": status}, headers=kind).raise_for_status()

    def drain(self, name: str) -> list[str]:
        """Cordon a node and delete its pods; return their names."""
        kind = {"Content-Type": "application/merge-patch+json"}
        self.line.patch(
            f"/api/v1/nodes/{name}", json={"spec": {"unschedulable": True}}, headers=kind
        ).raise_for_status()
        gone = [pod for pod, (_, node) in self.pods().items() if node == name]
        for pod in gone:
            self.delete_pod(pod)
        return gone

    def add_pod(
        self, name: str, nf: str, share: float, scheduler: str, rank: str = "", cpu: str = "1", owner: str = ""
    ) -> None:
        """Add a pod that runs a network function with a promise; of a priority class, a ReplicaSet where named."""
        notes = {NF: nf, MIN_SHARE: str(share)}
        container = {"name": "nf", "image": "none", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
        spec: dict[str, Any] = {
            "schedulerName": scheduler,
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
        }
        if rank:
            spec["priorityClassName"] = rank
        meta: dict[str, Any] = {"name": name, "annotations": notes}
        if owner:
            meta["ownerReferences"] = [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
            ]
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        self.line.post("/api/v1/namespaces/default/pods", json=body).raise_for_status()

    def bind_pod(self, name: str, node: str) -> None:
        """Bind a pod to a node, as a scheduler does."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self.line.post(f"/api/v1/namespaces/default/pods/{name}/binding", json=body).raise_for_status()

    def delete_pod(self, name: str) -> None:
        """Delete a pod at once."""
        path = f"/api/v1/namespaces/default/pods/{name}"
        self.line.delete(path, params={"gracePeriodSeconds": "0"}).raise_for_status()

    def pods(self) -> dict[str, tuple[dict[str, str], str]]:
        """Return annotations and node ("" while there is none) of every pod."""
        items: list[dict[str, Any]] = self.line.get("/api/v1/namespaces/default/pods").json()["items"]
        return {
            item["metadata"]["name"]: (item["metadata"].get("annotations", {}), item["spec"].get("nodeName", ""))
            for item in items
        }

    def conditions(self) -> dict[str, str]:
        """Return whether the promise of each pod is kept, as it is told on the pod."""
        items: list[dict[str, Any]] = self.line.get("/api/v1/namespaces/default/pods").json()["items"]
        return {
            item["metadata"]["name"]: condition["status"]
            for item in items
            for condition in item["status"].get("conditions", [])
            if condition["type"] == PROMISE_KEPT
        }

    def wait_until_bound(self, names: Iterable[str], limit_s: float = 180.0) -> float:
        """Wait until pods have nodes; return how long it took [s]."""
        awaited = set(names)

        def waiting() -> list[str]:
            pods = self.pods()
            return sorted(name for name in awaited if name in pods and not pods[name][1])

        try:
            return waited(f"{len(awaited)} pods bound", lambda: not waiting(), limit_s)
        except AssertionError as error:
            reasons = [f"{name}: {self.why_it_waits(name)}" for name in waiting()]
            raise AssertionError(f"{error}; waiting: {'; '.join(reasons)}") from None

    def wait_until_settled(self, names: Iterable[str], limit_s: float, most: int = 4) -> tuple[float, list[str]]:
        """Wait until each pod has a node, or none keeps every SLO with a few; return how long it took [s], and those.

        The scheduler asks again for refused pods when something changes, else after five minutes.
        """
        awaited = set(names)

        def waiting() -> list[str]:
            pods = self.pods()
            return sorted(name for name in awaited if not pods[name][1])

        def is_settled() -> bool:
            left = waiting()
            return len(left) <= most and all("an SLO would break" in self.why_it_waits(name) for name in left)

        return waited(f"{len(awaited)} pods bound or refused", is_settled, limit_s), waiting()

    def why_it_waits(self, name: str) -> str:
        """Return what the scheduler wrote on a pod that has no node."""
        conditions = self.line.get(f"/api/v1/namespaces/default/pods/{name}").json()["status"].get("conditions", [])
        return " ".join(item.get("message", "") for item in conditions if item["type"] == "PodScheduled")
