"""The page reads the rules for kits from a file that Python's own rules are written to."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_rules_of_the_page_are_those_of_python() -> None:
    rules = ROOT / "web" / "src" / "formats" / "rules.json"
    if not rules.is_file():
        pytest.skip("the page's source is not part of this package")
    # In a process of its own: other tests register tasks of theirs.
    show = "import make_studio_rules; print(make_studio_rules.text(), end='')"
    made = subprocess.run(
        [sys.executable, "-c", show], cwd=ROOT / "tools", check=True, capture_output=True, text=True
    )
    assert rules.read_text(encoding="utf-8") == made.stdout, "run python tools/make_studio_rules.py"


def test_the_script_of_the_page_s_fixtures_still_finds_what_it_imports() -> None:
    script = ROOT / "web" / "tests" / "fixtures" / "make_engine.py"
    if not script.is_file():
        pytest.skip("the page's source is not part of this package")
    assert callable(runpy.run_path(str(script))["main"])
