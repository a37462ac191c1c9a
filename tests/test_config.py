"""Settings: which source wins, and what is refused."""

from pathlib import Path

import pytest

from slomo.config import SETTINGS, Settings, load_settings
from slomo.errors import ConfigurationError, InvalidValueError, UnknownNameError


def written(folder: Path, text: str) -> Path:
    path = folder / "slomo.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_nearest_source_wins(tmp_path: Path) -> None:
    """The command line beats the environment, which beats the file, which beats the default."""
    file = written(tmp_path, 'machine = "from-file"\nmodel = "from-file"\ntestbed = "from-file"\n')
    environment = {"SLOMO_MACHINE": "from-environment", "SLOMO_MODEL": "from-environment"}

    settings = load_settings({"machine": "from-command-line", "model": None}, environment=environment, file=file)

    assert (settings.machine, settings.model, settings.testbed) == (
        "from-command-line",
        "from-environment",
        "from-file",
    )
    assert settings.models == Settings().models


def test_file_is_found_in_the_working_directory_then_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project's slomo.toml is nearer than the user's."""
    home, project = tmp_path / "home", tmp_path / "project"
    (home / ".config" / "slomo").mkdir(parents=True)
    project.mkdir()
    written(home / ".config" / "slomo", "seed = 1\n")
    monkeypatch.chdir(project)

    assert load_settings(environment={"HOME": str(home)}).seed == 1
    written(project, "seed = 2\n")
    assert load_settings(environment={"HOME": str(home)}).seed == 2


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_has_its_variable(name: str) -> None:
    """SLOMO_<NAME> sets every setting."""
    text = {str: "x", int: "3", float: "0.5"}[SETTINGS[name]]

    settings = load_settings(environment={f"SLOMO_{name.upper()}": text})

    assert getattr(settings, name) == SETTINGS[name](text)


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("machin = 'x'\n", UnknownNameError, "machine"),
        ("seed = 'many'\n", ConfigurationError, "whole number"),
        ("seed = 1.5\n", ConfigurationError, "whole number"),
        ("coverage = true\n", ConfigurationError, "a number"),
        ("machine = [1]\n", ConfigurationError, "a text"),
        ("machine = \n", ConfigurationError, "line 1"),
        ("coverage = 1.5\n", InvalidValueError, "above 0 and below 1"),
        ("seed = -1\n", InvalidValueError, "0 or more"),
        ("coverage = nan\n", ConfigurationError, "finite numbers"),
    ],
)
def test_wrong_file_is_refused_in_words(tmp_path: Path, text: str, error: type[Exception], said: str) -> None:
    """A wrong settings file names what is wrong and what was needed."""
    with pytest.raises(error, match=said):
        load_settings(environment={}, file=written(tmp_path, text))


def test_named_file_must_exist(tmp_path: Path) -> None:
    """A settings file that was asked for and is not there is an error, not a default."""
    with pytest.raises(ConfigurationError, match=r"no settings file"):
        load_settings(environment={"SLOMO_CONFIG": str(tmp_path / "nowhere.toml")})


def test_unknown_setting_on_the_command_line_is_a_fault() -> None:
    """Only settings can be given."""
    with pytest.raises(UnknownNameError):
        load_settings({"colour": "red"}, environment={})
