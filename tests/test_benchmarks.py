"""`make bench` runs every script that makes a published figure, and also runs without photos."""

import ast
import inspect
import runpy
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pocketune import BiasAndLast, adapt, create_network
from pocketune.comparison import Grid
from pocketune.data import load_splits
from pocketune.kit.kit import Kit
from pocketune.methods import compose_method

from .device.runs import write_photos
from .device.tiny_kit import CLASSES, TinyKit

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
EVERY = runpy.run_path(str(BENCHMARKS / "every.py"))
SCRIPTS = sorted([*BENCHMARKS.glob("*.py"), *BENCHMARKS.with_name("tools").glob("*.py")])
COMMANDS = sorted({*EVERY["RUNS"].values(), EVERY["FIGURES"]})
TOOLS = {
    "build_demo_kits.py": "safetensors",
    "check_dist.py": "pytest",
    "lock.py": "pytest",
    "make_digits_sheet.py": "sklearn",
    "make_probes.py": "onnx",
    "make_segmentation_picture.py": "torch",
    "make_studio_rules.py": "numpy",
}
"""Each tool, with a package that the others do not need."""


def test_each_result_and_each_script_is_run() -> None:
    assert sorted(EVERY["RUNS"]) == sorted(path.stem for path in BENCHMARKS.glob("results/*.md"))
    scripts = {path.name for path in BENCHMARKS.glob("bench_*.py")} | {"figures.py"}
    assert {line.split()[0] for line in COMMANDS} == scripts


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a script in this process."""

    def run(path: Path, *arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        runpy.run_path(str(path), run_name="__main__")

    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return run


def parses(start: Any, capsys: pytest.CaptureFixture[str], path: Path, *arguments: str) -> None:
    """A script takes these options: it gets as far as its help, which is asked for last."""
    with pytest.raises(SystemExit) as ended:
        start(path, *arguments, "--help")
    told = capsys.readouterr()
    assert ended.value.code == 0, told.err
    assert told.out.startswith(f"usage: {path.name} ")


@pytest.mark.parametrize("line", COMMANDS)
def test_the_benchmarks_start_with_their_options(line: str, start: Any, capsys: Any) -> None:
    script, *arguments = line.split()
    parses(start, capsys, BENCHMARKS / script, *arguments)


@pytest.mark.parametrize(("tool", "needs"), TOOLS.items())
def test_the_tools_start(tool: str, needs: str, start: Any, capsys: Any) -> None:
    pytest.importorskip(needs)
    parses(start, capsys, BENCHMARKS.with_name("tools") / tool)


def test_every_tool_is_started() -> None:
    assert sorted(TOOLS) == sorted(path.name for path in SCRIPTS if path.parent.name == "tools")


def test_one_call_a_turn_is_refused(start: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        start(BENCHMARKS / "bench_filter.py", "--calls", "1")
    assert ended.value.code == 2
    assert "--calls must be at least 2" in capsys.readouterr().err


@pytest.mark.parametrize("network", ["mbv2-w0.35", "mbv2-w1.0", "mcunet-5fps", "proxyless-w0.3"])
def test_the_grid_of_the_accuracy_benchmark(
    network: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    bench = import_module("bench_accuracy")
    monkeypatch.setattr(bench, "unpack", lambda _data, _name, folder: folder)
    methods, photos = list(bench.METHODS), list(bench.EPOCHS)
    options = Namespace(data=tmp_path, network=network, methods=methods, photos=photos, seeds=2)
    grid = bench.grid(options, tmp_path)
    assert [chosen.label for chosen in grid.methods] == methods
    assert [chosen.label for chosen in grid.photos] == photos
    assert grid.head_rates == grid.rates == bench.RATES
    for method in grid.methods:
        compose_method(method.method, method.options)
    (made_for,) = grid.networks
    created = create_network(made_for.network, width=made_for.width, padding=made_for.padding)
    assert created is not None


def test_the_grid_of_pruned_networks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    bench = import_module("bench_repnet_accuracy")
    grids: list[Grid] = []
    rows = [Namespace(photos="flowers", scores=[0.5, 0.75])]
    monkeypatch.setattr(
        bench, "compare", lambda grid, _folder: (grids.append(grid), Namespace(rows=rows))[1]
    )
    weights, made_for = tmp_path / "w", bench.NETWORKS["mbv2-w0.35"]
    found = bench.transfer(weights, made_for, {"flowers": tmp_path}, seeds=2)
    assert found == {"flowers": [50.0, 75.0]}
    (grid,) = grids
    assert [network.weights for network in grid.networks] == [str(weights)]
    assert [photos.label for photos in grid.photos] == ["flowers"]


def test_a_run_is_predicted_and_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    bench = import_module("bench_memory")
    row = import_module("memory_runs").Row("tiny", 1.0, "last", 4, 8)
    TinyKit().write(tmp_path / row.name)
    write_photos(tmp_path / "small", CLASSES, each=4)
    run = bench.Run(row, "small", ("--steps", "2"))
    result = bench.measure(run, tmp_path)
    assert result["process"] < result["peak"] < result["predicted"]
    again = bench.measure(run, tmp_path, only_predict=True)
    assert again["predicted"] == pytest.approx(result["predicted"], rel=0.05)


def test_kits_to_measure_are_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    bench, pipeline = import_module("bench_memory"), import_module("pocketune.compiler.pipeline")
    monkeypatch.setattr(pipeline, "check_engine", pipeline.check_engine)  # skipped, and restored
    row = import_module("memory_runs").Row("resnet18", 0.25, "last", 1, 32)
    monkeypatch.setattr(bench, "runs", lambda _part: [bench.Run(row, "small", ())])
    bench.build_kits("small", tmp_path)
    assert Kit.open(tmp_path / row.name).manifest.frozen_bits == 32


def test_photos_that_are_told_by_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    bench = import_module("bench_unknown")
    rng = np.random.default_rng(0)
    known, unknown = rng.integers(0, 9, 30) / 8, rng.integers(3, 12, 20) / 8
    pairs = [(u > k) + (u == k) / 2 for k in known for u in unknown]
    assert bench.auroc(known, unknown) == pytest.approx(100 * np.mean(pairs))
    judged = bench.Judged(known, 1 - known), bench.Judged(unknown, 1 - unknown)
    found = bench.figures(*judged)
    assert found[0] == found[1]
    assert found[2:4] == [100 * np.mean(known > 1), 100 * np.mean(unknown > 1)]


def test_each_class_is_held_out_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    bench = import_module("bench_unknown")
    for name in "abcdef":
        (tmp_path / "train" / name).mkdir(parents=True)
    assert list(bench.folds(tmp_path, 2)) == [["a", "d"], ["b", "e"], ["c", "f"]]
    kept = bench.without(tmp_path, ["a", "d"], tmp_path / "out")
    assert sorted(path.name for path in kept.iterdir()) == ["b", "c", "e", "f"]


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


def calls(source: str) -> Iterator[tuple[str, str, ast.Call]]:
    """Module and name of each function of the package that is called by its name, and the call."""
    nodes = list(ast.walk(ast.parse(source)))
    known = {
        alias.asname or alias.name: (str(node.module), alias.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pocketune")
        for alias in node.names
    }
    for node in nodes:  # a script's own functions hide what another function imports
        if isinstance(node, ast.FunctionDef):
            known.pop(node.name, None)
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known:
            yield (*known[node.func.id], node)


def takes(function: Any, call: ast.Call) -> bool:
    """Whether a function takes as many arguments of these names; `*` and `**` stand for any."""
    signature, names = inspect.signature(function), [each.arg for each in call.keywords]
    open_ended = None in names or any(isinstance(each, ast.Starred) for each in call.args)
    given = [each for each in call.args if not isinstance(each, ast.Starred)]
    bind = signature.bind_partial if open_ended else signature.bind
    try:
        bind(*given, **dict.fromkeys(filter(None, names)))
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_the_scripts_give_functions_the_arguments_that_they_take(path: Path) -> None:
    found = calls(path.read_text(encoding="utf-8"))
    wrong = [
        f"line {call.lineno}: {name}"
        for module, name, call in found
        if callable(it := getattr(import_module(module), name)) and not takes(it, call)
    ]
    assert not wrong


def test_a_result_that_does_not_exist() -> None:
    command = [sys.executable, str(BENCHMARKS / "every.py"), "speed"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "speed is not a result; choose from " in done.stderr
    assert " delta, " in done.stderr


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


def test_drawn_streets_show_every_class(tmp_path: Path) -> None:
    tool = runpy.run_path(str(BENCHMARKS.with_name("tools") / "make_segmentation_picture.py"))
    tool["draw_scenes"](tmp_path, {"train": 8, "val": 1})
    streets = load_splits(tmp_path)
    assert streets.train.classes == tool["CLASSES"]
    assert len(streets.train) == 8
    masks = [np.asarray(Image.open(path)) for path in sorted(tmp_path.rglob("masks/*.png"))]
    assert set(np.unique(masks)) == set(range(len(tool["CLASSES"])))


@pytest.mark.parametrize(
    ("scores", "text"), [(None, ""), ([], ""), ([71.25], "71.2"), ([70.0, 72.0], "71.0 ± 1.4")]
)
def test_mean_and_deviation(scores: list[float] | None, text: str) -> None:
    assert runpy.run_path(str(BENCHMARKS / "report.py"))["spread"](scores) == text


def test_the_tuned_run_is_the_best_of_the_first_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    scores = {"default": [70.0, 90.0], "rates / 3": [72.0, 60.0], "rates x 3": [71.0]}
    assert import_module("bench_defaults").tuned({"top1": scores}) == "rates / 3"


def test_the_regret_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    bench = import_module("bench_plan")
    kits = {name: {"0": {"right": right}} for name, right in [("lucky", "1010"), ("sound", "0111")]}
    behind, error = bench.regret(kits["sound"], kits["lucky"])
    assert behind == pytest.approx(25)
    assert error == pytest.approx(100 * np.std([-1, 1, 0, 1]) / 2)
    # Even photos prefer the lucky one, which is 100 points behind on odd ones; odd ones the other.
    assert bench.fair_regret(list(kits.values()), kits["sound"]) == pytest.approx((-100 + 0) / 2)
    assert bench.fair_regret(list(kits.values()), kits["lucky"]) == pytest.approx((0 - 50) / 2)


def test_fresh_pairs_of_networks_and_methods_leave_the_steps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    bench, report = import_module("bench_backbones"), import_module("report")
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    cells = {"last": {"got": "no", "why": "old"}, "full": {"got": "kit", "why": ""}}
    steps = {"steps": [["full", "kit", "9", "8", "9", "50"]], "measured": "2026-11-24, commit 1a2b"}
    report.keep("backbones", {"resnet18": {"cells": cells, **steps}, "dla34": {"cells": cells}})
    bench.forget_pairs(["resnet18"], ["last"])
    monkeypatch.setattr(bench, "network", lambda _name: (create_network("resnet18", width=0.1), 64))
    monkeypatch.setattr(bench, "cell", lambda *_, **__: {"got": "kit", "why": ""})
    bench.try_one("resnet18", ["last"], compiles=True)
    found = report.kept("backbones")
    assert found["dla34"]["cells"] == cells
    assert found["resnet18"]["cells"] == {**cells, "last": {"got": "kit", "why": ""}}
    assert {key: found["resnet18"][key] for key in steps} == steps


@pytest.mark.parametrize("name", ["small", "vit_tiny", "convnext_atto"])
def test_the_methods_of_low_rank_fit_their_networks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    made = import_module("bench_lbp_wht").NETWORKS[name]
    network = made.make(5)
    for method, _ in made.methods():
        kinds = {type(module).__name__ for module in adapt(network, method).modules()}
        replaced = bool(kinds & {"LowRankLinear", "LowRankConv2d"})
        assert replaced == ("LowRankBackward" in str(method)), method


@pytest.mark.parametrize("norms", [True, False])
def test_layer_norms_or_activations_in_few_bits(
    norms: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    method = BiasAndLast() + import_module("bench_few_bit").OnlyOf(norms=norms)
    network = adapt(create_network("vit_tiny", depth=0.1), method)
    kinds = {type(module).__name__ for module in network.modules()}
    assert ("FewBitLayerNorm" in kinds, "FewBitGELU" in kinds) == (norms, not norms)
