"""What the network functions do to packets: frames in, frames out, both builds."""

import hashlib
import hmac
import random
import shutil
import struct
import subprocess

import pytest


def test_l2fwd_changes_the_ethernet_addresses_and_nothing_else(program, captures):
    """A forwarded frame carries the two fixed addresses and all its other bytes unchanged."""
    frames = [captures.packet(source_port=port, payload=b"x" * port).frame() for port in range(1, 200)]

    _, out = captures.through(program, "l2fwd", frames)

    assert out == [b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01" + frame[12:] for frame in frames]


def test_router_takes_the_longest_prefix_and_counts_down_the_ttl(program, captures):
    """The next hop is that of the longest matching prefix; without a route or with TTL 1 a packet ends here."""
    routes = captures.folder / "routes"
    routes.write_text("# hops\n198.51.100.0/24 6\n198.51.100.0/25 5\n203.0.113.7/32 300\n", encoding="utf-8")
    destinations = ["198.51.100.1", "198.51.100.200", "203.0.113.7", "203.0.113.8", "198.51.100.127"]
    packets = [captures.packet(destination=address) for address in destinations] + [captures.packet(ttl=1)]

    run, out = captures.through(program, "router", packets, "--routes-file", routes)

    read = [captures.packet.read(frame) for frame in out]
    assert [int.from_bytes(packet.ethernet[4:6], "big") for packet in read] == [5, 6, 300, 5]
    assert {packet.ttl for packet in read} == {63}
    assert run.end["nf_counters"] == {"lookups": 6, "no_route": 1, "ttl_expired": 1, "not_ipv4": 0}
    assert run.end["drops"]["nf"] == 2


def test_router_has_a_default_route_for_generated_tables(program, captures):
    """With a generated table every packet finds a way."""
    packets = [captures.packet(destination=f"{first}.2.3.4") for first in range(1, 224)]

    run, out = captures.through(program, "router", packets, "--routes", 1000)

    assert len(out) == len(packets)
    assert run.end["nf_counters"]["no_route"] == 0


def test_firewall_lets_the_first_matching_rule_decide(program, captures):
    """An allow before a deny wins, other ports and protocols are not meant, what matches nothing passes."""
    rules = captures.folder / "rules"
    rules.write_text(
        "allow 10.1.0.0/16 0.0.0.0/0 any 53 udp\n"
        "deny 10.0.0.0/8 0.0.0.0/0 1000-2000 53 udp\n"
        "deny 0.0.0.0/0 192.0.2.9 any any tcp\n",
        encoding="utf-8",
    )
    packet = captures.packet
    passing = [
        packet(source="10.1.2.3"),
        packet(source_port=999),
        packet(destination_port=54),
        packet(source="11.0.0.1"),
        packet(destination="192.0.2.9", source_port=2001),
    ]
    denied = [packet(source="10.2.0.1"), packet(source_port=2000)]

    run, out = captures.through(program, "firewall", [*denied, *passing], "--rules-file", rules)

    assert [captures.packet.read(frame) for frame in out] == passing
    assert run.end["nf_counters"] == {"allowed": 5, "denied": 2, "not_ipv4": 0}


def test_flowstats_counts_flows_and_their_bytes(program, captures):
    """Five-tuples are counted once each, their bytes as the IP header says, and packets pass unchanged."""
    packets = [captures.packet(source_port=1 + number % 50, payload=b"y" * (number % 7)) for number in range(1000)]

    run, out = captures.through(program, "flowstats", packets)

    assert out == [packet.frame() for packet in packets]
    assert run.end["nf_counters"] == {
        "flows": 50,
        "flow_bytes": sum(28 + len(packet.payload) for packet in packets),
        "largest_flow_packets": 20,
        "table_full": 0,
        "not_ipv4": 0,
    }


def test_flowstats_says_when_its_table_is_full(program, captures):
    """More flows than fit are counted as such, and their packets pass all the same."""
    packets = [captures.packet(source_port=port) for port in range(1, 1001)]

    run, out = captures.through(program, "flowstats", packets, "--flow-capacity", 64)

    counters = run.end["nf_counters"]
    assert len(out) == len(packets)
    assert counters["flows"] + counters["table_full"] == len(packets)
    assert counters["table_full"] > 0


def test_nat_gives_every_flow_its_port_and_brings_answers_back(program, captures):
    """A flow keeps an outside port of its own; an answer to it reaches the inside host; strangers do not."""
    packet = captures.packet
    outbound = [
        packet(source=f"10.0.{number % 20}.1", source_port=5000 + number % 3, payload=bytes([number]))
        for number in range(120)
    ]
    answer = packet(source="198.51.100.1", destination="192.0.2.1", source_port=53, destination_port=1024)
    stranger = packet(source="198.51.100.1", destination="192.0.2.1", source_port=53, destination_port=60000)

    run, out = captures.through(program, "nat", [*outbound, answer, stranger])

    read = [packet.read(frame) for frame in out]
    mapping = {}
    for before, after in zip(outbound, read, strict=False):
        assert (after.destination, after.destination_port, after.payload) == (
            before.destination,
            before.destination_port,
            before.payload,
        )
        mapping.setdefault((before.source, before.source_port), set()).add((after.source, after.source_port))
    assert all(len(outside) == 1 for outside in mapping.values())
    assert len(set().union(*mapping.values())) == len(mapping) == 60
    assert (read[-1].destination, read[-1].destination_port) == (outbound[0].source, outbound[0].source_port)
    assert run.end["nf_counters"] == {"mappings": 60, "outbound": 120, "inbound": 1, "untranslatable": 1}


def test_maglev_keeps_flows_with_their_server_and_shares_evenly(program, captures):
    """Packets of a flow go to one server; every server has work; shares of the table differ by one place at most."""
    packets = [
        captures.packet(source=f"10.0.{number % 250}.{number % 7}", source_port=number % 1750) for number in range(3500)
    ]

    run, out = captures.through(program, "maglev", packets, "--backends", 5)

    servers = {}
    for before, frame in zip(packets, out, strict=True):
        after = captures.packet.read(frame)
        servers.setdefault((before.source, before.source_port), set()).add(after.destination)
        assert after.source == before.source
    assert all(len(chosen) == 1 for chosen in servers.values())
    assert set().union(*servers.values()) == {f"10.221.0.{number}" for number in range(1, 6)}
    counters = run.end["nf_counters"]
    assert counters["connections"] == len(servers)
    assert counters["largest_share"] - counters["smallest_share"] <= 1


def test_dpi_finds_overlapping_strings_once_per_packet(program, captures):
    """Every string that occurs in a payload counts once, also where strings overlap; matches can be dropped."""
    patterns = captures.folder / "patterns"
    patterns.write_text("he\nshe\nhers\nabsent\n", encoding="utf-8")
    packets = [captures.packet(payload=payload) for payload in (b"ushers and ushers", b"nothing", b"he", b"h\0e")]

    run, out = captures.through(program, "dpi", packets, "--patterns-file", patterns, "--drop-matches")

    assert [captures.packet.read(frame).payload for frame in out] == [b"nothing", b"h\0e"]
    assert run.end["nf_counters"]["matches"] == 4
    assert run.end["nf_counters"]["matching_packets"] == 2


def test_dpi_reads_regular_expressions_where_hyperscan_is(dpdk, captures):
    """With --regex a line is an expression."""
    if subprocess.run(["pkg-config", "--exists", "libhs >= 5.2"], check=False).returncode != 0:
        pytest.skip("slomo-nf was built without hyperscan")
    patterns = captures.folder / "patterns"
    patterns.write_text("GET /[a-z]+\\.php\n", encoding="utf-8")
    packets = [captures.packet(payload=b"GET /index.php HTTP/1.1"), captures.packet(payload=b"GET /index.html")]

    run, _ = captures.through(dpdk, "dpi", packets, "--patterns-file", patterns, "--regex")

    assert run.end["nf_counters"]["matching_packets"] == 1


@pytest.mark.parametrize("device", ["crypto_openssl0", "crypto_aesni_mb0"])
def test_ipsec_wraps_packets_so_that_their_owner_can_read_them(dpdk, captures, device):
    """Outside is a right ESP tunnel packet with a right HMAC; decrypted by openssl it holds the packet unchanged."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl program to decrypt with")
    packets = [captures.packet(payload=b"z" * size) for size in (0, 1, 5, 900)]

    run, out = captures.through(dpdk, "ipsec", packets, "--crypto-device", device)

    assert run.end["nf_counters"] == {"encrypted": 4, "crypto_failed": 0, "not_encryptable": 0}
    for number, (packet, frame) in enumerate(zip(packets, out, strict=True), start=1):
        esp = frame[34:-12]
        assert (frame[23], struct.unpack("!II", esp[:8])) == (50, (0x100, number))
        assert frame[-12:] == hmac.new(b"slomo-hmac-sha1-key.", esp, hashlib.sha1).digest()[:12]
        command = [
            "openssl",
            "enc",
            "-d",
            "-aes-128-cbc",
            "-nopad",
            "-K",
            b"slomo-cipher-key".hex(),
            "-iv",
            esp[8:24].hex(),
        ]
        plain = subprocess.run(command, input=esp[24:], capture_output=True, check=True).stdout
        inner = packet.frame()[14:]
        assert plain[: len(inner)] == inner
        assert plain[-1] == 4
        assert plain[-2] == len(plain) - len(inner) - 2


@pytest.mark.parametrize(
    "nf", ["synthetic", "l2fwd", "router", "firewall", "flowstats", "nat", "maglev", "dpi", "ipsec"]
)
def test_broken_frames_harm_nobody(program, captures, nf):
    """Frames that are too short, lie about their length or are no IP are sent or counted as dropped."""
    if nf == "ipsec" and program.build == "portable":
        assert program.run("--nf", nf).returncode == 2  # it is in the DPDK build only
        return
    generator = random.Random(5)
    whole = captures.packet(payload=b"q" * 40).frame()
    frames = [whole[: generator.randrange(1, len(whole))] for _ in range(200)]
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(generator.randrange(1, 4)):
            damaged[generator.randrange(12, 40)] = generator.randrange(256)
        frames.append(bytes(damaged))

    run, out = captures.through(program, nf, frames, "--routes", 100)

    assert len(out) + run.end["drops"]["nf"] == len(frames)
