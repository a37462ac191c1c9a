"""Whatever the order of applying, undoing, being killed and being overruled: the machine ends as it must."""

from pathlib import Path

import pytest

from tests.enforce.sequences import KINDS, play

#: By kind; those named ended otherwise once.
SEEDS = {
    "cgroup+scheduler": (22, 10067, 30014, 300074, 300228),
    "resctrl+rdt-class": (30011, 50027),
    "resctrl+cgroup": (0, 30000),
}
pytestmark = pytest.mark.xdist_group("host")  # they share the machine's control groups with others that set them


@pytest.mark.parametrize("kind", KINDS)
def test_every_sequence_ends_as_it_must(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of ours is left, nothing of others is changed, nothing asked for is lost."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    broken = []
    for seed in SEEDS.get(kind, (0, 1)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            outcome = play(kind, seed, folder)
        except FileNotFoundError as problem:
            pytest.skip(f"{kind}: {problem}")
        broken += [f"seed {seed}: {what}" for what in outcome.broken]

    assert broken == []
