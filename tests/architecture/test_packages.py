"""What import-linter cannot see: homes of third-party packages, late imports with a reason, names, a room's front."""

import ast
import functools
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("architecture")  # every file is read once
PACKAGE = Path(__file__).resolve().parents[2] / "slomo"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """Return every file of the package with its syntax tree, read when the first test asks."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file's syntax tree."""
    return tuple(ast.walk(trees()[path]))


#: Third-party package -> rooms or files that may import it; none else may. numpy and msgspec (types of what is read)
#: are at home everywhere.
HOMES: dict[str, tuple[str, ...]] = {
    "capstone": ("testbed/champsim/conversion.py",),
    "click": ("cli/",),
    "dask": ("fleet/",),
    "distributed": ("fleet/",),
    "fsspec": ("fleet/",),
    "httpx": ("client.py", "service/"),
    "jinja2": ("report/",),
    "llvmlite": ("simulator/", "equilibrium/kernel.py"),
    "matplotlib": ("report/",),
    "opentelemetry": ("service/tracing.py",),
    "numba": ("simulator/", "equilibrium/kernel.py", "models/functions/compilation.py", "files/machine_code.py"),
    "pandas": ("records/", "evaluation/", "profiling/plans/latency_plans.py"),
    "pyarrow": ("records/", "fleet/"),
    "pytest": ("testing/",),
    "tqdm": ("workflow/progress.py",),
    "scipy": (
        "training/",
        "profiling/plans/designs.py",
        "placement/planning/",
        "placement/policies/resq_milp.py",
        "workflow/twin.py",
    ),
    "sklearn": ("training/families/",),
    "starlette": ("service/",),
    "threadpoolctl": ("training/families/",),
    "uvicorn": ("service/server.py", "service/edge.py"),
    "xgboost": ("training/families/xgb.py",),
    "yaml": ("files/yaml_text.py", "vocabulary/documents.py", "enforce/", "control/pools/", "workflow/"),
}
#: Rooms and files that may import inside functions, and why.
DEFERRED = {
    "__init__.py": "the front door: names load when they are used",
    "client.py": "the front door of a service: httpx is an extra",
    "cli/": "the front door: help and completion load no verb",
    "config.py": "most have no settings file to parse",
    "errors.py": "only a wrong name looks for the nearest",
    "fleet/measuring.py": "most hosts are described by no file",
    "files/durable.py": "who only reads models makes no drafts",
    "equilibrium/settling.py": "rounds in numpy need no numba",
    "files/documents.py": "only arrays need numpy",
    "files/yaml_text.py": "who reads JSON alone loads no YAML",
    "models/noise.py": "most profiles have no replicates",
    "plugins.py": "what is built in needs no list of what is installed, which loads the e-mail parser",
    "records/provenance.py": "only what is measured on a host states versions, whose reader loads the e-mail parser",
    "service/demo.py": "the demonstration's models are trained, with a learner and pandas, where none are shipped",
    "testbed/registry.py": "a registry imports what is asked for",
    "workflow/names.py": "a dataset is opened with pandas, which predicting does without",
    "workflow/profile.py": "only an adaptive campaign trains models, with a learner",
    "workflow/predict.py": "the front door: a question is imported when it is asked",
    "workflow/place.py": "a testbed is loaded by whoever checks what was placed, with pandas",
    "workflow/chains/on_nodes.py": "policies that predict nothing need no simulator, which is an extra",
    "simulator/first_compile.py": "who registers a listener, on a host too, needs no kernel",
}
#: Packages that take long to load, or are extras, and may be imported where they are used.
LATE = {"xgboost", "scipy", "matplotlib", "jinja2", "tqdm", "pyarrow", "numba", "pandas"} | {
    "capstone",
    "dask",
    "distributed",
    "fsspec",
    "opentelemetry",
}

#: Files that read YAML: rooms that answer questions load them only where a description is needed.
DESCRIPTIONS = {"slomo.vocabulary.machine", "slomo.vocabulary.network_function"}


def imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the dotted names that nodes of a tree import."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def inside(path: Path) -> str:
    """Return a file's path inside the package."""
    return path.relative_to(PACKAGE).as_posix()


def typing_only(tree: ast.Module) -> set[str]:
    """Return what is imported for types alone."""
    blocks = [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    return {name for block in blocks for name in imports(ast.walk(block))}


def test_every_package_is_imported_at_home_only() -> None:
    """A third-party package is imported in the rooms that own it, and no package is without a home."""
    strays = set()
    for path, tree in trees().items():
        for name in set(imports(nodes_of(path))) - typing_only(tree):
            package = name.split(".")[0]
            if package in sys.stdlib_module_names or package in ("slomo", "numpy", "msgspec"):
                continue
            if not inside(path).startswith(HOMES.get(package, ())):
                strays.add(f"{inside(path)}: {package}")

    assert not strays


@functools.cache
def late_imports() -> tuple[tuple[str, str], ...]:
    """Return each file with what it imports inside functions, but for what may be imported late anywhere."""
    return tuple(
        (inside(path), name)
        for path in trees()
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for name in set(imports(ast.walk(node)))
        if name.split(".")[0] not in LATE and name not in DESCRIPTIONS
    )


def test_imports_are_at_the_top() -> None:
    """Only the front door, registries and slow or optional packages are imported inside functions."""
    late = {f"{path}: {name}" for path, name in late_imports() if not path.startswith(tuple(DEFERRED))}

    assert not late


def test_no_exception_outlives_its_reason() -> None:
    """Every file and room listed here exists, and who may import late does."""
    listed = {*DEFERRED, *(home for homes in HOMES.values() for home in homes)}

    assert {name for name in listed if not (PACKAGE / name).exists()} == set()
    late = [path for path, _ in late_imports()]
    assert {name for name in DEFERRED if not any(path.startswith(name) for path in late)} == set()


def imported_modules(path: Path) -> set[str]:
    """Return the dotted names that `path` imports, with names resolved one level for `from a import b`."""
    names: set[str] = set()
    for node in nodes_of(path):
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
    assert [path.relative_to(PACKAGE).as_posix() for path in MODULES if not ast.get_docstring(trees()[path])] == []


def test_every_room_says_what_goes_in_and_out() -> None:
    """The first file of each room says what happens there, what goes in and what comes out, in a few lines."""
    for path in sorted(PACKAGE.glob("*/__init__.py")):
        text = ast.get_docstring(trees()[path]) or ""
        assert "\nIn: " in text, path
        assert " Out: " in text, path
        assert len(text.splitlines()) <= 6, path


def test_nothing_is_pickled_or_evaluated() -> None:
    """No module can execute what a stranger wrote into a file."""
    banned = {"pickle", "marshal", "shelve", "joblib", "dill", "cloudpickle", "eval", "exec", "compile"}
    dangerous = {}
    for path in MODULES:
        calls = {
            node.func.id for node in nodes_of(path) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
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
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(path.relative_to(PACKAGE).as_posix())

    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_importing_slomo_imports_nothing_else() -> None:
    """`import slomo` loads no file of the package but its front door."""
    program = "import sys, slomo; print(*sorted(name for name in sys.modules if name.startswith('slomo.')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []
