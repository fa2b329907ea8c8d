"""The code in README and docs/ is valid: imports, arguments, commands and their options.

The examples in docstrings are run.
"""

import ast
import doctest
import inspect
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import get_args

import click
import pytest

import pocketune
from pocketune.cli.app import app
from pocketune.cli.command import Group as CommandGroup
from pocketune.kit.manifest import GraphSpec, Group, Manifest, MaskSpec

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = [
    ".".join(file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    for file in sorted((ROOT / "src").rglob("*.py"))
    if ">>> " in file.read_text(encoding="utf-8")
]
LINKING = [*PAGES, *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "CHANGELOG", "SECURITY"))]


def blocks(page: Path) -> list[str]:
    """The pieces of Python on a page."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M)


def anchors(page: Path) -> set[str]:
    """What a link after # may name on a page: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def indented(page: Path) -> list[str]:
    """Lines that Markdown shows as code, outside of fences."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    return re.findall(r"^ {4}(\S.*)$", text, re.M)


def commands(page: Path) -> Iterator[list[str]]:
    """Command lines that begin with `pocketune`, joined where a backslash continues them."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"^(?: {4}|\$ )pocketune +(.+)$", text, re.M):
        yield shlex.split(line, comments=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_imports_the_package_before_it_uses_it(page: Path) -> None:
    code = "\n".join(blocks(page))
    used = re.search(
        r"^[^#\n]*\bpocketune\.", re.sub(r"^(?:from|import) .*", "", code, flags=re.M), re.M
    )
    assert not used or re.search(r"^import pocketune$", code, re.M)


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    files = [page.parent / link for link in links if not link.startswith("http")]
    assert not [file for file in files if not file.exists()]


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.name)
def test_links_lead_to_headings(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8"))
    places = [(page.parent / file if file else page, anchor) for file, anchor in links]
    assert not [place for place in places if place[1] not in anchors(place[0])]


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_every_page_is_linked(page: Path) -> None:
    """From README or from another page; CHANGELOG alone does not lead a reader there."""
    others = [other for other in PAGES if other != page]
    texts = [(other, other.read_text(encoding="utf-8")) for other in others]
    links = {
        (other.parent / link).resolve()
        for other, text in texts
        for link in re.findall(r"\]\(([^)#:]+\.md)", text)
    }
    assert page.resolve() in links


def test_the_list_of_pages_is_complete() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs/README.md").read_text("utf-8"))
    assert sorted(listed) == sorted(p.name for p in PAGES[1:] if p.name != "README.md")


def test_all_fields_of_a_manifest_are_listed() -> None:
    page = (ROOT / "docs/kit.md").read_text("utf-8")
    (section,) = re.findall(r"^## The manifest\n(.*?)^## ", page, re.S | re.M)
    names = [field.name for kind in (Manifest, GraphSpec, MaskSpec) for field in fields(kind)]
    missing = [name for name in (*names, *get_args(Group)) if f"`{name}`" not in section]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_is_fenced(page: Path) -> None:
    """Code that is only indented would not be checked."""
    assert not [line for line in indented(page) if re.match(r"import |from |.*\bpocketune\.", line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_names_what_there_is(page: Path) -> None:
    for block in blocks(page):
        names = {"pocketune": pocketune}
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("pocketune"):
                module = import_module(str(node.module))
                names |= {
                    alias.asname or alias.name: getattr(module, alias.name) for alias in node.names
                }
        for call in (node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)):
            if (function := _resolve(call.func, names)) is not None and "pocketune" in str(
                getattr(function, "__module__", "")
            ):
                keywords = {str(keyword.arg): None for keyword in call.keywords}
                inspect.signature(function).bind(*call.args, **keywords)


def _resolve(function: ast.expr, names: dict[str, object]) -> object:
    """The object that `name` or `module.name` stands for; None if it is unknown."""
    if isinstance(function, ast.Name):
        return names.get(function.id)
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        owner = names.get(function.value.id)
        return None if owner is None else getattr(owner, function.attr)
    return None


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_extras_are_installed_from_the_clone(page: Path) -> None:
    """The package is in no registry yet; only where it is installed does pip know it by name."""
    assert "pocketune[" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_have_these_options(page: Path) -> None:
    for line in commands(page):
        command, arguments = app, line
        while isinstance(command, CommandGroup):
            name, *arguments = arguments
            command = command.get_command(click.Context(command), name)
        assert command is not None, name
        command.make_context(name, list(arguments))


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_run(module: str) -> None:
    tests = doctest.testmod(import_module(module))
    assert tests.failed == 0


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "docs/memory.md"])
def test_runs_that_were_measured_are_counted_as_in_the_results(name: str) -> None:
    """The pages say how many of the runs exceed their predictions."""
    runs, below = zip(*map(measured_runs, ("held_out", "small", "unseen")), strict=True)
    assert set(below) == {"none"}
    assert f"none of {sum(runs)} randomly drawn runs exceed" in words(ROOT / name)


def test_the_benchmarks_count_the_runs_of_each_part() -> None:
    page = words(ROOT / "docs/benchmarks.md")
    (held_out, _), (small, _), (unseen, _) = map(measured_runs, ("held_out", "small", "unseen"))
    assert f"{held_out} runs of kits of all sizes" in page
    assert f"{small} of small kits" in page
    assert f"{unseen} of 14 kits" in page
    assert f"none of the {held_out + small + unseen} exceeds" in page


def measured_runs(part: str) -> tuple[int, str]:
    """How many runs were measured, and how many of them exceed their predictions."""
    results = (ROOT / f"benchmarks/results/memory_{part}.md").read_text("utf-8")
    (runs,) = re.findall(r"process in (\d+) of \d+ runs", results)
    (below,) = re.findall(r"below the peak: (\w+)", results)
    return int(runs), below


def words(page: Path) -> str:
    """The text of a page in lower case, on one line."""
    return " ".join(page.read_text("utf-8").lower().split())
