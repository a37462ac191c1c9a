"""Chains of processes at the level of the program: packets are conserved, marks hold, nothing outlives the manager."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

CORES = sorted(os.sched_getaffinity(0))
HEAD = f"manager {CORES[0]}\nwarm_up_ms 0\nseconds 0.4\nobserve_ms 20\nobserve_change 0"


def plan(*lines: str, head: str = HEAD) -> str:
    return "\n".join((head, *lines)).replace("CORE", str(CORES[-1]))


def stage(name: str, flags: str = "--nf compute --cycles 200", scheduler: str = "normal", group: str = "-") -> str:
    return f"stage {name} CORE {scheduler} {group} {flags}"


def in_rings(places: int, stages: int) -> int:
    """Packets that may be under way: in the rings, and a burst in each stage's hands."""
    return stages * (places + 256)


def test_every_packet_is_accounted_for(program):
    """What was offered was refused, lost at the entry or behind, dropped by a function, delivered, or is under way."""
    text = plan("ring 256", stage("a"), stage("b", "--nf l2fwd"), stage("c", "--nf firewall --rules 200"),
                "chain web 3 100 64 a,b,c")  # fmt: skip

    run = program.run("--chain", text)

    assert run.returncode == 0, run.errors
    (web,) = run.end["chains"]
    dropped = sum(item["refused"] for item in run.end["stages"])
    gone = web["refused"] + web["entry_lost"] + web["lost_behind"] + web["delivered"] + dropped
    assert web["delivered"] > 0
    assert 0 <= web["offered"] - gone <= in_rings(256, 3)
    assert web["delivered_bytes"] == 64 * web["delivered"]
    assert run.one("ready")["build"] == program.build


def test_local_back_pressure_loses_nothing_behind_the_entry(program):
    """Stages that stop at a full ring lose no packet that work was spent on; without it they do."""
    stages = (stage("quick", "--nf compute --cycles 20"), stage("slow", "--nf compute --cycles 3000"))

    held, free = (
        program.run("--chain", plan("ring 256", f"local {local}", *stages, "chain web 5 10 64 quick,slow"))
        for local in (1, 0)
    )

    assert held.end["chains"][0]["lost_behind"] == 0
    assert free.end["chains"][0]["lost_behind"] > free.end["chains"][0]["delivered"]


def test_chains_may_share_a_ring(program):
    """In a ring of all chains of a stage those that send much take the room of one that sends little."""
    stages = (stage("a", "--nf compute --cycles 100"), stage("b", "--nf compute --cycles 2000"))
    chains = ("chain few 0.1 10 64 a", "chain many 5 10 64 a,b")

    shared, own = (program.run("--chain", plan("ring 1024", f"shared {shared}", *stages, *chains)) for shared in (1, 0))

    lost = [run.end["chains"][0]["entry_lost"] / run.end["chains"][0]["offered"] for run in (shared, own)]
    assert lost[0] > lost[1]
    for web in shared.end["chains"]:
        gone = web["entry_lost"] + web["lost_behind"] + web["delivered"]
        assert web["delivered"] > 0
        assert 0 <= web["offered"] - gone <= in_rings(1024, 2)


def test_marks_stop_a_chain_at_its_entry(portable):
    """Above the high mark the entry refuses packets, and stages before the full ring leave theirs where they are."""
    stages = (stage("quick", "--nf compute --cycles 20"), stage("slow", "--nf compute --cycles 3000"))
    text = plan("ring 1024", "pressure 1", "wait_us 10", *stages, "chain web 5 10 64 quick,slow")

    run = portable.run("--chain", text)

    (web,) = run.end["chains"]
    assert run.end["presses"] > 0
    assert web["refused"] > web["delivered"]
    # what is refused is no arrival, and no load, of the first stage
    assert run.end["stages"][0]["offered"] == web["offered"] - web["refused"]
    looks = [line for line in run.lines if line["event"] == "observe"]
    assert any(look["stopped"] == [1] for look in looks)


def test_marks_of_a_shared_ring_keep_the_entry_from_overflowing(portable):
    """Above the high mark of the ring at the entry all its chains are refused; without back-pressure they are lost."""
    stages = (stage("a", "--nf compute --cycles 1000"), stage("b", "--nf compute --cycles 20000"))
    lines = ("ring 1024", "shared 1", "wait_us 10", *stages, "chain direct 5 10 64 a", "chain stopped 5 10 64 a,b")

    free, pressed = (portable.run("--chain", plan(f"pressure {pressure}", *lines)).end for pressure in (0, 1))

    assert pressed["presses"] > 0
    for without, web in zip(free["chains"], pressed["chains"], strict=True):
        assert (without["refused"], web["entry_lost"]) == (0, 0)  # 204 places are above the mark, a burst takes 32
        assert min(without["entry_lost"], web["refused"], web["delivered"]) > 0


def test_sizes_are_mixed(program):
    """A chain of several packet sizes sends each as often."""
    text = plan(stage("a", "--nf l2fwd"), "chain web 0.01 10 64,256,1500 a")

    (web,) = program.run("--chain", text).end["chains"]

    assert web["delivered_bytes"] / web["delivered"] == pytest.approx((64 + 256 + 1500) / 3, rel=0.02)


def test_costs_are_sampled_once_a_millisecond(portable):
    """The median cost is that of the work, however often the stage was interrupted."""
    text = plan("seconds 1", stage("a", "--nf compute --cycles 5000"), "chain web 1 10 64 a")
    # other work may interrupt most bursts of a second, but not of every second
    run = min((portable.run("--chain", text) for _ in range(3)), key=lambda one: one.end["stages"][0]["cost_cycles"])

    (a,) = run.end["stages"]
    assert 20 < a["samples"] <= 1100  # at most; fewer where other work keeps the core
    assert 3000 < a["cost_cycles"] < 9000  # the core may run faster or slower than when the loop was calibrated
    # what is paid holds waking up as well
    paid = [line["stages"][0][4] for line in run.lines if line["event"] == "observe"]
    assert 3000 < sorted(paid)[len(paid) // 2] < 12_000
    # nearly every packet is counted by the time since its turn began, but for those of bursts that were interrupted
    counted = sum(packets for packets, _ in a["turns_us"])
    assert 0.5 * a["served"] < counted <= 1.01 * a["served"] + 64
    assert run.end["looks"] > 100


def test_the_nine_and_ipsec_run_as_stages(dpdk):
    """In the DPDK build a chain of unlike functions ends in an IPsec gateway, which works on mbufs of our buffers."""
    text = plan(stage("r", "--nf router --routes 100"), stage("n", "--nf nat"), stage("i", "--nf ipsec"),
                "chain web 0.005 20 128 r,n,i")  # fmt: skip

    run = dpdk.run("--chain", text)

    assert run.returncode == 0, run.errors
    (web,) = run.end["chains"]
    assert web["delivered"] > 100
    assert web["delivered_bytes"] > 150 * web["delivered"]  # a tunnel's headers are on top


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("ring 1000", stage("a"), "chain w 1 1 64 a"), "a ring of 1000 places"),
        ((stage("a"), "chain w 1 1 64 a,a"), "comes to 'a' twice"),
        (("shared 1", stage("a"), stage("b"), "chain w 1 1 64 a,b", "chain v 1 1 64 b"), "fill one ring of stage 'b'"),
        ((stage("a"), "chain w 1 1 64 b"), "a stage 'b', which there is not"),
        (("buffer 256", stage("a"), "chain w 1 1 64,512 a"), "packets of 512 bytes, a buffer holds 256"),
        (("low 0.9", stage("a"), "chain w 1 1 64 a"), "low mark 0.9 is not below"),
        (("frobnicate 3", stage("a"), "chain w 1 1 64 a"), "a line 'frobnicate'"),
        ((stage("a"),), "has no chain"),
        ((stage("a", "--nf nothing"), "chain w 1 1 64 a"), "no network function 'nothing'"),
        ((stage("a", "--nf compute --cycles x"), "chain w 1 1 64 a"), "--cycles does not understand 'x'"),
        ((stage("a", "--nf l2fwd --rule 3"), "chain w 1 1 64 a"), "there is no flag --rule"),
    ],
)
def test_a_wrong_plan_is_refused(portable, lines, message):
    """Each mistake ends with code 2 and a sentence that names it."""
    run = portable.run("--chain", plan(*lines))

    assert run.returncode == 2
    assert message in run.errors


def test_a_group_that_cannot_be_made_ends_the_run(portable, tmp_path):
    """Without the right to a control group nothing is started, and those made before are removed."""
    first = tmp_path / "first"
    text = plan(f"group {first}", f"group {tmp_path / 'missing' / 'second'}", stage("a"), "chain w 1 1 64 a")

    run = portable.run("--chain", text)

    assert run.returncode == 3
    assert "cannot be made" in run.errors
    assert not first.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_groups_go_however_the_manager_ends(portable, tmp_path, started, number):
    """Groups are removed after a signal that ends the manager, even one that it cannot catch; stages die with it."""
    group = tmp_path / "group"  # a plain directory: what is made and removed is the same
    text = plan(f"group {group}", stage("a"), "chain w 1 1 64 a", head=HEAD.replace("seconds 0.4", "seconds 60"))
    process = portable.start("--chain", text)
    started.append(process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1
    assert group.is_dir()

    process.send_signal(number)
    process.wait(timeout=30)

    deadline = time.monotonic() + 60
    while (group.exists() or Path(f"/proc/{children[0]}").exists()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not group.exists()
    assert not Path(f"/proc/{children[0]}").exists()


def test_looks_hold_rates_and_costs(portable):
    """An observation tells arrivals per second and cost of every stage, and is silent while nothing moves."""
    steady = plan("seconds 1", "observe_change 0.5", stage("a", "--nf compute --cycles 1000"), "chain w 0.01 1 64 a")

    run = portable.run("--chain", steady)

    looks = [line for line in run.lines if line["event"] == "observe"]
    assert 3 <= len(looks) <= 15  # of 50
    rate, cost, lost, served, paid = looks[-1]["stages"][0]
    assert rate == pytest.approx(10_000, rel=0.2)
    assert cost > 900
    assert paid > 0.8 * cost
    assert lost == 0
    assert served > 0
    assert json.dumps(looks[-1])
