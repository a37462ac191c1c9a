"""ResQ's (NSDI'18) Table 1, Fig. 2, Table 2 and Fig. 5, played on the simulator; see phenomena.py."""

from collections.abc import Iterator

from phenomena_runs import COMPETITORS, RESQ, TABLE_1, Line, shared, solo, worst

from slomo.vocabulary.machine import load_machine

#: Fig. 2's caption: with large packets the paper's testbed could not saturate the cores of these two.
NOT_SATURATED_BY_LARGE_PACKETS = ("lpm", "snort")


def table1() -> Iterator[Line]:
    for name, (mpps, ipc, references, hit) in TABLE_1.items():
        ours = solo(name, 64).tenants[0]
        for what, paper, value in (
            ("Mpps", mpps, ours.throughput_mpps),
            ("IPC", ipc, ours.vector["IPC"]),
            ("L3 references/packet", references, ours.l3_references_per_packet),
        ):
            yield Line("Table 1", f"{name}: {what}", f"{paper:g}", value, 0.95 * paper, 1.05 * paper)
        yield Line("Table 1", f"{name}: L3 hit %", f"{hit:g}", 100 * ours.vector["L3HIT"], hit - 0.5, hit + 0.5)


def _comparable(size_b: int) -> list[str]:
    return [name for name in TABLE_1 if size_b < 1000 or name not in NOT_SATURATED_BY_LARGE_PACKETS]


def unisolated() -> Iterator[Line]:
    """Each NF beside 11 instances of another, nothing isolated: the worst over competitors and packet sizes."""
    most = dict.fromkeys(TABLE_1, 0.0)
    for size_b in (64, 1518):
        for name in _comparable(size_b):
            value, other = worst(name, size_b, False)
            most[name] = max(most[name], value)
            yield Line("Fig. 2", f"{name}, {size_b} B, worst beside 11 x {other}: % lost", "", value)
    yield Line("Fig. 2", "worst of all: % lost", "44.3", max(most.values()), 35, 55)
    yield Line("Fig. 2", "NFs that lose more than 10 %", "7", sum(value > 10 for value in most.values()), 7, 9)
    yield Line("Fig. 2", "NFs that lose more than 20 %", "5", sum(value > 20 for value in most.values()))


def cat() -> Iterator[Line]:
    """Give the target one way of its own, 11 competitors the others, and each 2048 buffers."""
    papers = {(64, "mazunat"): "2.4", (64, "stats"): "0.3", (1518, "mazunat"): "12.2", (1518, "stats"): "14.7"}
    for size_b, paper, low, high in ((64, "<3", -1, 3), (1518, "14.7", 8, 20)):
        losses = {name: worst(name, size_b, True) for name in _comparable(size_b)}
        for name, (value, other) in losses.items():
            what = f"{name}, {size_b} B, worst beside 11 x {other}: % lost"
            yield Line("CAT", what, papers.get((size_b, name), ""), value)
        name = max(losses, key=lambda key: losses[key][0])
        yield Line("CAT", f"worst of all at {size_b} B ({name}): % lost", paper, losses[name][0], low, high)
        vector = shared(name, losses[name][1], size_b, True).sockets[0]
        used = 100 * (vector["READ"] + vector["WRITE"]) / load_machine(RESQ).usable_memory_gb_s
        yield Line("Table 2", f"memory bandwidth used then at {size_b} B: %", "31" if size_b == 64 else "94-99", used)


def buffers() -> Iterator[Line]:
    """Do the same with as many buffers as fit the DDIO ways."""
    room_b = load_machine(RESQ).capacities().ddio_kib * 1024
    sized = int(room_b / 1600) // (COMPETITORS + 1)  # 25 lines of 64 B hold a packet of 1518 B
    for size_b in (64, 1518):
        losses = {name: worst(name, size_b, True, sized)[0] for name in _comparable(size_b)}
        name = max(losses, key=losses.__getitem__)
        yield Line(
            "Fig. 5 RQ", f"{sized} buffers each, {size_b} B, worst of all ({name}): % lost", "<3", losses[name], -1, 3
        )
