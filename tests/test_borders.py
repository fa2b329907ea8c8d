"""The device half knows no torch, and imports between folders run one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import pocketune

from .syntax import syntax_tree

SOURCE = Path(pocketune.__file__).parent

# Folders and single modules by floor; each may import from the floors below its own.
FLOORS = (
    {
        "arithmetic",
        "arrays",
        "errors",
        "heap",
        "lazy",
        "notebook",
        "pareto",
        "threads",
    },
    {"extensions", "files", "options", "processes", "schema", "seeding", "torch_private"},
    {"tasks", "layers", "locks", "user_cache"},
    {"data", "filtering"},
    {"kit"},
    {"device"},
    {"resumable"},
    {"networks", "objectives", "planner"},
    {"surgery", "accounting"},
    {"weights"},
    {"supernet"},
    {"onnx_import", "methods"},
    {"compiler", "papers", "distillation"},
    {"deployment", "eager", "forecast", "pruning", "shrinking", "demo", "studio"},
    {"authoring"},
    {"comparison", "extractor", "proposals"},
    {"planning", "reporting"},
    {"cli"},
    {"__main__"},
)
FLOOR = {room: number for number, floor in enumerate(FLOORS) for room in floor}
DEVICE_HALF = {
    "arithmetic",
    "arrays",
    "errors",
    "extensions",
    "heap",
    "lazy",
    "notebook",
    "pareto",
    "options",
    "files",
    "locks",
    "user_cache",
    "processes",
    "schema",
    "threads",
    "data",
    "tasks",
    "kit",
    "device",
    "resumable",
    "demo",
    "planner",
    "studio",
}
# These use what is installed: the author half is imported inside of functions.
EITHER_HALF = {"cli", "planning", "reporting", "__main__"}
AUTHOR_HALF = set(FLOOR) - DEVICE_HALF - EITHER_HALF
AUTHOR_PACKAGES = {"torch", "onnx", "torchvision", "timm", "functorch", "huggingface_hub"}


def room_of(path: Path) -> str:
    """`device/loop.py` -> `device`, `errors.py` -> `errors`."""
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imports(path: Path, source: str | None = None) -> Iterator[tuple[str, ...]]:
    """Absolute dotted names that a file imports anywhere in it, as tuples of their parts."""
    yield from names_imported(path, ast.walk(tree_of(path, source)))


def imports_of_a_run(path: Path, source: str | None = None) -> Iterator[tuple[str, ...]]:
    """The same, without names that only type checkers import."""
    yield from names_imported(path, walk_run(tree_of(path, source)))


def tree_of(path: Path, source: str | None) -> ast.Module:
    return ast.parse(source) if source else syntax_tree(path)


def walk_run(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from walk_run(child)


def names_imported(path: Path, nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ...]]:
    package = ("pocketune", *path.relative_to(SOURCE).parent.parts)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            module = tuple(node.module.split(".")) if node.module else ()
            yield from ((*base, *module, alias.name) for alias in node.names)


def rooms_imported(path: Path, source: str | None = None) -> set[str]:
    names = {name[:2] for name in imports(path, source) if name[0] == "pocketune"}
    return {name[1] for name in names if len(name) > 1} - {room_of(path)}


def upward(path: Path, source: str | None = None) -> set[str]:
    """Rooms on its own floor or a higher one that a file imports; `__init__` may export all."""
    floor = FLOOR[room_of(path)]
    return {room for room in rooms_imported(path, source) if FLOOR.get(room, -1) >= floor}


FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def relative(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def test_each_folder_and_module_has_one_floor():
    rooms = sorted(room for floor in FLOORS for room in floor)
    found = sorted({room_of(path) for path in FILES})
    assert rooms == found, "a new folder or module needs its floor in FLOORS above"
    assert set(FLOOR) >= DEVICE_HALF


def test_imports_run_one_way():
    assert not {relative(path): rooms for path in FILES if (rooms := upward(path))}


def test_the_device_half_does_not_name_the_author_half():
    device_half = [path for path in FILES if room_of(path) in DEVICE_HALF]
    packages = {path: {name[0] for name in imports(path)} & AUTHOR_PACKAGES for path in device_half}
    rooms = {path: rooms_imported(path) & AUTHOR_HALF for path in device_half}
    assert not {relative(path) for path in device_half if packages[path] or rooms[path]}


def module_of(path: Path) -> tuple[str, ...]:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ("pocketune", *(parts[:-1] if parts[-1] == "__init__" else parts))


def circles(graph: Mapping[str, set[str]]) -> set[str]:
    """Modules from which imports lead back to themselves."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            fresh = graph[waiting.pop()] - found
            found |= fresh
            waiting += fresh
        return found

    return {module for module in graph if module in reached(module)}


def test_no_import_leads_back_to_its_module():
    modules = {module_of(path): path for path in FILES}
    graph = {}
    for module, path in modules.items():
        names = set(imports_of_a_run(path))
        # A name is a module itself or belongs to one.
        found = {name if name in modules else name[:-1] for name in names}
        graph[".".join(module)] = {".".join(name) for name in found if name in modules}
    assert not circles(graph)


def test_circles_are_seen():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"e"}}
    assert circles(graph) == {"b", "c", "e"}


def test_what_only_type_checkers_import_leads_nowhere():
    source = (
        "if TYPE_CHECKING:\n    import a\nif typing.TYPE_CHECKING:\n    from b import c\n"
        "def f():\n    if x:\n        import d\n"
    )
    assert set(imports_of_a_run(SOURCE / "files.py", source)) == {("d",)}


@pytest.mark.parametrize(
    ("file", "source", "rooms"),
    [
        ("device/loop.py", "from ..compiler import trace", {"compiler"}),
        ("device/loop.py", "from .. import cli", {"cli"}),
        ("device/loop.py", "def f():\n    import pocketune.pruning.plan", {"pruning"}),
        ("device/loop.py", "from ..data.loader import Loader\nfrom .state import State", set()),
        ("device/loop.py", "from ..surgery.swap import swap", {"surgery"}),
        ("compiler/kit.py", "from ..device.manifest import Manifest", set()),
    ],
)
def test_the_check_sees_each_spelling_of_an_import(file, source, rooms):
    assert upward(SOURCE / file, source) == rooms


BLOCKED = f"""
import importlib, pkgutil, sys

BLOCKED = {sorted(AUTHOR_PACKAGES)!r}

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{{name}} was imported by the device half")

sys.meta_path.insert(0, Blocker())

def import_all(name):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(getattr(package, "__path__", ()), name + "."):
        importlib.import_module(module.name)

for name in sys.argv[1:]:
    import_all(name)
loaded = {{name.partition(".")[0] for name in sys.modules}}
assert not loaded.intersection(BLOCKED), loaded.intersection(BLOCKED)
"""


def run_python(code: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


IMPORTED = ["data", "tasks", "kit", "device", "demo", "planner", "planning", "comparison"]
IMPORTED += ["reporting", "studio", "cli"]


def test_the_device_half_is_imported_where_the_author_half_is_not_installed():
    run_python(BLOCKED, *(f"pocketune.{module}" for module in IMPORTED))


def test_importing_the_package_loads_no_runtime():
    loaded = "import sys, pocketune; assert not {'torch', 'onnxruntime'} & set(sys.modules)"
    run_python(loaded)
