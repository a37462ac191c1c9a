"""Libraries of models: found by name, saved as data, loaded safely from strangers."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slomo.errors import ConfigurationError, SlomoError, StoreError, UnknownNameError, UsageError
from slomo.files.durable import write_durably
from slomo.models.intervals import symmetric
from slomo.models.library import ModelLibrary
from slomo.models.nf_model import NFModel
from slomo.records.dataset import ProfileDataset
from slomo.training.training import train
from slomo.vocabulary.workload import Traffic, Workload

MACHINE = "e5-2620v4"


@pytest.fixture(scope="module")
def saved(toy_library: ModelLibrary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_library.save(tmp_path_factory.mktemp("models"))


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "copy"))


def _folder(directory: Path) -> Path:
    return next(path for path in sorted(directory.iterdir()) if path.is_dir())


def _first(directory: Path) -> NFModel:
    """Read the first model with all its families, each of which is read, and checked, when it is asked for."""
    model = next(iter(ModelLibrary.load(directory).values()))
    assert len(dict(model.sensitivity)) == len(model.sensitivity)
    return model


def _rewrite(folder: Path, name: str, content: str) -> None:
    """Change a file and make the manifest agree, as someone would who wants to be loaded."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = hashlib.sha256(content.encode()).hexdigest()
    for file, text in ((name, content), ("manifest.json", json.dumps(manifest))):
        (folder / file).unlink()  # file systems write a file that is truncated to the disk at once
        (folder / file).write_text(text)


def test_save_load_predict_gives_the_same_numbers(toy_profile: ProfileDataset, tmp_path: Path) -> None:
    """Law 7: a library that was saved and loaded predicts the same numbers, to the bit."""
    trained = train(toy_profile, targets=["ids"])
    loaded = ModelLibrary.load(trained.save(tmp_path))
    assert list(loaded) == list(trained)
    random = np.random.default_rng(0)
    for key, model in trained.items():
        for name, sensitivity in model.sensitivity.items():
            rows = random.gamma(1.0, 100.0, (200, len(sensitivity.feature_names)))
            np.testing.assert_array_equal(
                loaded[key].sensitivity[name].predict_mpps(rows), sensitivity.predict_mpps(rows)
            )
            for coverage in (0.5, 0.9, 0.99):
                np.testing.assert_array_equal(
                    loaded[key].calibration[name].interval_mpps(rows[:, :1] / 100, 5.0, coverage),
                    model.calibration[name].interval_mpps(rows[:, :1] / 100, 5.0, coverage),
                )
        pressure = random.gamma(1.0, 100.0, (50, len(model.contentiousness.pressure_names)))
        np.testing.assert_array_equal(
            loaded[key].contentiousness.under(pressure), model.contentiousness.under(pressure)
        )
        points = random.gamma(1.0, 100.0, (50, len(model.applicability.feature_names)))
        assert loaded[key].applicability.check(points) == model.applicability.check(points)
        assert (loaded[key].solo_vector, loaded[key].capacities, loaded[key].workload) == (
            model.solo_vector,
            model.capacities,
            model.workload,
        )


def test_saving_a_loaded_library_changes_no_byte(saved: Path, tmp_path: Path) -> None:
    """Loading and saving again writes the same bytes, xgboost's own file included."""
    ModelLibrary.load(saved).save(tmp_path / "again")
    files = sorted(path.relative_to(saved) for path in saved.rglob("*.json"))
    assert any("xgboost" in path.name for path in files)
    for path in files:
        assert (tmp_path / "again" / path).read_bytes() == (saved / path).read_bytes()


def test_xgboost_reads_the_file_as_its_own(saved: Path) -> None:
    """The xgboost file of a saved model loads into xgboost itself and gives our numbers."""
    import xgboost

    booster = xgboost.Booster(model_file=_folder(saved) / "slomo-xgb.xgboost.json")
    model = _first(saved).sensitivity["slomo-xgb"]
    rows = np.random.default_rng(0).gamma(1.0, 50.0, (50, len(model.feature_names)))
    theirs = booster.inplace_predict(rows.astype(np.float32)).astype(float)
    np.testing.assert_array_equal(model.ensemble.predict(rows), theirs)  # type: ignore[attr-defined]


def test_loading_imports_only_numpy(saved: Path) -> None:
    """Loading a library and predicting with every family imports no learner, compiler, table or plotting package."""
    code = (
        "import sys, numpy as np\n"
        "from slomo.models.library import ModelLibrary\n"
        "for model in ModelLibrary.load(sys.argv[1]).values():\n"
        "    for found in model.sensitivity.values():\n"
        "        found.predict_mpps(np.ones((1, len(found.feature_names))))\n"
        "heavy = {'sklearn', 'xgboost', 'numba', 'pandas', 'scipy', 'matplotlib', 'pyarrow'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(saved)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_file_is_a_pickle(saved: Path) -> None:
    """Every file of a library is JSON text."""
    files = [path for path in saved.rglob("*") if path.is_file()]
    assert files
    for path in files:
        json.loads(path.read_text())


def test_manifest_says_what_was_measured(saved: Path) -> None:
    """A manifest names workload, machine, units, ranges, errors, versions and every file with its sha256."""
    folder = _folder(saved)
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in (
        "workload",
        "machine",
        "units",
        "ranges",
        "rows",
        "cross_validation",
        "intervals",
        "versions",
        "solo_source",
    ):
        assert manifest[name], name
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("name", ["manifest.json", "model.json", "slomo-xgb.xgboost.json"])
def test_truncated_file_is_refused(copy: Path, name: str) -> None:
    """A file cut in half is refused with the folder's name, whether or not the manifest was made to agree."""
    path = _folder(copy) / name
    content = path.read_text()
    path.write_text(content[: len(content) // 2])
    with pytest.raises(ConfigurationError, match=_folder(copy).name):
        _first(copy)
    if name != "manifest.json":
        _rewrite(_folder(copy), name, content[: len(content) // 2])
        with pytest.raises(ConfigurationError, match=_folder(copy).name):
            _first(copy)


def test_every_field_of_a_model_is_checked(toy_library: ModelLibrary, tmp_path: Path) -> None:
    """Putting nonsense into any field of model.json ends in a ConfigurationError, never in a traceback."""
    model = toy_library.find("lpm")
    kept = {name: model.sensitivity[name] for name in ("dobrescu", "none")}
    copy = ModelLibrary([replace(model, sensitivity=kept, calibration={"none": symmetric(np.ones(3), "mixes")})]).save(
        tmp_path
    )
    folder = _folder(copy)
    original = (folder / "model.json").read_text()
    tried = 0
    for path in _paths(json.loads(original)):
        for nonsense in (None, "x", -1, [], 1e999):
            data = json.loads(original)
            inner = data
            for step in path[:-1]:
                inner = inner[step]
            if inner[path[-1]] == nonsense:
                continue
            inner[path[-1]] = nonsense
            _rewrite(folder, "model.json", json.dumps(data))
            tried += 1
            with contextlib.suppress(ConfigurationError):  # anything else fails the test
                _first(copy)
    assert tried > 150


def _paths(data: object, depth: int = 0) -> list[tuple[object, ...]]:
    """Return the ways to the fields of a nest: every field of an object, the first item of a list."""
    if depth > 4 or not isinstance(data, dict | list) or not data:
        return []
    steps: list[object] = (
        list(data)[:3] if isinstance(data, dict) and depth > 2 else list(data) if isinstance(data, dict) else [0]
    )
    return [way for step in steps for way in [(step,), *((step, *rest) for rest in _paths(data[step], depth + 1))]]  # type: ignore[index,call-overload]


@pytest.mark.parametrize("name", ["../outside.json", "/etc/passwd", "a/b.json", "..", "", "x" * 300, "a\\b", "C:x"])
def test_no_file_outside_the_folder_is_read(copy: Path, name: str) -> None:
    """A manifest or an index that names a path instead of a file is refused."""
    folder = _folder(copy)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = "0" * 64
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ConfigurationError, match="plain name"):
        _first(copy)
    index = json.loads((copy / "library.json").read_text())
    index["models"][0]["folder"] = name
    del index["models"][0]["digest"]
    (copy / "library.json").write_text(json.dumps(index))
    with pytest.raises(ConfigurationError, match="plain name"):
        ModelLibrary.load(copy)


@pytest.mark.parametrize("file", ["library.json", "manifest.json"])
def test_other_schema_version_is_refused(copy: Path, file: str) -> None:
    """Files of another schema version are refused, with both versions in the message."""
    path = copy / file if file == "library.json" else _folder(copy) / file
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 999}))
    with pytest.raises(ConfigurationError, match="999"):
        _first(copy)


def test_oversized_file_is_not_read(copy: Path) -> None:
    """A file larger than any model is refused by its size, before it is read."""
    with (_folder(copy) / "model.json").open("r+b") as file:
        file.truncate(2**40)
    with pytest.raises(ConfigurationError, match="at most"):
        _first(copy)


@pytest.mark.parametrize("missing", ["library.json", "folder", "model.json"])
def test_missing_files_are_named(copy: Path, missing: str) -> None:
    """What is not there is named in the error."""
    if missing == "folder":
        shutil.rmtree(_folder(copy))
    else:
        (copy / missing if missing == "library.json" else _folder(copy) / missing).unlink()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        _first(copy)


def test_swapped_folders_are_noticed(copy: Path) -> None:
    """A folder that holds another NF's model than the index says is refused."""
    index = json.loads((copy / "library.json").read_text())
    rows = index["models"]
    rows[0]["folder"], rows[1]["folder"] = rows[1]["folder"], rows[0]["folder"]
    for row in rows:
        del row["digest"]  # as in an index of a version before
    (copy / "library.json").write_text(json.dumps(index))
    with pytest.raises(ConfigurationError, match="the index says"):
        _first(copy)


def test_where_nothing_can_be_written_the_error_says_so(toy_library: ModelLibrary, tmp_path: Path) -> None:
    """Saving below a file instead of a folder ends in a ConfigurationError with a hint."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        toy_library.save(tmp_path / "file" / "models")


def test_find_by_value_key_and_name(toy_library: ModelLibrary) -> None:
    """A workload, its key and its NF's name find the same model."""
    model = toy_library.find(Workload("lpm"))
    assert model is toy_library.find("lpm") is toy_library.find("lpm@64B,100000f", MACHINE)


@pytest.mark.parametrize(
    ("name", "machine", "kind", "text"),
    [
        ("lpn", None, UnknownNameError, "did you mean 'lpm'"),
        ("2xlpm", None, UnknownNameError, "did you mean '2 x lpm'"),
        ("lpm+nat", None, UnknownNameError, r"did you mean 'lpm \+ nat'"),
        ("lpm", "silver-4110", UnknownNameError, MACHINE),
        (Workload("lpm", traffic=Traffic(packet_size_b=1500)), None, UnknownNameError, "lpm@64B"),
    ],
)
def test_what_is_not_there_is_answered_with_what_is(
    toy_library: ModelLibrary, name: str, machine: str | None, kind: type[SlomoError], text: str
) -> None:
    """A name that finds nothing is answered with the nearest, the machines or the workloads that exist."""
    with pytest.raises(kind, match=text):
        toy_library.find(name, machine)


def test_several_machines_need_a_name(toy_library: ModelLibrary) -> None:
    """With models of two machines, the machine must be named."""
    twin = replace(toy_library.find("lpm"), machine="silver-4110")
    both = toy_library.merge(ModelLibrary([twin]))
    with pytest.raises(UsageError, match="several machines"):
        both.find("lpm")
    assert both.find("lpm", "silver-4110") is twin
    with pytest.raises(UnknownNameError, match="it has models on"):
        ModelLibrary([twin, replace(toy_library.find("nat"), machine="gold-6430")]).find("nat", "silver-4110")


def test_repr_html_lists_the_models(toy_library: ModelLibrary) -> None:
    """The notebook view names every NF."""
    assert all(nf in toy_library._repr_html_() for nf in ("lpm", "nat", "ids"))
    assert "slomo-xgb" in toy_library.find("lpm")._repr_html_()


def _killed_while(toy_library: ModelLibrary, directory: Path, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Save the library as another version, and break off before a file is written."""

    def killed(path: Path, content: str) -> Path:
        if path.name == file:
            raise KeyboardInterrupt
        return write_durably(path, content)

    changed = [replace(model, manifest={**model.manifest, "note": file}) for model in toy_library.values()]
    with monkeypatch.context() as patched:
        patched.setattr("slomo.models.storage.write_durably", killed)
        with pytest.raises(KeyboardInterrupt):
            ModelLibrary(changed).save(directory)


@pytest.mark.parametrize("file", ["model.json", "manifest.json", "library.json"])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_a_killed_writer_left_is_swept_by_the_next(
    toy_library: ModelLibrary, copy: Path, tmp_path: Path, file: str, is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever file a save was to write when it ended, after the next there is one folder of each model.

    Where there was no index yet, whole folders count as what was there: they go with the save after.
    """
    place = tmp_path / "first" if is_first else copy
    _killed_while(toy_library, place, file, monkeypatch)
    for folder in (path for path in place.iterdir() if path.is_dir()):
        (folder / ".model.json.x.slomo-draft").write_text("{")
    (place / ".library.json.y.slomo-draft").write_text("{")
    toy_library.save(place)
    if is_first and file == "library.json":
        toy_library.save(place)
    assert set(ModelLibrary.load(place)) == set(toy_library)
    assert len([path for path in place.iterdir() if path.is_dir()]) == len(toy_library)
    assert not list(place.glob(".*"))


def test_models_of_others_survive_a_damaged_index(toy_library: ModelLibrary, copy: Path) -> None:
    """Saving one model into a library whose index is damaged finds all the others in their folders."""
    (copy / "library.json").write_text('{"models": [')
    ModelLibrary([toy_library.find("nat")]).save(copy)
    assert set(ModelLibrary.load(copy)) == set(toy_library)


@pytest.mark.parametrize("harm", ["cut", "gone", "row"])
def test_what_this_version_cannot_read_is_never_removed(toy_library: ModelLibrary, copy: Path, harm: str) -> None:
    """Beside a damaged index, folders of a newer slomo and damaged ones stay, however often is saved; all are named."""
    index, (newer, harmed, _) = copy / "library.json", sorted(path for path in copy.iterdir() if path.is_dir())
    _edit(newer / "manifest.json", schema_version=99)
    (harmed / "model.json").write_text("{")
    (copy / f"{newer.name[:-12]}0123456789ab").mkdir()
    there = {path.name for path in copy.rglob("*")}
    if harm == "gone":
        index.unlink()
    else:
        index.write_text(index.read_text()[:40] if harm == "cut" else index.read_text().replace("nat@64B", "nat@65B"))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for note in "ab":
            model = toy_library.find("ids")
            ModelLibrary([replace(model, manifest={**model.manifest, "note": note})]).save(copy)
    assert there <= {path.name for path in copy.rglob("*")}
    for folder in (newer, harmed) if harm != "row" else ():  # whose entries hold
        assert any(str(folder) in str(item.message) for item in told)


@pytest.mark.parametrize("name", ["library.json", "manifest.json", "model.json"])
def test_no_file_of_a_library_is_waited_for(copy: Path, name: str) -> None:
    """A FIFO in the place of a file is refused by name; nobody waits for who might write into it."""
    place = copy / name if name == "library.json" else _folder(copy) / name
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(ConfigurationError, match=f"{name}: is a FIFO, needed a regular file"):
        _first(copy)


def test_a_failing_disk_is_no_damaged_index(
    toy_library: ModelLibrary, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that the disk does not give back stays as it is: the save fails, and nothing is written anew."""

    def failing(path: Path, *others: object) -> int:
        if str(path).endswith("library.json"):
            raise OSError(errno.EIO, "Input/output error")
        return opened(path, *others)

    opened, before = os.open, (copy / "library.json").read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr("slomo.files.opening.os.open", failing)
        with pytest.raises(StoreError, match="Input/output error"):
            ModelLibrary([toy_library.find("nat")]).save(copy)
    assert (copy / "library.json").read_bytes() == before


def _edit(path: Path, **fields: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
