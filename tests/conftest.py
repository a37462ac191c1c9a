"""Settings shared by all tests, and a toy world of three NFs whose slowdown is one formula."""

import functools
import os
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, settings

from slomo.files.lock import LockFile
from slomo.models.library import ModelLibrary
from slomo.records.dataset import ProfileDataset
from slomo.vocabulary.workload import Workload, canonical_json

# A loaded machine must not fail a test: no deadlines, no complaint about slow data generation.
settings.register_profile("slomo", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("slomo"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "slomo")

REPOSITORY = Path(__file__).resolve().parents[1]
#: A file system in memory, where fsync and commits of SQLite do not wait for a disk; tests' files are there if it has
#: this much room [byte] and lets programs run (in containers it often has 64 MB).
IN_MEMORY, ROOM = Path("/dev/shm"), 2 << 30

if "TMPDIR" not in os.environ and IN_MEMORY.is_dir():
    _place = os.statvfs(IN_MEMORY)
    if _place.f_bavail * _place.f_frsize >= ROOM and not _place.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = str(IN_MEMORY)  # for the processes that tests start, too
        tempfile.tempdir = None


@pytest.fixture(scope="session")
def outside_data() -> Path:
    """Return the folder of measured data from outside, or skip where it is missing."""
    folder = Path(os.environ.get("SLOMO_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"measured data from outside are not at {folder}; set SLOMO_DATA to their folder")
    return folder


#: Group -> parts of the names of tests that stay in one worker: those that run network functions or set control groups
#: for real would meet; others would compile the kernel of shared cores, build the wheel or start a service once more.
#: Whatever takes longest starts first, so that no worker ends with it alone; the last waits until `make types` beside
#: the tests has read what mypy would read again.
TOGETHER = {
    "wheel": ("tests/docs/test_blocks",),
    "sharing": (
        "simulator/sharing", "test_shared_cores", "test_chain_simulate", "test_placement_chains",
        "test_chain_policies_are_compared", "tests/notebooks",
    ),
    "bench": (
        "test_cli_commands", "test_cli_faults", "test_evaluate_budgets", "test_predict_equilibrium",
        "test_predict_latency",
    ),
    "service": ("tests/service",),
    "host": ("tests/testbed_host", "tests/synthetic_nf", "TestCgroup"),
    "types": ("tests/typing",),
}  # fmt: skip


#: What skips without packages of the system (`.ci/run` installs them): fixtures, and parts of the names of tests.
NATIVE_FIXTURES = {"dpdk", "sshd", "testpmd"}
NATIVE = ("test_real_tools", "test_real_ssh", "test_with_pqos", "test_the_real_pqos", "test_reader_contract")


def is_native(item: pytest.Item) -> bool:
    """Return whether a test needs, or is another with, packages of the system."""
    call = getattr(item, "callspec", None)
    fixtures = {*getattr(item, "fixturenames", ()), call.params.get("program") if call else None}
    return bool(NATIVE_FIXTURES & fixtures) or any(part in item.nodeid for part in NATIVE)


def shared_fixture(item: pytest.Item) -> str | None:
    """Return a name for the tests that share a fixture of their module, which each worker would make for itself."""
    fixtures = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    return item.nodeid.split("::")[0] if any(made[-1].scope == "module" for made in fixtures.values()) else None


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest chooses by marker and xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Mark what needs packages of the system; keep tests of a group in one worker; put the longest first."""
    for item in items:
        if is_native(item):
            item.add_marker(pytest.mark.native)
        group = next((name for name, parts in TOGETHER.items() if any(part in item.nodeid for part in parts)), None)
        group = group or shared_fixture(item)
        if group and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(group))
    yield  # pytest-randomly shuffles
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """Return the place of a test's group: in order those above, then other groups, slow tests, and all others."""
    group = item.get_closest_marker("xdist_group")
    if group is None:
        return len(TOGETHER) + (1 if item.get_closest_marker("slow") else 2)
    name = group.args[0]
    return len(TOGETHER) + 3 if name == "types" else [*TOGETHER].index(name) if name in TOGETHER else len(TOGETHER)


#: NF -> solo throughput [Mpps], cache accesses [M/s], occupancy [KiB], sensitivity to accesses and to occupancy
NFS = {"lpm": (5.0, 40.0, 3000.0, 0.8, 0.3), "nat": (3.0, 60.0, 5000.0, 0.5, 0.2), "ids": (0.7, 15.0, 9000.0, 0.2, 0.6)}
LLC_KIB = 20480.0
NAMES = ("L2MISS", "L3MISS", "L3OCC", "READ", "WRITE", "IPC", "INST", "FREQ")


def _parameters(workload: Workload) -> tuple[float, float, float, float, float]:
    if workload.nf == "synthetic":
        return 1.0, float(workload.configuration["car"]), float(workload.configuration["occupancy"]), 0.3, 0.3
    return NFS[workload.nf]


def _core(workload: Workload, share: float, pressure: np.ndarray) -> np.ndarray:
    """Core-level vector of a workload that runs at `share` of its solo speed under `pressure` (accesses, occupancy)."""
    _, car, occupancy, _, _ = _parameters(workload)
    held = occupancy * share
    misses = car * share * (0.02 + 0.6 * pressure[1] / (pressure[1] + LLC_KIB))
    return np.array([car * share, misses, held, misses * 0.064, misses * 0.02, 1.5 * share, 3000.0 * share, 1.0])


def _shares(tenants: Sequence[Workload]) -> np.ndarray:
    """Return the speed of all tenants beside each other."""
    return _solved(tuple(_parameters(workload) for workload in tenants))


@functools.cache  # each row asks three times, and so do all slots of a mix
def _solved(tenants: tuple[tuple[float, ...], ...]) -> np.ndarray:
    """Solve for the speed of all tenants beside each other."""
    table = np.array(tenants)
    share = np.ones(len(tenants))
    for _ in range(60):
        car, occupancy = table[:, 1] * share, table[:, 2] * share
        others = np.stack([car.sum() - car, occupancy.sum() - occupancy], axis=1)
        stalls = table[:, 3] * others[:, 0] / (others[:, 0] + 150.0) + table[:, 4] * (others[:, 1] / LLC_KIB) ** 2 / (
            1 + (others[:, 1] / LLC_KIB) ** 2
        )
        share = 0.5 * share + 0.5 / (1.0 + stalls)
    share.setflags(write=False)
    return share


def _socket(tenants: Sequence[Workload]) -> np.ndarray:
    """Socket-level vector of tenants; ratios averaged, IPC by its weight."""
    if not tenants:
        return np.zeros(len(NAMES))
    share = _shares(tenants)
    table = np.array([_parameters(workload) for workload in tenants])
    pressure = np.stack([table[:, 1] * share, table[:, 2] * share], axis=1)
    cores = np.array([_core(w, s, pressure.sum(axis=0) - p) for w, s, p in zip(tenants, share, pressure, strict=True)])
    total = cores.sum(axis=0)
    total[5], total[7] = cores[:, 5].mean(), len(tenants) / 8
    return total


def _beside(tenants: Sequence[Workload], slot: int) -> np.ndarray:
    """Socket-level vector of the others while the target runs beside them; ratios left out."""
    share = _shares(tenants)
    table = np.array([_parameters(workload) for workload in tenants])
    felt = np.stack([table[:, 1] * share, table[:, 2] * share], axis=1)
    total = np.zeros(len(NAMES))
    for i, workload in enumerate(tenants):
        if i != slot:
            total += _core(workload, share[i], felt.sum(axis=0) - felt[i])
    total[5:] = np.nan
    return total


def _row(
    machine: str, tenants: Sequence[Workload], slot: int, plan: str, key: int, noise: np.random.Generator
) -> dict[str, object]:
    target, others = tenants[slot], [w for i, w in enumerate(tenants) if i != slot]
    share = _shares(tenants)
    table = np.array([_parameters(w) for w in tenants])
    pressure = np.delete(np.stack([table[:, 1] * share, table[:, 2] * share], axis=1), slot, axis=0).sum(axis=0)
    mpps = _parameters(target)[0] * share[slot] * float(np.exp(noise.normal(0.0, 0.005)))
    own, alone = _core(target, share[slot], pressure), _socket(others)
    if not others:
        alone[5:] = [np.nan, 0.0, np.nan]
    elif slot:
        alone[:] = np.nan
    return {
        "machine": machine,
        "nf": target.nf,
        "target": target.key,
        "configuration": canonical_json(dict(target.configuration)),
        "packet_size_b": 64,
        "flow_count": 100_000,
        "flow_distribution": "uniform",
        "zipf_exponent": 1.0,
        "offered_mpps": np.nan,
        "competitors": canonical_json([w.to_dict() for w in others]),
        "competitor_count": len(others),
        "isolation": "null",
        "plan": plan,
        "tenant": slot,
        "throughput_mpps": mpps,
        "throughput_cv": 0.0,
        "replicates": 1,
        "loss": np.nan,
        "latency_p50_us": np.nan,
        "latency_p95_us": np.nan,
        "latency_p99_us": np.nan,
        "stability": "stable",
        "seed": 0,
        "run_key": f"{plan}-{key}",
        "truth_mpps": np.nan,
        **{f"competition.{n}": v for n, v in zip(NAMES, alone, strict=True)},
        **{f"beside.{n}": v for n, v in zip(NAMES, _beside(tenants, slot), strict=True)},
        **{f"own.{n}": v for n, v in zip(NAMES, own, strict=True)},
    }


def profile_rows(machine: str = "e5-2620v4") -> list[dict[str, object]]:
    """Solo runs, and runs beside 1 to 5 synthetic competitors of 24 settings."""
    noise, rows = np.random.default_rng(1), []
    settings = [
        Workload("synthetic", {"car": car, "occupancy": occupancy})
        for car in (2, 10, 40, 80, 120, 160)
        for occupancy in (200, 1500, 4000, 9000)
    ]
    for nf in NFS:
        beside = [[], *([setting] * count for setting in settings for count in (1, 2, 3, 5))]
        rows += [
            _row(machine, [Workload(nf), *others], 0, "pressure" if others else "solo", len(rows) + i, noise)
            for i, others in enumerate(beside)
        ]
    return rows


def mix_rows_of(count: int, seed: int, machine: str = "e5-2620v4") -> list[dict[str, object]]:
    """Mixes of 2 to 5 tenants, one row per tenant."""
    noise, rows = np.random.default_rng(seed), []
    for number in range(count):
        tenants = [Workload(str(nf)) for nf in noise.choice(list(NFS), size=noise.integers(2, 6))]
        rows += [_row(machine, tenants, slot, "mix", 100_000 * seed + number, noise) for slot in range(len(tenants))]
    return rows


@pytest.fixture(scope="session")
def toy_profile() -> ProfileDataset:
    """Return the toy's profile, with calibration mixes."""
    return ProfileDataset(pd.DataFrame([*profile_rows(), *mix_rows_of(200, seed=2)]), {"testbed": "toy"})


@pytest.fixture(scope="session")
def toy_composed(toy_profile: ProfileDataset) -> ProfileDataset:
    """Return the toy's profile without what was measured beside a target: training then fits no server responses."""
    frame = toy_profile.frame
    frame[[name for name in frame if name.startswith("beside.")]] = np.nan
    return ProfileDataset(frame, toy_profile.environment)


@pytest.fixture(scope="session")
def toy_mixes() -> ProfileDataset:
    """Return mixes of the toy that no library has seen."""
    return ProfileDataset(pd.DataFrame(mix_rows_of(200, seed=3)), {"testbed": "toy"})


Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Once:
    """Return what makes a file or folder of a name once for all of pytest's workers; the others wait for it."""
    own = tmp_path_factory.getbasetemp()
    folder = own if worker_id == "master" else own.parent

    def made_once(name: str, make: Callable[[Path], object]) -> Path:
        path, unfinished = folder / name, folder / f"unfinished-{name}"
        lock = LockFile(folder / f"{name}.lock")
        lock.acquire(wait=True)
        try:
            if not path.exists():
                make(unfinished)
                unfinished.rename(path)
        finally:
            lock.release()
        return path

    return made_once


@contextmanager
def few_steps() -> Iterator[None]:
    """Let networks take a fifth of their steps, most of a training, where no test asks how good the models are."""
    from slomo.training.families import monotone_network

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(monotone_network, "_STEPS", 60)
        yield


#: Rooms whose tests train to see something else than how good models are.
UNJUDGED = tuple(str(REPOSITORY / "tests" / room) for room in ("cli", "prediction", "profiling", "workflow"))


@pytest.fixture(autouse=True)
def trained_shortly(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let networks take few steps in rooms that do not judge models."""
    with few_steps() if str(request.path).startswith(UNJUDGED) else nullcontext():
        yield


@pytest.fixture(scope="session")
def toy_models(toy_profile: ProfileDataset, once: Once) -> Path:
    """Return the folder of models of all families for the toy's NFs; tests do not write into it."""
    from slomo.training.training import train

    with few_steps():
        return once("toy-models", lambda folder: train(toy_profile).save(folder))


@pytest.fixture(scope="session")
def toy_library(toy_models: Path) -> ModelLibrary:
    """Return models of all families for the toy's NFs."""
    return ModelLibrary.load(toy_models)
