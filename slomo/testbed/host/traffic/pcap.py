"""Write a workload's traffic as a pcap capture for replay, and check captures that users provide.

SLOMO's traffic (SIGCOMM'20, section 6): packet size, number of flows, destinations uniform or after Zipf's law.
Format: libpcap, savefile(5), version 2.4, Ethernet.
"""

import hashlib
import os
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slomo.errors import ConfigurationError, InvalidValueError
from slomo.files.durable import write_durably
from slomo.files.opening import open_regular
from slomo.testbed.host.traffic.base import frame_without_checksum_b
from slomo.vocabulary.workload import Traffic, traffic_key

_MAGICS = (0xA1B2C3D4, 0xA1B23C4D)
_FILE_HEADER_B, _FRAME_HEADER_B = 24, 16
_LARGEST_FILE_B = 1 << 30
_HINT = "check `traffic.pcap` in the NF's `host:` section"
_ETHERNET_B, _IPV4_B, _UDP_B = 14, 20, 8
_FEWEST_FRAMES, _MOST_FRAMES = 1024, 1_000_000
_ZIPF_FRAMES = 65_536


def write_pcap(traffic: Traffic, path: Path, seed: int = 0) -> int:
    """Write the traffic's frames as a capture; return their number. InvalidValueError for more flows than fit into one.

    If flows are uniform, each gets one frame; if they follow Zipf's law, frames are drawn from them. `seed`: seed of
    addresses, ports, payload and draws.
    """
    if traffic.flow_count > _MOST_FRAMES:
        raise InvalidValueError(
            f"traffic of {traffic.flow_count} flows does not fit into a capture, needed at most {_MOST_FRAMES}"
        )
    random = np.random.default_rng(seed)
    flows = _flow_headers(traffic, random)
    order = _order(traffic, random)
    size_b = max(frame_without_checksum_b(traffic), _ETHERNET_B + _IPV4_B + _UDP_B)
    frames = np.zeros((len(order), _FRAME_HEADER_B + size_b), dtype=np.uint8)
    frames[:, 8:16] = np.frombuffer(struct.pack("<II", size_b, size_b), dtype=np.uint8)
    frames[:, _FRAME_HEADER_B : _FRAME_HEADER_B + flows.shape[1]] = flows[order]
    payload = frames[:, _FRAME_HEADER_B + flows.shape[1] :]
    payload[:] = random.integers(0, 256, size=(1, payload.shape[1]), dtype=np.uint8)
    header = struct.pack("<IHHiIII", _MAGICS[0], 2, 4, 0, 0, 1 << 16, 1)
    write_durably(path, header + frames.tobytes())
    return len(order)


def cached_pcap(traffic: Traffic, folder: Path, seed: int = 0) -> Path:
    """Return a capture of `traffic`, written once per folder."""
    name = hashlib.sha256(f"{traffic_key(traffic)}/{seed}".encode()).hexdigest()[:16]
    path = folder / f"{name}.pcap"
    if not path.exists():
        write_pcap(traffic, path, seed)
    return path


def count_frames(path: Path) -> int:
    """Return the number of frames in a capture; only headers are read."""
    try:
        with os.fdopen(open_regular(path, _LARGEST_FILE_B, _HINT), "rb") as stream:
            size_b = os.fstat(stream.fileno()).st_size
            order = _byte_order(stream.read(_FILE_HEADER_B), path)
            count, place = 0, _FILE_HEADER_B
            while place + _FRAME_HEADER_B <= size_b:
                stream.seek(place + 8)
                (length,) = struct.unpack(f"{order}I", stream.read(4))
                place += _FRAME_HEADER_B + length
                count += place <= size_b
    except OSError as problem:
        raise ConfigurationError(
            f"capture '{path}' cannot be read: {problem.strerror}",
            hint=_HINT,
        ) from None
    return count


def require_frames(path: Path) -> Path:
    """Return `path` if it is a capture with at least one frame. Raises ConfigurationError if it is not."""
    if count_frames(path) == 0:
        raise ConfigurationError(
            f"capture '{path}' holds no packets, needed at least 1",
            hint="record some traffic, or leave `traffic.pcap` out to have it generated",
        )
    return path


def _byte_order(header: bytes, path: Path) -> str:
    for order in "<>":
        if len(header) == _FILE_HEADER_B and struct.unpack(f"{order}I", header[:4])[0] in _MAGICS:
            return order
    raise ConfigurationError(f"'{path}' is no pcap capture", hint="convert it: editcap -F pcap IN OUT")


def _order(traffic: Traffic, random: np.random.Generator) -> NDArray[np.int64]:
    """Return the flow to which each frame belongs."""
    flows = traffic.flow_count
    if traffic.flow_distribution == "uniform":
        return np.tile(random.permutation(flows), -(-_FEWEST_FRAMES // flows))
    weights = 1.0 / np.arange(1, flows + 1, dtype=np.float64) ** traffic.zipf_exponent
    return random.choice(flows, size=min(max(_ZIPF_FRAMES, flows), _MOST_FRAMES), p=weights / weights.sum())


def _flow_headers(traffic: Traffic, random: np.random.Generator) -> NDArray[np.uint8]:
    """Return the Ethernet, IPv4 and UDP headers of every flow, with valid IPv4 checksums and no UDP checksums."""
    count = traffic.flow_count
    ip_b = max(frame_without_checksum_b(traffic) - _ETHERNET_B, _IPV4_B + _UDP_B)
    heads = np.zeros((count, _ETHERNET_B + _IPV4_B + _UDP_B), dtype=np.uint8)
    heads[:, :14] = (2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0)
    heads[:, 14:24] = (0x45, 0, ip_b >> 8, ip_b & 255, 0, 0, 0x40, 0, 64, 17)
    heads[:, 26] = 10
    heads[:, 27:30] = random.integers(0, 256, size=(count, 3), dtype=np.uint8)
    heads[:, 30] = random.integers(1, 224, size=count, dtype=np.uint8)
    heads[:, 31:38] = random.integers(0, 256, size=(count, 7), dtype=np.uint8)
    udp_b = ip_b - _IPV4_B
    heads[:, 38:40] = (udp_b >> 8, udp_b & 255)
    words = heads[:, 14:34].reshape(count, 10, 2).astype(np.uint32)
    total = (words[:, :, 0] * 256 + words[:, :, 1]).sum(axis=1)
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    heads[:, 24], heads[:, 25] = checksum >> 8, checksum & 0xFF
    return heads
