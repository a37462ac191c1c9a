"""Write a file that describes this host, so that the simulator can imitate it.

Every line states its source: measured by the pointer chase, read from the kernel, or else a typical value (latency of
another socket, links). Format: `slomo/vocabulary/machines/schema.json`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slomo.errors import TestbedError
from slomo.files.durable import write_durably
from slomo.host.ddio import DdioWays
from slomo.testbed.host.doctor.check import System
from slomo.testbed.host.doctor.memory import MemoryCurve
from slomo.testbed.host.machine.this_machine import this_machine
from slomo.vocabulary.machine import Machine

MEASURED, TOLD, TYPICAL = "measured", "told by the kernel", "typical, not measured"
_TYPICAL_DDIO_WAYS = 2
_REMOTE_OVER_LOCAL = 1.6  # latency ratio of two-socket Xeons; sources: the shipped machine files

Field = tuple[Any, str]


def machine_of(system: System, curve: MemoryCurve | None, name: str = "this-host") -> tuple[Machine, Mapping[str, str]]:
    """Return the description of this host, and each field's source; without `curve` the memory's values are typical."""
    plain = this_machine(name)
    table: dict[str, Field] = {
        field: (value, TOLD if field not in _GUESSED else TYPICAL)
        for field, value in plain.to_dict().items()
        if field != "schema_version"
    }
    table |= _processor(system, plain) | _devices(system, plain)
    if curve is not None:
        table |= _measured(curve, plain, victim=table["llc_policy"][0] == "victim")
    origins = {field: origin for field, (_, origin) in table.items()}
    values = {field: value for field, (value, _) in table.items()} | {"source": _source(origins)}
    return Machine.from_dict(values), origins


_GUESSED = {
    "frequency_ghz",
    "l2_hit_ns",
    "llc_hit_ns",
    "llc_policy",
    "ddio_ways",
    "memory_peak_gb_s",
    "memory_efficiency",
    "dram_local_ns",
    "dram_remote_ns",
    "link_gb_s",
    "nic_gbps",
    "nic_socket",
}


def machine_text(machine: Machine, origins: Mapping[str, str]) -> str:
    """Return a machine description as YAML; a comment gives the source of each number."""
    lines = []
    for field, value in machine.to_dict().items():
        if field in ("schema_version", "name") or value is None:  # e.g. ports: a host does not report them
            continue
        # JSON's strings and numbers are valid YAML; `source` repeats the sources for tools that strip comments
        comment = f"  # {origins[field]}" if field in origins and field not in ("description", "source") else ""
        lines.append(f"{field}: {json.dumps(value)}{comment}")
    return "\n".join(lines) + "\n"


def write_machine(path: Path, machine: Machine, origins: Mapping[str, str]) -> None:
    """Write the machine file, replacing an existing one atomically."""
    write_durably(path, machine_text(machine, origins))


def _measured(curve: MemoryCurve, plain: Machine, *, victim: bool) -> dict[str, Field]:
    measured_fields: dict[str, Field] = {}
    if curve.l2_ns is not None:
        measured_fields["l2_hit_ns"] = (round(curve.l2_ns, 2), MEASURED)
    if curve.llc_mib is not None:
        # an exclusive LLC does not repeat the content of L2; the curve shows the sum of both sizes
        own = curve.llc_mib - plain.l2_kib / 1024.0 if victim else curve.llc_mib
        measured_fields["llc_mib"] = (max(0.25, round(own * 4.0) / 4.0), MEASURED)
    if curve.llc_ns is not None:
        measured_fields["llc_hit_ns"] = (round(curve.llc_ns, 1), MEASURED)
    if curve.dram_ns is not None:
        measured_fields["dram_local_ns"] = (round(curve.dram_ns, 1), MEASURED)
        measured_fields["dram_remote_ns"] = (round(_REMOTE_OVER_LOCAL * curve.dram_ns, 1), TYPICAL)
    if curve.read_gb_s is not None:
        measured_fields["memory_peak_gb_s"] = (round(curve.read_gb_s, 1), MEASURED)
        measured_fields["memory_efficiency"] = (1.0, MEASURED)  # the bandwidth above is measured, not nominal
    return measured_fields


def _processor(system: System, plain: Machine) -> dict[str, Field]:
    flags, text = system.flags(), system.read("/proc/cpuinfo") or ""
    base = system.read(f"/sys/devices/system/cpu/cpu{system.cores[0]}/cpufreq/base_frequency")
    shown = next((line.partition(":")[2] for line in text.splitlines() if line.startswith("cpu MHz")), "")
    khz = float(base) if base and base.isdigit() else 1e3 * float(shown) if shown.strip() else 0.0
    # Intel's server LLCs are exclusive of L2 since Skylake, the first with AVX-512; AMD's since Zen
    victim = "avx512f" in flags or "AuthenticAMD" in text
    frequency = (round(khz / 1e6, 3), TOLD) if 0.1e6 < khz < 10e6 else (plain.frequency_ghz, TYPICAL)
    return {"frequency_ghz": frequency, "llc_policy": ("victim" if victim else "inclusive", TYPICAL)}


def _devices(system: System, plain: Machine) -> dict[str, Field]:
    cards = [path for path in system.glob("/sys/class/net/*") if (path / "device").exists()]
    speeds = [system.read(f"/{(card / 'speed').relative_to(system.root)}") for card in cards]
    rates = [float(text) / 1e3 for text in speeds if text and text.isdigit() and int(text) > 0]
    device_fields: dict[str, Field] = {}
    if rates:
        device_fields["nic_gbps"] = (max(rates), TOLD)
    try:
        ways = DdioWays(system.cores[0], system.root / "dev/cpu").read().bit_count()
        device_fields["ddio_ways"] = (ways, TOLD)
    except TestbedError:
        # the devices of a virtual machine are programs of its host, which write to the cache like any core
        physical = bool(cards) and "hypervisor" not in system.flags()
        intel = "GenuineIntel" in (system.read("/proc/cpuinfo") or "")
        ways = _TYPICAL_DDIO_WAYS if physical and intel else 0
        device_fields["ddio_ways"] = (ways if ways < plain.llc_ways else 0, TYPICAL)
    return device_fields


def _source(origins: Mapping[str, str]) -> str:
    parts = []
    for origin in (MEASURED, TOLD, TYPICAL):
        fields = [field for field, stated in origins.items() if stated == origin and field not in _NO_NUMBERS]
        if fields:
            parts.append(f"{origin}: {', '.join(fields)}")
    return f"written by slomo doctor; {'; '.join(parts)}"


_NO_NUMBERS = {"name", "description", "source"}
