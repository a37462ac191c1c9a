"""Store models as files: one folder per NF with a list of its files, JSON, and xgboost's JSON; never a pickle.

The manifest lists every file with its sha256; names are checked against a pattern, so that no file outside the folder
can be named (path traversal), and every number is checked before it enters a model. Files are exchanged between people
and orchestrators: loading one may fail, but must never run code or exhaust memory.
"""

import hashlib
import json
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import Struct

from slomo.errors import ConfigurationError, SlomoError, StoreError
from slomo.files.documents import check_version, convert
from slomo.files.durable import DRAFT, turn_taking, write_durably
from slomo.files.json_text import parse_json
from slomo.files.opening import read_text
from slomo.models.base import HINT, MOST, SensitivityModel
from slomo.models.nf_model import SCHEMA_VERSION, NFModel
from slomo.models.responses.sensitivity import AVERAGED, averaged_from_dict, is_known_kind, sensitivity_from_dict
from slomo.vocabulary.identity import require_same
from slomo.vocabulary.workload import canonical_json

_AGAIN = "train the models again with this version of slomo"
#: Largest size of a model file.
MAX_BYTES = 64 * 2**20
INDEX, MANIFEST, MODEL = "library.json", "manifest.json", "model.json"
#: File that lists the folders that the next save removes: replaced by the last save, or left incomplete by a killed
#: one.
LEAVING = "superseded.json"
#: Patterns of plain names, and of model folders: readable name, identity, version.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,140}")
_VERSION = re.compile(r"[A-Za-z0-9._-]+\.[0-9a-f]{8}(\.[0-9a-f]{12})?")


#: Exceptions that reading a damaged file can raise.
_DAMAGES = (SlomoError, KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)


@dataclass(frozen=True)
class Entry:
    """The folder of one model's files, with machine and workload of the model."""

    folder: Path
    machine: str
    workload: str
    machine_fingerprint: str = ""


class _Row(Struct):
    """A model in the library's index, or in its own folder's list of files."""

    machine: str
    workload: str
    folder: str = ""
    machine_fingerprint: str = ""


class _Leaving(Struct):
    """Folders that the next save will remove."""

    superseded: list[str]
    unfinished: list[str]


def write_library(directory: Path, models: Sequence[NFModel]) -> Path:
    """Write `models` below `directory`, beside existing ones of other NFs and machines.

    Every version of a model has its own folder, complete before the index names it. A reader therefore finds either the
    old or the new library, and two writers do not overwrite each other.
    """
    for model in models:
        _require_readable(model)
    contents = [_contents(model) for model in models]
    keys = [(model.machine, model.workload.key) for model in models]
    names = [f"{folder_name(*key)}.{_sha256(manifest)[:12]}" for key, (_, manifest) in zip(keys, contents, strict=True)]
    try:
        with turn_taking(directory):
            before, is_whole = _entries(directory)
            for model in models:
                for key, entry in before.items():
                    if key[0] == model.machine and key not in keys:
                        own = model.machine_fingerprint
                        require_same(model.machine, entry.machine_fingerprint, own, "what is to be kept beside them")
            _sweep(directory, {*names, *(entry.folder.name for entry in before.values())}, is_whole=is_whole)
            superseded = {before[key].folder.name for key in keys if key in before} - {*names}
            _note(directory, superseded, unfinished=names)
            for name, (files, manifest) in zip(names, contents, strict=True):
                folder = directory / name
                if not _complete(folder, files, manifest):
                    for file, content in {**files, MANIFEST: manifest}.items():  # the manifest comes last
                        write_durably(folder / file, content)
            written = [
                Entry(directory / name, *key, model.machine_fingerprint)
                for name, key, model in zip(names, keys, models, strict=True)
            ]
            after = {**before, **{(entry.machine, entry.workload): entry for entry in written}}
            rows = [_row(after[key]) for key in sorted(after)]
            write_durably(directory / INDEX, _json({"schema_version": SCHEMA_VERSION, "models": rows}))
            _note(directory, superseded, unfinished=())
    except StoreError as error:
        raise StoreError(
            f"cannot write models to {directory}: {error.message}",
            hint="choose a folder that can be written, with space left",
        ) from None
    return directory


def entries_in(directory: Path) -> dict[tuple[str, str], Entry]:
    """Return the folder of every model, from the index or, if that is damaged, from the folders themselves."""
    return _entries(directory)[0]


def _entries(directory: Path) -> tuple[dict[tuple[str, str], Entry], bool]:
    """Return the folder of every model, and whether the index lists all models."""
    try:
        data = _index(directory)
    except ConfigurationError:
        return _found(directory), False
    listed = {(entry.machine, entry.workload): entry for entry in _listed(directory, data)}
    is_whole = len(listed) == len(data["models"])
    return (listed if is_whole else {**_found(directory), **listed}), is_whole


def _found(directory: Path) -> dict[tuple[str, str], Entry]:
    """Return the newest complete folder of each model in a library with a damaged index."""
    entries = {}
    for path in sorted(directory.glob(f"*/{MANIFEST}"), key=lambda path: path.stat().st_mtime_ns):
        try:
            manifest = _object(path)
            row = convert(manifest, _Row, str(path), HINT)
            entry = Entry(path.parent, row.machine, row.workload)
            model = read_model(entry)
        except ConfigurationError as unread:
            warnings.warn(f"{path.parent} stays where it is, in no index: {unread.message}", stacklevel=5)
        else:
            entries[entry.machine, entry.workload] = replace(entry, machine_fingerprint=model.machine_fingerprint)
    return entries


def _row(entry: Entry) -> dict[str, Any]:
    """Return a model's row of the index, with the digest of its content."""
    row = {"machine": entry.machine, "workload": entry.workload, "folder": entry.folder.name}
    row |= {"machine_fingerprint": entry.machine_fingerprint} if entry.machine_fingerprint else {}
    return _with_digest(row)


def _with_digest(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "digest": _digest(row)}


def _digest(row: Mapping[str, Any]) -> str:
    return _sha256(canonical_json({name: value for name, value in row.items() if name != "digest"}))[:16]


def _note(directory: Path, superseded: Iterable[str], unfinished: Iterable[str]) -> None:
    noted = {"superseded": sorted(superseded), "unfinished": sorted(unfinished)}
    write_durably(directory / LEAVING, _json(_with_digest(noted)))


def _sweep(directory: Path, names_kept: Collection[str], *, is_whole: bool) -> None:
    """Remove folders that the previous save replaced or left incomplete, and nothing else.

    Folders replaced by this save may be open in a reader and are removed by the next one. After damage to the index,
    replaced folders are unknown and stay.
    """
    names: set[str] = set()
    with suppress(ConfigurationError):
        noted = _object(directory / LEAVING)
        if noted.get("digest") == _digest(noted):
            leaving = convert(noted, _Leaving, LEAVING)
            names = {*leaving.unfinished, *(leaving.superseded if is_whole else ())}
    for folder in (directory / name for name in names - {*names_kept} if _VERSION.fullmatch(name)):
        with suppress(ConfigurationError):
            if _object(folder / MANIFEST).get("schema_version") != SCHEMA_VERSION:
                continue
        with suppress(OSError):  # gone, or another program put a file there
            for file in folder.iterdir():
                if file.suffix in (".json", DRAFT):
                    file.unlink(missing_ok=True)
            folder.rmdir()


def read_index(directory: Path) -> list[Entry]:
    """Return the entries of a library's index."""
    return _listed(directory, _index(directory))


def _index(directory: Path) -> dict[str, Any]:
    path = directory / INDEX
    content = read_text(path, hint="the folder of models lacks its index: check the path, or train again")
    try:
        data = _parsed(content, path)
        convert(data.get("models"), list[dict[str, Any]], "models")
    except ConfigurationError as damage:
        hint = f"write it anew: slomo train PROFILE --models {directory}; whole models of others are kept"
        raise ConfigurationError(f"{path}: {damage.message.removeprefix(f'{path} ')}", hint=hint) from None
    return data


def _listed(directory: Path, data: Mapping[str, Any]) -> list[Entry]:
    path = directory / INDEX
    check_version(path, data.get("schema_version"), SCHEMA_VERSION, _AGAIN)
    entries = []
    for row in data["models"]:
        if "digest" in row and row["digest"] != _digest(row):
            warnings.warn(
                f"{path}: the entry of {str(row.get('workload'))[:80]!r} on {str(row.get('machine'))[:80]!r} is "
                "not what was written (its digest differs) and is left out; train it again",
                stacklevel=5,
            )
            continue
        checked = convert(row, _Row, str(path), HINT)
        folder = directory / plain_name(checked.folder, path)
        entries.append(Entry(folder, checked.machine, checked.workload, checked.machine_fingerprint))
    return entries


def read_model(entry: Entry) -> NFModel:
    """Read and check the files of one model."""
    path = entry.folder / MANIFEST
    written = read_text(path, MAX_BYTES, HINT)
    manifest = _parsed(written, path)
    check_version(path, manifest.get("schema_version"), SCHEMA_VERSION, _AGAIN)
    try:
        files = {
            plain_name(name, path): digest
            for name, digest in convert(manifest.get("files"), dict[str, str], str(path), HINT).items()
        }
        if MODEL not in files:
            raise ConfigurationError(f"{path} lists no {MODEL}", hint=HINT)
        contents = {name: read_text(entry.folder / name, MAX_BYTES, HINT, digest) for name, digest in files.items()}
        described = _parsed(contents[MODEL], entry.folder / MODEL)
        model = _assemble(entry.folder, described, contents, manifest)
    except _DAMAGES as error:
        raise _damaged(entry.folder, error) from None
    if (model.machine, model.workload.key) != (entry.machine, entry.workload):
        raise ConfigurationError(
            f"{entry.folder} holds {model.workload.key} on {model.machine}, "
            f"the index says {entry.workload} on {entry.machine}",
            hint=HINT,
        )
    version = _VERSION.fullmatch(entry.folder.name)
    if version and version[1] and version[1] != f".{_sha256(written)[:12]}":
        raise ConfigurationError(f"{path} is not the one its folder is named by (sha256 differs)", hint=HINT)
    fingerprint = model.machine_fingerprint
    require_same(model.machine, entry.machine_fingerprint, fingerprint, f"{model.workload.key} in {entry.folder}")
    return model


def _object(path: Path) -> dict[str, Any]:
    return _parsed(read_text(path, MAX_BYTES, HINT), path)


def _parsed(content: str, path: Path) -> dict[str, Any]:
    """Return the JSON object of a file; ConfigurationError unless it is one JSON object with finite numbers."""
    data = parse_json(content, str(path), HINT, MOST)
    if not isinstance(data, dict):
        raise ConfigurationError(f"{path} holds a {type(data).__name__}, needed an object", hint=HINT)
    return data


def plain_name(name: str, where: Path) -> str:
    """Return a file's name after checking that it stays inside its own folder.

    Raises ConfigurationError for anything but a plain name.
    """
    if not _NAME.fullmatch(name) or ".." in name:
        raise ConfigurationError(
            f"{where} names the file '{name[:80]}', needed a plain name inside its own folder", hint=HINT
        )
    return name


def folder_name(machine: str, key: str) -> str:
    """Return a model's folder name: readable, unique, and valid on every file system.

    >>> folder_name("silver-4110", "lpm@64B,100000f")
    'silver-4110.lpm-64B-100000f.b171fc61'
    """
    return f"{_plain(machine)}.{_plain(key)}.{_sha256(canonical_json([machine, key]))[:8]}"


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:48] or "x"


def _json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, sort_keys=True, indent=1, allow_nan=False) + "\n"


def _sha256(content: str) -> str:
    return hashlib.sha256(content.encode("utf-8")).hexdigest()


def _complete(folder: Path, contents: Mapping[str, str], manifest: str) -> bool:
    """Return whether a folder contains exactly these files."""
    try:
        stored = {name: read_text(folder / name, MAX_BYTES, HINT) for name in (*contents, MANIFEST)}
    except SlomoError:
        return False
    return stored == {**contents, MANIFEST: manifest}


def _contents(model: NFModel) -> tuple[dict[str, str], str]:
    """Return the files of a model, and the list of them (manifest)."""
    data: dict[str, Any] = {**model.to_dict(), "sensitivity": {}}
    del data["manifest"]
    if model.allocation is None:
        del data["allocation"]
    if not model.measured:
        del data["measured"]
    contents = {}
    for name, sensitivity in model.sensitivity.items():
        description = sensitivity.to_dict()
        source = getattr(sensitivity, "source", None)
        if source is not None:
            file = f"{_plain(name)}.xgboost.json"
            contents[file] = source
            description["file"] = file
        data["sensitivity"][name] = description
    contents[MODEL] = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n"
    files = {name: _sha256(content) for name, content in contents.items()}
    return contents, _json({**model.manifest, "schema_version": SCHEMA_VERSION, "files": files})


def _require_readable(model: NFModel) -> None:
    """Raise an error for a model that could not be read back, or would be changed by saving."""
    for name, sensitivity in model.sensitivity.items():
        whose = f"model '{name}' of '{model.workload.nf}' ({type(sensitivity).__module__}.{type(sensitivity).__name__})"
        hint = "docs/guides/plug-ins.md says how a package gives a reader for its kind of model"
        if type(sensitivity).__module__.startswith("slomo."):
            continue
        try:
            written = json.loads(json.dumps(sensitivity.to_dict(), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"{whose} is no JSON: {error}", hint=hint) from None
        if not is_known_kind(written.get("kind")):
            raise ConfigurationError(f"{whose} is of kind {written.get('kind')!r}, which nothing reads back", hint=hint)
        again = sensitivity_from_dict(written)
        if json.loads(json.dumps(again.to_dict())) != written:
            raise ConfigurationError(f"{whose} is read back as something else than was saved", hint=hint)


class _Families(Mapping[str, SensitivityModel]):
    """One NF's sensitivity models, each read and checked on first use, since a question uses one of them."""

    def __init__(self, folder: Path, descriptions: Mapping[str, tuple[Mapping[str, Any], str | None]]) -> None:
        self._folder, self._descriptions = folder, descriptions
        self._read: dict[str, SensitivityModel] = {}

    def __getitem__(self, name: str) -> SensitivityModel:
        if name not in self._read:
            description, source = self._descriptions[name]
            try:
                if description.get("kind") == AVERAGED:
                    self._read[name] = averaged_from_dict(description, self)
                else:
                    self._read[name] = sensitivity_from_dict(description, source)
            except _DAMAGES as error:
                raise _damaged(self._folder, error) from None
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._descriptions

    def __iter__(self) -> Iterator[str]:
        return iter(self._descriptions)

    def __len__(self) -> int:
        return len(self._descriptions)


def _damaged(folder: Path, error: Exception) -> ConfigurationError:
    if isinstance(error, SlomoError):
        return ConfigurationError(f"model in {folder}: {error.message}", hint=error.hint)
    return ConfigurationError(f"model in {folder} is damaged: {error!r}", hint=HINT)


def _assemble(
    folder: Path, data: Mapping[str, Any], contents: Mapping[str, str], manifest: Mapping[str, Any]
) -> NFModel:
    descriptions, skipped = {}, {}
    for name, description in convert(data.get("sensitivity"), dict[str, dict[str, Any]], "sensitivity", HINT).items():
        if isinstance(kind := description.get("kind"), str) and not is_known_kind(kind):
            skipped[name] = kind
            continue
        file = description.get("file")
        if file is not None and file not in contents:
            raise ConfigurationError(
                f"model '{name}' needs the file '{str(file)[:80]}', which its manifest does not list", hint=HINT
            )
        descriptions[name] = (description, None if file is None else contents[file])
    stated = {name: value for name, value in manifest.items() if name not in ("files", "skipped")}
    model = NFModel.from_dict(
        {**data, "sensitivity": {}, "manifest": stated | ({"skipped": skipped} if skipped else {})}
    )
    return replace(model, sensitivity=_Families(folder, descriptions))
