"""A run on masks: it learns, resumes to the same bits, and weighs classes."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from pocketune.data import MaskOptions
from pocketune.device import Interrupted, evaluate
from pocketune.device.memory.budget import BudgetExceeded
from pocketune.device.train import RunRecord, resume, start, train
from pocketune.device.train.defaults import default_rates
from pocketune.device.train.progress import PhotosReport, Silent
from pocketune.errors import PocketuneError
from pocketune.kit import Kit

from ..failing import failing, interrupt
from ..pixel_kit import PixelEngine, write_pixel_kit, write_scenes
from ..runs import assert_same_end, lines


class Watch(Silent):
    def __init__(self) -> None:
        self.seen: list[PhotosReport] = []
        self.notes: list[str] = []

    def photos(self, report: PhotosReport) -> None:
        self.seen.append(report)

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masks")
    write_scenes(folder / "photos", 10)
    write_pixel_kit(folder / "kit")
    return folder


def run(place, out, **options):
    plain = {"lr": 0.1, "class_weights": "none", "engine": PixelEngine, "progress": Silent()}
    options = {"epochs": 4, **plain, **options}
    return train(place / "kit", place / "photos", out, **options)


def test_few_masks_are_learned_at_the_rates_of_many(place, tmp_path):
    """Each of them has many labels."""
    record = RunRecord.read(run(place, tmp_path / "run", epochs=1, lr=None).run)
    assert record.settings["lr"] == default_rates("adam", record.batch).main


def test_it_learns(place, tmp_path):
    watch = Watch()
    result = run(place, tmp_path / "run", epochs=12, progress=watch)
    assert [(each.purpose, each.done, each.photos) for each in watch.seen] == [
        *(("masks", done, 10) for done in range(1, 11)),
        *(("classifier from the photos", done, 8) for done in (2, 4, 6, 8)),
    ]
    assert result.head == "ridge"
    assert result.start.name == result.estimate.name == result.best.name == "mIoU"
    assert result.best.value >= result.start.value > 0.5
    epochs = lines(result.run, "epoch")
    assert result.best.value == max(line["validation_mIoU"] for line in epochs)
    assert epochs[-1]["loss"] < epochs[0]["loss"]
    assert all(0 <= line["accuracy"] <= 1 for line in lines(result.run, "step"))
    assert RunRecord.read(result.run).task == "segmentation"
    found = evaluate(result.run)
    assert found.images == 2
    assert found.miou == pytest.approx(result.best.value)


def test_other_classes_replace_the_head(place, tmp_path):
    write_scenes(tmp_path / "photos", 12, names=False)
    result = train(
        place / "kit", tmp_path / "photos", tmp_path / "run", engine=PixelEngine, epochs=1,
        progress=Silent(), ignore="0",
    )  # fmt: skip
    assert result.classes == ("1", "2")
    assert result.head == "ridge"
    found = evaluate(result.run)
    assert found.classes == ("1", "2")
    assert found.confusion.sum() < found.images * 32 * 24 * 0.6  # sky is ignored, as in training


def test_a_run_that_is_trained_further_reads_masks_as_before(place, tmp_path):
    write_scenes(tmp_path / "photos", 12, names=False)
    options = {"engine": PixelEngine, "epochs": 1, "class_weights": "none", "progress": Silent()}
    told = {"ignore": "0", "class_names": "0=sky,1=way,2=car"}
    photos = tmp_path / "photos"
    first = train(place / "kit", photos, tmp_path / "first", **options, **told)
    assert first.classes == ("way", "car")
    further = train(first.run, photos, tmp_path / "further", **options)
    assert further.classes == first.classes
    assert further.head == "kept"
    assert RunRecord.read(further.run).settings.items() >= told.items()
    other = train(first.run, photos, tmp_path / "other", **options, ignore="255")
    assert other.classes == ("sky", "way", "car")


def test_a_run_that_ignores_a_class_by_name_meets_masks_without_it(place, tmp_path):
    first = run(place, tmp_path / "first", epochs=0, ignore="sky")
    photos = write_scenes(tmp_path / "photos", 12)
    for file in (photos / "masks").iterdir():
        mask = np.asarray(Image.open(file))
        Image.fromarray(np.where(mask == 0, 255, mask)).save(file)
    (photos / "classes.txt").write_text("1=road\n2=car")
    assert evaluate(first.run, photos).images == 12
    with pytest.raises(PocketuneError, match="ignore='sky' is neither"):
        evaluate(first.run, photos, masks=MaskOptions(ignore="sky"))
    options = {"class_weights": "none", "progress": Silent(), "epochs": 2}
    stop = failing("gradients", 2, interrupt, PixelEngine)
    with pytest.raises(Interrupted):
        train(first.run, photos, tmp_path / "further", engine=stop, **options)
    further = resume(tmp_path / "further", engine=PixelEngine, progress=Silent())
    assert further.classes == ("road", "car")
    assert evaluate(further.run).images == 2


def test_the_start_is_computed_with_the_weights_of_the_loss(place, tmp_path):
    results = [
        run(place, tmp_path / str(weights), epochs=0, class_weights=weights)
        for weights in ("none", "balanced")
    ]
    assert [(each.steps, each.head, each.best_step) for each in results] == [(0, "ridge", 0)] * 2
    plain, balanced = (evaluate(each.run).per_class[2] for each in results)
    assert balanced.predicted > plain.predicted  # the car is rare
    assert all(each.best == each.start for each in results)


def test_a_run_never_ends_below_its_start(place, tmp_path):
    class Backwards(PixelEngine):
        def gradients(self, *args):
            found = super().gradients(*args)
            return replace(found, values={k: -10 * v for k, v in found.values.items()})

    result = run(place, tmp_path / "run", engine=Backwards)
    assert (result.head, result.best_step, result.best) == ("ridge", 0, result.start)


def test_a_classifier_that_is_better_is_kept(place, tmp_path):
    first = run(place, tmp_path / "first", epochs=0)
    options = {"engine": PixelEngine, "class_weights": "none", "progress": Silent(), "epochs": 0}
    second = train(first.run, place / "photos", tmp_path / "second", **options)
    assert (second.head, second.estimate.name) == ("kept", "mIoU")
    assert second.estimate.value > first.estimate.value  # the kept one has seen both halves
    assert second.start == first.start


def test_drawn_at_random_where_it_is_asked_for(place, tmp_path):
    result = run(place, tmp_path / "run", epochs=0, head_start="random")
    assert (result.head, result.estimate) == ("kept", None)


def test_above_a_random_decode_head_nothing_is_computed_and_the_run_says_so(place, tmp_path):
    class Engine(PixelEngine):
        def __init__(self, kit, state):
            super().__init__(kit, state)
            self.parameters["decode_head.scale"] = state["decode_head.scale"].copy()

        def gradients(self, *args):
            found = super().gradients(*args)
            none = {"decode_head.scale": np.zeros(3, np.float32)}
            return replace(found, values={**found.values, **none})

    write_pixel_kit(tmp_path / "kit", decode_head=True)
    watch = Watch()
    options = {"engine": Engine, "progress": watch}
    first = train(tmp_path / "kit", place / "photos", tmp_path / "first", epochs=1, **options)
    assert first.head == "kept"
    assert any("the decode head below it is random" in note for note in watch.notes)
    further = train(first.run, place / "photos", tmp_path / "further", epochs=0, **options)
    assert further.head == "ridge"  # the decode head has been trained


def test_without_steps_a_classifier_for_which_there_is_no_room_is_refused(
    place, tmp_path, monkeypatch
):
    monkeypatch.setattr(start, "head_room", lambda _: 1000)
    with pytest.raises(BudgetExceeded, match="no room to compute a classifier of 3 classes"):
        run(place, tmp_path / "run", epochs=0, budget="4GB")
    assert run(place, tmp_path / "other", epochs=1, budget="4GB").head == "kept"


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_stopped_run_ends_with_the_same_bits(place, tmp_path, accumulate):
    options = {"class_weights": "balanced", "accumulate": accumulate, "epochs": 3}
    run(place, tmp_path / "whole", **options)
    stop = failing("gradients", 5, interrupt, PixelEngine)
    with pytest.raises(Interrupted):
        run(place, tmp_path / "run", **{**options, "engine": stop})
    resume(tmp_path / "run", engine=PixelEngine, progress=Silent())
    assert_same_end(tmp_path / "whole", tmp_path / "run")


def test_balanced_weights_reach_the_engine(place, tmp_path):
    made = []

    class Engine(PixelEngine):
        def __init__(self, kit, state):
            super().__init__(kit, state)
            made.append(self)

    run(place, tmp_path / "plain", engine=Engine, epochs=1)
    assert made.pop().inputs["class_weights"].tolist() == [1, 1, 1]
    run(place, tmp_path / "balanced", engine=Engine, epochs=1, class_weights=None)
    weights = made.pop().inputs["class_weights"]
    assert weights[2] > max(weights[:2])
    assert weights.dtype == np.float32
    stored = json.loads((tmp_path / "balanced" / "manifest.json").read_text())
    assert stored["task"]["class_weights"] == []
    assert Kit.open(tmp_path / "balanced").identity == Kit.open(place / "kit").identity


def test_a_decode_head_that_was_trained_has_the_rate_of_the_network(place, tmp_path):
    first = run(place, tmp_path / "first", epochs=1, lr=None)
    random = RunRecord.read(first.run).settings
    assert random["decode_lr"] > random["lr"]
    options = {"epochs": 1, "engine": PixelEngine, "progress": Silent()}
    further = train(first.run, place / "photos", tmp_path / "further", **options)
    trained = RunRecord.read(further.run).settings
    assert trained["decode_lr"] == trained["lr"] == random["lr"]
    given = train(first.run, place / "photos", tmp_path / "given", **options, lr=0.5)
    assert RunRecord.read(given.run).settings["decode_lr"] == 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_weights": "heavy"}, "unknown class_weights 'heavy'"),
        ({"ignore": "grass"}, "ignore='grass' is neither a value of 0 to 255 nor a class"),
        ({"class_names": "sky,road"}, "has the value 2"),
        ({"decode_lr": 0.1}, "decode_lr=0.1 has no effect: .* trains no decode head"),
        ({"balance": 0.5}, "class_weights weighs the classes of pixels"),
    ],
)
def test_refused(place, tmp_path, options, message):
    with pytest.raises(PocketuneError, match=message):
        run(place, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_one_image(place, tmp_path):
    write_scenes(tmp_path / "photos", 1)
    options = {"engine": PixelEngine, "epochs": 2, "progress": Silent()}
    result = train(place / "kit", tmp_path / "photos", tmp_path / "run", **options)
    assert (result.best, result.steps) == (None, 2)
    assert evaluate(result.run, tmp_path / "photos").images == 1
