"""A library shared by many: pushed, pulled, compared, signed; killed at any step, readers see old or new."""

import json
import os
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("fsspec", reason="needs the extra fleet")

from slomo.cli.main import main
from slomo.errors import ConfigurationError, StoreError
from slomo.fleet.shared_library import INDEX, OBJECTS, SharedLibrary
from slomo.models.library import ModelLibrary

MACHINE = "e5-2620v4"


@pytest.fixture
def changed(toy_library, tmp_path):
    """Return a folder with another version of one of the toy's models."""
    first = next(iter(toy_library.values()))
    return ModelLibrary([replace(first, solo_mpps=1.5 * first.solo_mpps)]).save(tmp_path / "changed")


def content(folder):
    """Return a library's files by name; notes about superseded folders aside."""
    files = {path.relative_to(folder): path for path in folder.rglob("*.json")}
    return {name: path.read_bytes() for name, path in files.items() if name.name != "superseded.json"}


@pytest.mark.parametrize("kind", ["folder", "object store"])
def test_what_is_pulled_is_what_was_pushed(kind, toy_models, changed, tmp_path):
    """To the byte; a second push and pull of the same move nothing; another version takes the place of the first."""
    url = str(tmp_path / "shared") if kind == "folder" else f"memory://{tmp_path.name}/shared"
    shared = SharedLibrary(url)
    assert shared.push(toy_models) == 3
    assert shared.push(toy_models) == 0
    assert shared.pull(tmp_path / "mine") == 3
    assert content(tmp_path / "mine") == content(toy_models)
    assert shared.pull(tmp_path / "mine") == 0
    assert shared.push(changed) == 1
    assert len(shared.difference(tmp_path / "mine").other) == 1
    assert shared.pull(tmp_path / "mine") == 1
    assert shared.difference(tmp_path / "mine").other == ()
    files = shared.verify()
    assert shared.prune() == 0
    assert shared.prune(older_than_s=0.0) > 0
    assert shared.verify() == files
    assert len(ModelLibrary.load(tmp_path / "mine")) == 3


def test_a_push_killed_at_any_step_leaves_old_or_new(toy_models, changed, tmp_path):
    """A child is killed at its n-th call that reaches the disk, for every n: every reader finds a whole library."""
    before, store = tmp_path / "before", tmp_path / "shared"
    SharedLibrary(str(before)).push(toy_models)
    old, seen, steps = (before / INDEX).read_bytes(), [], 0
    while True:
        shutil.copytree(before, store)
        child = os.fork()
        if child == 0:
            _push_and_die(store, changed, steps)
        _, status = os.waitpid(child, 0)
        SharedLibrary(str(store)).verify()
        seen.append((store / INDEX).read_bytes() == old)
        if not os.WIFSIGNALED(status):
            break
        SharedLibrary(str(store)).push(changed)
        assert SharedLibrary(str(store)).difference(changed).other == ()
        shutil.rmtree(store)
        steps += 1
    assert os.WEXITSTATUS(status) == 0
    assert seen == sorted(seen, reverse=True)
    assert len({*seen}) == 2
    assert steps > 10


def _push_and_die(store, models, steps):
    """Push, and end as by SIGKILL at the call with this number; of a write, half is written."""
    left = [steps]

    def dying(call, *, first=lambda *_: None):
        def instead(*arguments, **named):
            if left[0] == 0:
                first(*arguments)
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return call(*arguments, **named)

        return instead

    def opened(*arguments):
        file = fdopen(*arguments)

        def half(content):
            file.raw.write(content[: len(content) // 2])

        file_like = type("File", (), {"__enter__": lambda self: self, "__exit__": lambda self, *_: file.close()})()
        file_like.write, file_like.flush, file_like.fileno = dying(file.write, first=half), file.flush, file.fileno
        return file_like if "wb" in arguments else file

    fdopen, os.fdopen = os.fdopen, opened
    for name in ("fsync", "replace", "fchmod"):
        setattr(os, name, dying(getattr(os, name)))
    code = 1
    try:
        SharedLibrary(str(store)).push(models)
        code = 0
    finally:
        os._exit(code)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Return a folder with two keys and a file that allows the first one's owner."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("signatures need ssh-keygen, which is not installed")
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ops", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    (folder / "allowed").write_text(f"ops@example.org {(folder / 'ops.pub').read_text()}")
    return folder


def test_only_allowed_signatures_are_followed(keys, toy_models, changed, tmp_path):
    """Signed by who may: pulled. By nobody, a stranger, in another's name, or changed since: refused, nothing moves."""
    store, mine = tmp_path / "shared", tmp_path / "mine"
    plain, strict = SharedLibrary(str(store)), SharedLibrary(str(store), keys / "allowed")
    plain.push(toy_models, key=keys / "ops", signer="ops@example.org")
    assert strict.pull(mine) == 3
    before, good = content(mine), (store / INDEX).read_bytes()
    for arguments in (
        {},
        {"key": keys / "stranger", "signer": "ops@example.org"},
        {"key": keys / "ops", "signer": "x"},
    ):
        plain.push(changed, **arguments)
        plain.push(toy_models, **arguments)
        with pytest.raises(ConfigurationError, match=r"not signed|does not hold"):
            strict.pull(mine)
    (store / INDEX).write_bytes(good.replace(b"lpm", b"ids"))
    with pytest.raises(ConfigurationError, match="does not hold"):
        strict.verify()
    assert content(mine) == before


def test_a_policy_of_signatures_is_a_setting(keys, toy_models, changed, monkeypatch, capsys, tmp_path):
    """With `allowed_signers` set every command asks for a signature: nothing unsigned is read or published."""
    store, mine = str(tmp_path / "shared"), str(tmp_path / "mine")
    assert main(["models", "push", str(toy_models), store]) == 0
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slomo.toml").write_text(f'allowed_signers = "{keys / "allowed"}"\n')
    signed = ["--sign-with", str(keys / "ops"), "--as", "ops@example.org"]
    capsys.readouterr()
    for words in (
        ["pull", store, mine], ["list", store], ["verify", store], ["diff", str(changed), store], ["prune", store],
        ["push", str(changed), store, *signed],
    ):  # fmt: skip
        assert main(["models", *words]) == 2, words
        assert "is not signed" in capsys.readouterr().err
    assert main(["models", "push", str(changed), store]) == 2
    assert "only signed models are allowed" in capsys.readouterr().err
    assert not Path(mine).exists()
    assert main(["models", "push", str(toy_models), str(tmp_path / "new"), *signed]) == 0
    assert main(["models", "pull", str(tmp_path / "new"), mine]) == 0


def test_damage_is_told_and_nothing_is_taken_over(toy_models, tmp_path):
    """A digest that does not match, an object that is missing, an index that is none: named; DIR stays as it was."""
    store, mine = tmp_path / "shared", tmp_path / "mine"
    shared = SharedLibrary(str(store))
    shared.push(toy_models)
    victim = max((store / OBJECTS).iterdir(), key=lambda path: path.stat().st_size)
    whole = victim.read_bytes()
    victim.write_bytes(whole[:-2] + b"9\n")
    for call in (shared.verify, lambda: shared.pull(mine)):
        with pytest.raises(ConfigurationError, match="differs from the index"):
            call()
    assert shared.push(toy_models) == 0  # the same models repair it
    assert shared.verify() > 0
    victim.unlink()
    with pytest.raises(StoreError, match="is missing"):
        shared.pull(mine)
    assert not mine.exists()
    (store / INDEX).write_text('{"content": 3}')
    with pytest.raises(ConfigurationError, match="needed text"):
        shared.pull(mine)


def test_who_follows_a_store_outlives_its_damage(toy_models, changed, monkeypatch, capsys, tmp_path):
    """`pull --every` says what is wrong and asks again; what a service reads changes with the next sound index."""
    store, mine = tmp_path / "shared", tmp_path / "mine"
    shared, seen = SharedLibrary(str(store)), []
    shared.push(toy_models)

    def meanwhile(pause_s):
        seen.append((pause_s, content(mine)))
        if len(seen) == 1:
            (store / INDEX).rename(store / "away")
        elif len(seen) == 2:
            (store / "away").rename(store / INDEX)
            shared.push(changed)
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr("slomo.cli.verbs.inventory.models.time.sleep", meanwhile)
    words = ["models", "pull", str(store), str(mine), "--every-s", "60"]
    assert main(words) == 130
    assert "the index is missing (index.json); DIR stays as it was, again in 60 s" in capsys.readouterr().err
    assert seen[0] == seen[1] == (60.0, content(toy_models))
    assert seen[2][1] != seen[1][1]
    assert main(["models", "pull", str(tmp_path / "nothing"), str(mine), "--every-s", "60"]) == 3


def test_models_of_another_machine_of_the_name_are_refused(toy_library, toy_models, tmp_path):
    """A machine is its content: what was measured on another is not published beside it."""
    store = tmp_path / "shared"
    stated = [
        replace(model, manifest={**model.manifest, "machine_fingerprint": "a" * 16}) for model in toy_library.values()
    ]
    SharedLibrary(str(store)).push(ModelLibrary(stated).save(tmp_path / "one"))
    other = replace(stated[0], manifest={**stated[0].manifest, "machine_fingerprint": "b" * 16})
    with pytest.raises(ConfigurationError, match="fingerprint"):
        SharedLibrary(str(store)).push(ModelLibrary([other]).save(tmp_path / "two"))


def test_the_command_line_does_it(capsys, toy_models, tmp_path):
    """Push, list, verify, diff, pull, prune; a store that is none ends with exit code 3, an unknown kind with 2."""
    store, mine = str(tmp_path / "shared"), str(tmp_path / "mine")
    for words in (
        ["push", str(toy_models), store], ["verify", store], ["pull", store, mine], ["prune", store],
        ["diff", mine, store], ["list", store],
    ):  # fmt: skip
        assert main(["models", *words]) == 0, words
    assert "lpm@64B,100000f" in capsys.readouterr().out
    assert main(["models", "push", str(toy_models), store, "--dataset", str(toy_models / "library.json")]) == 0
    capsys.readouterr()
    assert main(["models", "list", store, "--json"]) == 0
    made_from = {"dataset_sha256", "environment_sha256", "versions", "rows", "cross_validation", "intervals", "ranges"}
    for model in json.loads(capsys.readouterr().out):
        assert made_from <= model["lineage"].keys()
        assert model["machine"] == MACHINE
    assert main(["models", "list", str(tmp_path / "nothing")]) == 3
    assert main(["models", "list", "nosuch://x"]) == 2
    assert main(["models", "push", str(tmp_path / "nothing"), store]) == 2


def test_a_pipe_in_the_place_of_the_index_is_refused(tmp_path):
    """A shared folder is read by the one reader: nothing waits for what never comes."""
    os.mkfifo(tmp_path / INDEX)

    with pytest.raises(ConfigurationError, match="needed a regular file"):
        SharedLibrary(str(tmp_path)).models  # noqa: B018
