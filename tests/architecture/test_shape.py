"""The house keeps its shape: names, sizes, parameters, and imports where they belong."""

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "slomo"
FILES = sorted(PACKAGE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
Function = ast.FunctionDef | ast.AsyncFunctionDef

#: Functions of more than eight parameters: scikit-learn's estimators have one per setting.
MANY_PARAMETERS = {"training/families/xgb.py:__init__"}

#: Names that say that something was looked up, not what it is.
SAYING_NOTHING = {"found", "known", "asked"}


def inside(path: Path) -> str:
    """Return a file's path inside the package."""
    return path.relative_to(PACKAGE).as_posix()


def functions() -> Iterator[tuple[Path, Function]]:
    """Yield every function and method of the package."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                yield path, node


def test_no_class_name_occurs_twice() -> None:
    """A class is found by its name: no two of the package share one."""
    homes = defaultdict(list)
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(inside(path))
    twice = {name: files for name, files in homes.items() if len(files) > 1}

    assert twice == {}, twice


def test_nobody_takes_more_than_eight_parameters() -> None:
    """What takes more than eight things takes an object; the exception is an estimator."""
    many = set()
    for path, node in functions():
        listed = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        if sum(item.arg not in ("self", "cls") for item in listed) > 8:
            many.add(f"{inside(path)}:{node.name}")

    assert many == MANY_PARAMETERS, many ^ MANY_PARAMETERS


def bound_name(node: ast.AST) -> str | None:
    """Return the name that a node gives to something, None where it gives none."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.attr
    return getattr(node, "name", None)


def test_names_say_what_they_hold() -> None:
    """Nothing of the package, not a local, a parameter or an attribute, is called `found`, `known` or `asked`."""
    nameless = [
        f"{inside(path)}:{getattr(node, 'lineno', 0)}: {bound_name(node)}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if bound_name(node) in SAYING_NOTHING
    ]

    assert nameless == [], nameless


def test_most_functions_are_short() -> None:
    """Nine of ten functions, docstrings included, have at most 24 lines."""
    lengths = sorted((node.end_lineno or 0) - node.lineno + 1 for _, node in functions())

    assert lengths[int(0.9 * len(lengths))] <= 24


def test_files_have_one_subject() -> None:
    """The median file has 100 to 180 lines; none has more than 400."""
    lengths = {
        inside(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES if path.name != "__init__.py"
    }
    ordered = sorted(lengths.values())

    assert 100 <= ordered[len(ordered) // 2] <= 180
    assert {name for name, length in lengths.items() if length > 400} == set()


def test_no_folder_bursts() -> None:
    """A folder holds at most 15 files beside its inner rooms."""
    crowded = Counter(inside(path.parent) for path in FILES if path.name != "__init__.py")

    assert {folder: count for folder, count in crowded.items() if count > 15} == {}


def test_importing_slomo_imports_nothing_else() -> None:
    """`import slomo` loads no file of the package but its front door."""
    program = "import sys, slomo; print(*sorted(name for name in sys.modules if name.startswith('slomo.')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []
