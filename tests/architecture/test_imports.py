"""What import-linter cannot see: nobody goes through their own room's front."""

import ast
import functools
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "slomo"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


def imported_modules(path: Path) -> set[str]:
    """Return the dotted names that `path` imports, with names resolved one level for `from a import b`."""
    names: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import in line {node.lineno}"
            names |= {_resolved(node.module or "", alias.name) for alias in node.names}
    return names


def _resolved(module: str, name: str) -> str:
    """Return what `from module import name` imports: the file `module/name.py` where there is one, else `module`."""
    inside = PACKAGE.parent.joinpath(*module.split("."), name)
    return f"{module}.{name}" if inside.with_suffix(".py").is_file() or inside.is_dir() else module


def test_no_module_imports_its_own_facade() -> None:
    """A module imports files, never the `__init__` of its own room or of the whole library."""
    through = {}
    for path in MODULES:
        place = path.relative_to(PACKAGE)
        room = f"slomo.{place.parts[0]}" if len(place.parts) > 1 else "slomo"
        facades = {"slomo"} if room.startswith(("slomo.cli", "slomo.report")) else {"slomo", room}
        through[place.as_posix()] = imported_modules(path) & facades

    assert {name: facades for name, facades in through.items() if facades} == {}


def test_every_module_begins_with_its_docstring() -> None:
    """Python itself sees a docstring in every module."""
    assert [path.relative_to(PACKAGE).as_posix() for path in MODULES if not ast.get_docstring(tree_of(path))] == []


def test_nothing_is_pickled_or_evaluated() -> None:
    """No module can execute what a stranger wrote into a file."""
    banned = {"pickle", "marshal", "shelve", "joblib", "dill", "cloudpickle", "eval", "exec", "compile"}
    dangerous = {}
    for path in MODULES:
        calls = {
            node.func.id
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        packages = {name.split(".")[0] for name in imported_modules(path)}
        dangerous[path.relative_to(PACKAGE).as_posix()] = (calls | packages) & banned

    assert {name: words for name, words in dangerous.items() if words} == {}


def test_no_file_is_a_drawer() -> None:
    """No file is named after nothing in particular."""
    assert not [path for path in MODULES if path.stem in {"utils", "helpers", "common", "misc"}]


def test_no_class_name_occurs_twice() -> None:
    """A class is found by its name: no two of the package share one."""
    homes = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(path.relative_to(PACKAGE).as_posix())

    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_importing_slomo_imports_nothing_else() -> None:
    """`import slomo` loads no file of the package but its front door."""
    program = "import sys, slomo; print(*sorted(name for name in sys.modules if name.startswith('slomo.')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []
