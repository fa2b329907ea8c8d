"""Features are computed once for each photo and draw, and again when its photo has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pocketune.data import Batch, Loader, load_splits
from pocketune.device.cache.code import Code, Features
from pocketune.device.cache.loader import CachedLoader, Part
from pocketune.device.cache.records import MemoryStore, Records
from pocketune.device.train.photos import Photos
from pocketune.device.train.settings import TrainSettings

from ..pixel_kit import write_pixel_kit, write_scenes
from ..runs import write_photo, write_photos
from .test_records import never

SIZE, VALUES = 8, 24
SHAPE = (VALUES,)
CLASSES = ("cat", "dog")


class Prepared:
    """Features that anybody can recompute: rows of pixels, summed. It counts the images."""

    def __init__(self, shape: tuple[int, ...] = SHAPE) -> None:
        self.images = 0
        self._shape = shape

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        self.images += len(pixels)
        return pixels.astype(np.float32).sum(axis=1).reshape(len(pixels), *self._shape)


def loader_of(folder: Path, *, train: bool = True, batch: int = 4) -> Loader:
    dataset = load_splits(folder, val_fraction=0).train
    return Loader(dataset, size=SIZE, batch=batch, train=train, seed=3)


def cached(
    loader: Loader, prepare: Callable, *, draws: int = 2, bits: int = 8, store: object = None
) -> CachedLoader:
    count = loader.turns * len(loader.dataset)
    part = Part(Code(SHAPE, bits), (), np.dtype(np.int64), count, draws)
    return CachedLoader(loader, Records(store or MemoryStore(), never), part, prepare)


def content(batch: Batch) -> tuple[object, ...]:
    features = batch.images
    assert isinstance(features, Features)
    return features.rows.tobytes(), batch.labels.tolist(), batch.names


def contents(batches: object) -> list[tuple[object, ...]]:
    return [content(batch) for batch in batches]


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:300])


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_photos(tmp_path / "photos", CLASSES, 7)


def test_batches_are_the_encoded_features_of_those_without_a_cache(photos: Path) -> None:
    loader, prepare = loader_of(photos), Prepared()
    kept = cached(loader, prepare)
    plain = Loader(loader.dataset, size=SIZE, batch=4, train=True, seed=3, draws=2)
    for epoch in range(5):
        for batch, expected in zip(kept.epoch(epoch), plain.epoch(epoch), strict=True):
            assert batch.names == expected.names
            np.testing.assert_array_equal(batch.labels, expected.labels)
            code = batch.images.code
            rows = np.stack(
                [np.frombuffer(code.encode(f), np.uint8) for f in Prepared()(expected.images)]
            )
            np.testing.assert_array_equal(batch.images.decoded(), code.decode(rows))


def test_later_epochs_compute_only_photos_that_earlier_ones_left_out(photos: Path) -> None:
    prepare = Prepared()
    kept = cached(loader_of(photos), prepare)
    seen: set[tuple[int, str]] = set()
    for epoch in range(6):
        new = {(epoch % 2, name) for batch in kept.epoch(epoch) for name in batch.names} - seen
        seen |= new
        assert prepare.images == len(seen)
    assert len(seen) == 2 * 14


@pytest.mark.parametrize("kept_before", [0, 1, 2])
def test_what_is_known_does_not_change_a_bit(kept_before: int, photos: Path) -> None:
    whole = contents(cached(loader_of(photos), Prepared()).epoch(3))
    store = MemoryStore()
    first = cached(loader_of(photos), Prepared(), store=store).epoch(3)
    for _ in range(kept_before):
        next(first)
    prepare = Prepared()
    assert contents(cached(loader_of(photos), prepare, store=store).epoch(3)) == whole
    assert prepare.images == 4 * (3 - kept_before)
    assert contents(cached(loader_of(photos), prepare, store=store).epoch(3, start=2)) == whole[2:]


def test_a_photo_that_changes_is_computed_again(photos: Path) -> None:
    prepare = Prepared()
    kept = cached(loader_of(photos, train=False), prepare, draws=1)
    before = contents(kept.epoch(0))
    write_photo(photos / "cat" / "2.png", seed=999)
    after = contents(kept.epoch(1))
    assert prepare.images == 14 + 1
    assert [one == other for one, other in zip(before, after, strict=True)] == [False] + [True] * 3
    fresh = cached(loader_of(photos, train=False), Prepared(), draws=1)
    assert contents(fresh.epoch(0)) == after


def test_unreadable_photos_are_replaced_as_without_a_cache(photos: Path) -> None:
    damage(photos / "cat" / "2.png")
    kept, plain = cached(loader_of(photos), Prepared(), draws=1), loader_of(photos)
    plain.draws = 1
    for epoch in range(3):
        expected = [batch.labels.tolist() for batch in plain.epoch(epoch)]
        assert [batch.labels.tolist() for batch in kept.epoch(epoch)] == expected
    assert [skipped.name for skipped in kept.skipped] == ["cat/2.png"]


def test_unreadable_photos_are_missing_from_an_evaluation(photos: Path) -> None:
    for name in ("cat/0.png", "cat/5.png", "dog/6.png"):
        damage(photos / name)
    kept, plain = (
        cached(loader_of(photos, train=False), Prepared()),
        loader_of(photos, train=False),
    )
    expected = [(batch.names, batch.labels.tolist()) for batch in plain.epoch(0)]
    for epoch in range(2):
        assert [(b.names, b.labels.tolist()) for b in kept.epoch(epoch)] == expected
    assert kept.skipped == plain.skipped and len(kept.skipped) == 3


def test_photos_that_vanish_are_as_unreadable(photos: Path) -> None:
    kept = cached(loader_of(photos, train=False), Prepared())
    before = sum(len(batch.names) for batch in kept.epoch(0))
    (photos / "dog" / "1.png").unlink()
    assert sum(len(batch.names) for batch in kept.epoch(1)) == before - 1


def test_fewer_photos_than_a_batch_have_a_crop_for_each_turn(tmp_path: Path) -> None:
    photos, prepare = write_photos(tmp_path / "photos", CLASSES, 1), Prepared()
    kept = cached(loader_of(photos, batch=5), prepare, draws=2)
    epochs = [contents(kept.epoch(epoch)) for epoch in range(8)]
    assert len({epoch[0][0] for epoch in epochs}) > 1
    # Of the third turn, an epoch has only one of the two photos.
    assert 2 * 5 <= prepare.images <= 2 * 6


def test_the_draws_of_a_photo_differ(photos: Path) -> None:
    kept = cached(loader_of(photos), Prepared())
    crops = [
        dict(zip(batch.names, map(bytes, batch.images.rows), strict=True))
        for epoch in (0, 1)
        for batch in kept.epoch(epoch)
    ]
    both = {name for crop in crops[:3] for name in crop} & {n for crop in crops[3:] for n in crop}
    assert both
    for name in both:
        one, other = (crop[name] for crop in crops if name in crop)
        assert one != other


def test_masks_are_kept_with_their_photos(tmp_path: Path) -> None:
    kit = write_pixel_kit(tmp_path / "kit")
    photos = write_scenes(tmp_path / "photos", 6)
    plain = Photos.open(photos, TrainSettings(val_fraction=0, draws=1), kit).training
    part = Part(Code((48,), 8), (16, 16), np.dtype(np.uint8), 6, 1)
    prepare = Prepared((48,))
    kept = CachedLoader(plain, Records(MemoryStore(), never), part, prepare)
    for epoch in range(3):
        for batch, expected in zip(kept.epoch(epoch), plain.epoch(epoch), strict=True):
            assert batch.names == expected.names
            np.testing.assert_array_equal(batch.labels, expected.labels)
            assert batch.labels.dtype == expected.labels.dtype
    assert prepare.images == 6
    mask = next((photos / "masks").iterdir())
    Image.open(mask).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(mask)
    assert len(list(kept.epoch(3))) == 3
    assert prepare.images == 7


def test_a_part_reads_the_same_records(photos: Path) -> None:
    prepare = Prepared()
    kept = cached(loader_of(photos, train=False), prepare, draws=1)
    whole = [name for batch in kept.epoch(0) for name in batch.names]
    prepare.images = 0
    chosen = np.array([9, 2, 5, 3, 12])
    part = contents(kept.part(chosen).epoch(0))
    assert prepare.images == 0
    assert [name for *_, names in part for name in names] == [whole[index] for index in chosen]
    plain = loader_of(photos, train=False).part(chosen)
    assert part == contents(cached(plain, prepare, draws=1).epoch(0))
