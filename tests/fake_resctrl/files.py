"""The emulated tree behind the operations that `ResctrlTree` uses; its state is one file, to outlive kill -9."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from slomo.host.resctrl_tree import ResctrlTree
from tests.fake_resctrl.model import Flavour, ResctrlModel


class ModelFiles:
    """File operations on a tree that lives in a file; `before_change` is called before each change."""

    def __init__(self, state: Path, before_change: Callable[[int], None] = lambda number: None) -> None:
        self.state, self.before_change, self.changes = state, before_change, 0
        self._seen: tuple[int, int, int] | None = None

    def load(self) -> ResctrlModel:
        return ResctrlModel.from_text(self.state.read_text(encoding="utf-8"))

    def look(self) -> ResctrlModel:
        """Return the state to read from, parsed again only after it was replaced."""
        file = os.stat(self.state)
        found = (file.st_ino, file.st_mtime_ns, file.st_size)
        if self._seen != found:
            self._seen, self._model = found, self.load()
        return self._model

    def save(self, model: ResctrlModel) -> None:
        fresh = self.state.with_suffix(".new")
        fresh.write_text(model.to_text(), encoding="utf-8")
        os.replace(fresh, self.state)

    def _change(self, act: Callable[[ResctrlModel], None]) -> None:
        self.changes += 1
        self.before_change(self.changes)
        model = self.load()
        try:
            act(model)
        finally:
            self.save(model)

    def read(self, name: str, limit_b: int) -> bytes:
        return self.look().content(name).encode()[:limit_b]

    def write(self, name: str, data: bytes) -> None:
        self._change(lambda model: model.write(name, data.decode()))

    def make(self, name: str) -> None:
        self._change(lambda model: model.mkdir(name))

    def remove(self, name: str) -> None:
        self._change(lambda model: model.rmdir(name))

    def rename(self, name: str, other: str) -> None:
        self._change(lambda model: model.rename(name, other))

    def names(self, folder: str) -> list[str]:
        names = self.look().names(folder)
        if names is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return names

    def exists(self, name: str) -> bool:
        folder, _, last = name.rpartition("/")
        return last in (self.look().names(folder) or [])

    def is_directory(self, name: str) -> bool:
        return self.look().names(name) is not None


def fake_tree(
    folder: Path, flavour: Flavour | None = None, before_change: Callable[[int], None] = lambda number: None
) -> ResctrlTree:
    """Return an emulated tree whose state is kept in `folder`."""
    files = ModelFiles(folder / "resctrl.json", before_change)
    if not files.state.exists():
        files.save(ResctrlModel(flavour))
    return ResctrlTree(folder / "resctrl", files)


def everything(tree: ResctrlTree) -> dict[str, str]:
    """Return every writable file of every group, to the byte."""
    assert isinstance(tree.files, ModelFiles)
    model = tree.files.look()
    texts = {"io": f"{model.io_enabled} {model.io_mask:x}"}
    for group in tree.groups():
        for file in ("cpus_list", "schemata", "tasks"):
            name = f"{group}/{file}".lstrip("/")
            if tree.exists(name):
                texts[name] = model.content(name)
    return texts
