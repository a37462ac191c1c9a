"""What is written survives a kill at any moment, and two writers of one folder take turns."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from slomo.errors import StoreError
from slomo.files.durable import turn_taking, write_durably


def test_content_is_put_in_place_whole(tmp_path: Path) -> None:
    """Text, bytes and a writer end up in the file, and no draft stays behind."""
    for content in ("text", b"text", lambda file: file.write(b"text")):
        assert write_durably(tmp_path / "a" / "file", content).read_text() == "text"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["file"]


def test_what_fails_leaves_the_old_file(tmp_path: Path) -> None:
    """A writer that breaks off half way changes nothing, and its draft goes."""
    path = write_durably(tmp_path / "file", "old")

    def full(file) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreError, match="No space left"):
        write_durably(path, full)
    assert (path.read_text(), len(list(tmp_path.iterdir()))) == ("old", 1)


@pytest.mark.parametrize("step", ["fsync", "fchmod", "replace"])
def test_a_kill_leaves_old_or_new(tmp_path: Path, step: str) -> None:
    """Killed at any step, the file holds the old content or the new, and the next writer sweeps the draft."""
    path = write_durably(tmp_path / "file", "old" * 1000)
    code = (
        "import os, sys\nfrom slomo.files.durable import write_durably\n"
        f"os.{step} = lambda *_, **__: os._exit(9)\nwrite_durably(sys.argv[1], 'new' * 1000)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert ended.returncode == 9
    assert path.read_text() in ("old" * 1000, "new" * 1000)
    write_durably(tmp_path / "another", "x")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["another", "file"]


def test_drafts_of_writers_at_work_stay(tmp_path: Path) -> None:
    """A writer sweeps what was left, not what another one is writing."""

    def inside(file) -> None:
        write_durably(tmp_path / "other", "x")
        file.write(b"whole")

    assert write_durably(tmp_path / "file", inside).read_text() == "whole"


def test_writers_of_one_folder_take_turns(tmp_path: Path) -> None:
    """Threads that add to one file under a turn lose nothing."""
    path = write_durably(tmp_path / "file", "")

    def add(_: int) -> None:
        for _ in range(20):
            with turn_taking(tmp_path):
                write_durably(path, path.read_text() + "x")

    threads = [threading.Thread(target=add, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(path.read_text()) == 80
    assert os.listdir(tmp_path) == ["file"]
