"""What ships beside the code: manifests, chart, rules, dashboard; and Prometheus' own check of the metrics."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from tests.service.kubernetes.test_extender import node

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
MANIFESTS = list(yaml.safe_load_all((DEPLOY / "kubernetes/slomo-scheduler.yaml").read_text(encoding="utf-8")))
#: Kinds that slomo writes.
OWN = ("nodecontentions", "networkfunctionprofiles")
DASHBOARD = json.loads((DEPLOY / "grafana/slomo.json").read_text(encoding="utf-8"))


def promtool() -> str:
    """Return Prometheus' tool, or skip."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool here: apt-get install prometheus")
    return program


def used_metrics() -> set[str]:
    """Return the metrics that dashboard and rules ask for."""
    text = (DEPLOY / "prometheus/rules.yaml").read_text(encoding="utf-8")
    expressions = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    expressions += [rule["expr"] for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    return {name for expression in expressions for name in re.findall(r"slomo_\w+", expression)}


@pytest.fixture
def exposed(client: TestClient) -> str:
    """Return the metrics of a service that has done a bit of everything."""
    client.post("/v1/place", json={"requests": [{"id": 'we"ird\\\n', "nf": "lpm", "slo": {"min_share": 0.8}}]})
    client.post("/v1/observations", json={"observations": [{"target": "lpm", "throughput_mpps": 4.9}]})
    client.post("/scheduler/filter", json={"Pod": {}, "NodeNames": ["n"]})
    client.post("/v1/predict", json={"target": "lpm"})
    client.service.kubernetes.view.node_seen(node("n"))  # type: ignore[attr-defined]
    return client.get("/metrics").text


def test_prometheus_accepts_the_metrics(exposed: str) -> None:
    """Promtool finds nothing wrong with names, help, types and labels."""
    done = subprocess.run([promtool(), "check", "metrics"], input=exposed, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_accepts_the_rules() -> None:
    """Promtool parses every expression and template of the alert rules."""
    rules = str(DEPLOY / "prometheus/rules.yaml")
    done = subprocess.run([promtool(), "check", "rules", rules], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_fires_on_what_it_is_for() -> None:
    """Promtool runs the rules on a service in trouble and on one in order; no alert is left out."""
    path = DEPLOY / "prometheus/rules_test.yaml"
    done = subprocess.run([promtool(), "test", "rules", str(path)], capture_output=True, text=True, check=False)
    rules = yaml.safe_load((DEPLOY / "prometheus/rules.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    parts = yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]

    assert done.returncode == 0, done.stdout + done.stderr
    for part, fires in zip(parts, (True, False), strict=True):
        tested = {item["alertname"] for item in part["alert_rule_test"] if bool(item["exp_alerts"]) == fires}
        assert tested == {rule["alert"] for rule in rules}


def test_what_dashboard_and_rules_ask_for_is_exposed(exposed: str) -> None:
    """No panel and no alert asks for a metric that does not exist."""
    families = set(re.findall(r"^# TYPE (\w+)", exposed, flags=re.M))
    told = {re.sub(r"_(bucket|count|sum)$", "", name) for name in used_metrics()}

    assert told <= families


def test_metrics_stay_few_whatever_callers_send(client: TestClient) -> None:
    """Paths, ids and names of callers make no series."""
    for number in range(300):
        client.get(f"/v1/jobs/none-{number}")
        client.get(f"/nowhere/{number}")
    before = client.get("/metrics").text.count("\n")
    for number in range(300):
        client.get(f"/v1/nfs/none-{number}")

    assert client.get("/metrics").text.count("\n") <= before + 60


def test_scheduler_is_configured_as_the_extender_needs() -> None:
    """Cache-capable, never ignored, waited for 2 s, all nodes scored, a name of its own, no bind verb."""
    text = next(item for item in MANIFESTS if item["kind"] == "ConfigMap")["data"]["scheduler.yaml"]
    config = yaml.safe_load(text)
    extender = config["extenders"][0]

    assert config["percentageOfNodesToScore"] == 100
    assert config["profiles"] == [{"schedulerName": "slomo-scheduler"}]
    assert extender["nodeCacheCapable"]
    assert not extender["ignorable"]
    assert extender["httpTimeout"] == "2s"
    assert (extender["filterVerb"], extender["bindVerb"]) == ("filter-to-bind", "bind")


def test_slomo_may_read_and_tell_and_runs_without_rights() -> None:
    """It reads nodes and pods, writes conditions and events; containers are not root, and write where they must."""
    roles = {item["metadata"]["name"]: item["rules"] for item in MANIFESTS if item["kind"] == "ClusterRole"}
    pod = next(item for item in MANIFESTS if item["kind"] == "Deployment")["spec"]["template"]["spec"]

    every = [*pod["initContainers"], *pod["containers"]]

    assert roles == {
        "slomo-view": [
            {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": ["slomo.io"], "resources": ["slopolicies"], "verbs": ["get", "list", "watch"]},
        ],
        "slomo-tell": [
            {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
            {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
            {
                "apiGroups": ["slomo.io"],
                "resources": [f"{kind}{part}" for kind in OWN for part in ("", "/status")],
                "verbs": ["get", "list", "create", "patch", "delete"],
            },
        ],
    }
    assert pod["securityContext"]["runAsNonRoot"]
    assert all(item["securityContext"]["readOnlyRootFilesystem"] for item in every)
    assert all(item["securityContext"]["capabilities"] == {"drop": ["ALL"]} for item in every)


def test_crds_and_admission_are_whole() -> None:
    """Every kind that is watched or written is defined; the policy is bound, denies, and knows every annotation."""
    from slomo.service.kubernetes.contention import GROUP
    from slomo.service.kubernetes.pods import MIN_MPPS, MIN_SHARE, NF, RATE

    crds = list(yaml.safe_load_all((DEPLOY / "kubernetes/slomo-crds.yaml").read_text(encoding="utf-8")))
    policy, binding = yaml.safe_load_all((DEPLOY / "kubernetes/slomo-admission.yaml").read_text(encoding="utf-8"))
    known = next(item for item in policy["spec"]["variables"] if item["name"] == "known")["expression"]

    assert {item["spec"]["names"]["plural"] for item in crds} == {*OWN, "slopolicies"}
    assert {f"/apis/{item['spec']['group']}/{item['spec']['versions'][0]['name']}" for item in crds} == {GROUP}
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    assert all(repr(key) in known for key in (NF, MIN_SHARE, MIN_MPPS, RATE))


def test_the_scheduler_starts_once_slomo_has_judged_what_runs() -> None:
    """Slomo is a native sidecar: it is started before the scheduler, which waits until it is synced."""
    pod = next(item for item in MANIFESTS if item["kind"] == "Deployment")["spec"]["template"]["spec"]
    (sidecar,) = pod["initContainers"]

    assert [item["name"] for item in pod["containers"]] == ["kube-scheduler"]
    assert (sidecar["name"], sidecar["restartPolicy"]) == ("slomo", "Always")
    assert sidecar["startupProbe"]["httpGet"]["path"] == sidecar["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert all(sidecar[probe]["timeoutSeconds"] <= 2 for probe in ("startupProbe", "readinessProbe", "livenessProbe"))


def test_chart_says_what_the_manifests_say() -> None:
    """With its default values the chart renders to the manifests; values are checked by its schema."""
    import jsonschema

    values = yaml.safe_load((DEPLOY / "helm/slomo/values.yaml").read_text(encoding="utf-8"))
    jsonschema.validate(values, json.loads((DEPLOY / "helm/slomo/values.schema.json").read_text(encoding="utf-8")))
    text = (DEPLOY / "helm/slomo/templates/scheduler.yaml").read_text(encoding="utf-8")
    text = re.sub(
        r"\{\{- if .Values.(models.configMap|state.claim) \}\}.*?\{\{- else \}\}(.*?)\{\{- end \}\}",
        r"\2",
        text,
        flags=re.S,
    )

    def filled(match: re.Match[str]) -> str:
        path, _, filters = match[1].strip().partition("|")
        if path.strip() == ".Release.Namespace":
            return "slomo"
        default = values
        for part in path.strip().removeprefix(".Values.").split("."):
            default = default[part]
        return json.dumps(default) if filters or isinstance(default, bool) else str(default)

    rendered = list(yaml.safe_load_all(re.sub(r"\{\{(.*?)\}\}", filled, text)))
    for made, shipped in zip(rendered, MANIFESTS, strict=True):
        assert made["kind"] == shipped["kind"]
        if made["kind"] not in ("Deployment", "ConfigMap"):
            assert made == shipped
    made, shipped = (next(item for item in each if item["kind"] == "Deployment")["spec"]["template"]["spec"]
                     for each in (rendered, MANIFESTS))  # fmt: skip
    assert made["volumes"] == shipped["volumes"]
    assert made["initContainers"][0]["startupProbe"] == shipped["initContainers"][0]["startupProbe"]


def test_agents_manifests_have_rights_on_the_node_only_where_they_need_them() -> None:
    """The plain one has none; the other is the same but for its rights and options, and does not enforce by itself."""
    plain, host = (
        list(yaml.safe_load_all((DEPLOY / f"kubernetes/{name}.yaml").read_text(encoding="utf-8")))
        for name in ("slomo-agent", "slomo-agent-host")
    )
    pods = [documents[-1]["spec"]["template"]["spec"] for documents in (plain, host)]

    assert plain[:-1] == host[:-1]
    assert pods[0]["securityContext"]["runAsNonRoot"]
    assert "hostPID" not in pods[0]
    assert pods[1]["hostPID"]
    for pod in pods:
        (container,) = pod["containers"]
        assert "--enforce" not in container["command"]
        assert {item["name"] for item in container["volumeMounts"]} == {item["name"] for item in pod["volumes"]}
    text = (DEPLOY / "helm/slomo/templates/agent.yaml").read_text(encoding="utf-8")
    assert text.count("{{- if") == text.count("{{- end }}")
    for pod in pods:
        assert all(f"name: {item['name']}," in text for item in pod["volumes"])


def test_helm_renders_what_the_manifests_say() -> None:
    """Helm itself accepts the chart; without models, it refuses."""
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("no helm here: go install helm.sh/helm/v3/cmd/helm@latest")

    def rendered(*options: str) -> subprocess.CompletedProcess[str]:
        command = [helm, "template", "slomo", str(DEPLOY / "helm/slomo"), "-n", "slomo", "--kube-version", "v1.36.0"]
        return subprocess.run([*command, *options], capture_output=True, text=True, check=False)

    def named(documents: Iterable[Any]) -> set[tuple[str, str]]:
        return {(item["kind"], item["metadata"]["name"]) for item in documents if item}

    assert named(yaml.safe_load_all(rendered().stdout)) == named(MANIFESTS)
    assert rendered("--set", "models.claim=").returncode != 0
    for options, name in ((["agent.counters=auto", "agent.enforce=resctrl"], "slomo-agent-host"), ([], "slomo-agent")):
        given = [word for option in ("agent.enabled=true", *options) for word in ("--set", option)]
        made = next(
            item for item in yaml.safe_load_all(rendered(*given).stdout) if item and item["kind"] == "DaemonSet"
        )
        shipped = list(yaml.safe_load_all((DEPLOY / f"kubernetes/{name}.yaml").read_text(encoding="utf-8")))[-1]
        assert made["spec"]["template"]["spec"]["volumes"] == shipped["spec"]["template"]["spec"]["volumes"]
    watched = list(yaml.safe_load_all(
        rendered("--set", "serviceMonitor.enabled=true", "--set", "prometheusRule.enabled=true").stdout
    ))  # fmt: skip
    assert named(watched) >= {("ServiceMonitor", "slomo"), ("PrometheusRule", "slomo")}
    rules = yaml.safe_load((DEPLOY / "prometheus/rules.yaml").read_text(encoding="utf-8"))
    assert next(item["spec"] for item in watched if item and item["kind"] == "PrometheusRule") == rules


SERVE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {"pandas", "pyarrow", "sklearn", "xgboost", "matplotlib", "jinja2"}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
from pathlib import Path
import slomo.service.server
from slomo.service.application import Service
from slomo.service.door.bodies import Observation
from slomo.service.settings import ServiceSettings

service = Service(ServiceSettings(Path(sys.argv[1])))
item = Observation("lpm", 4.0, ["nat"], "e5-2620v4")
print(service.outcomes.note(item, *service.outcomes.judge(item))["ratio"] > 0.5)
service.store.close()
"""


def test_the_serving_image_has_what_the_service_imports(models_folder: Path) -> None:
    """Nothing that the container file leaves out is needed to load models, predict and judge outcomes."""
    done = subprocess.run(
        [sys.executable, "-c", SERVE, str(models_folder)], capture_output=True, text=True, check=False
    )

    assert done.stdout.strip() == "True", done.stderr[-2000:]


def test_the_serving_image_asks_for_versions_as_the_package_does() -> None:
    """The requirements are the package's own, its extra `service`, numba and scipy; none is left out."""
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (DEPLOY / "containers/service-requirements.txt").read_text(encoding="utf-8").splitlines()
    written = {line for line in lines if line and not line.startswith("#")}
    for builder in ("service.Containerfile", "without_registry.sh"):
        text = (DEPLOY / "containers" / builder).read_text(encoding="utf-8")
        assert "--require-hashes" in text
        assert "locks/service.txt" in text
    own = {item.partition(";")[0] for item in project["dependencies"]}
    extras = project["optional-dependencies"]
    service = {*extras["service"], *extras["optimize"], *(item for item in extras["simulate"] if "numba" in item)}

    def plain(items: set[str]) -> set[str]:
        return {item.replace(".0", "") for item in items}

    assert plain(written) == plain(own | service)


def test_locks_hold_what_the_package_asks_for() -> None:
    """Every package that an extra names is locked at a version in its range, with hashes, and alike in all locks."""
    from packaging.requirements import Requirement

    root = DEPLOY.parent
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    versions: dict[str, set[str]] = {}
    for path in (root / "locks").glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        entries = re.findall(r"^([A-Za-z0-9._-]+)==([^ ;]+)([^\n]*\\\n +--hash=sha256:[0-9a-f]{64})?", text, re.M)
        assert all(hashed for _, _, hashed in entries), path
        for name, version, _ in entries:
            versions.setdefault(name.lower().replace("_", "-"), set()).add(version)
    newer = "xgboost-cpu"  # its newest needs Python 3.12
    assert not {name: found for name, found in versions.items() if len(found) > 1 + (name == newer)}
    extras = project["project"]["optional-dependencies"]
    asked = [*project["build-system"]["requires"], *project["project"]["dependencies"], *extras["dev"]]
    asked += [item for extra in ("train", "simulate", "report", "service", "noise", "docs") for item in extras[extra]]
    for item in map(Requirement, asked):
        if item.name != "slomo":
            assert all(map(item.specifier.contains, versions[item.name.lower()])), item


@pytest.mark.parametrize(
    ("version", "day", "code"), [("1.4", "2999-01-01", 1), ("1.6", "2999-01-01", 0), ("1.6", "2020-01-01", 2)]
)
def test_locks_are_compared_with_a_clone_of_advisories(version: str, day: str, code: int, tmp_path: Path) -> None:
    """A version inside an advisory's range is named; a clone whose newest advisory is old judges nothing."""
    (tmp_path / "vulns" / "some-package").mkdir(parents=True)
    ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "1.2"}, {"fixed": "1.5"}]}]
    advisory = {"id": "PYSEC-1", "modified": f"{day}T00:00:00Z", "affected": [{"ranges": ranges}]}
    (tmp_path / "vulns" / "some-package" / "PYSEC-1.yaml").write_text(yaml.safe_dump(advisory))
    (tmp_path / "lock.txt").write_text(f"some_package=={version} \\\n    --hash=sha256:0\n")
    words = [sys.executable, str(DEPLOY.parent / "locks" / "audit.py"), str(tmp_path), str(tmp_path / "lock.txt")]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert (f"some-package {version}: PYSEC-1" in ended.stdout) == (code == 1)
