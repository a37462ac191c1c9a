"""`slomo models`: share trained models through a folder or an object store."""

import time
from itertools import count
from typing import TYPE_CHECKING

import click

from slomo.cli.options import RenamedOption, json_option, settings
from slomo.cli.output import emit, note, tell
from slomo.cli.types import FILE, SECONDS
from slomo.errors import SlomoError
from slomo.units import plural

if TYPE_CHECKING:
    from slomo.fleet.shared_library import SharedLibrary

_store = click.argument("store", metavar="STORE")
_directory = click.argument("directory", metavar="DIR", type=click.Path())
_signers = click.option(
    "--allowed-signers",
    type=FILE,
    help="File of allowed signers in OpenSSH's format, see ssh-keygen(1); an index signed by none of them is "
    "refused. [setting: allowed_signers]",
)


@click.group()
def command() -> None:
    """Share trained models through a folder or an object store.

    STORE is a folder or an address that fsspec opens, such as s3://BUCKET/models. Readers see the library from before a
    push or from after it, even if the push fails.
    """


def _opened(store: str, allowed_signers: str | None = None) -> "SharedLibrary":
    from slomo.fleet.shared_library import SharedLibrary

    return SharedLibrary(store, settings(allowed_signers=allowed_signers).allowed_signers or None)


@command.command("push")
@_directory
@_store
@click.option("--dataset", type=FILE, help="Dataset on which the models were trained, recorded as their lineage.")
@click.option(
    "--sign-with", "key", metavar="KEY", type=click.Path(), help="OpenSSH key with which the index is signed."
)
@click.option(
    "--as",
    "signer",
    metavar="NAME",
    default="",
    show_default=False,
    help="Name of the signer, as in the file of allowed signers.",
)
@json_option
def push(directory: str, store: str, dataset: str | None, key: str | None, signer: str, as_json: bool) -> None:
    """Copy the models in DIR to STORE; models of other network functions and machines in STORE stay."""
    new = _opened(store).push(directory, dataset=dataset, key=key, signer=signer)
    tell({"new": new, "store": store}, f"{plural(new, 'model')} published in {store}", as_json=as_json)


@command.command("pull")
@_store
@_directory
@_signers
@click.option(
    "--every-s",
    "--every",
    "every",
    cls=RenamedOption,
    type=SECONDS,
    help="Repeat at this interval; a running service loads the models of DIR by itself.",
)
@json_option
def pull(store: str, directory: str, allowed_signers: str | None, every: float | None, as_json: bool) -> None:
    """Copy the models of STORE to DIR; a running `slomo serve --models DIR` loads them automatically."""
    for number in count():
        try:
            new = _opened(store, allowed_signers).pull(directory)
        except SlomoError as error:
            if every is None or number == 0:
                raise
            note(f"{error.message}; DIR stays as it was, again in {every:g} s")
        else:
            tell(
                {"new": new, "directory": directory},
                f"{plural(new, 'model')} fetched into {directory}",
                as_json=as_json,
            )
        if every is None:
            return
        time.sleep(every)


@command.command("list")
@_store
@_signers
@json_option
def list_models(store: str, allowed_signers: str | None, as_json: bool) -> None:
    """Show the models in STORE, and the dataset from which each was trained."""
    models, rows = _opened(store, allowed_signers).models, []
    for model in models:
        chosen, versions = model.lineage.get("default") or {}, model.lineage.get("versions") or {}
        rows.append(
            (
                model.machine,
                model.workload,
                chosen.get("family"),
                (chosen.get("error_percent_of_solo") or {}).get(chosen.get("family")),
                model.lineage.get("testbed"),
                versions.get("slomo"),
                str(model.lineage.get("dataset_sha256", ""))[:12] or None,
            )
        )
    headers = ("machine", "workload", "model", "error [% of solo]", "testbed", "slomo", "dataset")
    emit(models, headers, rows, as_json=as_json)


@command.command("verify")
@_store
@_signers
@json_option
def verify(store: str, allowed_signers: str | None, as_json: bool) -> None:
    """Compare every file in STORE with its sha256, and the index with its signature."""
    files = _opened(store, allowed_signers).verify()
    tell(
        {"files": files, "store": store},
        f"{plural(files, 'file')} in {store} checked: as the index says",
        as_json=as_json,
    )


@command.command("diff")
@_directory
@_store
@json_option
def diff(directory: str, store: str, as_json: bool) -> None:
    """Show how the models in DIR differ from those in STORE."""
    difference = _opened(store).difference(directory)
    parts = (
        ("only in DIR", difference.only_local),
        ("only in STORE", difference.only_shared),
        ("another version", difference.other),
    )
    rows = [(where, *key) for where, keys in parts for key in keys]
    emit(difference, ("", "machine", "workload"), rows, as_json=as_json)


@command.command("prune")
@_store
@click.option(
    "--older-than-s",
    "--older-than",
    "older_than",
    cls=RenamedOption,
    type=SECONDS,
    default=86_400.0,
    help="Keep files younger than this [s].",
)
@json_option
def prune(store: str, older_than: float, as_json: bool) -> None:
    """Remove files that no model of STORE needs."""
    removed = _opened(store).prune(older_than)
    tell({"removed": removed, "store": store}, f"{plural(removed, 'file')} removed from {store}", as_json=as_json)
