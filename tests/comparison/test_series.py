"""What is compared, and what makes it another run."""

from pathlib import Path

import pytest

from pocketune.comparison import Grid, compare
from pocketune.comparison.grid import Network
from pocketune.comparison.run_series import _SeriesRunner
from pocketune.comparison.series import TUNING_FRACTION, all_series
from pocketune.errors import PocketuneError

from ..device.runs import write_run
from ..device.softmax_engine import write_photos
from .grids import NETWORK, divided, grid, quiet


def test_photos_that_have_changed_are_trained_on_again(tmp_path: Path) -> None:
    photos = divided(tmp_path / "photos")
    before = all_series(grid(photos))[0].runs[0].cell.key
    (photos / "train" / "red" / "0.png").rename(photos / "train" / "red" / "00.png")
    assert all_series(grid(photos))[0].runs[0].cell.key != before


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
