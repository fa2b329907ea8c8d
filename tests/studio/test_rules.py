"""The page reads the rules for kits from a file that Python's own rules are written to."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rules", ROOT / "tools" / "make_studio_rules.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_rules_of_the_page_are_those_of_python() -> None:
    made = tool()
    if not made.PLACE.is_file():
        pytest.skip("the page's source is not part of this package")
    assert made.PLACE.read_text(encoding="utf-8") == made.text(), (
        "run python tools/make_studio_rules.py"
    )
