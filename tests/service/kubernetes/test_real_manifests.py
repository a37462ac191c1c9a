"""A real API server accepts every shipped manifest and what helm makes of the chart, without an unknown field.

Runs where SLOMO_KUBE_BIN names the folder that `make kube-tools` fills and kubectl is there; the chart where helm is.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.service.kubernetes.control_plane import MANIFESTS, ControlPlane

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kubernetes")]
#: Kinds of the Prometheus operator, which the API server of the test does not know.
ELSEWHERE = ("ServiceMonitor", "PrometheusRule")
#: Values of the chart: as shipped; all that can be added; without rights on the node.
VALUES = (
    (),
    ("agent.enabled=true", "agent.counters=auto", "agent.enforce=resctrl+cgroup", "state.claim=slomo-state",
     "evict.mode=on", "serviceMonitor.enabled=true", "prometheusRule.enabled=true"),
    ("agent.enabled=true", "models.configMap=models"),
)  # fmt: skip


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Return kubectl's command that lets the API server try what it is given."""
    named, kubectl = os.environ.get("SLOMO_KUBE_BIN"), shutil.which("kubectl")
    if not named or kubectl is None:
        pytest.skip("SLOMO_KUBE_BIN is not set, or no kubectl is here")
    with ControlPlane(Path(named), tmp_path_factory.mktemp("plane")) as plane:
        config = str(plane._kubeconfig())
        yield [kubectl, f"--kubeconfig={config}", "apply", "--dry-run=server", "--validate=strict", "-f", "-"]


def answered(command: list[str], text: str) -> str:
    """Return what a command says to a text; it must succeed."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", sorted(MANIFESTS.glob("slomo-*.yaml")), ids=lambda path: path.stem)
def test_manifests_are_accepted(tried: list[str], path: Path) -> None:
    """Every document, with strict validation of its fields."""
    text = path.read_text(encoding="utf-8")
    said = answered(tried, text)

    assert said.count("(server dry run)") == len([item for item in yaml.safe_load_all(text) if item])


@pytest.mark.parametrize("values", VALUES, ids=["shipped", "everything", "plain-agent"])
def test_what_helm_makes_of_the_chart_is_accepted(tried: list[str], values: tuple[str, ...]) -> None:
    """Helm's lint finds nothing, and the API server takes what it renders."""
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("no helm here: go install helm.sh/helm/v4/cmd/helm@latest")
    chart, given = str(MANIFESTS.parent / "helm/slomo"), [word for value in values for word in ("--set", value)]
    assert "0 chart(s) failed" in answered([helm, "lint", "--strict", chart, *given], "")
    text = answered([helm, "template", "slomo", chart, "-n", "slomo", "--kube-version", "v1.36.0", *given], "")
    items = [item for item in yaml.safe_load_all(text) if item and item["kind"] not in ELSEWHERE]
    said = answered(tried, yaml.safe_dump_all(items))

    assert said.count("(server dry run)") == len(items) >= 12
    assert any(item["kind"] == "DaemonSet" for item in items) == bool(values)
