"""Whole comparisons on tiny photos and bundled kits: one process a run, nothing made twice."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.comparison import Comparison, Grid, compare
from pocketune.comparison.build import build
from pocketune.comparison.grid import Network
from pocketune.comparison.names import _check
from pocketune.comparison.run_series import _SeriesRunner
from pocketune.comparison.series import TUNING_FRACTION, all_series
from pocketune.comparison.worker import run_cell
from pocketune.device.train import RunRecord
from pocketune.errors import PocketuneError
from pocketune.processes.job import run_job
from pocketune.tasks import Classification, Score

from ..device.runs import write_run
from ..device.softmax_engine import CLASSES, write_photos
from ..device.tiny_kit import TinyKit
from .grids import divided, grid


def quiet(_: str) -> None:
    pass


def pocketune(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pocketune", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return divided(tmp_path_factory.mktemp("photos") / "colors")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A kit whose runs take no longer than their processes."""
    return str(
        TinyKit(classes=CLASSES, size=16).write(tmp_path_factory.mktemp("kits") / "tiny.zip").path
    )


def do_here(module: str, job: Any, **_: Any) -> None:
    """What `run_job` does, in this process: starting one takes longer than a run of a tiny kit."""
    read = type(job)(**json.loads(json.dumps(asdict(job))))
    {"build": build, "names": _check, "worker": run_cell}[module.rpartition(".")[2]](read)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are checked, and runs are made, in this process."""
    monkeypatch.setattr("pocketune.comparison.names.run_job", do_here)
    monkeypatch.setattr("pocketune.comparison.run_series.run_job", do_here)


def test_the_command_compares_kits_over_seeds(photos: Path, tiny: str, tmp_path: Path) -> None:
    options = ("--kit", tiny, "--kit", "last", "--seeds", 2, "--steps", 1, "--seed", 3)
    options += ("--val-fraction", 0.2)
    done = pocketune("compare", photos, *options, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "4 runs, 4 to make"
    assert [line.split()[0] for line in lines[1:5]] == ["1/4", "2/4", "3/4", "4/4"]
    assert all(line.endswith(" left") and "(test)" in line for line in lines[1:5])
    result = Comparison.read(tmp_path / "out")
    assert [(cell.model, cell.seed) for cell in result.cells] == [
        ("tiny", 3),
        ("tiny", 4),
        ("last", 3),
        ("last", 4),
    ]
    again = pocketune("compare", photos, *options, "--out", tmp_path / "out")
    assert again.stdout.startswith("4 runs, none left to make\n")
    for cell in result.cells:
        assert cell.record is not None and cell.images == 6
        assert (cell.record.steps, cell.record.photos.training) == (1, 18)
        assert 30e6 < cell.record.peak_memory < 200e6  # a process of its own, without PyTorch
        kept = {path.name for path in (tmp_path / "out" / "runs" / cell.key).iterdir()}
        assert kept == {"result.json", "metrics.jsonl"}
    assert [row.model for row in result.rows] == ["tiny", "last"]
    for kind in ("md", "csv", "tex"):
        assert "last" in (tmp_path / "out" / f"compare.{kind}").read_text()
    (tmp_path / "out" / "cells" / f"{result.cells[0].key}.json").unlink()
    again = pocketune("compare", photos, *options, "--out", tmp_path / "out")
    assert again.stdout.startswith("4 runs, 1 to make\n")
    assert Comparison.read(tmp_path / "out").cells[0].score == result.cells[0].score


@pytest.mark.usefixtures("in_process")
def test_only_what_is_missing_is_made(photos: Path, tiny: str, tmp_path: Path) -> None:
    def made(**changes: Any) -> list[str]:
        lines: list[str] = []
        compare(grid(photos, kits=[tiny], **changes), tmp_path, show=lines.append)
        return lines[1:]

    assert len(made(seeds=1)) == 1
    assert made(seeds=1) == []
    assert [line.split()[0] for line in made(seeds=3)] == ["1/2", "2/2"]
    assert len(made(seeds=1, settings={"steps": 2})) == 1
    assert made(seeds=[2]) == []
    assert [cell.seed for cell in Comparison.read(tmp_path).cells] == [2]


@pytest.mark.usefixtures("in_process")
def test_parts_of_equal_content_are_rows_of_their_own(
    photos: Path, tiny: str, tmp_path: Path
) -> None:
    """A result is found under whatever name it was made."""

    def labels(**names: str) -> list[tuple[str, str]]:
        kits = [{"kit": tiny, "name": name} for name in names.values()]
        compared = compare(grid(photos, kits=kits, seeds=1), tmp_path, show=quiet)
        return [(row.photos, row.model) for row in compared.rows]

    name = photos.name
    assert labels(one="a", two="b") == [(name, "a"), (name, "b")]
    assert labels(one="c") == [(name, "c")]
    assert len(list((tmp_path / "cells").iterdir())) == 1


def test_photos_that_have_changed_are_trained_on_again(tmp_path: Path) -> None:
    photos = divided(tmp_path / "photos")
    before = all_series(grid(photos))[0].runs[0].cell.key
    (photos / "train" / "red" / "0.png").rename(photos / "train" / "red" / "00.png")
    assert all_series(grid(photos))[0].runs[0].cell.key != before


@pytest.mark.usefixtures("in_process")
def test_a_run_that_fails_is_kept_and_the_others_go_on(
    photos: Path, tiny: str, tmp_path: Path
) -> None:
    kits = [{"kit": "last", "settings": {"budget": "50MB"}}, tiny]
    result = compare(grid(photos, kits=kits), tmp_path, show=quiet)
    failed, finished = result.cells
    assert failed.error is not None and failed.record is None
    assert failed.error.startswith("the budget of 50 MB is ")
    assert finished.error is None and finished.score is not None
    again = compare(grid(photos, kits=kits[1:]), tmp_path, show=quiet)
    assert not again.failed
    command = ("compare", photos, "--kit", "last", "--budget", "50MB", "--out", tmp_path / "other")
    done = pocketune(*command)
    assert done.returncode == 1
    assert done.stderr.startswith("error: 1 of 1 runs failed, such as colors, last, seed 0:")


@pytest.mark.usefixtures("in_process")
def test_without_test_photos_the_validation_photos_count(tiny: str, tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", each=10)
    result = compare(grid(photos, kits=[tiny]), tmp_path / "out", keep_runs=True, show=quiet)
    (cell,) = result.cells
    assert cell.part == "validation" and cell.images == 6
    record = RunRecord.read(tmp_path / "out" / "runs" / cell.key)
    assert record == cell.record
    assert record.best is not None and cell.score == record.best.value
    assert "which chose the step" in (tmp_path / "out" / "compare.md").read_text()


@pytest.mark.usefixtures("in_process")
def test_rates_are_chosen_on_a_fifth_of_the_training_photos(
    photos: Path, tiny: str, tmp_path: Path
) -> None:
    lines: list[str] = []
    chosen = grid(
        photos,
        kits=[tiny],
        rates=[1e-2, 1e-9],
        seeds=2,
        settings={"steps": 6, "head_start": "random"},
    )
    result = compare(chosen, tmp_path, show=lines.append)
    assert lines[0] == "2 runs, 2 to make, with rates to choose"
    assert lines[1].startswith("rates  colors, tiny, last with lr 0.01, seed 100: accuracy ")
    assert "(validation)" in lines[1] and lines[2].startswith("rates  ")
    assert all(line.endswith(" left") for line in lines[1:])
    assert lines[-1].endswith("; 0:00 left")
    (series,) = all_series(chosen)
    tried = [series.trial({"lr": lr}).cell for lr in (1e-9, 1e-2)]
    records = [RunRecord.read(tmp_path / "runs" / cell.key) for cell in tried]
    assert [record.settings["lr"] for record in records] == [1e-9, 1e-2]
    assert all((r.photos.training, r.photos.validation) == (18, 6) for r in records)
    best = max(records, key=lambda r: (r.best.value, -r.best.loss))
    assert [cell.record.settings["lr"] for cell in result.cells] == [best.settings["lr"]] * 2
    assert compare(chosen, tmp_path, show=quiet) == result


@given(scores=st.lists(st.integers(0, 9) | st.none(), min_size=5, max_size=5))
def test_rates_are_climbed_from_the_middle(scores: list[int | None]) -> None:
    (runner, rates, tried) = (_SeriesRunner.__new__(_SeriesRunner), [1.0, 2.0, 3.0, 4.0, 5.0], [])
    runner._problem, runner._manifest = None, SimpleNamespace(task=Classification(("a",)))

    def attempt(choice: dict[str, float]) -> Iterator[str]:
        tried.append(choice["lr"])
        yield "cell"
        value = scores[rates.index(choice["lr"])]
        if value is None:
            return SimpleNamespace(record=None, error="diverged")
        return SimpleNamespace(record=SimpleNamespace(best=Score("a", value, 0.0)), error=None)

    runner._try = attempt  # type: ignore[method-assign]
    climb = runner._climb("lr", rates, {})
    while (ended := step(climb)) is None:
        pass
    known = [-1 if score is None else score for score in scores]
    place = rates.index(ended)
    assert known[place] >= known[2]
    assert known[place] >= max(known[max(place - 1, 0) : place + 2])  # nothing beside it is better
    assert (runner._problem is None) == (known[place] >= 0)
    assert tried[0] == 3.0 and len(tried) == len(set(tried))


def step(climb: Any) -> float | None:
    """The rate once the climb has ended."""
    try:
        next(climb)
    except StopIteration as ended:
        return ended.value
    return None


@pytest.mark.usefixtures("in_process")
def test_the_classifiers_rate_is_chosen_after_the_others(
    photos: Path, tiny: str, tmp_path: Path
) -> None:
    lines: list[str] = []
    values = {"kits": ["last", tiny], "rates": [1e-3], "head_rates": [1e-4]}
    result = compare(grid(photos, **values), tmp_path, show=lines.append)
    tried = [line.split("seed")[0] for line in lines if line.startswith("rates")]
    assert tried == [
        "rates  colors, last with lr 0.001, ",  # its classifier is all that it trains
        "rates  colors, tiny, last with lr 0.001, ",
        "rates  colors, tiny, last with lr 0.001, head_lr 0.0001, ",
    ]
    last, whole = (cell.record.settings for cell in result.cells)
    assert (last["lr"], whole["lr"], whole["head_lr"]) == (1e-3, 1e-3, 1e-4)


def test_rates_need_test_photos(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", each=10)
    with pytest.raises(PocketuneError, match="photos has no test photos, so rates would be"):
        compare(grid(photos, rates=[1e-3]), tmp_path / "out", show=quiet)


def test_a_kit_for_other_labels_is_refused_before_any_run(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match=r"the kit masks: .*colors.* masks are needed"):
        compare(grid(photos, kits=["last", "masks"]), tmp_path / "out", show=quiet)
    assert not (tmp_path / "out").exists()


def test_a_run_is_no_kit_to_compare(photos: Path, tmp_path: Path) -> None:
    run = str(write_run(tmp_path / "run"))
    with pytest.raises(PocketuneError, match="run is a run, which may have learned the photos"):
        all_series(grid(photos, kits=[run]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"photos": ["nowhere"]}, "nowhere does not exist"),
        ({"kits": ["nothing"]}, "nothing"),
        ({"kits": [], "networks": [{"network": "resnet18", "weights": "no.safetensors"}],
          "methods": ["last"]}, "there is no file of weights at no.safetensors"),
        ({"kits": [], "networks": ["no.onnx"], "methods": ["last"]},
         "there is no file of weights at no.onnx"),
        ({"kits": [], "networks": ["resnet"], "methods": ["last"]}, "there is no network 'resnet'"),
        ({"kits": [], "networks": [{"network": "fcn", "backbone": "vgg"}], "methods": ["last"]},
         "there is no backbone 'vgg'"),
        ({"kits": [], "networks": ["resnet18"], "methods": ["last", "lst"]},
         "there is no method 'lst'; choose from full"),
        ({"kits": [], "networks": ["resnet18"], "methods": [
            {"method": "blocks", "options": {"block": 1}}]}, "method blocks has no option block"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("in_process")
def test_what_is_not_there(
    photos: Path, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(PocketuneError, match=message):
        compare(grid(photos, **changes), tmp_path / "out", show=quiet)
    assert not (tmp_path / "out").exists()


NETWORK = {"network": "mobilenet_v2", "width": 0.1, "size": 32, "batch": 4}


@pytest.mark.parametrize(
    ("method", "error"),
    [("last", None), ("signed", "SignedBackward() trains nothing by itself")],
)
def test_a_network_is_built_once(
    method: str, error: str | None, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[str] = []

    def counted(module: str, job: Any, **options: Any) -> None:
        jobs.append(module.rpartition(".")[2])
        done = run_job if jobs == ["build"] and error is None else do_here
        done(module, job, **options)

    monkeypatch.setattr("pocketune.comparison.run_series.run_job", counted)
    monkeypatch.setattr("pocketune.comparison.names.run_job", do_here)
    wanted = grid(photos, kits=[], networks=[NETWORK], methods=[method], seeds=2)
    if error is None:  # a stopped comparison has left a damaged kit, which is built again
        left = tmp_path / "kits" / all_series(wanted)[0].identity
        left.mkdir(parents=True)
        (left / "manifest.json").write_text("{}")
    result = compare(wanted, tmp_path, show=quiet)
    if error is None:
        assert jobs == ["build", "worker", "worker"]
        assert [row.model for row in result.rows] == ["mobilenet_v2 0.1"]
        assert not result.failed
    else:
        assert jobs == ["build"]
        assert all(cell.error and cell.error.startswith(error) for cell in result.cells)
    assert not (tmp_path / "kits").exists()


def test_a_kit_is_of_one_series(photos: Path) -> None:
    """Series on other machines neither build it too nor remove it."""
    methods = [
        {"method": "last", "name": name, "settings": settings}
        for name, settings in (("a", {}), ("b", {"lr": 0.1}), ("c", {"ignore": "3"}))
    ]
    found = all_series(grid(photos, kits=[], networks=[NETWORK], methods=methods))
    assert len({series.identity for series in found}) == 3


def test_a_setting_of_none_is_the_default(photos: Path) -> None:
    values = {"kits": [], "networks": [NETWORK], "methods": ["last"]}
    usual, same = (
        all_series(Grid.from_dict({"photos": str(photos), "settings": settings, **values}))[0]
        for settings in ({}, {"val_fraction": None, "epochs": None})
    )
    assert same == usual
    runner = _SeriesRunner(same, photos, keep_runs=False)
    assert runner._build_job(Network(**NETWORK)).val_fraction == TUNING_FRACTION


def test_a_file_of_class_names_is_known_by_its_content(photos: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"

    def key(text: str) -> str:
        names.write_text(text)
        settings = {"class_names": str(names)}
        return all_series(grid(photos, settings=settings))[0].runs[0].cell.key

    assert key("a\nb\n") != key("a\nc\n")
    assert key("a\nb\n") == key("a\nb\n")


def test_a_network_in_a_file_is_known_by_its_content(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"1")
    file = tmp_path / "compare.toml"
    file.write_text(f'photos = "{photos.as_posix()}"\nnetworks = ["a.onnx"]\nmethods = ["last"]\n')

    def identity() -> str:
        return all_series(Grid.read(file))[0].identity

    read = Grid.read(file).networks[0]
    assert (read.network, read.label) == (str(tmp_path / "a.onnx"), "a.onnx")
    before = identity()
    moved = tmp_path / "moved"
    moved.mkdir()
    for each in (file, tmp_path / "a.onnx"):
        each.rename(moved / each.name)
    file = moved / file.name
    assert identity() == before
    (moved / "a.onnx").write_bytes(b"2")
    assert identity() != before


@pytest.mark.skipif(sys.platform == "win32", reason="kills as POSIX does")
def test_a_kill_loses_no_finished_run(
    photos: Path, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, steps = tmp_path / "out", 200

    def is_training() -> bool:
        saved = (out / "runs").glob("*/last.safetensors")
        return any(not (file.parent / "result.json").exists() for file in saved)

    options = ("--kit", tiny, "--seeds", "3", "--steps", str(steps), "--out", str(out))
    options += ("--val-fraction", "0.2")
    command = [sys.executable, "-m", "pocketune", "compare", str(photos), *options]
    for stop in (signal.SIGKILL, signal.SIGTERM):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        while "1/" not in process.stdout.readline():
            assert process.poll() is None, "it ended before its first run"
        wait_until(is_training)
        runs = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(stop)
        process.communicate()
        assert process.returncode == (-signal.SIGKILL if stop == signal.SIGKILL else 143)
        _, left = psutil.wait_procs(runs, timeout=120)
        assert not left  # a run whose parent was killed saves and ends
    found = [cell for cell in Comparison.read(out).cells if not cell.error]
    assert len(found) >= 2
    done = pocketune(*command[3:])
    assert done.returncode == 0, done.stderr
    result = Comparison.read(out)
    assert [cell.record.steps for cell in result.cells] == [steps] * 3
    monkeypatch.setattr("pocketune.comparison.run_series.run_job", do_here)
    asked = grid(photos, kits=[tiny], seeds=[1], settings={"steps": steps})
    whole = compare(asked, tmp_path / "whole", show=quiet)
    assert whole.cells[0].score == result.cells[1].score


def test_a_run_ends_with_its_parent(photos: Path, tmp_path: Path) -> None:
    planned = all_series(grid(photos, settings={"steps": 10_000}))[0].runs[0]
    code = (
        "import sys, json; from pocketune.processes.job import run_job; "
        "from pocketune.comparison.worker import RunJob; "
        "run_job('pocketune.comparison.worker', RunJob(**json.loads(sys.argv[1])))"
    )
    job = {
        "cell": planned.cell.to_dict(),
        "kit": "last",
        "photos": str(photos),
        "run": str(tmp_path / "run"),
        "settings": planned.settings,
        "out": str(tmp_path / "cell.json"),
    }
    parent = subprocess.Popen([sys.executable, "-c", code, json.dumps(job)])
    last = tmp_path / "run" / "last.safetensors"
    wait_until(last.exists)
    parent.kill()
    parent.wait()
    size = (tmp_path / "run" / "metrics.jsonl").stat

    def stands() -> bool:
        before = size().st_size
        time.sleep(0.5)
        return size().st_size == before

    wait_until(stands)
    assert not (tmp_path / "run" / "result.json").exists()


def wait_until(holds: Any) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


class FakeRay:
    """What `run_on_ray` uses of Ray, in one process."""

    def __init__(self, *machines: float) -> None:
        self.machines = machines
        self.cores: list[float] = []
        self.started: dict[str, Any] = {}

    def is_initialized(self) -> bool:
        return False

    def init(self, **options: Any) -> None:
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
        self.started = options

    def nodes(self) -> list[dict[str, Any]]:
        return [
            *({"Alive": True, "Resources": {"CPU": cores}} for cores in self.machines),
            {"Alive": True, "Resources": {}},
            {"Alive": False, "Resources": {"CPU": 1.0}},
        ]

    def remote(self, *, num_cpus: float) -> Any:
        self.cores.append(num_cpus)
        return lambda function: SimpleNamespace(remote=lambda *arguments: (function, arguments))

    def wait(self, tasks: list[Any]) -> tuple[list[Any], list[Any]]:
        return tasks[-1:], tasks[:-1]  # the last one ends first

    def get(self, task: Any) -> Any:
        function, arguments = task
        return function(*arguments)


@pytest.mark.usefixtures("in_process")
def test_ray_takes_a_series_a_machine(
    photos: Path, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeRay(2.0, 2.0)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.setitem(sys.modules, "ray", fake)  # type: ignore[arg-type]
    result = compare(grid(photos, kits=[tiny, "last"]), tmp_path, ray=True, show=quiet)
    assert [cell.model for cell in result.cells] == ["tiny", "last"]  # in the grid's order
    assert not result.failed
    assert fake.cores == [2.0]
    assert fake.started == {"log_to_driver": False, "include_dashboard": False}


def test_machines_of_ray_have_one_size(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.setitem(sys.modules, "ray", FakeRay(64.0, 4.0))  # type: ignore[arg-type]
    with pytest.raises(PocketuneError, match=r"have 4 cores and others 64.* use machines with"):
        compare(grid(photos), tmp_path, ray=True, show=quiet)


def test_without_ray(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(PocketuneError, match="needs ray, which is not installed"):
        compare(grid(photos), tmp_path, ray=True, show=quiet)
