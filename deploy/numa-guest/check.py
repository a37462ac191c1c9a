"""What runs in the guest of boot.py: two memory nodes, control groups of version 2, a stock kernel.

Plans are enforced and undone, weights divide a core, a stage of a chain moves to the other node, numasfp moves stages
as rates change, and a run that is killed while stages move leaves nothing. Every line that begins with FAIL is a
failure; the last one says RESULT and what was measured.
"""

import ctypes
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
LIBC = ctypes.CDLL(None, use_errno=True)
MOUNTS = (
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/tmp"),
    ("tmpfs", "/run"),
    ("cgroup2", str(GROUPS)),
)
POWER_OFF = 0x4321FEDC
PAGES = 32 * 256  # 32 MiB
NEAR, FAR = (0, 1), (2, 3)


def mount(kind: str, where: str) -> None:
    Path(where).mkdir(parents=True, exist_ok=True)
    if LIBC.mount(kind.encode(), where.encode(), kind.encode(), 0, None) != 0:
        raise OSError(ctypes.get_errno(), f"mount {kind}")


def child(work: Callable[[], None], core: int) -> int:
    """Start a process on a core; it ends with us."""
    pid = os.fork()
    if pid == 0:
        os.sched_setaffinity(0, {core})
        work()
        os._exit(0)
    return pid


def hold_pages() -> None:
    held = bytearray(os.urandom(4096)) * PAGES
    while held:
        time.sleep(1.0)


def burn() -> None:
    while True:
        pass


def groups() -> dict[str, str]:
    """Return every group with what its files hold that enforcement may write."""
    files = ("cpuset.cpus", "cpuset.mems", "cpu.weight", "cpu.max", "cgroup.subtree_control")
    every = (path / name for path in (GROUPS, *GROUPS.rglob("*/")) for name in files)
    return {str(path): path.read_text() for path in every if path.is_file()}


def members(pid: int) -> str:
    return Path(f"/proc/{pid}/cgroup").read_text()


def enforced() -> dict[str, object]:
    """A plan moves a process and its pages to the other node, and undo leaves no trace of it."""
    from slomo.enforce.backends.cgroup import CgroupBackend
    from slomo.enforce.executor import apply, diff, undo
    from slomo.enforce.plan import EnforcementPlan, TenantSetting
    from slomo.testbed.host.chains.moves import pages_by_node

    pid = child(hold_pages, NEAR[1])
    time.sleep(2.0)
    before, pages_before = (groups(), members(pid)), pages_by_node(pid)
    setting = TenantSetting("victim", process_ids=(pid,), cores=FAR, memory_node=1, cpu_weight=3.0, cpu_quota=0.5)
    plan, backend = EnforcementPlan("guest", (setting,)), CgroupBackend()
    receipt = apply(plan, backend, receipts=Path("/tmp/receipts"))
    time.sleep(1.0)
    told = {
        "version": backend.version,
        "left_to_change": len(diff(plan, backend)),
        "pages_before": pages_before,
        "pages": pages_by_node(pid),
        "cores": sorted(os.sched_getaffinity(pid)),
        "weight": (GROUPS / "slomo/victim/cpu.weight").read_text().strip(),
        "quota": (GROUPS / "slomo/victim/cpu.max").read_text().strip(),
    }
    undo(receipt, backend)
    after = groups(), members(pid)
    told["restored"] = after == before
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    pages, own = told["pages"], told["pages_before"]
    assert told["version"] == 2
    assert told["left_to_change"] == 0
    assert own.get(0, 0) >= PAGES, told
    assert pages.get(1, 0) >= 0.95 * PAGES, told
    assert told["cores"] == list(FAR)
    assert (told["weight"], told["quota"]) == ("300", "50000 100000")
    assert told["restored"], (before, after)
    return told


def weighed() -> dict[str, object]:
    """Weights of 1 and 3 divide a core so."""
    from slomo.enforce.backends.cgroup import CgroupBackend
    from slomo.enforce.executor import apply, undo
    from slomo.enforce.plan import EnforcementPlan, TenantSetting

    pids = [child(burn, FAR[1]) for _ in range(2)]
    tenants = tuple(
        TenantSetting(f"t{weight:g}", process_ids=(pid,), cpu_weight=weight)
        for pid, weight in zip(pids, (1.0, 3.0), strict=True)
    )
    backend = CgroupBackend()
    receipt = apply(EnforcementPlan("guest", tenants), backend, receipts=Path("/tmp/receipts"))
    first = [ticks(pid) for pid in pids]
    time.sleep(6.0)
    used = [ticks(pid) - start for pid, start in zip(pids, first, strict=True)]
    undo(receipt, backend)
    for pid in pids:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    assert 2.5 < used[1] / max(1, used[0]) < 3.5, used
    return {"ticks": used}


def ticks(pid: int) -> int:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


def moved() -> dict[str, object]:
    """A stage goes to the other node and comes back: its memory with it, no packet lost."""
    from slomo.testbed.host.chains.moves import StageMove
    from slomo.testbed.host.chains.plan import ChainRunSettings
    from slomo.vocabulary.service_chains import parse_chains
    from slomo.workflow.chains.on_host import run_chains_on_host

    system = parse_chains(
        f"stages: {{fs: {{nf: 'router(routes=50000)', core: {NEAR[1]}}}, fw: {{nf: l2fwd, core: {FAR[1]}}}}}\n"
        "chains: {web: {stages: [fs, fw], mpps: 0.002}}"
    )
    moves = (StageMove("fs", FAR[0], 2.0, node=1), StageMove("fs", NEAR[1], 9.0, node=0))
    settings = ChainRunSettings(seconds=18.0, warm_up_ms=500.0, moves=moves)
    ran = run_chains_on_host(system, "nfvnice", settings=settings)
    chain = ran.chains[0]
    told = {
        "packets": round(chain.offered_mpps * ran.seconds * 1e6),
        "lost": chain.lost_at_entry + chain.lost_behind,
        "moves": [(move.core, move.pages, move.prepared_ms, move.handover_us) for move in ran.moves],
        "weight_writes": ran.weight_writes,
        "notes": ran.notes,
    }
    assert told["lost"] == 0, told
    assert told["packets"] > 10_000, told
    assert [core for core, *_ in told["moves"]] == [FAR[0], NEAR[1]], told
    for node, (_, pages, *_) in zip((1, 0), told["moves"], strict=True):  # but for what it shares with the manager
        assert pages.get(node, 0) >= 0.9 * sum(pages.values()) > 100, told
    return told


#: The first chain is the slow one until the other stops; the faster one's stage belongs on the manager's node.
TAKING_TURNS = (
    f"stages: {{slow: {{nf: 'router(routes=20000)', core: {NEAR[1]}}}, fast: {{nf: l2fwd, core: {FAR[0]}}}}}\n"
    "chains: {steady: {stages: [slow], mpps: 0.001}, early: {stages: [fast], mpps: 0.002, to_ms: 4500}}"
)


def migrated() -> dict[str, object]:
    """Under numasfp the faster chain's stage goes to the manager's node with its memory, and back when it stops."""
    from slomo.testbed.host.chains.plan import ChainRunSettings
    from slomo.vocabulary.service_chains import parse_chains
    from slomo.workflow.chains.on_host import run_chains_on_host

    lines: list[str] = []
    settings = ChainRunSettings(seconds=14.0, warm_up_ms=500.0)
    system = parse_chains(TAKING_TURNS)
    ran = run_chains_on_host(
        system, "numasfp", settings=settings, interval_s=3.0, told=lambda move: lines.append(str(move))
    )
    told = {
        "lines": lines,
        "lost": sum(chain.lost_at_entry + chain.lost_behind for chain in ran.chains),
        "moves": [(move.stage, move.core, move.pages) for move in ran.moves],
        "notes": ran.notes,
    }
    places = [(move.stage, move.core in NEAR) for move in ran.moves]
    assert sorted(places[:2]) == [("fast", True), ("slow", False)], told
    assert sorted(places[2:]) == [("fast", False), ("slow", True)], told
    assert told["lost"] == 0, told
    for move in ran.moves:
        node = 0 if move.core in NEAR else 1
        if move.stage == "slow":  # the other one has few pages but those that it shares with the manager
            assert move.pages.get(node, 0) >= 0.9 * sum(move.pages.values()) > 100, told
    return told


def killed() -> dict[str, object]:
    """A run that is killed while numasfp moves stages leaves no process, and the next run no control group."""
    from slomo.host.orphans import remove_orphans

    before, told = groups().keys(), {}
    for after_s in (0.0, 0.3, 1.0):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.dup2(writer, 2)
            os.close(reader)
            migrate_for_ever()
            os._exit(0)
        os.close(writer)
        os.read(reader, 1)  # a stage has moved
        time.sleep(after_s)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        deadline = time.monotonic() + 30.0
        while (left := stages()) and time.monotonic() < deadline:
            time.sleep(0.1)
        os.close(reader)
        remove_orphans()  # as the next run does: of the empty group by which a run ends its processes
        left += groups().keys() - before
        assert not left, left
        told[f"{after_s} s"] = "nothing left"
    return told


def migrate_for_ever() -> None:
    from slomo.testbed.host.chains.plan import ChainRunSettings
    from slomo.vocabulary.service_chains import parse_chains
    from slomo.workflow.chains.on_host import run_chains_on_host

    system = parse_chains(TAKING_TURNS.replace("to_ms: 4500", "to_ms: 1000"))
    settings = ChainRunSettings(seconds=60.0, warm_up_ms=500.0)
    run_chains_on_host(
        system, "numasfp", settings=settings, interval_s=1.0, told=lambda move: print(move, file=sys.stderr)
    )


def stages() -> list[str]:
    names = (path.read_text().strip() for path in Path("/proc").glob("[0-9]*/comm"))
    return [name for name in names if name in ("slow", "fast", "slomo-nf-portab")]


def main() -> None:
    for kind, where in (
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/tmp"),
        ("tmpfs", "/run"),
    ):
        mount(kind, where)
    mount("cgroup2", str(GROUPS))
    os.environ.update(HOME="/tmp", PATH="/usr/bin:/bin", SLOMO_NF_PORTABLE="/slomo-nf-portable")
    results: dict[str, object] = {}
    for part in (enforced, weighed, moved, migrated, killed):
        try:
            results[part.__name__] = part()
            print(f"ok   {part.__name__} {json.dumps(results[part.__name__])}", flush=True)
        except BaseException:
            print(f"FAIL {part.__name__}\n{traceback.format_exc()}", flush=True)
    print(f"RESULT {json.dumps(results)}", flush=True)


if __name__ == "__main__":
    worker = os.fork()
    if worker == 0:  # the first process is nobody's parent: programs take its children for orphans
        main()
        os._exit(0)
    try:
        while os.wait()[0] != worker:  # orphans come to us, too
            pass
    finally:
        LIBC.reboot(POWER_OFF)
