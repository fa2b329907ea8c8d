"""`make bench` runs every script that makes a published figure, and also runs without photos."""

import ast
import runpy
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pocketune.data import load_splits

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
EVERY = runpy.run_path(str(BENCHMARKS / "every.py"))
SCRIPTS = sorted([*BENCHMARKS.glob("*.py"), *BENCHMARKS.with_name("tools").glob("*.py")])
COMMANDS = sorted({*EVERY["RUNS"].values(), EVERY["FIGURES"]})


def test_each_result_and_each_script_is_run() -> None:
    assert sorted(EVERY["RUNS"]) == sorted(path.stem for path in BENCHMARKS.glob("results/*.md"))
    scripts = {path.name for path in BENCHMARKS.glob("bench_*.py")} | {"figures.py"}
    assert {line.split()[0] for line in COMMANDS} == scripts


@pytest.mark.parametrize("line", COMMANDS)
def test_the_scripts_have_these_options(line: str) -> None:
    script, *arguments = line.split()
    source = (BENCHMARKS / script).read_text(encoding="utf-8")
    assert all(f'"{word}"' in source for word in arguments if word.startswith("--"))


def imports(source: str) -> Iterator[tuple[str, str]]:
    """Module and name of each import from the package, also in programs that are strings."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pocketune"):
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Constant) and "\nfrom pocketune" in str(node.value):
            yield from imports(str(node.value))


def exists(module: str, name: str) -> bool:
    return hasattr(import_module(module), name) or find_spec(f"{module}.{name}") is not None


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_the_scripts_import_what_there_is(path: Path) -> None:
    found = imports(path.read_text(encoding="utf-8"))
    assert not [names for names in found if not exists(*names)]


def test_a_result_that_does_not_exist() -> None:
    command = [sys.executable, str(BENCHMARKS / "every.py"), "speed"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "speed is not a result; choose from filter, " in done.stderr


@pytest.fixture
def parse() -> Any:
    return runpy.run_path(str(BENCHMARKS / "data.py"))["parse"]


def test_skips_without_an_error_where_the_photos_are_not(
    parse: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.py", "--data", str(tmp_path / "none")])
    with pytest.raises(SystemExit) as ended:
        parse(ArgumentParser())
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("skipped: no images and weights at ")


def test_finds_the_photos_where_the_tests_do(
    parse: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.py"])
    monkeypatch.setenv("POCKETUNE_SHARED_DATA", str(tmp_path))
    assert parse(ArgumentParser()).data == tmp_path


def test_generated_photos_are_those_of_the_classes(tmp_path: Path) -> None:
    data = runpy.run_path(str(BENCHMARKS / "data.py"))
    data["write_photos"](tmp_path, classes=2, count=5, size=(80, 40), grain=40)
    photos = load_splits(tmp_path, val_fraction=0.0).train
    assert list(photos.classes) == data["class_names"](2)
    assert photos.labels.tolist() == [0, 0, 0, 1, 1]
    assert {Image.open(path).size for path in tmp_path.rglob("*.jpg")} == {(80, 40)}


@pytest.mark.parametrize(
    ("scores", "text"), [(None, ""), ([], ""), ([71.25], "71.2"), ([70.0, 72.0], "71.0 ± 1.4")]
)
def test_mean_and_deviation(scores: list[float] | None, text: str) -> None:
    assert runpy.run_path(str(BENCHMARKS / "report.py"))["spread"](scores) == text


def test_the_tuned_run_is_the_best_of_the_first_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    scores = {"default": [70.0, 90.0], "rates / 3": [72.0, 60.0], "rates x 3": [71.0]}
    assert import_module("bench_defaults").tuned({"top1": scores}) == "rates / 3"
