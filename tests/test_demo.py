"""The demo's images, kits and report."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from PIL import Image

from pocketune.data import load_splits
from pocketune.demo import compare, unpack_digits
from pocketune.demo.digits import NAMES
from pocketune.errors import PocketuneError
from pocketune.kit.bundled import bundled_kit, default_kit, list_kits
from pocketune.kit.kit import Kit


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    assert unpack_digits(folder) == 1797
    return folder


def test_digits_take_the_ordinary_path(digits):
    splits = load_splits(digits)
    assert set(splits.classes) == set(NAMES)
    assert len(splits.train) + len(splits.val) == 1797
    assert splits.skipped == ()


def test_digits_are_lossless(digits):
    datasets = pytest.importorskip("sklearn.datasets")
    original = datasets.load_digits()
    for number, name in enumerate(NAMES):
        files = sorted((digits / name).iterdir())
        pixels = np.stack([np.asarray(Image.open(file)) for file in files])
        expected = original.images[original.target == number]
        assert np.array_equal(np.rint(pixels / 255 * 16), expected)


def test_digits_are_of_seventeen_gray_levels(digits):
    levels = {
        int(value)
        for file in (digits / "five").iterdir()
        for value in np.unique(np.asarray(Image.open(file)))
    }
    assert levels == {round(level * 255 / 16) for level in range(17)}


@pytest.mark.parametrize("contender", compare.CONTENDERS, ids=lambda contender: contender.kit)
def test_the_contenders_kits_come_with_the_package(contender):
    path = bundled_kit(contender.kit)
    assert path.stat().st_size < 2_000_000
    manifest = Kit.open(path).manifest
    assert manifest.method["name"] == contender.kit
    network = manifest.network
    assert (network["name"], network["first_blocks"]) == ("efficientnet_lite0", 12)
    assert (manifest.size, len(manifest.classes)) == (128, 10)


def test_every_bundled_kit_opens():
    assert list_kits() == ("attributes", "blocks", "last", "masks")
    assert {path.stem for path in bundled_kit("last").parent.glob("*.zip")} == set(list_kits())
    for name in list_kits():
        kit = Kit.open(name)
        assert kit.path == bundled_kit(name)
        assert name in list_kits(kit.manifest.task.name)
        assert kit.state().keys() == kit.manifest.shapes(10).keys()


def test_the_default_kit_is_for_the_photos():
    tasks = ("classification", "attributes", "segmentation")
    assert [default_kit(task) for task in tasks] == ["blocks", "attributes", "masks"]


def test_a_kit_that_is_not_there_is_named():
    with pytest.raises(PocketuneError, match=r"no kit called 'all' .* blocks, last, masks"):
        bundled_kit("all")


def test_a_training_is_a_process_of_its_own(digits, tmp_path):
    for number, file in enumerate(sorted(digits.glob("*/*"))):
        if number % 8 == 0:  # the kit takes its time for each photo
            copy = tmp_path / file.relative_to(digits.parent)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    outcome = compare.train(compare.CONTENDERS[0], tmp_path / digits.name, tmp_path / "run")
    assert outcome.parameters == 192 * 10 + 10
    assert 0.8 < outcome.accuracy <= 1
    assert outcome.memory > 10_000_000


def test_a_training_that_fails_is_an_error(tmp_path):
    with pytest.raises(PocketuneError, match=r"computed failed: .*nothing does not exist"):
        compare.train(compare.CONTENDERS[0], tmp_path / "nothing", tmp_path / "run")


def test_the_table_has_a_row_for_each_contender():
    outcomes = [compare.Outcome(12810, 0.871, 20.4, 91_000_000)] * len(compare.CONTENDERS)
    table = compare.table(outcomes)
    assert table.row_count == len(compare.CONTENDERS)
    cells = [next(iter(column.cells)) for column in table.columns]
    assert cells == ["classifier, computed", "12,810", "87.1%", "20", "91 MB"]
