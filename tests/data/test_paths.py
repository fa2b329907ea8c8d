"""The images at the paths that a user gives."""

import pytest

from pocketune.data import Loader, open_images, unlabeled
from pocketune.errors import PocketuneError


class TestOpenImages:
    def test_files_and_folders(self, photos):
        folder = photos(cats=2, dogs=1)
        names = open_images([folder / "dogs" / "00.png", folder])
        assert names == [
            str(folder / name) for name in ("dogs/00.png", "cats/00.png", "cats/01.png")
        ]

    def test_archives_are_folders(self, photos, pack):
        folder = photos(cats=2, dogs=1)
        names = open_images([pack(folder), folder])
        assert [name.replace("photos.zip/", "photos/") for name in names[:3]] == names[3:]
        dataset = unlabeled(names)
        assert [dataset.read(i) for i in range(3)] == [dataset.read(i) for i in range(3, 6)]

    def test_through_the_loader(self, photos, tree):
        photos(cats=3)
        folder = tree({"cats/notes.txt": "no image"})
        loader = Loader(unlabeled(open_images([folder])), size=8, batch=2, train=False)
        batches = list(loader.epoch(0))
        assert [len(batch.names) for batch in batches] == [2, 1]
        assert {int(label) for batch in batches for label in batch.labels} == {-1}
        assert loader.skipped == (
            (str(folder / "cats/notes.txt"), "not an image in a known format"),
        )

    def test_missing(self, tmp_path):
        with pytest.raises(PocketuneError, match="does not exist"):
            open_images([tmp_path / "gone.jpg"])

    def test_nothing(self, tmp_path):
        with pytest.raises(PocketuneError, match="no images to predict"):
            open_images([tmp_path])
