"""Every file that slomo reads, a small one that is right, and the function that reads it."""

import contextlib
import io
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from slomo.cli.main import cli
from slomo.cli.verbs.fleet import _plan
from slomo.config import load_settings
from slomo.control.pools.configuration import read_rmd_toml
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.evaluation.probes import ProbeModel
from slomo.fleet.hosts import load_fleet
from slomo.fleet.room import Room
from slomo.models.library import ModelLibrary, load_library
from slomo.models.partition_profile import PartitionProfile, load_profiles, save_profiles
from slomo.models.responses.memory_traffic import MemoryTraffic
from slomo.models.responses.partition import PartitionResponse
from slomo.placement.online.placer import Placer
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.decision import Assignment, Decision, Refusal
from slomo.placement.problem.documents import read_chains, read_cluster, read_requests
from slomo.placement.problem.request import Request
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.campaign.store import stored_records
from slomo.records.dataset import ProfileDataset
from slomo.records.importing.door import import_table
from slomo.records.importing.mapping import load_mapping
from slomo.records.importing.named import import_pairs
from slomo.records.importing.probe_tables import load_probe_tables
from slomo.records.pcm.recording import read_pcm
from slomo.records.storage import load_dataset, save_dataset
from slomo.testbed.champsim.execution import read_run
from slomo.testbed.host.host_file import load_host
from slomo.testbed.host.probe.calibration import Calibration
from slomo.testbed.host.traffic.pcap import require_frames
from slomo.testing.builders import ToyTestbed, toy_plan
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import load_network_function
from slomo.vocabulary.service_chains import load_chains
from slomo.workflow.acting.control import read_status
from slomo.workflow.acting.control_file import read_control_file
from slomo.workflow.acting.enforce import read_plan
from slomo.workflow.acting.noisy_host import host_noise_test
from slomo.workflow.acting.noisy_neighbour import read_noisy_neighbour_file
from tests.conftest import profile_rows
from tests.faults import right_files as right

REPOSITORY = Path(__file__).resolve().parents[2]
WORDS = REPOSITORY / "slomo" / "vocabulary"
REQUESTS = """
requests:
  - {id: edge, nf: lpm, slo: {min_share: 0.9}, count: 2, priority: 3, resources: {memory_gib: 1.5}}
  - {id: chain, chain: [lpm, "stats@1500B,1000f"], slo: {min_mpps: 1.0, p95_us: 20}, anti_affinity: [edge-1]}
"""
CLUSTER = "servers: [{name: r, machine: e5-2620v4, count: 3, labels: {rack: a}, taints: [slow], cores_reserved: 1}]\n"
RMD = """
mbaMode = "percentage"
[OSGroup]
cacheways = 1
cpuset = "0-1"
[InfraGroup]
cacheways = 2
tasks = ["ovs*"]
[CachePool]
guarantee = 5
besteffort = 3
shared = 1
max_allowed_shared = 10
"""


@dataclass(frozen=True)
class Reader:
    """A file's right content, its suffix, and who reads it; or a program's lines, in no file."""

    name: str
    suffix: str
    content: bytes
    read: Callable[[Path], object]
    is_file: bool = True


def read_library_file(folder: Path, place: str) -> Callable[[Path], object]:
    """Return what loads a library one of whose files is replaced."""

    def read(path: Path) -> object:
        copy = path.with_suffix(".library")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        (copy / place).unlink()
        os.replace(path, copy / place)
        return [load_library(copy)[key] for key in load_library(copy)]

    return read


def at_risk(snapshot: Path, models: Path) -> object:
    """Restore a snapshot as a command does."""
    words = ["place", "change", str(snapshot), "at-risk", "--models", str(models)]
    with contextlib.redirect_stdout(io.StringIO()):
        return cli.main(args=words, prog_name="slomo", standalone_mode=False)


def machine(path: Path) -> object:
    """Load a machine by its file."""
    return load_machine(str(path))


def pcm(path: Path) -> object:
    """Read a recording and everything in it."""
    recording = read_pcm(path)
    return recording.frame("core"), recording.frame("socket"), recording.raw("system")


def readers(folder: Path, library: ModelLibrary) -> tuple[Reader, ...]:
    """Write one right file of each kind into a folder and return who reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    dataset = run_campaign(toy_plan(), ToyTestbed(), folder / "store.sqlite")
    for name in ("data.csv", "data.parquet"):
        save_dataset(dataset, folder / name)
    key, curve = "lpm@64B,100000f", ((2, 3.0), (9, 5.0))
    over_ways = PartitionResponse.over_ways(key, 5.0, curve, ((0.5, 9.0, 12.0),), 512)
    save_profiles([PartitionProfile("e5-2695v4", {key: over_ways})], folder / "ways.json")
    plan = EnforcementPlan("s1", (TenantSetting("lpm", cores=(3,), llc_way_mask=0x3, cpu_weight=2.0),))
    placed = Assignment("s1", 1, 3, "lpm", llc_way_mask=3, buffers=512)
    refused = Refusal("edge", "lpm", "e5-2620v4", "throughput", 6.0, 5.4)
    decisions = [
        Decision("edge", True, "resq", "", (placed,), ("fits",), None, 0.9),
        Decision("b", False, "resq", "", refused=refused),
    ]
    listed = json.dumps({"decisions": [item.to_dict() for item in decisions]}).encode()
    mapping = {
        "machine": "e5-2620v4",
        "nf": "lpm",
        "columns": {"perf": {"target": "throughput", "unit": "Mpps"}, "miss": {"metric": "L3MISS", "unit": "M/s"}},
    }
    (folder / "mapping.json").write_text(json.dumps(mapping))
    library.save(folder / "models")
    right.known_of_everything(library).save(folder / "known")

    profile = PartitionProfile(
        "e5-2620v4",
        {"lpm": PartitionResponse("lpm", 5.0, (1.0, 20.0), (0.2, 0.2), (4.0, 0.0), (256.0, 0.0))},
        MemoryTraffic((80.0, 120.0), (0.0, 40.0)),
        errors=(0.01, -0.02),
        shared_errors=(0.03,),
        runs=9,
    )
    save_profiles([profile], folder / "partitions.json")
    placer = Placer(library, Cluster.uniform("e5-2620v4", 2), "first-fit")
    placer.place_all([Request("edge", "lpm"), Request("b", "nat", anti_affinity=("edge",))])
    (folder / "snapshot.json").write_text(json.dumps(placer.snapshot()))

    def from_file(path: Path) -> Callable[[str], bytes]:
        return lambda name: (path / name).read_bytes()

    right.folders(folder)

    here, docs = from_file(folder), from_file(REPOSITORY / "docs" / "examples")
    stored = [path.relative_to(folder / "models") for path in sorted((folder / "models").rglob("*.json"))]
    chosen = {path.name: path for path in reversed(stored)}
    simple = [
        Reader("machine", ".yaml", (WORDS / "machines" / "e5-2620v4.yaml").read_bytes(), machine),
        Reader(
            "nf", ".yaml", (WORDS / "network_functions" / "snort.yaml").read_bytes(),
            lambda path: load_network_function(str(path)),
        ),
        Reader("nf-host", ".yaml", docs("suricata.yaml"), lambda path: load_network_function(str(path)).host),
        Reader("chains", ".yaml", docs("control/cpu-shares.yaml"), read_control_file),
        Reader("service-chains", ".yaml", CHAINS, load_chains),
        Reader("control", ".yaml", docs("control/numa.yaml"), read_control_file),
        Reader("noisy-neighbour", ".yaml", NOISE, read_noisy_neighbour_file),
        Reader("noisy-host", ".yaml", docs("noisy-neighbour/host.yaml"), host_noise_test),
        Reader("requests", ".yaml", REQUESTS.encode(), read_requests),
        Reader("requests-json", ".json", b'{"requests": [{"id": "a", "nf": "lpm", "replicas": 2}]}', read_requests),
        Reader("rated-chains", ".yaml", b"requests: [{id: a, chain: [lpm, stats], gbps: [1, 2.5]}]\n", read_chains),
        Reader("cluster", ".yaml", CLUSTER.encode(), read_cluster),
        Reader("plan", ".json", json.dumps(plan.to_dict()).encode(), read_plan),
        Reader("plan-of-decisions", ".json", listed, lambda path: read_plan(path, server="s1", machine="e5-2620v4")),
        Reader("ways", ".json", here("ways.json"), load_profiles),
        Reader("rmd", ".toml", RMD.encode(), read_rmd_toml),
        Reader("policies", ".yaml", POLICIES, lambda path: read_rmd_toml(rmd_beside(path), path)),
        Reader("settings", ".toml", b'machine = "e5-2620v4"\nseed = 3\n', lambda p: load_settings(file=p)),
        Reader("host", ".yaml", b"counters: probe\nsettings: {window_s: 1.0, pairs: 5}\n", load_host),
        Reader("calibration", ".json", CALIBRATION, Calibration.load),
        Reader("mapping", ".yaml", (REPOSITORY / "datasets/mappings/yala-regex.yaml").read_bytes(), load_mapping),
        Reader("table", ".csv", b"perf,miss\n1.0,2.0\n0.5,8.0\n", lambda path: import_table(path, mapping)),
        Reader("pcm", ".csv", (REPOSITORY / "tests/data/pcm/comma-sparse.csv").read_bytes(), pcm),
        Reader("pcm-faults", ".csv", (REPOSITORY / "tests/data/pcm/repeated-faults.csv").read_bytes(), pcm),
        Reader("dataset-csv", ".csv", here("data.csv"), load_dataset),
        Reader("dataset-parquet", ".parquet", here("data.parquet"), load_dataset),
        Reader("partitions", ".json", here("partitions.json"), load_profiles),
        Reader("snapshot", ".json", here("snapshot.json"), lambda path: at_risk(path, folder / "models")),
        Reader("probes", ".json", PROBES, lambda path: ProbeModel(load_probe_tables(path))),
        Reader("store", ".sqlite", here("store.sqlite"), stored_records),
        Reader("run", ".json", right.run_document(folder / "store.sqlite"), right.run),
        Reader("dataset-of-others", ".csv", right.without_digests(folder / "data.csv"), right.everything_in),
        Reader("pairs", ".csv", right.PAIRS, lambda path: import_pairs(path, "m")),
        Reader("probe-mapping", ".yaml", right.PROBE_MAPPING, lambda path: right.probes_by(folder / "probes", path)),
        Reader("probe-levels", ".csv", right.PROBE_FILES["reporter.csv"].encode(),
               lambda path: right.probes_beside(folder / "probes", path)),
        Reader("table-parquet", ".parquet", here("data.parquet"), lambda path: import_table(path, PARQUET_MAPPING)),
        Reader("mixes", ".parquet", right.mixes(folder / "mixes.parquet"), right.mixes_by(folder / "models")),
        Reader("hosts", ".yaml", b"hosts: [{name: a}, {name: b, ssh: lab@b, cost_per_h: 0.5}]\n",
               lambda path: load_fleet(path)),
        Reader("fleet-plan", ".json", json.dumps(toy_plan().to_dict()).encode(), lambda path: _plan(str(path))),
        Reader("claim", ".json", b'{"token": 3, "coordinator": "a"}', right.claimed),
        Reader("functions", ".bin", b"#!/bin/sh\n", right.functions(folder / "functions")),
        Reader("room", ".bin", right.room(folder / "room"), lambda path: Room(path).runs("plan")),
        Reader("shared-models", ".json", content_of(folder / "models", "manifest.json"),
               right.pushed(folder / "models")),
        Reader("shared-index", ".json", right.shared_index(folder / "models", folder / "shared"),
               right.pulled(folder / "shared"), is_file=False),
        Reader("pcm-results", ".csv", right.RESULTS, lambda path: right.results_beside(folder / "results", path)),
        Reader("library-saved-over", ".json", here("models/library.json"),
               right.saved_over(folder / "models", "library.json", library)),
        Reader("library-left-over", ".json", here("models/superseded.json"),
               right.saved_over(folder / "models", "superseded.json", library)),
        Reader("library-found", ".json", content_of(folder / "models", "manifest.json"),
               right.found_again(folder / "models", library)),
        Reader("library-served", ".json", here("models/library.json"), right.served(folder / "models")),
        Reader("model", ".json", content_of(folder / "known", "model.json"), right.model_of(folder / "known")),
        Reader("tokens", ".txt", b"ci read 0123456789abcdef\nops admin fedcba9876543210 # us\n", right.tokens),
        Reader("control-status", ".json", b'{"name": "a", "process": 4, "reasons": []}', read_status),
        Reader("host-nf", ".yaml", docs("suricata.yaml"), right.host_nf),
        Reader("capture", ".pcap", right.capture(folder / "seen.pcap"), require_frames),
        Reader("champsim-configuration", ".json", right.CHAMPSIM, right.champsim),
        Reader("champsim-statistics", ".json", (right.RECORDED / "two-cores-whole.json").read_bytes(),
               right.champsim_statistics),
        Reader("champsim-run", ".json", right.champsim_run(), lambda path: read_run(path, 2)),
        Reader("champsim-trace", ".json", right.TRACE, right.trace_of),
        Reader("journal", ".sqlite", right.journal_file(folder / "journal"), right.journal_of),
        Reader("state", ".sqlite", right.state_file(folder / "state.sqlite"), right.state_of(folder / "models")),
        Reader("agent-token", ".txt", b"fedcba9876543210\n", right.agent_token),
        Reader("pod-namespace", ".txt", b"slomo\n", right.pod_namespace),
        Reader("pod-token", ".txt", b"eyJhbGciOi.x.y\n", right.pod_token),
        Reader("pod", ".json", json.dumps(right.POD).encode(), right.pod, is_file=False),
        Reader("node", ".json", json.dumps(right.NODE).encode(), right.node, is_file=False),
        Reader("watch", ".txt", right.events(), right.told_by_watch, is_file=False),
        Reader("client-answer", ".json", right.ANSWER, right.answered, is_file=False),
        Reader("chain-looks", ".txt", right.LOOK, right.chain_looks, is_file=False),
        Reader("perf", ".txt", right.PERF, right.perf_lines, is_file=False),
        Reader("pcm-pcie", ".csv", right.PCIE, right.pcie_lines, is_file=False),
        Reader("nf-output", ".txt", right.OUTPUT, right.nf_output, is_file=False),
    ]  # fmt: skip
    library_files = [
        Reader(f"library-{name}", ".json", (folder / "models" / path).read_bytes(),
               read_library_file(folder / "models", str(path)))
        for name, path in chosen.items()
    ]  # fmt: skip
    return (*simple, *library_files)


def family_reader(folder: Path, family: str) -> Reader:
    """Return the reader of a model of one family."""
    from slomo.training.training import train

    rows = [row for row in profile_rows() if row["nf"] == "lpm"]
    train(ProfileDataset(pd.DataFrame(rows), {"testbed": "toy"}), models=[family]).save(folder / family)
    return Reader(
        f"model-{family}", ".json", content_of(folder / family, "model.json"), right.model_of(folder / family)
    )


def content_of(folder: Path, name: str) -> bytes:
    """Return a file of the first function's model."""
    return next(path for path in sorted(folder.glob(f"*/{name}")) if ".lpm" in path.parent.name).read_bytes()


def rmd_beside(path: Path) -> Path:
    """Return a right `rmd.toml` beside a policy file."""
    other = path.with_name("right-rmd.toml")
    other.write_text(RMD)
    return other


PARQUET_MAPPING = {
    "machine": "e5-2620v4", "nf": "lpm",
    "columns": {
        "throughput_mpps": {"target": "throughput", "unit": "Mpps"},
        "competition.L3MISS": {"metric": "L3MISS", "unit": "M/s"},
    },
}  # fmt: skip
POLICIES = b"catpolicy: {broadwell: {gold: [{cache: {max: 2, min: 2}}], bronze: [{cache: {max: 0, min: 0}}]}}\n"
NOISE = b"""
machine: e5-2699v4
path: [{name: vm, nf: l2fwd, passes: 1}]
noise: {nf: lpm, levels: [0, 20]}
policies: [none, llc]
loss_ratio: 0.005
pools: {victim: 1}
"""
CHAINS = b"""
queue: {capacity: 64}
stages: {a: {cycles: 300, core: 0}, b: {cycles: 200, core: 0}}
chains: {x: {stages: [a, b], mpps: 1.0}}
"""
CALIBRATION = json.dumps(
    {
        "schema_version": 2, "l2_mib": 2.0, "llc_mib": 14.0, "reporters": [], "felt": {"A": {"B": 0.1}}, "full": 2.5,
        "sentinel": {"A": 1.0}, "scatter": 0.02, "identity": "here",
    }
).encode()  # fmt: skip


PROBES = json.dumps(
    {
        "schema_version": 1, "machine": "m", "levels": [0, 8, 16], "reporter": [10, 15, 20.5], "beside": {"lbm": 15},
        "sensitivity": {"lbm": [[0, 8, 16], [40, 60, 80]]},
    }
).encode()  # fmt: skip
