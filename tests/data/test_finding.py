"""Which layout the labels of a folder have, where it could be several."""

import pytest

from pocketune.data import load_splits, task_of
from pocketune.errors import PocketuneError


@pytest.mark.parametrize("text", ['{"author": "me", "photos": 24}', "[1, 2]", "no JSON"])
def test_class_folders_beside_a_file_that_is_called_annotations(photos, text):
    folder = photos(cats=2, dogs=2)
    (folder / "annotations.json").write_text(text)
    assert task_of(folder).name == "classification"
    assert load_splits(folder, val_fraction=0).classes == ("cats", "dogs")
    with pytest.raises(PocketuneError, match=r"annotations\.json"):
        load_splits(folder, task="segmentation")
