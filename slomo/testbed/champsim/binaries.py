"""Find the user's ChampSim: one binary per number of cores, each built from the expected configuration.

ChampSim's configuration is fixed at build time, and a binary reports only its number of cores. Each binary must
therefore be in the folder of the JSON file from which upstream's `config.sh` built it, and be named as its
`executable_name` says.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from slomo.errors import ConfigurationError, TestbedError
from slomo.files.documents import parse
from slomo.files.opening import read_text
from slomo.testbed.host.nf.readout import field_at

VARIABLE = "SLOMO_CHAMPSIM"
#: Required values of a ChampSim configuration, by field; `docs/guides/champsim.md` shows them as a file.
EXPECTED: Mapping[str, Any] = MappingProxyType(
    {
        "block_size": 64,
        "page_size": 4096,
        "ooo_cpu.0.frequency": 2400,
        "L1D.sets": 16,
        "L1D.ways": 8,
        "L1D.prefetcher": "no",
        "L2C.sets": 32,
        "L2C.ways": 8,
        "L2C.prefetcher": "no",
        "LLC.frequency": 2400,
        "LLC.sets": 256,
        "LLC.ways": 16,
        "LLC.replacement": "lru",
        "physical_memory.data_rate": 3200,
        "physical_memory.channels": 1,
        "virtual_memory.minor_fault_penalty": 0,
        "virtual_memory.randomization": 1,
    }
)
_HINT = f"name a folder in {VARIABLE} with, for each number of cores, the binary and the JSON file it was built from"


@dataclass(frozen=True)
class Binary:
    """One ChampSim program, built for a fixed number of cores."""

    #: The program.
    path: Path
    #: Number of cores, and thus of traces.
    cores: int

    @property
    def fingerprint(self) -> str:
        """First sixteen hexadecimal digits of the program's SHA-256."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()[:16]


def find_binaries(place: str | Path | None = None, expected: Mapping[str, Any] | None = None) -> dict[int, Binary]:
    """Return the binaries of a folder (by default SLOMO_CHAMPSIM), or of one configuration file, by number of cores.

    `expected`: required values that differ from :data:`EXPECTED`, for instance ``{"LLC.replacement": "ship"}``.
    TestbedError if no folder is given or a binary is missing; ConfigurationError, with file, field, value and required
    value, if no file is a configuration with the required values.
    """
    named = place if place is not None else os.environ.get(VARIABLE)
    if not named:
        raise TestbedError(f"testbed 'champsim' needs ChampSim, but {VARIABLE} is not set", hint=_HINT)
    folder = Path(named)
    files = sorted(folder.glob("*.json")) if folder.is_dir() else [folder]
    if not files or not files[0].exists():
        raise TestbedError(f"{VARIABLE} names '{folder}', where there is no configuration (*.json)", hint=_HINT)
    settings = {**EXPECTED, **(expected or {})}
    binaries: dict[int, Binary] = {}
    faults = []
    for file in files:
        configuration = parse(read_text(file, hint=_HINT), str(file), _HINT).table(_HINT)
        fault = _difference(file, configuration, settings)
        if fault is not None:
            faults.append(fault)
            continue
        binary = _binary(file, configuration)
        if binary.cores in binaries:
            raise ConfigurationError(
                f"{binaries[binary.cores].path} and {binary.path} have the same configuration for {binary.cores} cores",
                hint="keep one of them",
            )
        binaries[binary.cores] = binary
    if not binaries:
        raise min(faults, key=lambda fault: fault[0])[1]
    return binaries


def _difference(
    file: Path, configuration: Mapping[str, Any], expected: Mapping[str, Any]
) -> tuple[int, ConfigurationError] | None:
    """Return how many fields of a ChampSim configuration are wrong, and the first one as an error."""
    differing = [(name, field_at(configuration, name), value) for name, value in expected.items()]
    differing = [(name, got, value) for name, got, value in differing if got != value]
    if not differing:
        return None
    name, got, value = differing[0]
    problem = "is missing" if got is None else f"is {got!r}"
    return len(differing), ConfigurationError(
        f"{file}: field '{name}' {problem}, needed {value!r}",
        hint="build ChampSim from the configuration in docs/guides/champsim.md, or ask for this one as a variant",
    )


def _binary(file: Path, configuration: Mapping[str, Any]) -> Binary:
    cores = configuration.get("num_cores")
    if not isinstance(cores, int) or not 1 <= cores <= 64:
        raise ConfigurationError(f"{file}: field 'num_cores' is {cores!r}, needed 1 to 64", hint=_HINT)
    path = file.parent / str(configuration.get("executable_name", "champsim")).replace("\0", "?")
    if not os.access(path, os.X_OK) or path.is_dir():
        raise TestbedError(f"{file}: its binary '{path.name}' is not beside it", hint=_HINT)
    return Binary(path, cores)
