"""Evaluating models on labeled photos."""

import logging
import shutil
from pathlib import Path

import numpy as np
import pytest

from pocketune.data import load_splits
from pocketune.data.names import name_digests
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.train import train
from pocketune.device.train.progress import Silent
from pocketune.device.use import evaluate as evaluate_module
from pocketune.device.use.evaluate import evaluate
from pocketune.device.use.held_back import run_photos
from pocketune.device.use.model import Model
from pocketune.device.use.predict import predict
from pocketune.errors import PocketuneError
from pocketune.tasks.classification import ClassPrediction

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
        assert isinstance(result, ClassPrediction)
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
        assert result.present == 4
        assert result.recall == confusion[index, index] / 4
        assert result.predicted == confusion[:, index].sum()


def test_photos_are_counted(run: Path, photos: Path) -> None:
    counts: list[tuple[int, int]] = []
    evaluate(run, photos, after_photos=lambda done, every: counts.append((done, every)))
    assert counts[-1] == (32, 32)
    assert len(counts) > 1 and counts == sorted(counts)


def test_top5_of_few_classes_is_one(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    evaluation = evaluate(kit.path, write_photos(tmp_path / "photos", CLASSES, each=2))
    assert evaluation.top5 == 1
    assert evaluation.images == 6


def test_a_class_without_photos(run: Path, tmp_path: Path) -> None:
    evaluation = evaluate(run, write_photos(tmp_path / "some", MANY[2:4], each=1))
    first, third = evaluation.per_class[0], evaluation.per_class[2]
    assert (first.present, third.present) == (0, 1)
    assert np.isnan(first.recall)


def test_a_single_class(run: Path, tmp_path: Path) -> None:
    assert evaluate(run, write_photos(tmp_path / "one", MANY[:1], each=2)).images == 2


def test_divided_photos_are_evaluated_on_their_validation_part(run: Path, tmp_path: Path) -> None:
    write_photos(tmp_path / "divided" / "train", MANY, each=3)
    write_photos(tmp_path / "divided" / "val", MANY, each=1)
    assert evaluate(run, tmp_path / "divided").images == 8


@pytest.mark.parametrize("validated", [MANY[:1], MANY[1:3]])
def test_nothing_need_be_learned_from_photos_that_are_evaluated(
    validated: tuple[str, ...], run: Path, tmp_path: Path
) -> None:
    write_photos(tmp_path / "divided" / "train", MANY[:1], each=2)
    write_photos(tmp_path / "divided" / "val", validated, each=1)
    assert evaluate(run, tmp_path / "divided").images == len(validated)


def test_test_photos_are_evaluated_alone(run: Path, tmp_path: Path) -> None:
    for part, each in (("train", 3), ("val", 1), ("test", 2)):
        write_photos(tmp_path / "divided" / part, MANY, each=each)
    assert evaluate(run, tmp_path / "divided").images == 8
    assert evaluate(run, tmp_path / "divided", test=True).images == 16
    kit = TinyKit().write(run.parent / "kit")
    write_last(run, kit, trained_state(TinyKit(classes=MANY)), MANY, tmp_path / "divided")
    assert evaluate(run, test=True).images == 16


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
    with pytest.raises(PocketuneError, match="or name the photos to evaluate"):
        evaluate(run)
    with pytest.raises(PocketuneError, match=r"held back are not those of the run in .*run, or"):
        run_photos(Model.open(run), run.parent / "held back")


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    told: list[str] = []
    for module in ("evaluate", "held_back"):
        log = logging.getLogger(f"pocketune.device.use.{module}")
        monkeypatch.setattr(log, "info", lambda text, *values: told.append(text % values))
    return told


def test_a_short_trial_is_evaluated_on_what_it_held_back(
    run: Path, photos: Path, notes: list[str]
) -> None:
    kit, state = TinyKit().write(run.parent / "kit"), trained_state(TinyKit(classes=MANY))
    splits = load_splits(photos, val_fraction=0.25, seed=3).thinned(5)
    write_last(run, kit, state, MANY, photos, splits.fingerprint(), most=5)
    assert evaluate(run).images == 5
    assert evaluate(run, photos).images == 8
    assert notes[-1] == (
        "the run was trained on 5 of these 32 photos; the 8 that it held back are evaluated"
    )


def test_other_photos_of_the_same_names_are_all_evaluated(run: Path, photos: Path) -> None:
    kit, state = TinyKit().write(run.parent / "kit"), trained_state(TinyKit(classes=MANY))
    splits = load_splits(photos, val_fraction=0.25, seed=3)
    write_last(run, kit, state, MANY, photos, splits.fingerprint())
    copied = shutil.copytree(photos, run.parent / "copied")
    assert evaluate(run, copied).images == 8
    others = shutil.copytree(photos, run.parent / "others")
    for name in splits.train.names:
        write_photo(others / name, 7)
    assert evaluate(run, others).images == 32
    shutil.rmtree(photos)  # nothing tells that they have not moved
    assert evaluate(run, others).images == 8


def test_its_own_divided_photos_are_told(run: Path, tmp_path: Path, notes: list[str]) -> None:
    kit, state = TinyKit().write(tmp_path / "kit"), trained_state(TinyKit(classes=MANY))
    for part, each in (("train", 2), ("val", 1), ("test", 3)):
        write_photos(tmp_path / "divided" / part, MANY, each=each)
    divided = tmp_path / "divided"
    write_last(run, kit, state, MANY, divided, load_splits(divided).fingerprint())
    assert evaluate(run, divided).images == evaluate(run).images == 8
    assert notes[0] == (
        "the run was trained on 16 of these 24 photos; the 8 that it held back are evaluated"
    )


def test_photos_that_a_run_before_was_trained_on_are_told(
    run: Path, photos: Path, notes: list[str]
) -> None:
    kit, state = TinyKit().write(run.parent / "kit"), trained_state(TinyKit(classes=MANY))
    splits = load_splits(photos, val_fraction=0.25, seed=3)
    earlier = name_digests(splits.val.names[:2])
    write_last(run, kit, state, MANY, photos, splits.fingerprint(), earlier=earlier)
    too_good = (
        "have the names of photos that the run was trained on; if they are the same, the figures "
        "are too good"
    )
    evaluate(run)
    evaluate(run, photos)
    of_others = _copy(splits.val.names, photos, run.parent / "others")
    evaluate(run, of_others)
    assert [note for note in notes if too_good in note] == 3 * [f"2 of these 8 photos {too_good}"]


def test_a_run_that_does_not_know_its_photos_says_so(
    run: Path, photos: Path, tmp_path: Path, notes: list[str]
) -> None:
    evaluate(run, photos)
    assert [note.partition(";")[0] for note in notes] == [
        f"{run} does not say which photos it was trained on"
    ]
    for part in ("train", "val", "test"):
        write_photos(tmp_path / "divided" / part, MANY, each=1)
    evaluate(run, tmp_path / "divided")
    evaluate(run, tmp_path / "divided", test=True)
    evaluate(TinyKit(classes=MANY).write(tmp_path / "kit").path, photos)
    assert len(notes) == 1


def _copy(names: tuple[str, ...], source: Path, target: Path) -> Path:
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes((source / name).read_bytes())
    return target


def test_a_kit_has_held_nothing_back(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    with pytest.raises(PocketuneError, match="is not a run; give photos"):
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


def test_the_only_photo_of_each_class_cannot_be_evaluated(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    photos = write_photos(tmp_path / "photos", CLASSES, each=1)
    run = train(kit, photos, tmp_path / "run", progress=Silent()).run
    with pytest.raises(PocketuneError, match="run held no photos back; give photos to evaluate"):
        evaluate(run)


def test_the_fit_to_all_others_has_the_room_of_the_graphs_and_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    photos = write_photos(tmp_path / "photos", MANY, each=2)
    run = train(kit, photos, tmp_path / "run", progress=Silent()).run
    called: list[str] = []
    places = (OnnxEngine, "release"), (evaluate_module, "left_out"), (evaluate_module, "check_peak")
    for place, name in places:
        call = getattr(place, name)
        monkeypatch.setattr(
            place, name, lambda *args, name=name, call=call: (called.append(name), call(*args))[1]
        )
    evaluate(run)
    assert called[-3:] == ["release", "left_out", "check_peak"]


def test_copies_that_test_one_another_are_told(tmp_path: Path, notes: list[str]) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    photos = write_photos(tmp_path / "photos", CLASSES, each=2)
    first, copied = photos / CLASSES[0] / "0.png", photos / CLASSES[0] / "copied.png"
    copied.write_bytes(first.read_bytes())
    evaluate(train(kit, photos, tmp_path / "run", progress=Silent()).run)
    assert notes[0].startswith("1 photo is a copy of another")
    assert notes[0].endswith("its score is too good")
