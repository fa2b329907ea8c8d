"""Names that packages import lazily exist, and type checkers see the same ones."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

import pocketune

ROOT = Path(pocketune.__file__).parent
PACKAGES = [
    import_module(".".join(["pocketune", *file.parent.relative_to(ROOT).parts]))
    for file in sorted(ROOT.rglob("__init__.py"))
    if "lazy_names(" in file.read_text(encoding="utf-8")
]

packages = pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)


def told(package) -> dict[str, str]:
    """By name, the module from which type checkers see it imported."""
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imports = [(node.module, alias) for node in block.body for alias in node.names]
    # "import x as x" exports, "import x" does not
    return {alias.asname: module for module, alias in imports}


@packages
def test_names_and_homes_agree(package):
    homes = {
        name: f"{package.__name__}.{home}"
        for home, names in package._HOMES.items()
        for name in names
    }
    assert told(package) == homes
    assert {*package.__all__} == {*homes} | ({"__version__"} & {*vars(package)})


@packages
def test_every_name_is_its_home_s(package):
    for home, names in package._HOMES.items():
        for name in names:
            found = getattr(package, name)
            assert found is getattr(import_module(f"{package.__name__}.{home}"), name)
            assert vars(package)[name] is found  # it is looked up once


@packages
def test_other_names_are_missing_as_of_any_module(package):
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'a'"):
        _ = package.a
    assert {*dir(package)} <= {*package.__all__}


def test_packages_are_found():
    assert {"pocketune", "pocketune.device.train"} < {package.__name__ for package in PACKAGES}


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "py.typed").is_file()
