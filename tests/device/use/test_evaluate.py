"""Counting how well a model knows labeled photos."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pocketune.data import Skipped, load_splits
from pocketune.device.use.evaluate import evaluate
from pocketune.device.use.predict import Prediction, predict
from pocketune.device.use.results import AttributeEvaluation, Evaluation
from pocketune.errors import PocketuneError

from ..runs import trained_state, write_best, write_last, write_photo, write_photos
from ..tiny_kit import CLASSES, TinyKit

MANY = tuple(f"class {letter}" for letter in "abcdefgh")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    kit = TinyKit().write(tmp_path / "run")
    write_best(kit.path, kit, trained_state(TinyKit(classes=MANY)), MANY)
    return kit.path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_photos(tmp_path / "photos", MANY, each=4)


def test_counts_agree_with_predict(run: Path, photos: Path) -> None:
    evaluation = evaluate(run, photos)
    confusion = np.zeros((8, 8), int)
    among_top5 = 0
    for result in predict(run, [photos]):
        assert isinstance(result, Prediction)
        label = Path(result.name).parent.name
        guesses = [guess.label for guess in result.guesses]
        confusion[MANY.index(label), MANY.index(guesses[0])] += 1
        among_top5 += label in guesses
    assert evaluation.classes == MANY
    assert np.array_equal(evaluation.confusion, confusion)
    assert evaluation.images == 32
    assert evaluation.top1 == confusion.trace() / 32
    assert evaluation.top5 == among_top5 / 32
    assert 0 < evaluation.top5 < 1
    for index, result in enumerate(evaluation.per_class):
        assert result.name == MANY[index]
        assert result.images == 4
        assert result.recall == confusion[index, index] / 4
        assert result.predicted == confusion[:, index].sum()


def test_top5_of_few_classes_is_one(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    evaluation = evaluate(kit.path, write_photos(tmp_path / "photos", CLASSES, each=2))
    assert evaluation.top5 == 1
    assert evaluation.images == 6


def test_a_class_without_photos(run: Path, tmp_path: Path) -> None:
    evaluation = evaluate(run, write_photos(tmp_path / "some", MANY[2:4], each=1))
    first, third = evaluation.per_class[0], evaluation.per_class[2]
    assert (first.images, third.images) == (0, 1)
    assert np.isnan(first.recall)


def test_a_single_class(run: Path, tmp_path: Path) -> None:
    assert evaluate(run, write_photos(tmp_path / "one", MANY[:1], each=2)).images == 2


def test_divided_photos_are_evaluated_on_their_validation_part(run: Path, tmp_path: Path) -> None:
    write_photos(tmp_path / "divided" / "train", MANY, each=3)
    write_photos(tmp_path / "divided" / "val", MANY, each=1)
    assert evaluate(run, tmp_path / "divided").images == 8


def test_a_run_is_evaluated_on_what_it_held_back(run: Path, photos: Path) -> None:
    kit = TinyKit().write(run.parent / "kit")
    splits = load_splits(photos, val_fraction=0.25, seed=3)
    state = trained_state(TinyKit(classes=MANY))
    write_last(run, kit, state, MANY, photos, splits.fingerprint())
    expected = evaluate(run, _copy(splits.val.names, photos, run.parent / "held back"))
    evaluation = evaluate(run)
    assert evaluation.images == 8
    assert np.array_equal(evaluation.confusion, expected.confusion)
    write_photo(photos / MANY[0] / "another.png", 0)
    with pytest.raises(PocketuneError, match="give other photos to evaluate"):
        evaluate(run)


def _copy(names: tuple[str, ...], source: Path, target: Path) -> Path:
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes((source / name).read_bytes())
    return target


def test_a_kit_has_held_nothing_back(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    with pytest.raises(PocketuneError, match="is not a run: give photos"):
        evaluate(kit.path)


def test_unknown_class(run: Path, photos: Path) -> None:
    write_photo(photos / "zebra" / "1.png", 0)
    with pytest.raises(PocketuneError, match="zebra"):
        evaluate(run, photos)


def test_unreadable_photos_are_listed(run: Path, photos: Path) -> None:
    (photos / MANY[0] / "notes.txt").write_text("not a photo")
    content = (photos / MANY[0] / "0.png").read_bytes()
    (photos / MANY[0] / "0.png").write_bytes(content[: len(content) // 2])
    evaluation = evaluate(run, photos)
    assert evaluation.images == 31
    assert {Path(s.name).name for s in evaluation.skipped} == {"notes.txt", "0.png"}


def test_nothing_can_be_decoded(run: Path, tmp_path: Path) -> None:
    file = write_photo(tmp_path / "photos" / MANY[0] / "0.png", 0)
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(PocketuneError, match="no readable photo to evaluate"):
        evaluate(run, tmp_path / "photos")


@pytest.fixture
def small() -> Evaluation:
    confusion = np.array([[3, 1], [0, 0]])
    return Evaluation(("größe, groß", 'a "b"'), confusion, among_top5=4, skipped=())


def test_confusion_csv(small: Evaluation, tmp_path: Path) -> None:
    small.write_confusion(tmp_path / "confusion.csv")
    with (tmp_path / "confusion.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [
            ["class", "größe, groß", 'a "b"'],
            ["größe, groß", "3", "1"],
            ['a "b"', "0", "0"],
        ]


def test_per_class_csv(small: Evaluation, tmp_path: Path) -> None:
    small.write_per_class(str(tmp_path / "classes.csv"))
    with (tmp_path / "classes.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [
            ["class", "images", "correct", "recall", "precision"],
            ["größe, groß", "4", "3", "0.75", "1.0"],
            ['a "b"', "0", "0", "nan", "0.0"],
        ]


def test_csv_into_a_missing_folder(small: Evaluation, tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match="cannot be written"):
        small.write_confusion(tmp_path / "missing" / "confusion.csv")


def test_plain_values(small: Evaluation) -> None:
    values = replace(small, skipped=(Skipped("a.txt", "not an image"),)).to_dict()
    assert json.loads(json.dumps(values, allow_nan=False)) == {
        "images": 4,
        "top1": 0.75,
        "top5": 1.0,
        "classes": [
            {"class": "größe, groß", "images": 4, "correct": 3, "recall": 0.75, "precision": 1.0},
            {"class": 'a "b"', "images": 0, "correct": 0, "recall": None, "precision": 0.0},
        ],
        "confusion": [[3, 1], [0, 0]],
        "skipped": [{"image": "a.txt", "reason": "not an image"}],
    }
    assert str(small) == "top-1 75.0%, top-5 100.0% of 4 photos"


def test_plain_values_of_attributes() -> None:
    result = AttributeEvaluation(("bald", "young"), np.array([[[1, 1], [1, 1]], [[4, 0], [0, 0]]]))
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False)) == {
        "images": 4,
        "accuracy": 0.75,
        "attributes": [
            {"attribute": "bald", "present": 2, "accuracy": 0.5, "recall": 0.5, "precision": 0.5},
            {
                "attribute": "young",
                "present": 0,
                "accuracy": 1.0,
                "recall": None,
                "precision": None,
            },
        ],
        "skipped": [],
    }
    assert str(result).splitlines() == [
        "mean accuracy 75.0% of 2 attributes of 4 photos",
        "  bald    50.0%",
        "  young  100.0%",
    ]
