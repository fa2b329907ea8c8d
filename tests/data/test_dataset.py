"""A split is complete, disjoint, stratified, and the same for the same seed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.data import load_splits, stratify
from pocketune.data.dataset import ImageDataset, Splits, unlabeled
from pocketune.data.names import Names
from pocketune.data.sources import PathSource
from pocketune.errors import PocketuneError
from pocketune.files import Skipped
from pocketune.tasks import Classification

counts = st.lists(st.integers(1, 40), min_size=1, max_size=8)
fractions = st.floats(0, 1)
seeds = st.integers(0, 2**63)


def labels_of(counts: list[int], shuffle: int = 0) -> np.ndarray:
    labels = np.repeat(np.arange(len(counts)), counts)
    return np.random.default_rng(shuffle).permutation(labels)


@given(counts, fractions, seeds)
def test_complete_and_disjoint(counts, fraction, seed):
    labels = labels_of(counts)
    train, val = stratify(labels, val_fraction=fraction, seed=seed)
    assert sorted([*train, *val]) == list(range(len(labels)))


@given(counts, st.floats(0.01, 0.99), seeds)
def test_stratified(counts, fraction, seed):
    labels = labels_of(counts)
    train, val = stratify(labels, val_fraction=fraction, seed=seed)
    trained = np.bincount(labels[train], minlength=len(counts))
    validated = np.bincount(labels[val], minlength=len(counts))
    for count, trains, validates in zip(counts, trained, validated, strict=True):
        assert trains >= 1
        assert validates >= min(1, count - 1)
        assert abs(validates - count * fraction) <= 1


@given(counts, fractions, seeds)
def test_same_seed_same_split(counts, fraction, seed):
    labels = labels_of(counts)
    first, again = (stratify(labels, val_fraction=fraction, seed=seed) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_of_many_images_as_many_are_taken_evenly():
    photos = unlabeled([f"{number}.jpg" for number in range(10)])
    assert photos.thinned(4).names == ("0.jpg", "3.jpg", "6.jpg", "9.jpg")
    assert photos.thinned(10) is photos


@given(counts, st.integers(1, 40), st.booleans())
def test_a_part_has_its_share_of_each_class(counts, count, in_turn):
    labels = labels_of(counts)
    if in_turn:
        labels = np.resize(np.arange(len(counts)), len(labels))
    names, classes = (tuple(map(str, range(n))) for n in (len(labels), len(counts)))
    photos = ImageDataset(PathSource(), Names(names), labels, Classification(classes))
    count = min(count, len(photos))
    spread = photos.spread(count)
    assert count <= len(spread) < 2 * count
    for chosen in (labels[spread], photos.thinned(count).labels):
        share = np.bincount(labels) * len(chosen) / len(labels)
        assert (np.abs(np.bincount(chosen, minlength=len(share)) - share) < 2).all()
    assert spread.tolist() == sorted(set(spread.tolist()))


def test_another_seed_another_split():
    labels = labels_of([50, 50])
    splits = {stratify(labels, val_fraction=0.2, seed=seed)[1].tobytes() for seed in range(10)}
    assert len(splits) == 10


def test_growing_one_class_leaves_the_others():
    before = stratify(np.repeat([0, 1], [20, 30]), val_fraction=0.3, seed=5)[1]
    after = stratify(np.repeat([0, 1], [20, 44]), val_fraction=0.3, seed=5)[1]
    np.testing.assert_array_equal(before[before < 20], after[after < 20])


@pytest.mark.parametrize(("fraction", "validates"), [(0, 0), (1, 5)])
def test_all_or_nothing(fraction, validates):
    train, val = stratify(labels_of([1, 4]), val_fraction=fraction, seed=0)
    assert (len(train), len(val)) == (5 - validates, validates)


@pytest.mark.parametrize("fraction", [-0.1, 1.5, float("nan")])
def test_impossible_fraction(fraction):
    with pytest.raises(PocketuneError, match="val_fraction"):
        stratify(labels_of([3, 3]), val_fraction=fraction, seed=0)


def test_negative_seed():
    with pytest.raises(PocketuneError, match="seed=-1"):
        stratify(labels_of([3, 3]), val_fraction=0.5, seed=-1)


def dataset(count: int = 4) -> ImageDataset:
    names = tuple(f"{number}.png" for number in range(count))
    return ImageDataset(
        PathSource(), Names(names), np.arange(count) % 2, Classification(("a", "b"))
    )


def test_a_subset_keeps_the_order_asked_for():
    part = dataset().subset([3, 0, 3])
    assert part.names == ("3.png", "0.png", "3.png")
    assert part.labels.tolist() == [1, 0, 1]
    assert (len(part), part.classes) == (3, ("a", "b"))
    assert len(dataset().subset([])) == 0


def test_images_without_labels_have_no_task():
    images = unlabeled(["a.png", "b.png"])
    assert images.labels.tolist() == [-1, -1]
    assert images.classes == ()
    with pytest.raises(PocketuneError, match="have no labels; load them with load_splits"):
        _ = images.labeled
    assert dataset().labeled == Classification(("a", "b"))


def test_reading_opens_the_file_of_the_index(tmp_path):
    (tmp_path / "b").write_bytes(b"two")
    images = unlabeled([str(tmp_path / "a"), str(tmp_path / "b")])
    assert images.read(1) == b"two"
    with pytest.raises(FileNotFoundError):
        images.read(0)


def test_the_fingerprint_is_of_names_labels_order_and_sides():
    whole = dataset()
    first = Splits(whole.subset([0, 1]), whole.subset([2, 3]), ())
    same = Splits(dataset().subset([0, 1]), dataset().subset([2, 3]), (Skipped("x", "damaged"),))
    assert first.fingerprint() == same.fingerprint()
    others = [
        Splits(whole.subset([1, 0]), whole.subset([2, 3]), ()),
        Splits(whole.subset([0]), whole.subset([1, 2, 3]), ()),
        Splits(replace(whole, labels=1 - whole.labels).subset([0, 1]), whole.subset([2, 3]), ()),
        Splits(replace(whole, names=Names(["0.png"] * 4)).subset([0, 1]), whole.subset([2, 3]), ()),
    ]
    assert len({split.fingerprint() for split in (first, *others)}) == 5


def test_a_group_of_one_trains():
    train, val = stratify(np.array([0, 1, 1]), val_fraction=0.5, seed=0)
    assert 0 in train.tolist() and len(val) == 1


def test_nothing_to_divide():
    train, val = stratify(np.empty(0, np.int64), val_fraction=0.5, seed=0)
    assert len(train) == len(val) == 0


def test_a_subset_keeps_names_labels_and_files_together(photos):
    dataset = load_splits(photos(cats=3, dogs=3), val_fraction=1).val
    part = dataset.subset([4, 0])
    assert part.names == (dataset.names[4], dataset.names[0])
    assert part.labels.tolist() == [1, 0]
    assert part.read(0) == dataset.read(4)
    assert part.root == dataset.root
