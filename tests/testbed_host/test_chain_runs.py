"""Chains for real: processes, rings and control groups, under every policy, and nothing left however they end."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slomo.errors import InvalidValueError, TestbedError, UnknownNameError, UsageError
from slomo.host.orphans import marked_processes
from slomo.testbed.host.chains.plan import ChainRunSettings
from slomo.testbed.host.chains.processor_groups import ProcessorTree, processor_tree
from slomo.vocabulary.service_chains import ChainSystem, parse_chains
from slomo.workflow.chains.on_host import run_chains_on_host
from tests.testbed_host.conftest import left_running

LAST_CORE = max(os.sched_getaffinity(0))
NFS = ("l2fwd", "router(routes=1000)", "firewall(rules=50)", "flowstats", "nat", "maglev", "dpi(patterns=50)")
KILLS = int(os.environ.get("SLOMO_CHAIN_KILLS", "4"))


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("there is no C compiler")


@pytest.fixture
def tree() -> ProcessorTree:
    try:
        return processor_tree()
    except TestbedError as problem:
        pytest.skip(problem.message)


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    before = left_running()
    yield
    patience = time.monotonic() + 60.0  # what waits for the end of the others, to tidy up after them, ends last
    while not left_running() <= before and time.monotonic() < patience:
        time.sleep(0.05)
    assert left_running() <= before


def chain(stages: str, *, mpps: float = 14.88) -> ChainSystem:
    names = ", ".join(line.split(":")[0].strip() for line in stages.strip().splitlines())
    text = f"queue: {{capacity: 1024}}\nstages:\n{stages}\nchains:\n  web: {{stages: [{names}], mpps: {mpps}}}"
    return parse_chains(text.replace("CORE", str(LAST_CORE)))


THREE = "  a: {cycles: 120, core: CORE}\n  b: {cycles: 270, core: CORE}\n  c: {cycles: 550, core: CORE}"


def short(**changes: object) -> ChainRunSettings:
    return ChainRunSettings(**{"seconds": 0.4, "warm_up_ms": 100.0, **changes})  # type: ignore[arg-type]


def test_nfvnice_wastes_nothing_and_beats_the_scheduler_alone(tree: ProcessorTree) -> None:
    """On one core NFVnice delivers more than CFS alone, and loses nothing behind the first stage."""
    alone = run_chains_on_host(chain(THREE), "cfs", settings=short())
    nice = run_chains_on_host(chain(THREE), "nfvnice", settings=short())

    assert nice.delivered_mpps > alone.delivered_mpps
    assert alone.wasted > 0.2
    assert nice.wasted < 0.05
    assert nice.weight_writes > len(nice.stages) + 1
    assert [stage.samples > 0 for stage in nice.stages] == [True] * 3


def test_costs_and_loads_change_over_time() -> None:
    """A stage's cost triples and a chain stops when the document says; the series shows both."""
    system = parse_chains(
        f"stages: {{a: {{cycles: 500, core: {LAST_CORE}, cycles_from: {{0.25: 5000}}}}}}\n"
        "chains: {x: {stages: [a], mpps: 0.2}, y: {stages: [a], mpps: 0.2, to_ms: 150}}"
    )

    result = run_chains_on_host(system, "nfvnice", settings=short(seconds=0.45, warm_up_ms=0.0, series_ms=20.0))

    first, last = result.series[1], result.series[-1]
    assert first.delivered[1] > 0
    assert result.chains[1].offered_mpps == pytest.approx(0.2 * 0.15 / result.seconds, rel=0.01)
    assert last.stages[0].cost_cycles > 5 * first.stages[0].cost_cycles
    assert result.rates()[-1][1][1] == 0.0


def test_weights_are_shares_of_the_core(tree: ProcessorTree) -> None:
    """Fixed shares of 1 to 3 give that ratio of a saturated core, with costs that are told."""
    stages = {"a": 512, "b": 1536}
    text = "\n".join(f"  {name}: {{cycles: 500, core: CORE, shares: {share}}}" for name, share in stages.items())
    system = parse_chains(
        f"stages:\n{text}\nchains:\n  x: {{stages: [a], mpps: 10}}\n  y: {{stages: [b], mpps: 10}}".replace(
            "CORE", str(LAST_CORE)
        )
    )

    first, second = run_chains_on_host(system, "cfs", settings=short(seconds=0.8)).stages

    assert 2.0 < second.processor_share / first.processor_share < 4.5
    assert 450 < first.cost_cycles < 1500
    assert sum(packets for packets, _ in first.turns) > 0


@pytest.mark.parametrize("policy", ["batch", "rr"])
def test_the_other_schedulers_run(policy: str) -> None:
    """Batch and round robin deliver; without the right to them a note says what to grant."""
    result = run_chains_on_host(chain(THREE), policy, settings=short(seconds=0.2))

    assert result.delivered_mpps > 0
    rights = "(grant CAP_SYS_NICE" if policy == "rr" else "("  # that of missing weights has a hint of its own
    assert all(rights in note for note in result.notes)


def test_without_the_right_to_a_scheduler_it_runs_and_says_what_to_grant() -> None:
    """A process without capabilities gets the normal scheduler, packets through, and a note per stage."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("rights are given up by setpriv, which only root may do")
    drop = ["setpriv", "--inh-caps=-all", "--bounding-set=-all", sys.executable, "-c"]
    delivered, notes = "False", []
    for seconds in (0.2, 2.0, 20.0):  # on a busy machine a short run may deliver nothing
        code = RUNNER.format(seconds=seconds).replace(
            "run_chains_on_host(system,", "r = run_chains_on_host(system, 'rr',"
        )
        code += "print(r.delivered_mpps > 0, *r.notes, sep='\\n')"
        done = subprocess.run([*drop, code, str(LAST_CORE)], capture_output=True, text=True, timeout=90, check=True)
        delivered, *notes = done.stdout.splitlines()
        if delivered == "True":
            break

    assert delivered == "True"
    assert len(notes) == 3
    assert "runs under the normal scheduler, not rr: Operation not permitted (grant CAP_SYS_NICE" in notes[0]


def test_all_functions_are_stages() -> None:
    """Every function of the portable build works on packets in one chain, and none is lost."""
    text = "\n".join(f"  s{i}: {{nf: '{nf}', core: CORE}}" for i, nf in enumerate(NFS))

    result = run_chains_on_host(chain(text, mpps=0.005), "nfvnice", settings=short(seconds=0.6))

    (web,) = result.chains
    assert web.offered_mpps == pytest.approx(0.005, rel=0.1)
    assert web.delivered_mpps == pytest.approx(web.offered_mpps, rel=0.2)
    assert web.lost_behind == 0


def test_a_cheap_chain_keeps_its_rate_beside_a_costly_one(tree: ProcessorTree) -> None:
    """Back-pressure is per chain: the chain that does not pass the full stage loses nothing of what it is offered."""
    text = (
        "queue: {capacity: 1024}\nstages:\n  first: {cycles: 100, core: CORE}\n  costly: {cycles: 20000, core: CORE}\n"
        "chains:\n  cheap: {stages: [first], mpps: 0.2}\n  dear: {stages: [first, costly], mpps: 2}"
    )

    result = run_chains_on_host(parse_chains(text.replace("CORE", str(LAST_CORE))), settings=short(seconds=0.8))

    cheap, dear = result.chains
    assert cheap.delivered_mpps == pytest.approx(cheap.offered_mpps, rel=0.1)
    assert dear.delivered_mpps < 0.5 * dear.offered_mpps
    assert dear.lost_behind == 0


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"policy": "nfvnise"}, UnknownNameError),
        ({"scheduler": "fifo"}, UnknownNameError),
        ({"without": ("marks",)}, UnknownNameError),
        ({"policy": "cfs", "scheduler": "batch"}, InvalidValueError),
        ({"policy": "rr", "without": ("shares",)}, InvalidValueError),
        ({"policy": "cfs", "interval_s": 5.0}, InvalidValueError),
    ],
)
def test_unknown_names_are_refused(arguments: dict[str, object], kind: type[Exception]) -> None:
    """Unknown policies, schedulers and parts are refused with the nearest name, and parts that a policy has not."""
    with pytest.raises(kind):
        run_chains_on_host(chain(THREE), **arguments)  # type: ignore[arg-type]


def test_a_setting_the_program_lacks_is_a_usage_error() -> None:
    """A stage's wrong setting ends with the program's own words, and as a mistake of the document."""
    with pytest.raises(UsageError, match="there is no flag --rule"):
        run_chains_on_host(chain("  fw: {nf: 'firewall(rule=5)', core: CORE}"), settings=short())
    with pytest.raises(InvalidValueError, match="above 0"):
        short(seconds=0.0)


def test_a_stage_that_is_killed_ends_the_run_with_an_error() -> None:
    """When a stage dies the run ends at once, says so, and leaves nothing."""
    words = [sys.executable, "-c", RUNNER.format(seconds=20), str(LAST_CORE)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        stage = family_of(process.pid, 4)[-1]
        os.kill(stage, signal.SIGKILL)
        _, errors = process.communicate(timeout=30)

    assert process.returncode == 1
    assert "killed by signal 9" in errors


RUNNER = """
import sys
from slomo.testbed.host.chains.plan import ChainRunSettings
from slomo.vocabulary.service_chains import parse_chains
from slomo.workflow.chains.on_host import run_chains_on_host
core = sys.argv[1]
text = "stages:\\n" + "".join(f"  s{{i}}: {{{{cycles: 300, core: {{core}}}}}}\\n" for i in range(3))
system = parse_chains(text + "chains: {{web: {{stages: [s0, s1, s2], mpps: 5}}}}")
run_chains_on_host(system, settings=ChainRunSettings(seconds={seconds}))
"""


def family_of(pid: int, least: int, limit_s: float = 60.0) -> list[int]:
    """Return what a process started, its children's children included, once there are so many."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        family = [pid]
        for member in family:
            family += [child for child in children_of(member) if child not in family]
        if len(family) > least:
            return family[1:]
        time.sleep(0.002)
    raise AssertionError(f"process {pid} started nothing")


def children_of(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def left_of(pid: int, tree: ProcessorTree) -> list[str]:
    """Return processes and groups that carry the mark of a run that `pid` started."""
    processes = [str(process) for process, mark in marked_processes().items() if mark.pid == pid]
    return processes + [str(path) for path in tree.root.glob("slomo-*") if f"-{pid}-" in path.name]


@pytest.mark.slow
def test_killed_at_any_moment_it_leaves_nothing(tree: ProcessorTree) -> None:
    """Whoever is killed, whenever, no process, ring or control group is left. SLOMO_CHAIN_KILLS says how often."""
    draw = random.Random(7)
    for number in range(KILLS):
        words = [sys.executable, "-c", RUNNER.format(seconds=30), str(LAST_CORE)]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            family = [process.pid, *family_of(process.pid, 1)]
            time.sleep(draw.uniform(0.0, 0.5) if number else 0.0)
            family = [process.pid, *family_of(process.pid, 1)]
            os.kill(draw.choice(family), signal.SIGKILL)
            process.wait(timeout=30)
        deadline = time.monotonic() + 60.0
        while (left := left_of(process.pid, tree)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert left == [], f"kill {number}"


TCP = """
queue: {capacity: 256}
stages: {a: {cycles: 120, core: CORE}, b: {cycles: 9000, core: CORE}}
chains: {bulk: {stages: [a, b], kind: tcp, gbps: 4, packet_size_b: 1500}}
""".replace("CORE", str(LAST_CORE))


@pytest.mark.parametrize(("policy", "without", "ecn"), [("nfvnice", (), True), ("nfvnice", ("ecn",), False)])
def test_the_kernels_tcp_goes_through_a_chain(policy: str, without: tuple[str, ...], ecn: bool) -> None:
    """A kernel's sender and receiver talk through the stages; ECN is agreed on, or told to be missing."""
    require_tun()

    result = run_chains_on_host(parse_chains(TCP), policy, without=without, settings=short())

    tcp = result.chains[0].tcp
    assert tcp is not None
    assert tcp.goodput_gbps > 0.0
    assert tcp.ecn is ecn
    assert tcp.marked == 0 or ecn
    assert ("chains.bulk.kind is tcp, but its ends did not agree on ECN" in " ".join(result.notes)) is not ecn


def test_tcp_without_the_right_to_a_namespace_is_told() -> None:
    """Without capabilities the error names the chain, and what to grant."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("rights are given up by setpriv, which only root may do")
    code = "import sys\nfrom slomo.vocabulary.service_chains import parse_chains\n"
    code += "from slomo.workflow.chains.on_host import run_chains_on_host\n"
    code += f"run_chains_on_host(parse_chains({TCP!r}), 'cfs')"
    drop = ["setpriv", "--inh-caps=-all", "--bounding-set=-all", sys.executable, "-c", code]

    done = subprocess.run(drop, capture_output=True, text=True, timeout=90, check=False)

    assert "chain 'bulk' is tcp, but there is no right to a network namespace" in done.stderr


@pytest.mark.parametrize("mode", ["async", "blocking"])
def test_a_stage_writes_to_a_file_without_a_name(mode: str, tmp_path: Path) -> None:
    """A stage that logs delivers packets, and leaves nothing in the directory."""
    system = chain(f"  a: {{cycles: 120, core: CORE, storage: {{bytes_per_packet: 64, mode: {mode}, buffer_kib: 4}}}}")

    result = run_chains_on_host(system, "cfs", settings=short(storage_dir=str(tmp_path)))

    assert result.delivered_mpps > 0.0
    assert not list(tmp_path.iterdir())


def test_a_directory_that_takes_no_file_is_told() -> None:
    """The error names the stage and the directory."""
    system = chain("  a: {cycles: 120, core: CORE, storage: {bytes_per_packet: 64}}")

    with pytest.raises(TestbedError, match="stage 'a' cannot make a file in '/proc'"):
        run_chains_on_host(system, "cfs", settings=short(storage_dir="/proc"))


def require_tun() -> None:
    """Skip, with the reason, where there is no tun device or no right to network namespaces."""
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        pytest.skip("/dev/net/tun is not there or may not be opened")
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-n", "true"], check=False).returncode != 0:
        pytest.skip("there is no right to make a network namespace")
