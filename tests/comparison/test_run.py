"""Whole comparisons on tiny photos and bundled kits: one process a run, nothing made twice."""

from pathlib import Path
from typing import Any

import pytest

from pocketune.comparison import Comparison, compare
from pocketune.device.train import RunRecord
from pocketune.errors import PocketuneError

from ..device.softmax_engine import write_photos
from .grids import grid, pocketune, quiet


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
