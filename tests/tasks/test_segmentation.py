"""Segmentation: labels, class weights, views of masks, and the mean IoU."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.errors import PocketuneError
from pocketune.schema import read_object
from pocketune.tasks import Attributes, Box, Classification, Score, Segmentation, Task, View
from pocketune.tasks.segmentation import DRAWS, MOST_OF_ONE, Mask, balanced_weights, class_numbers
from pocketune.tasks.views import Seen

TASK = Segmentation(("road", "car", "tree"), ("head.weight", "head.bias"), output_size=(2, 2))
TITLES = ("road", "car", "", "tree", *[""] * 252)


def encoded(*masks: dict[int, int], task: Task = TASK):
    labels = [Mask(f"masks/{i}.png", tuple(mask.items())) for i, mask in enumerate(masks)]
    return task.encode(labels, TITLES, "photos", complete=True)


class TestTask:
    def test_json(self):
        values = json.loads(json.dumps(TASK.to_dict()))
        assert read_object(Task, values, "task.json") == TASK  # type: ignore[type-abstract]

    def test_shapes(self):
        assert TASK.label_shape(64) == (64, 64)
        assert TASK.output_shape(64) == (3, 2, 2)
        assert Segmentation(("a", "b")).output_shape(65, 5) == (5, 9, 9)
        fitted = Segmentation(("a", "b")).fitted(("w",), (2, 7, 8))
        assert (fitted.head, fitted.output_shape(1)) == (("w",), (2, 7, 8))

    def test_more_classes_than_values(self):
        with pytest.raises(PocketuneError, match="256 classes are more than the 255"):
            Segmentation(tuple(map(str, range(256))))

    def test_loss_stride(self):
        with pytest.raises(PocketuneError, match="loss_stride=0"):
            Segmentation(("a",), loss_stride=0)

    def test_smoothing_is_not_an_option(self):
        with pytest.raises(PocketuneError, match="has no label_smoothing"):
            TASK.configured(label_smoothing=0.1)

    def test_a_new_head_of_a_convolution(self):
        state = {
            "head.weight": np.zeros((3, 8, 1, 1), np.float32),
            "head.bias": np.ones(3, np.float32),
        }
        new = TASK.new_head(state, 5, np.random.default_rng(0))
        assert new["head.weight"].shape == (5, 8, 1, 1)
        assert 0 < np.abs(new["head.weight"]).max() <= 1 / math.sqrt(8)
        assert not new["head.bias"].any()


class TestColumns:
    def test_masks(self):
        reader = Segmentation.columns(["image", "mask", "split"], [1], "t.csv")
        assert reader is not None
        assert reader(["a.jpg", "m\\a.png"], 2) == Mask("m/a.png")
        with pytest.raises(PocketuneError, match=r"t\.csv has no mask in line 3"):
            reader(["a.jpg", ""], 3)

    def test_other_tables(self):
        assert Segmentation.columns(["image", "label"], [1], "t.csv") is None
        assert Attributes.columns(["image", "mask", "bald"], [1, 2], "t.csv") is None
        assert Classification.columns(["image", "mask"], [1], "t.csv") is None


class TestLabels:
    def test_encoded(self):
        rows = encoded({0: 5, 2: 3}, {1: 1, 3: 2, 255: 9})
        assert rows["mask"].tolist() == ["masks/0.png", "masks/1.png"]
        assert rows["pixels"].tolist() == [[5, 0, 0], [0, 1, 2]]
        assert TASK.counts(rows).tolist() == [1, 1, 1]

    def test_classes_by_name(self):
        assert Segmentation.find_classes([], TITLES) == TASK.classes
        assert class_numbers(TITLES, ("tree", "car", "road"))[:5].tolist() == [2, 1, 255, 0, 255]
        assert class_numbers([""] * 256, ("tree",)).tolist() == [255] * 256

    def test_a_class_that_was_not_trained(self):
        with pytest.raises(
            PocketuneError, match=r"'tree' in masks/0.png, which is not one of the 2"
        ):
            encoded({3: 1}, task=Segmentation(("road", "car")))

    @pytest.mark.parametrize(
        ("masks", "message"),
        [
            ([{2: 4}, {255: 1}], "every pixel of the training masks in photos is ignored"),
            ([{0: 4, 2: 1}], "show one class only, 'road'"),
        ],
    )
    def test_nothing_to_learn(self, masks, message):
        rows = encoded(*masks)
        with pytest.raises(PocketuneError, match=message):
            TASK.check_training(rows, rows[:0], "photos")

    def test_nothing_to_validate(self):
        rows = encoded({0: 1, 1: 1}, {2: 4})
        TASK.check_training(rows[:1], rows[:0], "photos")
        with pytest.raises(PocketuneError, match="every pixel of the 1 validation masks"):
            TASK.check_training(rows[:1], rows[1:], "photos")


class TestWeights:
    def test_by_default_all_weigh_alike(self):
        weights = TASK.step_inputs()["class_weights"]
        assert weights.tolist() == [1, 1, 1]
        assert weights.dtype == np.float32
        assert TASK.step_inputs(2)["class_weights"].tolist() == [1, 1]

    def test_balanced(self):
        task = TASK.balanced(encoded({0: 64, 1: 4, 3: 16}))
        weights = task.step_inputs()["class_weights"]
        assert weights / weights[2] == pytest.approx([0.5, 2, 1])
        assert (weights * [64, 4, 16]).sum() / 84 == pytest.approx(1)
        values = json.loads(json.dumps(task.to_dict()))
        assert read_object(Task, values, "t") == task  # type: ignore[type-abstract]

    @given(st.lists(st.integers(0, 10**9), min_size=1, max_size=12))
    def test_their_mean_over_pixels_is_one(self, pixels):
        counts = np.array(pixels, np.int64)
        weights = balanced_weights(counts)
        assert np.isfinite(weights).all()
        assert (weights > 0).all()
        assert (weights[counts == 0] == 1).all()
        if counts.any():
            assert (weights * counts).sum() / counts.sum() == pytest.approx(1)

    def test_other_tasks_have_none(self):
        with pytest.raises(PocketuneError, match="the loss of attributes has no weights"):
            Attributes(("bald",)).balanced(np.zeros((1, 1), np.uint8))


class TestViews:
    def test_a_mask_is_cut_by_nearest_neighbor(self):
        mask = np.arange(12, dtype=np.uint8).reshape(3, 4)
        assert TASK.transform(mask, View(Box(1, 0, 2, 2), 2)).tolist() == [[1, 2], [5, 6]]
        assert TASK.transform(mask, View(Box(1, 0, 2, 2), 2, mirrored=True)).tolist() == [
            [2, 1],
            [6, 5],
        ]
        doubled = TASK.transform(mask, View(Box(0, 0, 2, 2), 4))
        assert doubled.tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [4, 4, 5, 5], [4, 4, 5, 5]]

    def test_beyond_the_image_nothing_counts(self):
        mask = np.zeros((2, 2), np.uint8)
        found = TASK.transform(mask, View(Box(-1, 0, 4, 4), 4))
        assert found.tolist() == [[255, 0, 0, 255]] * 2 + [[255] * 4] * 2

    @given(seed=st.integers(0, 10**6), width=st.integers(1, 60), height=st.integers(1, 60))
    def test_every_view_has_the_size(self, seed, width, height):
        rng = np.random.default_rng(seed)
        mask = rng.integers(0, 3, (height, width)).astype(np.uint8)
        view = TASK.training_view(mask, width, height, 16, rng)
        found = TASK.transform(mask, view)
        assert (found.shape, found.dtype) == ((16, 16), np.uint8)
        assert set(np.unique(found)) <= {0, 1, 2, 255}
        assert (found != 255).any()

    def test_views_of_one_class_are_drawn_again(self):
        mask = np.zeros((40, 40), np.uint8)
        mask[:, 20:] = 1
        rng = np.random.default_rng(0)
        views = (TASK.training_view(mask, 40, 40, 20, rng) for _ in range(50))
        found = [TASK.transform(mask, view) for view in views]
        shares = [max((m == 0).sum(), (m == 1).sum()) / (m != 255).sum() for m in found]
        assert max(shares) <= MOST_OF_ONE

    def test_a_mask_of_one_class_is_drawn_ten_times(self, monkeypatch):
        drawn = []
        transform = Segmentation.transform
        monkeypatch.setattr(
            Segmentation, "transform", lambda *args: drawn.append(1) or transform(*args)
        )
        TASK.training_view(np.zeros((9, 9), np.uint8), 9, 9, 4, np.random.default_rng(0))
        assert len(drawn) == DRAWS

    def test_an_evaluation_compares_whole_masks(self):
        masks = [np.zeros((2, 3), np.uint8), np.ones((4, 1), np.uint8)]
        truths = [TASK.truth(m, TASK.evaluation_view(m.shape[1], m.shape[0], 8)) for m in masks]
        batch = TASK.collate(truths)
        assert (batch.shape, batch.dtype) == ((2,), object)
        np.testing.assert_array_equal(batch[1].mask(), masks[1])
        assert TASK.collate([np.zeros((2, 2))] * 3).shape == (3, 2, 2)


def outputs(*masks: list[list[int]]) -> np.ndarray:
    """Outputs that predict these classes."""
    return np.stack([10 * np.eye(3, dtype=np.float32)[m].transpose(2, 0, 1) for m in masks])


class TestMetric:
    truth = np.array([[0, 0, 1], [0, 255, 1]], np.uint8)
    guess = outputs([[0, 1, 1], [0, 2, 1]])

    def test_one_confusion_of_all_images(self):
        """Road: 2 found of 3 pixels; car: 2 found, one too many. Trees do not occur."""
        found = TASK.evaluate([(self.guess, [self.truth]), (self.guess, [self.truth])])
        assert found.confusion.tolist() == [[4, 2, 0], [0, 4, 0], [0, 0, 0]]
        assert found.miou == pytest.approx((2 / 3 + 2 / 3) / 2)
        assert found.macc == pytest.approx((2 / 3 + 1) / 2)
        assert found.pixel_accuracy == pytest.approx(4 / 5)
        assert found.value == found.miou
        assert found.images == 2
        assert found.absent == ("tree",)
        assert str(found) == (
            "mIoU 66.7%, mAcc 83.3%, pixel accuracy 80.0% of 2 photos; ignored pixels are left out"
            "\n"
            "  class     IoU\n  road    66.7%\n  car     66.7%\n"
            "1 class does not occur in these photos and is left out of the means: tree"
        )

    def test_a_class_that_is_only_predicted_is_left_out(self):
        found = TASK.evaluate([(outputs([[2, 0]]), [np.zeros((1, 2), np.uint8)])])
        assert found.miou == 0.5
        assert math.isnan(found.per_class[2].iou)
        assert found.per_class_table.rows[0] == ("road", 2, 0.5, 0.5, 1.0)

    def test_json(self):
        values = json.loads(json.dumps(TASK.evaluate([(self.guess, [self.truth])]).to_dict()))
        assert values["classes"][2] == {
            "class": "tree",
            "pixels": 0,
            "iou": None,
            "accuracy": None,
            "precision": None,
        }
        assert values["absent"] == ["tree"]
        assert values["confusion"] == [[2, 1, 0], [0, 2, 0], [0, 0, 0]]

    def test_score(self):
        metric = TASK.metric()
        assert math.isnan(metric.score.value)
        metric.update(self.guess, np.array([self.truth]))
        assert metric.images == 1
        score = metric.score
        assert (score.name, score.value) == ("mIoU", pytest.approx(2 / 3))
        assert score.loss == pytest.approx(10 / 5, abs=1e-3)  # one of five pixels is off by 10
        assert TASK.is_better(TASK.score(0.5, 2), TASK.score(0.4, 1))

    def test_losses_are_means_of_each_image(self):
        ignored = np.full((2, 3), 255, np.uint8)
        found = TASK.losses(np.concatenate([self.guess] * 2), [self.truth, ignored])
        assert found == pytest.approx([2, 0], abs=1e-3)
        marks = TASK.marks(np.concatenate([self.guess] * 2), [self.truth, ignored])
        assert marks.tolist() == [0.8, 0]

    def test_a_step_scores_pixels(self):
        found = TASK.step_score(0.3, {"correct": 30.0, "pixels": 40.0}, 2)
        assert found == Score("accuracy", 0.75, 0.3)
        assert math.isnan(TASK.step_score(0.0, {"correct": 0, "pixels": 0}, 2).value)

    def test_confusion_is_written(self, tmp_path):
        found = TASK.evaluate([(self.guess, [self.truth])])
        found.write_confusion(tmp_path / "c.csv")
        found.write_per_class(tmp_path / "p.csv")
        assert (tmp_path / "c.csv").read_text().splitlines()[:2] == [
            "class,road,car,tree",
            "road,2,1,0",
        ]
        assert (tmp_path / "p.csv").read_text().splitlines()[
            0
        ] == "class,pixels,IoU,accuracy,precision"


class TestPrediction:
    def test_shares_of_an_image(self):
        found = TASK.predict("a.jpg", outputs([[0, 1], [1, 1]])[0], None)
        assert found.mask.tolist() == [[0, 1], [1, 1]]
        assert str(found) == "car 75.0%, road 25.0%"
        assert found.to_dict() == {
            "image": "a.jpg",
            "classes": [{"class": "car", "share": 0.75}, {"class": "road", "share": 0.25}],
        }

    def test_at_the_size_of_the_photo(self):
        seen = Seen(6, 3, TASK.evaluation_view(6, 3, 8).box)
        found = TASK.predict("a.jpg", outputs([[0, 1], [0, 1]])[0], 1, seen)
        assert found.mask.tolist() == [[0, 0, 0, 1, 1, 1]] * 3
        assert str(found) == "road 50.0%"

    def test_verdict(self):
        label = encoded({0: 1, 1: 3})[0]
        verdict = TASK.verdict(outputs([[0, 0], [0, 2]])[0], label)
        assert verdict.truth == "car (75%), road (25%)"
        assert verdict.guess.startswith("road (75%), tree (25%)")
