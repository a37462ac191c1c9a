"""The map leads to what it names, and the glossary to what defines its words."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MAP = (REPOSITORY / "AGENTS.md").read_text(encoding="utf-8")


def features() -> list[tuple[str, str]]:
    """Return the ten features of CONTRIBUTING.md with their files."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Ten features to find")[1]
    return re.findall(r"^\| ([^|`]+) \| `([^`]+)` \|$", text.split("\n## ")[0], flags=re.MULTILINE)


def test_there_are_ten_features() -> None:
    """The list to check the map by has ten entries."""
    assert len(features()) == 10


@pytest.mark.parametrize(("feature", "file"), features())
def test_the_map_leads_to_a_feature(feature: str, file: str) -> None:
    """A feature's file exists, and one line of the map names its room and it, or its folder as one file per subject."""
    parts = Path(file).relative_to("slomo").parts
    endings = {"/".join(parts[start:]) for start in range(len(parts))} | {f"`{parts[-2]}/`: one file per"}
    rows = [row for row in MAP.splitlines() if f"{parts[0]}/" in row]

    assert (REPOSITORY / file).is_file()
    assert any(ending in row for row in rows for ending in endings), feature


def test_the_glossary_names_files_that_exist() -> None:
    """Every file and folder that the glossary gives for a word is there."""
    text = (REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:slomo|synthetic_nf)/[^`]*)`", text)

    assert len(named) > 30
    assert [name for name in named if not (REPOSITORY / name).exists()] == []
