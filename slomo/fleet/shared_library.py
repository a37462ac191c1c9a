"""A library of models in a shared folder or object store: files named by sha256, published by writing one index.

Model files are stored under ``objects/`` by digest and never change. ``index.json`` names them and is written last,
atomically, so that a reader finds the old or the new library (as in OSTree and container registries). Stores are
reached through fsspec. The index contains its signature, made and checked by OpenSSH (``ssh-keygen -Y``), so that both
are published together.
"""

import hashlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slomo.errors import ConfigurationError, StoreError
from slomo.extras import need
from slomo.files.documents import parse
from slomo.files.durable import turn_taking, write_durably
from slomo.files.opening import open_regular, read_bytes
from slomo.models.library import ModelLibrary, load_library
from slomo.models.nf_model import SCHEMA_VERSION as MODEL_VERSION
from slomo.models.storage import INDEX as LIBRARY_INDEX
from slomo.models.storage import MANIFEST, MAX_BYTES, Entry, plain_name, read_index, read_model
from slomo.vocabulary.identity import require_same
from slomo.vocabulary.workload import canonical_json

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

SCHEMA_VERSION = 1
INDEX, OBJECTS = "index.json", "objects"
#: Namespace of OpenSSH signatures; signatures for other purposes are refused.
NAMESPACE = "slomo-models"
#: Lineage fields of the index: code; rows; held-out errors; basis of intervals, and doubts about them; measured range
#: of pressure.
_LINEAGE = ("versions", "seed", "rows", "default", "cross_validation", "intervals", "doubts", "ranges")
#: Age below which unreferenced objects are kept: a running push may be about to reference them [s].
YOUNG_S = 86_400.0


@dataclass(frozen=True)
class SharedModel:
    """Index entry of one model in a shared library."""

    #: What it is of.
    machine: str
    workload: str
    machine_fingerprint: str
    #: Its version's folder in a library on disk.
    folder: str
    #: Name -> sha256.
    files: dict[str, str]
    #: What it was made from and how good it is: dataset, machine, code, errors, coverage.
    lineage: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Machine and workload of the model."""
        return self.machine, self.workload


@dataclass(frozen=True)
class _SignedIndex:
    """The index as stored: its text, and a signature of the text."""

    content: str
    signature: str = ""
    signer: str = ""


@dataclass(frozen=True)
class _IndexContent:
    revision: int
    models: list[SharedModel]
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class LibraryDifference:
    """Differences between two libraries: models only in the first, only in the second, and in different versions."""

    only_local: tuple[tuple[str, str], ...]
    only_shared: tuple[tuple[str, str], ...]
    other: tuple[tuple[str, str], ...]


class SharedLibrary:
    """A library of models that several machines share, in a folder or object store.

    `url`: folder, or what fsspec opens: ``s3://bucket/models``, ``gs://...``, ``sftp://host/models``.
    `allowed_signers`: OpenSSH's file of who may sign (``ssh-keygen(1)``, ALLOWED SIGNERS); an index that none of them
    signed is refused then. Raises MissingExtraError without the extra `fleet`, or the package of the store;
    ConfigurationError for an unknown kind of store.
    """

    def __init__(self, url: str, allowed_signers: str | Path | None = None) -> None:
        need("fsspec")
        from fsspec.core import url_to_fs

        self.url, self.allowed_signers = url, allowed_signers
        try:
            filesystem_and_path = url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise ConfigurationError(
                f"'{url}': {error}", hint="a folder, or s3://BUCKET/PATH with s3fs installed"
            ) from None
        self._store: AbstractFileSystem = filesystem_and_path[0]
        self._root: str = filesystem_and_path[1].rstrip("/")

    @property
    def models(self) -> tuple[SharedModel, ...]:
        """The shared models, by machine and workload."""
        return tuple(self._read().models)

    def push(
        self,
        directory: str | Path,
        *,
        dataset: str | Path | None = None,
        key: str | Path | None = None,
        signer: str = "",
    ) -> int:
        """Publish the models of a folder; return the number of new ones.

        Other network functions' and machines' models stay. A killed push publishes nothing.

        `directory`: the library. `dataset`: what it was trained on; its sha256 enters the lineage. `key`: OpenSSH key
        to sign with. `signer`: name of who signs, as the file of allowed signers has it. Raises ConfigurationError for
        a damaged model, models of another machine of the same name, or without a key where signatures are required;
        StoreError where the store cannot be written.
        """
        if self.allowed_signers is not None and key is None:
            raise ConfigurationError(
                f"{self.url}: only signed models are allowed here (`allowed_signers` is {self.allowed_signers})",
                hint="push with --sign-with KEY --as NAME",
            )
        source = ""
        if dataset is not None:
            with os.fdopen(open_regular(dataset, 2**40), "rb") as file:
                source = hashlib.file_digest(file, "sha256").hexdigest()
        load_library(directory)
        made = [_described(entry, source) for entry in read_index(Path(directory))]
        with self._turn():
            before, revision = {}, 0
            if self._exists(INDEX):
                content = self._read()
                before, revision = {model.key: model for model in content.models}, content.revision
            for model in made:
                for other in before.values():
                    if other.machine == model.machine:
                        fingerprints = (other.machine_fingerprint, model.machine_fingerprint)
                        require_same(model.machine, *fingerprints, f"{directory}", f"{self.url} holds models of")
            for model in made:
                self._put_objects(Path(directory), model)
            after = {**before, **{model.key: model for model in made}}
            changed = sum(before.get(model.key) != model for model in made)
            if changed or not before or key is not None:
                models = [after[name] for name in sorted(after)]
                text = canonical_json(asdict(_IndexContent(revision + 1, models)))
                index = _SignedIndex(text, "" if key is None else _signed(text, key), signer)
                self._put(INDEX, (json.dumps(asdict(index), indent=1) + "\n").encode())
        return changed

    def pull(self, directory: str | Path) -> int:
        """Copy the shared models to a folder; return the number of copied ones.

        Each file's sha256 is compared and each model read completely before the library on disk changes. Raises
        ConfigurationError for an object whose digest differs from the index's, or an index that no allowed signer
        signed; StoreError where an object is missing.
        """
        there = {}
        if (Path(directory) / LIBRARY_INDEX).exists():
            there = {(entry.machine, entry.workload): entry.folder.name for entry in read_index(Path(directory))}
        missing_models = [model for model in self.models if there.get(model.key) != model.folder]
        if missing_models:
            with tempfile.TemporaryDirectory(prefix="slomo-pull-") as folder:
                for model in missing_models:
                    for name, digest in model.files.items():
                        place = Path(folder, plain_name(model.folder, Path(INDEX)), plain_name(name, Path(INDEX)))
                        write_durably(place, self._object(digest, f"{name} of {model.workload} on {model.machine}"))
                rows = [
                    {name: value for name, value in asdict(model).items() if name not in ("files", "lineage")}
                    for model in missing_models
                ]
                index = {"schema_version": MODEL_VERSION, "models": rows}
                write_durably(Path(folder, LIBRARY_INDEX), json.dumps(index))
                ModelLibrary.load(folder).save(directory)
        return len(missing_models)

    def verify(self) -> int:
        """Compare every file with its digest, and the index with its signature."""
        digests = {
            digest: f"{name} of {model.workload}" for model in self.models for name, digest in model.files.items()
        }
        for digest, what in digests.items():
            self._object(digest, what)
        return len(digests)

    def difference(self, directory: str | Path) -> LibraryDifference:
        """Return the differences between a local library and the shared one."""
        local = {(entry.machine, entry.workload): entry.folder.name for entry in read_index(Path(directory))}
        shared = {model.key: model.folder for model in self.models}
        both = local.keys() & shared.keys()
        return LibraryDifference(
            tuple(sorted(local.keys() - both)),
            tuple(sorted(shared.keys() - both)),
            tuple(sorted(key for key in both if local[key] != shared[key])),
        )

    def prune(self, older_than_s: float = YOUNG_S) -> int:
        """Remove files that the index does not list, except recent ones; return their number."""
        with self._turn():
            named = {digest for model in self.models for digest in model.files.values()}
            objects = self._store.ls(f"{self._root}/{OBJECTS}", detail=True) if self._exists(OBJECTS) else []
            names, oldest_kept_s = [each["name"] for each in objects], time.time() - older_than_s
            old = [name for name in names if self._store.modified(name).timestamp() <= oldest_kept_s]
            leaving = [name for name in old if name.rsplit("/", 1)[-1] not in named]
            for name in leaving:
                self._store.rm_file(name)
        return len(leaving)

    def _turn(self) -> AbstractContextManager[None]:
        """Let writers of a folder take turns; in an object store, the writer that publishes last wins."""
        return turn_taking(self._root) if self._is_folder else nullcontext()

    @property
    def _is_folder(self) -> bool:
        return "file" in (self._store.protocol if isinstance(self._store.protocol, tuple) else (self._store.protocol,))

    def _exists(self, name: str) -> bool:
        return bool(self._store.exists(f"{self._root}/{name}"))

    def _get(self, name: str, what: str) -> bytes:
        if self._is_folder and self._exists(name):
            return read_bytes(Path(self._root, name), MAX_BYTES)
        try:
            return bytes(self._store.cat_file(f"{self._root}/{name}"))
        except FileNotFoundError:
            raise StoreError(
                f"{self.url}: {what} is missing ({name})",
                hint="name another store, or publish there: slomo models push DIR STORE",
            ) from None
        except OSError as error:
            raise StoreError(f"{self.url}: {what} cannot be read: {error}", hint="try again") from None

    def _put(self, name: str, content: bytes) -> None:
        if self._is_folder:
            write_durably(f"{self._root}/{name}", content)
            return
        try:
            self._store.pipe_file(f"{self._root}/{name}", content)  # one request: whole or not at all
        except OSError as error:
            raise StoreError(f"{self.url}: {name} cannot be written: {error}", hint="try again") from None

    def _object(self, digest: str, what: str) -> bytes:
        content = self._get(f"{OBJECTS}/{plain_name(digest, Path(INDEX))}", what)
        if hashlib.sha256(content).hexdigest() != digest:
            raise ConfigurationError(
                f"{self.url}: {what} differs from the index (sha256)",
                hint="push it again from a sound library",
            )
        return content

    def _put_objects(self, directory: Path, model: SharedModel) -> None:
        for name, digest in model.files.items():
            try:
                self._object(digest, name)
            except (ConfigurationError, StoreError):  # missing, or damaged: a push repairs it
                self._put(f"{OBJECTS}/{digest}", read_bytes(directory / model.folder / name, MAX_BYTES, sha256=digest))

    def _read(self) -> _IndexContent:
        name, hint = f"{self.url}/{INDEX}", "name a store that `slomo models push` wrote"
        raw = self._get(INDEX, "the index")
        try:
            outer = parse(raw.decode(), name, hint).to(_SignedIndex, hint)
        except UnicodeDecodeError:
            raise ConfigurationError(f"{name}: is not text in UTF-8", hint=hint) from None
        if self.allowed_signers is not None:
            _check_signature(outer, Path(self.allowed_signers), name)
        return parse(outer.content, name, hint).to(_IndexContent, hint)


def _described(entry: Entry, dataset: str) -> SharedModel:
    """Return the entry of the index for a model."""
    manifest = dict(read_model(entry).manifest)
    written = read_bytes(entry.folder / MANIFEST, MAX_BYTES)
    files = {str(name): str(digest) for name, digest in json.loads(written)["files"].items()}
    lineage = {
        "dataset_sha256": dataset,
        "environment_sha256": hashlib.sha256(canonical_json(manifest.get("environment")).encode()).hexdigest(),
        "testbed": (manifest.get("environment") or {}).get("testbed"),
        **{name: manifest.get(name) for name in _LINEAGE},
    }
    stated = {name: value for name, value in lineage.items() if value not in (None, "", {})}
    return SharedModel(
        entry.machine,
        entry.workload,
        entry.machine_fingerprint,
        entry.folder.name,
        {**files, MANIFEST: hashlib.sha256(written).hexdigest()},
        stated,
    )


def _signed(content: str, key: str | Path) -> str:
    """Return a signature of a text in OpenSSH's format."""
    with tempfile.TemporaryDirectory(prefix="slomo-sign-") as folder:
        text = Path(folder, "index")
        text.write_text(content, encoding="utf-8")
        _keygen(["-Y", "sign", "-q", "-f", str(key), "-n", NAMESPACE, str(text)], f"cannot sign with {key}")
        return text.with_suffix(".sig").read_text(encoding="ascii")


def _check_signature(index: _SignedIndex, allowed: Path, name: str) -> None:
    if not allowed.is_file():
        raise ConfigurationError(f"{allowed}: there is no such file of allowed signers", hint="see ssh-keygen(1)")
    if not index.signature:
        raise ConfigurationError(f"{name}: is not signed", hint="push with --sign-with KEY --as NAME")
    with tempfile.TemporaryDirectory(prefix="slomo-verify-") as folder:
        signature = Path(folder, "index.sig")
        signature.write_text(index.signature, encoding="ascii", errors="replace")
        arguments = ["-Y", "verify", "-q", "-f", str(allowed), "-I", index.signer or "nobody", "-n", NAMESPACE]
        wrong = f"{name}: the signature of '{index.signer}' does not hold"
        _keygen([*arguments, "-s", str(signature)], wrong, index.content)


def _keygen(arguments: Iterable[str], wrong: str, content: str = "") -> None:
    """Run `ssh-keygen`. Raises ConfigurationError if it fails."""
    try:
        done = subprocess.run(
            ["ssh-keygen", *arguments], input=content, capture_output=True, text=True, check=False, timeout=60
        )
    except FileNotFoundError:
        raise ConfigurationError(
            "signatures need `ssh-keygen`, which is not installed", hint="install openssh"
        ) from None
    if done.returncode:
        raise ConfigurationError(f"{wrong}: {(done.stderr or done.stdout).strip()}", hint="check key, name and signers")
