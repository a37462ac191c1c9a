"""Build the native programs once per test session, run them, and make and read captures for them."""

import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "synthetic_nf"
LIMIT_S = 60


@dataclass(frozen=True)
class Run:
    """What one run of the program said."""

    returncode: int
    lines: list[dict[str, Any]]
    errors: str

    def one(self, event: str) -> dict[str, Any]:
        """Return the only line of this kind."""
        (line,) = [line for line in self.lines if line["event"] == event]
        return line

    @property
    def end(self) -> dict[str, Any]:
        """Totals of a run of one instance."""
        return self.one("end")


@dataclass(frozen=True)
class Program:
    """A built `slomo-nf`."""

    path: Path
    build: str

    def run(self, *flags: object) -> Run:
        """Run it to its end and read its JSON lines."""
        words = [str(self.path), *map(str, flags)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines()] if "--help" not in words else []
        return Run(done.returncode, lines, done.stderr)

    def start(self, *flags: object) -> subprocess.Popen[str]:
        """Start it and wait until it says that it is ready."""
        words = [str(self.path), *map(str, flags)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "ready"
        return process


def _build_once(folder: Path, name: str, build: Callable[[Path], None]) -> Path:
    """Build into a folder shared by the workers of a test run: the first one builds, the others wait."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            build(path)
    return path


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "slomo-nf"


@pytest.fixture(scope="session")
def portable(shared_folder: Path) -> Program:
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no C compiler '{compiler}'")

    def build(path: Path) -> None:
        subprocess.run(["sh", SOURCES / "build-portable.sh", path], check=True, env={**os.environ, "CFLAGS": "-Werror"})

    return Program(_build_once(shared_folder, "slomo-nf-portable", build), "portable")


@pytest.fixture(scope="session")
def dpdk(shared_folder: Path) -> Program:
    for tool in ("meson", "ninja", "pkg-config"):
        if shutil.which(tool) is None:
            pytest.skip(f"'{tool}' is not installed; see synthetic_nf/install-debian-packages.sh")
    if subprocess.run(["pkg-config", "--exists", "libdpdk >= 22.11"], check=False).returncode != 0:
        pytest.skip("libdpdk-dev is not installed; see synthetic_nf/install-debian-packages.sh")

    def build(path: Path) -> None:
        folder = path.with_suffix(".build")
        subprocess.run(
            ["meson", "setup", folder, SOURCES, "-Ddpdk=enabled", "-Dwerror=true"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        subprocess.run(["ninja", "-C", folder, "slomo-nf"], check=True, stdout=subprocess.DEVNULL)
        shutil.copy2(folder / "slomo-nf", path)

    return Program(_build_once(shared_folder, "slomo-nf-dpdk", build), "dpdk")


@pytest.fixture(params=["portable", "dpdk"])
def program(request: pytest.FixtureRequest) -> Program:
    """Both builds, one after the other."""
    chosen: Program = request.getfixturevalue(request.param)
    return chosen


def internet_checksum(data: bytes) -> int:
    """Return the ones' complement sum (RFC 1071); 0 over data that hold their own right checksum."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@dataclass(frozen=True)
class Packet:
    """One UDP packet over IPv4."""

    source: str = "10.0.0.1"
    destination: str = "198.51.100.1"
    source_port: int = 1000
    destination_port: int = 53
    payload: bytes = b"some payload"
    ttl: int = 64
    ethernet: bytes = b"\x02\0\0\0\0\x0a\x02\0\0\0\0\x0b"

    def frame(self) -> bytes:
        """Return the bytes, with right checksums."""
        addresses = socket.inet_aton(self.source) + socket.inet_aton(self.destination)
        udp = struct.pack("!HHHH", self.source_port, self.destination_port, 8 + len(self.payload), 0) + self.payload
        checksum = internet_checksum(addresses + struct.pack("!BBH", 0, 17, len(udp)) + udp) or 0xFFFF
        udp = udp[:6] + struct.pack("!H", checksum) + udp[8:]
        header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0x4000, self.ttl, 17, 0) + addresses
        header = header[:10] + struct.pack("!H", internet_checksum(header)) + header[12:]
        return self.ethernet + b"\x08\x00" + header + udp

    @classmethod
    def read(cls, frame: bytes) -> "Packet":
        """Take a frame apart; both checksums must be right."""
        header, udp = frame[14:34], frame[34 : 14 + int.from_bytes(frame[16:18], "big")]
        assert internet_checksum(header) == 0
        assert internet_checksum(header[12:] + struct.pack("!BBH", 0, 17, len(udp)) + udp) == 0
        ports = struct.unpack("!HH", udp[:4])
        return cls(
            socket.inet_ntoa(header[12:16]),
            socket.inet_ntoa(header[16:20]),
            ports[0],
            ports[1],
            udp[8:],
            header[8],
            frame[:12],
        )


class Captures:
    """Write and read classic pcap files in one folder."""

    packet = Packet

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, frames: Sequence[bytes | Packet], name: str = "in.pcap") -> Path:
        path = self.folder / name
        raw = [frame if isinstance(frame, bytes) else frame.frame() for frame in frames]
        parts = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)]
        parts += [struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame for frame in raw]
        path.write_bytes(b"".join(parts))
        return path

    def read(self, name: str = "out.pcap") -> list[bytes]:
        data, place, frames = (self.folder / name).read_bytes(), 24, []
        while place < len(data):
            (length,) = struct.unpack("<I", data[place + 8 : place + 12])
            frames.append(data[place + 16 : place + 16 + length])
            place += 16 + length
        return frames

    def through(
        self, program: Program, nf: str, frames: Sequence[bytes | Packet], *flags: object
    ) -> tuple[Run, list[bytes]]:
        """Send frames once through a network function; return what it said and the frames that came out."""
        path = self.write(frames)
        run = program.run("--nf", nf, "--pcap", path, "--replay", "once", "--tx-pcap", self.folder / "out.pcap", *flags)
        assert run.returncode == 0, run.errors
        assert run.end["packets"] == len(frames)
        return run, self.read()


@pytest.fixture
def captures(tmp_path: Path) -> Captures:
    return Captures(tmp_path)


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Collect processes and end them after the test, however it ends."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.terminate()
        try:
            process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
