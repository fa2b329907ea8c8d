"""Photos that occur more than once are told."""

import zipfile

from pocketune.data import copies, load_splits
from pocketune.data.copies import describe_copies

TWICE = {"cats/1.png": 1, "cats/2.png": 1, "dogs/3.png": 3}


def test_none(photos) -> None:
    assert describe_copies(load_splits(photos(cats=3, dogs=3))) is None


def test_a_copy_of_another_name(tree) -> None:
    splits = load_splits(tree(TWICE), val_fraction=0.0)
    told = (
        "1 photo is a copy of another, such as cats/2.png of cats/1.png; cross-validation tests a "
        "photo by its copies, so that its score is too good"
    )
    assert describe_copies(splits) == told


def test_copies_with_other_labels_and_among_the_validation_photos(tree, pack) -> None:
    folder = tree({"train/a/1.png": 1, "train/b/2.png": 2, "val/a/1.png": 1, "val/a/2.png": 2})
    told = (
        "2 photos are copies of others, such as val/a/1.png of train/a/1.png; 1 photo with "
        "different labels; 2 validation photos equal to a training photo, so that scores are too "
        "good"
    )
    for path in (folder, pack(folder)):
        assert describe_copies(load_splits(path)) == told


def test_a_photo_that_is_gone_is_equal_to_none(tree) -> None:
    folder = tree(TWICE)
    splits = load_splits(folder, val_fraction=0.0)
    (folder / "cats" / "2.png").unlink()
    assert describe_copies(splits) is None


def test_large_sets_are_not_looked_through(tree, monkeypatch) -> None:
    splits = load_splits(tree(TWICE), val_fraction=0.0)
    monkeypatch.setattr(copies, "MOST_PHOTOS", 2)
    assert describe_copies(splits) is None


def test_a_damaged_member_of_an_archive_is_equal_to_none(tree, pack) -> None:
    archive = pack(tree(TWICE))
    splits = load_splits(archive, val_fraction=0.0)
    data = bytearray(archive.read_bytes())
    with zipfile.ZipFile(archive) as opened:
        member = opened.getinfo(next(name for name in opened.namelist() if name.endswith("2.png")))
    for place in range(member.header_offset + 60, member.header_offset + 64):
        data[place] ^= 0xFF
    archive.write_bytes(bytes(data))
    assert describe_copies(splits) is None
