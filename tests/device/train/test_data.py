"""Which photos and options a run takes, and which it refuses."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pocketune.device.train.photos import Photos
from pocketune.device.train.progress import Silent
from pocketune.device.train.record import RunRecord
from pocketune.device.train.settings import TrainSettings
from pocketune.errors import PocketuneError
from pocketune.kit.bundled import bundled_kit
from pocketune.kit.names import LAST

from ..softmax_engine import CLASSES, write_photos, write_softmax_kit
from .examples import Run


def test_a_batch_larger_than_the_data_has_photos_again(run: Run, tmp_path: Path) -> None:
    kit = write_softmax_kit(tmp_path / "kit", batch=64)
    assert run(kit=kit, epochs=3).steps == 3


def test_test_photos_are_held_out(run: Run, tmp_path: Path) -> None:
    write_photos(tmp_path / "photos" / "train")
    write_photos(tmp_path / "photos" / "test", each=3)
    photos = RunRecord.read(run(photos=tmp_path / "photos", epochs=1).run).photos
    assert (photos.training, photos.validation) == (24, 6)


@pytest.mark.parametrize(
    ("train", "val", "told"),
    [
        ((2, 2, 2), (), None),
        ((1, 2, 1), (), "classes  2 of 3 have one photo, so nothing tells how well they are"),
        ((1, 3, 3), (1, 1, 1), None),
        ((3, 3, 3), (1, 1, 0), "classes  1 of 3 has no photo to validate, so nothing tells how"),
    ],
)
def test_classes_that_no_photo_tests(
    train: tuple[int, ...], val: tuple[int, ...], told: str | None, tmp_path: Path
) -> None:
    for part, counts in (("train", train), ("val", val)):
        for name, count in zip(CLASSES, counts, strict=False):
            (tmp_path / "photos" / part / name).mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (8, 8)).save(tmp_path / f"photos/{part}/{name}/{number}.png")
    kit = write_softmax_kit(tmp_path / "kit")
    found = Photos.open(tmp_path / "photos", TrainSettings(), kit).describe_untested()
    assert found == told if told is None else str(found).startswith(told)


@pytest.mark.parametrize(
    ("other", "told"),
    [("blue", None), ("Red", "classes  'Red' and 'red' differ only in case, and are learned as")],
)
def test_classes_whose_names_differ_only_in_case(
    other: str, told: str | None, tmp_path: Path
) -> None:
    rows = [f"{number}.png,{name}" for number, name in enumerate(("red", other, "red", other))]
    for number in range(4):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{number}.png")
    (tmp_path / "labels.csv").write_text("\n".join(["file,label", *rows]))
    kit = write_softmax_kit(tmp_path / "kit")
    found = Photos.open(tmp_path / "labels.csv", TrainSettings(), kit).describe_alike()
    assert found == told if told is None else str(found).startswith(told)


def test_unreadable_files_are_listed(run: Run, tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos")
    (photos / "red" / "notes.png").write_text("not an image")
    whole = (photos / "red" / "0.png").read_bytes()
    (photos / "red" / "0.png").write_bytes(whole[: len(whole) // 2])
    result = run(photos=photos)
    assert {skipped.name for skipped in result.skipped} == {"red/notes.png", "red/0.png"}


def test_side_lr_without_side_branches_leaves_no_run(run: Run, tmp_path: Path) -> None:
    with pytest.raises(
        PocketuneError, match=r"side_lr=0\.1 has no effect: .* trains no side branches"
    ):
        run(out=tmp_path / "side", side_lr=0.1)
    assert not (tmp_path / "side").exists()


def test_bias_lr_without_biases_leaves_no_run(run: Run, tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match=r"bias_lr=0\.1 has no effect: .* trains no bias"):
        run(kit=bundled_kit("last"), out=tmp_path / "bias", bias_lr=0.1)
    assert not (tmp_path / "bias").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"momentum": 0.5}, r"momentum=0\.5 has no effect with adam"),
        ({"patience": 1, "val_fraction": 0.0}, "patience=1 needs validation photos"),
        ({"patience": 1, "epochs": 0}, "patience=1 has no effect with epochs=0"),
        ({"warmup": 18}, "warmup=18 is as long as the run of 18 steps, whose rate would never"),
        ({"ignore": "0"}, "ignore='0' has no effect: it is for masks"),
        ({"class_names": "a,b"}, "class_names='a,b' has no effect: it is for masks"),
    ],
)
def test_what_is_of_no_use_is_refused(
    options: dict[str, Any], message: str, run: Run, tmp_path: Path
) -> None:
    with pytest.raises(PocketuneError, match=message):
        run(out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_missing_folder_leaves_no_run(run: Run, tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match="does not exist"):
        run(photos=tmp_path / "nowhere")
    assert not (tmp_path / "run").exists()


def test_photos_that_an_earlier_run_was_trained_on_are_said_to_validate(
    run: Run, photos: Path, tmp_path: Path
) -> None:
    told: list[str] = []

    class Notes(Silent):
        def note(self, text: str) -> None:
            told.append(text)

    first = run(out=tmp_path / "first", epochs=1, val_fraction=0)
    run(kit=first.run, out=tmp_path / "second", epochs=1, val_fraction=0.5, progress=Notes())
    (said,) = [each for each in told if each.startswith("validation")]
    half = RunRecord.read(tmp_path / "second").photos.validation
    assert f"{half} of {half} photos have the names of photos that the run was trained on" in said
    told.clear()
    run(kit=tmp_path / "second", out=tmp_path / "third", val_fraction=0.5, progress=Notes())
    assert said in told  # the second run has kept what the first was trained on
    told.clear()
    half_first = run(out=tmp_path / "half", epochs=1, val_fraction=0.5)
    run(kit=half_first.run, out=tmp_path / "same", epochs=1, val_fraction=0.5, progress=Notes())
    assert not [each for each in told if each.startswith("validation")]
    names = sorted(photos.rglob("*.png"))
    rows = [f"{name.relative_to(photos.parent).as_posix()},{name.parent.name}" for name in names]
    table = photos.with_name("beside.csv")
    table.write_text("\n".join(["file,label", *rows]))
    options = {"photos": table, "out": tmp_path / "fourth", "progress": Notes()}
    run(kit=first.run, epochs=1, val_fraction=0.5, **options)
    (said,) = [each for each in told if each.startswith("validation")]
    assert f"{half} of {half} photos have the names" in said


def test_a_run_whose_checkpoint_is_damaged_can_be_trained_further(run: Run, tmp_path: Path) -> None:
    first = run(out=tmp_path / "first", epochs=1)
    (first.run / LAST).write_bytes(b"cut")
    assert run(kit=first.run, out=tmp_path / "second", epochs=1).steps
