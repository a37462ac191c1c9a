"""That the competitor's loads and stores really happen: sums computed without it, page-table bits, counted writes."""

import time
from pathlib import Path

import pytest

LINE_B = 64
WORD = 2**64


def mixed(number: int) -> int:
    """Splitmix64's mixing function (Steele et al. 2014)."""
    number = (number + 0x9E3779B97F4A7C15) % WORD
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB % WORD
    return number ^ (number >> 31)


def random_lines(lines: int, seed: int, accesses: int) -> list[int]:
    """Lines visited by the random pattern: Knuth's MMIX generator, scaled by its high bits."""
    state, visited = seed, []
    for _ in range(accesses):
        state = (state * 6364136223846793005 + 1442695040888963407) % WORD
        visited.append(state * lines >> 64)
    return visited


def chain_lines(lines: int, seed: int, accesses: int) -> list[int]:
    """Lines visited by the chain: one cycle made by Sattolo's shuffle."""
    state, links = mixed(seed), list(range(lines))
    for index in range(lines - 1, 0, -1):
        other = mixed(state) * index >> 64
        state = (state + 0x9E3779B97F4A7C15) % WORD
        links[index], links[other] = links[other], links[index]
    cursor, visited = 0, []
    for _ in range(accesses):
        visited.append(cursor)
        cursor = links[cursor]
    return visited


def stream_lines(lines: int, seed: int, accesses: int) -> list[int]:
    """Lines visited by the stream: eight places that advance side by side, round and round."""
    return [step % lines % 8 * (lines // 8) + step % lines // 8 for step in range(accesses)]


VISITS = {"random": random_lines, "chain": chain_lines, "sequential": stream_lines}


@pytest.mark.parametrize("pattern", VISITS)
def test_every_value_read_is_in_the_sum(program, pattern):
    """The sum of what was read equals the sum computed here over the lines that the pattern visits."""
    flags = [
        "--pattern",
        pattern,
        "--data-size-mib",
        0.25,
        "--reads-per-packet",
        37,
        "--iterations",
        3,
        "--packets",
        150,
        "--seed",
        9,
    ]

    end = program.run(*flags).end

    lines = 2**18 // LINE_B
    reads = 37 * 3 * 150
    assert end["nf_counters"]["reads"] == end["accesses"] == reads
    assert end["nf_counters"]["checksum"] == sum(mixed(9 + line) for line in VISITS[pattern](lines, 9, reads)) % WORD


@pytest.mark.parametrize("pattern", VISITS)
def test_every_write_is_found_in_the_lines_it_was_meant_for(program, pattern):
    """The lines' own counts add up to the writes made, and as many lines were written as the pattern visits."""
    end = program.run(
        "--pattern",
        pattern,
        "--data-size-mib",
        0.25,
        "--reads-per-packet",
        0,
        "--writes-per-packet",
        29,
        "--packets",
        200,
    ).end

    writes = 29 * 200
    counters = end["nf_counters"]
    assert counters["writes"] == counters["writes_found"] == end["accesses"] == writes
    assert counters["lines_written"] == len(set(VISITS[pattern](2**18 // LINE_B, 1, writes)))


def referenced_kib(pid: int, size_kib: int) -> int:
    """Recently used part of the competitor's data: the mapping of their size that is marked 'no hugepages'."""
    sizes = []
    entry: dict[str, str] = {}
    for line in Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8").splitlines():
        name, _, rest = line.partition(":")
        entry[name] = rest
        if name == "VmFlags" and " nh" in rest and int(entry["Size"].split()[0]) == size_kib:
            sizes.append(int(entry["Referenced"].split()[0]))
    (referenced,) = sizes
    return referenced


def used_after_clearing(pid: int, size_kib: int, looks: int) -> int:
    """Clear the processor's 'accessed' bits and look again and again until all pages were used."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("1", encoding="utf-8")
    except OSError as error:
        pytest.skip(f"this kernel does not let us clear page-table bits: {error}")
    used = 0
    for _ in range(looks):
        time.sleep(0.1)
        used = referenced_kib(pid, size_kib)
        if used == size_kib:
            break
    return used


@pytest.mark.parametrize("pattern", VISITS)
@pytest.mark.parametrize("size_mib", [2, 12])
def test_footprint_is_the_data_size_by_the_page_tables(portable, started, pattern, size_mib):
    """The processor itself marks exactly `data_size_mib` of pages as used."""
    process = portable.start(
        "--pattern",
        pattern,
        "--data-size-mib",
        size_mib,
        "--pages",
        "small",
        "--reads-per-packet",
        500,
        "--interval-s",
        60,
    )
    started.append(process)

    used = used_after_clearing(process.pid, size_mib * 1024, looks=100)

    assert used == size_mib * 1024


def test_without_accesses_the_data_are_not_touched(portable, started):
    """A competitor of no reads and no writes uses none of its data."""
    process = portable.start("--data-size-mib", 2, "--pages", "small", "--reads-per-packet", 0, "--interval-s", 60)
    started.append(process)

    used = used_after_clearing(process.pid, 2 * 1024, looks=3)

    assert used == 0


def test_calibration_sets_the_competitor_beside_a_plain_loop(program):
    """One line per pattern holds both rates in the same run, and their ratio."""
    run = program.run("--calibrate", "--data-size-mib", 2, "--duration-s", 0.3)

    assert [line["pattern"] for line in run.lines] == list(VISITS)
    for line in run.lines:
        assert line["data_size_mib"] == 2
        assert line["plain_accesses_per_s"] > 0
        assert line["competitor_gb_per_s"] == pytest.approx(line["competitor_accesses_per_s"] * LINE_B / 1e9, abs=1e-3)
        assert line["ratio_least"] <= line["ratio"] <= line["ratio_most"]
