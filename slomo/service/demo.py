"""An example service: models of the shipped datasets, and a cluster of two machine types with requests.

The models ship with slomo (`make demo-models` trains them) and are unpacked once to the user's cache.
"""

import contextlib
import functools
import hashlib
import lzma
import os
import random
import tempfile
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from slomo.errors import ConfigurationError
from slomo.host.places import cache_directory
from slomo.models.functions.compilation import never_compiling
from slomo.models.library import ModelLibrary
from slomo.records.shipped import own_folder, shipped_folder
from slomo.service.api.cluster import as_request
from slomo.service.api.work import record
from slomo.service.application import Service
from slomo.service.door.bodies import Observation, PlacementRequest

#: Number of requests of the demonstration, and of servers of each machine type.
REQUESTS, SERVERS = 90, 14
#: Family that answers for composed vectors. Its models take 0.1 MB in the archive, trees of xgboost 0.24 MB.
FAMILY = "slomo-smooth"
#: Archive of the shipped models. No other archive is unpacked, since `SLOMO_DATASETS` may name an untrusted folder.
ARCHIVE = own_folder() / "demo-models.zip.xz"
Say = Callable[[str], None]


def demo_folder() -> Path:
    """Return the folder for the demonstration's models; each version of the shipped datasets has its own."""
    archive = _archive()
    state = archive.read_bytes() if archive else f"{version('slomo')} {shipped_folder().resolve()}".encode()
    return cache_directory() / f"demo-models-{hashlib.sha256(state).hexdigest()[:12]}"


def demo_models(say: Say) -> Path:
    """Return the folder of the shipped datasets' models, unpacked on the first call, or trained if none are shipped."""
    folder, archive = demo_folder(), _archive()
    if (folder / "library.json").is_file():
        return folder
    if archive:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(dir=folder.parent) as made,
            lzma.open(archive) as packed,
            zipfile.ZipFile(packed) as opened,
        ):
            opened.extractall(Path(made) / "models")
            with contextlib.suppress(OSError):  # another process has unpacked them first
                os.replace(Path(made) / "models", folder)
        return folder
    trained(say).save(folder)
    return folder


def trained(say: Say) -> ModelLibrary:
    """Train models on the shipped datasets and return them."""
    from slomo.records.catalog import catalog
    from slomo.workflow.train import train

    datasets = [entry.load() for entry in catalog() if entry.name.startswith("slomo-")]
    if not datasets:
        raise ConfigurationError("the shipped datasets are not here", hint="set SLOMO_DATASETS to their folder")
    say(f"training models of {len(datasets)} shipped datasets, once (about half a minute)")
    # the equilibrium predicts; of the families for composed vectors, only the smallest of those that are chosen first
    library = train(datasets[0], models=[FAMILY])
    for dataset in datasets[1:]:
        library = library.merge(train(dataset, models=[FAMILY]))
    return library


def demo_servers(machines: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return servers of each machine type, in racks of seven."""
    rows = []
    rack = 0
    for machine in machines:
        for number in range(SERVERS):
            rack += number % 7 == 0
            rows.append({"name": f"rack{rack}-{machine}-{number % 7 + 1}", "machine": machine})
    return rows


def demo_requests(names: list[str]) -> list[dict[str, Any]]:
    """Return requests for some network functions, with promises of 55 to 95 % of solo throughput."""
    dice = random.Random(7)  # noqa: S311 - a demonstration
    rows: list[dict[str, Any]] = []
    for number in range(REQUESTS):
        name = dice.choice(names)
        share = dice.choice((0.55, 0.65, 0.75, 0.85, 0.95))
        slo = {"min_share": share} if number % 9 else {"kind": "on-demand"}
        rows.append({"id": f"{name}-{number + 1}", "nf": name, "slo": slo})
    return rows


def fill(service: Service) -> None:
    """Add example servers, requests and measurements to a service without a cluster."""
    if service.cluster_store.has_cluster:
        return
    library = service.model_store.answers.library
    names = sorted({library[key].workload.nf for key in library})
    servers = demo_servers(library.machines)
    requests = [as_request(msgspec.convert(row, PlacementRequest)) for row in demo_requests(names)]
    service.store.write(lambda connection: service.cluster_store.add_servers(connection, servers)).result()
    service.store.write(lambda connection: service.cluster_store.place(connection, requests, "demo")).result()
    with never_compiling():  # on a new installation, compiling takes longer than all answers
        for item in demo_outcomes(service, names, library.machines[0]):
            recorded = functools.partial(record, service.outcomes, item=item, judged=service.outcomes.judge(item))
            service.store.write(recorded).result()


def demo_outcomes(service: Service, names: list[str], machine: str) -> list[Observation]:
    """Return invented measurements: two functions run as predicted, a third is 10 % slower."""
    dice = random.Random(3)  # noqa: S311 - a demonstration
    outcomes = []
    for name, factor in zip(names, (1.0, 1.0, 0.9), strict=False):
        for _ in range(40):
            beside = dice.choices(names, k=dice.randint(1, 4))
            expected = service.outcomes.judge(Observation(name, 0.0, beside, machine))[2]
            outcomes.append(Observation(name, expected * factor * dice.gauss(1.0, 0.003), beside, machine))
    return outcomes


def _archive() -> Path | None:
    """Return the archive of models of slomo's own datasets; None if other datasets are configured."""
    return ARCHIVE if ARCHIVE.is_file() and shipped_folder() == ARCHIVE.parent else None
