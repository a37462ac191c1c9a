"""Read a pod's packet counters; the URL scheme in its annotation ``slomo.io/rate`` determines how.

``http://:9100/metrics?served=rx_total&dropped=drops_total`` names two counters of a Prometheus endpoint, on the pod's
own address, whatever host the annotation names. ``dpdk://PREFIX/0,1`` queries the telemetry socket of a DPDK process
with that `--file-prefix`, inside the pod's file system, for packets received and missed on these ports; this needs an
agent with rights on the node. Other schemes are plug-ins.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx

from slomo.errors import ConfigurationError, InvalidValueError, SlomoError, TestbedError
from slomo.plugins import load_plugin, plugins
from slomo.service.kubernetes.containers import Container
from slomo.service.kubernetes.pods import RATE
from slomo.testbed.host.telemetry import SOCKET, TelemetrySocket

#: Entry-point group of further readers; an entry's name is the annotation's URL scheme.
GROUP = "slomo.rate_readers"
#: Largest size of a pod's metrics [bytes], and time limit for reading them [s].
MOST_B, READ_S = 4 << 20, 2.0
#: Scheme of DPDK's telemetry; folders of its sockets in a container, as root and as another user; pattern of prefix and
#: ports.
DPDK = "dpdk"
_FOLDERS = ("run/dpdk", "tmp/dpdk")
_PORTS = re.compile(r"dpdk://([A-Za-z0-9_][A-Za-z0-9._-]*)/([0-9]{1,4}(?:,[0-9]{1,4})*)", re.ASCII)
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{.*\})? ([-+0-9.eE]+|NaN|[-+]Inf)(?: \d+)?$", re.ASCII)


@dataclass(frozen=True)
class PacketCount:
    """Packets served and dropped since the function's start, and time of the reading [s]."""

    served: float
    dropped: float
    at_s: float


#: Function from the annotation and the pod's address to the count.
RateReader = Callable[[str, str], Awaitable[PacketCount]]


async def read_prometheus(text: str, address: str) -> PacketCount:
    """Read two counters from a pod's Prometheus endpoint, summed over their labels."""
    parts = urlsplit(text)
    fields = parse_qs(parts.query)
    if parts.hostname or parts.port is None or not {"served", "dropped"} <= fields.keys():
        hint = 'write "http://:PORT/metrics?served=COUNTER&dropped=COUNTER"'
        raise InvalidValueError(f"{RATE} names no counters of the pod", hint=hint)
    host = f"[{address}]" if ":" in address else address
    content = bytearray()
    async with (
        httpx.AsyncClient(timeout=READ_S, trust_env=False, verify=False) as client,  # noqa: S501 - a pod's own certificate
        client.stream("GET", f"{parts.scheme}://{host}:{parts.port}{parts.path or '/metrics'}") as answer,
    ):
        answer.raise_for_status()
        async for chunk in answer.aiter_bytes():
            content += chunk
            if len(content) > MOST_B:
                raise InvalidValueError(f"metrics of more than {MOST_B >> 20} MiB", hint=f"name another path in {RATE}")
    sums = prometheus_sums(content.decode("utf-8", "replace"))
    try:
        return PacketCount(sums[fields["served"][0]], sums[fields["dropped"][0]], time.monotonic())
    except KeyError as error:
        raise InvalidValueError(f"the pod has no metric {error}", hint=f"correct {RATE}") from None


def prometheus_sums(text: str) -> dict[str, float]:
    """Return the metrics of Prometheus' text format, each summed over its labels."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is not None:
            sums[match[1]] = sums.get(match[1], 0.0) + float(match[2])
    return sums


async def read_dpdk(
    text: str, containers: "Sequence[Container] | SlomoError", proc: Path = Path("/proc")
) -> PacketCount:
    """Read numbers of packets received, missed and without a buffer from DPDK's telemetry in a pod."""
    match = _PORTS.fullmatch(text)
    if match is None:
        raise InvalidValueError(f"{RATE} names no ports of DPDK", hint='write "dpdk://FILE_PREFIX/0", or "/0,1"')
    if isinstance(containers, SlomoError):
        raise containers
    prefix, ports = match[1], match[2].split(",")
    roots = [proc / str(item.threads[0]) / "root" for item in containers if item.threads]
    path = next((socket for root in roots for socket in _sockets(root, prefix)), None)
    if path is None:
        hint = f"start it with --file-prefix={prefix}, and the agent on the host's processes (slomo-agent-host.yaml)"
        raise TestbedError(f"no container of the pod has DPDK's telemetry of '{prefix}' that the agent sees", hint=hint)
    return await asyncio.to_thread(_asked, path, ports)


def _sockets(root: Path, prefix: str) -> list[Path]:
    """Return a container's telemetry sockets, without symbolic links, which could lead out of the container."""
    sockets = []
    for folder in _FOLDERS:
        path = root / folder / prefix / SOCKET
        steps = [path, *path.parents][: len(path.parts) - len(root.parts)]
        try:
            if path.is_socket() and not any(step.is_symlink() for step in steps):
                sockets.append(path)
        except OSError:
            continue
    return sockets


def _asked(path: Path, ports: Sequence[str]) -> PacketCount:
    client = TelemetrySocket(path)
    try:
        answers = [client.ask(f"/ethdev/stats,{port}") for port in ports]
    finally:
        client.close()
    served, *dropped = (sum(float(answer.get(name, 0)) for answer in answers) for name in _STATISTICS)
    return PacketCount(served, sum(dropped), time.monotonic())


#: Fields of DPDK's port statistics: received, and lost because the function was too slow.
_STATISTICS = ("ipackets", "imissed", "rx_nombuf")

_READERS: Mapping[str, RateReader] = {"http": read_prometheus, "https": read_prometheus}


def reader(scheme: str) -> RateReader:
    """Return the reader of a URL scheme: Prometheus, or a plug-in of the group `slomo.rate_readers`."""
    if scheme in _READERS:
        return _READERS[scheme]
    if scheme not in plugins(GROUP):
        raise ConfigurationError(f"nothing reads '{scheme}:' of {RATE}", hint="use http, or install a plug-in")
    return load_plugin(GROUP, scheme)
