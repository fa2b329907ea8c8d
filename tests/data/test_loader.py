"""Batches depend on seed, epoch and position alone, and every readable image gets its turn."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pocketune.data import Loader, Purpose, load_splits, random_stream, unlabeled
from pocketune.data import loader as loader_module
from pocketune.data.images.transforms import random_box

from .images.loading import load_image


@pytest.fixture
def splits(photos):
    return load_splits(photos(cats=9, dogs=8, yaks=6), val_fraction=0.25)


def equal(one, other) -> bool:
    return (
        one.names == other.names
        and np.array_equal(one.labels, other.labels)
        and np.array_equal(one.images, other.images)
    )


def same(first, again) -> bool:
    first, again = list(first), list(again)
    return len(first) == len(again) and all(map(equal, first, again))


class TestTraining:
    def test_shapes(self, splits):
        loader = Loader(splits.train, size=16, batch=5, train=True)
        batches = list(loader.epoch(0))
        assert len(batches) == len(loader) == len(splits.train) // 5
        for batch in batches:
            assert (batch.images.shape, batch.images.dtype) == ((5, 16, 16, 3), np.uint8)
            assert (batch.labels.shape, batch.labels.dtype) == ((5,), np.int64)
            assert batch.images.flags.c_contiguous

    def test_each_image_once_with_its_label(self, splits):
        label = dict(zip(splits.train.names, splits.train.labels.tolist(), strict=True))
        batches = list(Loader(splits.train, size=8, batch=4, train=True).epoch(3))
        names = [name for batch in batches for name in batch.names]
        assert len(set(names)) == len(names)
        assert [label[name] for name in names] == [int(i) for b in batches for i in b.labels]

    @pytest.mark.parametrize("workers", [1, 2, 5])
    def test_threads_change_nothing(self, splits, workers, monkeypatch):
        expected = list(Loader(splits.train, size=12, batch=4, train=True, workers=1).epoch(1))
        apply = loader_module.apply

        def jittered(image, view):
            time.sleep(np.random.default_rng(image.tobytes()[0]).uniform(0, 0.004))
            return apply(image, view)

        monkeypatch.setattr(loader_module, "apply", jittered)
        loader = Loader(splits.train, size=12, batch=4, train=True, workers=workers)
        assert same(expected, loader.epoch(1))

    def test_epochs_and_seeds_differ(self, splits):
        def first(seed, epoch):
            return next(Loader(splits.train, size=8, batch=4, train=True, seed=seed).epoch(epoch))

        assert equal(first(0, 0), first(0, 0))
        assert not equal(first(0, 0), first(0, 1))
        assert not equal(first(0, 0), first(1, 0))

    def test_an_image_is_cropped_differently_each_epoch(self, splits):
        loader = Loader(splits.train.subset([0]), size=8, batch=1, train=True)
        assert not np.array_equal(next(loader.epoch(0)).images, next(loader.epoch(1)).images)

    def test_draws_come_again_in_another_order(self, splits):
        def crops(epoch, draws):
            loader = Loader(splits.train, size=8, batch=4, train=True, draws=draws)
            batches = list(loader.epoch(epoch))
            names = [name for batch in batches for name in batch.names]
            pixels = [image.tobytes() for batch in batches for image in batch.images]
            return names, dict(zip(names, pixels, strict=True))

        names, once = crops(1, draws=3)
        again, repeated = crops(4, draws=3)
        common = set(names) & set(again)
        assert names != again and common
        assert all(once[name] == repeated[name] for name in common)
        assert crops(1, draws=None) == (names, once)
        assert crops(4, draws=None)[1] != repeated

    @pytest.mark.parametrize("start", [0, 1, 3, 4, 9])
    def test_resumed(self, splits, start):
        whole = list(Loader(splits.train, size=8, batch=4, train=True).epoch(2))
        resumed = Loader(splits.train, size=8, batch=4, train=True).epoch(2, start)
        assert same(whole[start:], resumed)

    @given(count=st.integers(1, 60), batch=st.integers(1, 60), seed=st.integers(0, 2**40))
    def test_an_epoch_is_a_permutation(self, count, batch, seed):
        dataset = unlabeled([str(i) for i in range(count)])
        options = {"size": 8, "batch": batch, "seed": seed}
        train, evaluate = (Loader(dataset, **options, train=train) for train in (True, False))
        order = train._order(7)
        assert sorted(order[:count]) == list(range(count)) == evaluate._order(7).tolist()
        assert len(order) == max(count, batch) and len(set(order)) == len(order)
        np.testing.assert_array_equal(order[count:] % count, order[: len(order) - count] % count)
        assert (len(train), len(evaluate)) == (max(1, count // batch), -(-count // batch))

    def test_fewer_images_than_a_batch_come_again_with_other_crops(self, splits):
        few = splits.train.subset([0, 9])
        (batch,) = Loader(few, size=8, batch=7, train=True).epoch(0)
        assert sorted(map(batch.names.count, few.names)) == [3, 4]
        assert len({image.tobytes() for image in batch.images}) == 7

    def test_views_are_those_of_earlier_versions(self, splits):
        """The same seed trains on the same pixels in every version, whatever tasks there are."""
        dataset, size = splits.train, 12
        order = random_stream(3, Purpose.ORDER, 2).permutation(len(dataset))
        batches = Loader(dataset, size=size, batch=4, train=True, seed=3).epoch(2)
        found = np.concatenate([batch.images for batch in batches])
        for pixels, index in zip(found, order.tolist(), strict=False):
            rng = random_stream(3, Purpose.CROP, 2, index)
            image = load_image(dataset.root / dataset.names[index])
            left, top, width, height = random_box(*image.size, rng)
            part = (left, top, left + width, top + height)
            expected = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=part))
            mirrored = rng.random() < 0.5
            np.testing.assert_array_equal(pixels, expected[:, ::-1] if mirrored else expected)


class TestEvaluation:
    def test_all_in_order(self, splits):
        loader = Loader(splits.val, size=8, batch=4, train=False)
        batches = list(loader.epoch(0))
        assert len(batches) == len(loader) == -(-len(splits.val) // 4)
        assert tuple(name for batch in batches for name in batch.names) == splits.val.names
        assert same(batches, loader.epoch(5))

    def test_nothing_to_evaluate(self, splits):
        assert list(Loader(splits.val.subset([]), size=8, batch=4, train=False).epoch(0)) == []


class TestDamagedImages:
    @pytest.fixture
    def damaged(self, photos, tree, encoded, noise):
        photos(cats=6, dogs=6)
        half = encoded(noise(0, 64, 64))[:3000]
        folder = tree({"cats/02.png": half, "cats/03.png": half, "dogs/05.png": half})
        return load_splits(folder, val_fraction=0).train

    def test_replaced_by_the_next_when_training(self, damaged):
        loader = Loader(damaged, size=8, batch=4, train=True, workers=3)
        names = [name for batch in loader.epoch(0) for name in batch.names]
        assert len(names) == 12
        assert names.count("cats/04.png") == 3
        assert names.count("cats/00.png") == 2
        assert [skipped.name for skipped in loader.skipped] == [
            "cats/02.png",
            "cats/03.png",
            "dogs/05.png",
        ]
        assert all("is cut off" in skipped.reason for skipped in loader.skipped)

    def test_later_epochs_do_not_depend_on_earlier_ones(self, damaged):
        loader = Loader(damaged, size=8, batch=4, train=True)
        list(loader.epoch(0))
        assert same(loader.epoch(1), Loader(damaged, size=8, batch=4, train=True).epoch(1))

    def test_left_out_of_an_evaluation(self, damaged):
        loader = Loader(damaged, size=8, batch=2, train=False)
        batches = list(loader.epoch(0))
        assert [len(batch.names) for batch in batches] == [2, 2, 2, 2, 1]
        assert len(loader.skipped) == 3

    def test_an_evaluation_reports_a_failure_with_its_batch(self, damaged):
        loader = Loader(damaged, size=8, batch=3, train=False)
        told = []
        for batch in loader.epoch(0):
            time.sleep(0.02)  # lets the threads get ahead
            told.append((batch.names[-1][:-4], len(loader.skipped)))
        assert told == [("cats/01", 1), ("cats/05", 2), ("dogs/02", 2), ("dogs/04", 3)]

    def test_file_that_vanishes(self, splits):
        (splits.train.root / splits.train.names[0]).unlink()
        loader = Loader(splits.train, size=8, batch=len(splits.train), train=True)
        assert len(next(loader.epoch(0)).names) == len(splits.train)
        assert loader.skipped == ((splits.train.names[0], "no such file"),)


class TestThreads:
    def ours(self) -> list[str]:
        return [t.name for t in threading.enumerate() if t.name.startswith("pocketune-decode")]

    def test_none_before_the_first_batch_and_after_the_last(self, splits):
        loader = Loader(splits.train, size=8, batch=4, train=True)
        epoch = loader.epoch(0)
        assert not self.ours()
        next(epoch)
        assert self.ours()
        list(epoch)
        assert not self.ours()

    def test_an_abandoned_epoch_ends_its_threads(self, splits):
        epoch = Loader(splits.train, size=8, batch=2, train=True).epoch(0)
        next(epoch)
        epoch.close()
        assert not self.ours()

    def test_prefetch_is_bounded(self, splits, monkeypatch):
        cut = []
        apply = loader_module.apply

        def counted(image, view):
            cut.append(1)
            return apply(image, view)

        monkeypatch.setattr(loader_module, "apply", counted)
        epoch = Loader(splits.train, size=8, batch=2, train=True).epoch(0)
        next(epoch)
        time.sleep(0.1)
        assert len(cut) <= 2 * (1 + loader_module.AHEAD)
        epoch.close()

    def test_archive_is_read_by_many_threads(self, photos, pack):
        folder = photos(cats=40, dogs=40)
        options = {"size": 8, "batch": 8, "train": True}
        plain = load_splits(folder, val_fraction=0).train
        zipped = load_splits(pack(folder), val_fraction=0).train
        for epoch in range(3):
            assert same(
                Loader(plain, **options).epoch(epoch),
                Loader(zipped, **options, workers=8).epoch(epoch),
            )


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("cannot schedule new futures after interpreter shutdown", KeyboardInterrupt),
        ("can't start new thread", RuntimeError),
    ],
)
def test_a_pool_that_the_interpreter_has_ended_interrupts(splits, words, kind, monkeypatch):
    def refuse(*_):
        raise RuntimeError(words)

    monkeypatch.setattr(loader_module.ThreadPoolExecutor, "submit", refuse)
    with pytest.raises(kind):
        next(Loader(splits.train, size=8, batch=4, train=True).epoch(0))
