"""A budget holds with the photos that people have, or the photo that breaks it is named."""

import json
import subprocess
import sys
from bisect import bisect_left
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pocketune.data import checked, load_splits, open_images, unlabeled
from pocketune.data.images.cost import Decoding
from pocketune.data.images.headers import Header
from pocketune.device.memory.budget import (
    BudgetExceeded,
    check_budget,
    check_peak,
    check_prediction,
)
from pocketune.device.memory.estimate import estimate_memory, estimate_prediction
from pocketune.device.memory.photos import decoded_bytes
from pocketune.device.memory.process import ProcessMemory
from pocketune.device.train.settings import TrainSettings
from pocketune.device.use.model import Model
from pocketune.device.use.predict import predict
from pocketune.kit.bundled import kit_path
from pocketune.kit.kit import Kit

BEFORE = ProcessMemory(40_000_000, 40_000_000)
SCREENSHOT = Decoding("a/shot.png", Header("PNG", "RGBA", 1440, 3200), 20_000_000, 500_000)

TRAIN = """
import json, sys
from pocketune.device.memory.budget import check_budget
from pocketune.device.train import run, train
from pocketune.device.train.progress import Silent

predicted = []
def checked(*args, **options):
    predicted.append(check_budget(*args, **options).total)
    return check_budget(*args, **options)

run.check_budget = checked
result = train("last", sys.argv[1], sys.argv[2], steps=2, head_start="random", progress=Silent())
print(json.dumps([predicted[0], result.peak_memory, len(result.skipped)]))
"""


def last() -> Kit:
    return Kit.open(kit_path("last"))


def total(decoding: Decoding | None) -> int:
    return estimate_memory(
        last().manifest, process=BEFORE.current, classes=2, slots=2, photos=9, decoding=decoding
    ).total


@pytest.mark.parametrize("peak", [BEFORE.peak, 300_000_000])
def test_the_photo_that_breaks_the_budget_is_named(peak):
    settings = TrainSettings(budget=total(None) + 5_000_000, optimizer="adam")
    before = ProcessMemory(BEFORE.current, peak)  # of the process, when all photos are opened
    with pytest.raises(BudgetExceeded) as caught:
        check_budget(last(), settings, classes=2, images=9, before=before, decoding=SCREENSHOT)
    message = str(caught.value)
    assert "decoding a/shot.png (PNG, 1440 x 3200) takes about 20 MB" in message
    assert "pocketune prepare" in message
    assert "\n" not in message


def test_a_kit_that_does_not_fit_anyway_is_the_problem():
    settings = TrainSettings(budget=total(None) - 1_000_000, optimizer="adam")
    with pytest.raises(BudgetExceeded, match="training needs about"):
        check_budget(last(), settings, classes=2, images=9, before=BEFORE, decoding=SCREENSHOT)


class TestPrediction:
    """Of `predict` and `evaluate`."""

    def needed(self, decoding: Decoding | None = None) -> int:
        manifest, classes = last().manifest, len(Model.of(last()).classes)
        return estimate_prediction(
            manifest, process=BEFORE.current, classes=classes, decoding=decoding
        ).total

    def test_what_fits_is_let_through(self):
        model, enough = Model.of(last()), self.needed(SCREENSHOT)
        check_prediction(model, enough, BEFORE, SCREENSHOT)
        check_prediction(model, None, BEFORE, SCREENSHOT)
        with pytest.raises(BudgetExceeded):
            check_prediction(model, enough - 1, BEFORE, SCREENSHOT)

    def test_the_photo_that_breaks_the_budget_is_named(self):
        with pytest.raises(BudgetExceeded, match=r"decoding a/shot.png \(PNG, 1440 x 3200\)"):
            check_prediction(Model.of(last()), self.needed(), BEFORE, SCREENSHOT)

    def test_a_model_that_does_not_fit_anyway_is_the_problem(self):
        with pytest.raises(BudgetExceeded, match="predicting needs about"):
            check_prediction(Model.of(last()), self.needed() - 1, BEFORE, SCREENSHOT)

    def test_headers_are_read_before_the_first_image(self, tmp_path):
        Image.new("RGB", (1600, 1200)).save(tmp_path / "large.webp")
        (tmp_path / "notes.txt").write_text("no image")
        large = checked(unlabeled(open_images([tmp_path])), last().manifest.size).decoding
        assert large is not None and large.name.endswith("large.webp")
        with pytest.raises(BudgetExceeded, match="short"):
            check_prediction(Model.of(last()), self.needed(), BEFORE, large)
        found = predict(kit_path("last"), [tmp_path], budget="64GB")
        assert [type(each).__name__ for each in found] == ["ClassPrediction", "Skipped"]

    def test_large_photos_of_the_first_batch_are_gone_when_graphs_are_opened(self, tmp_path):
        kit, model, names = last(), Model.of(last()), [f"{number:02}.png" for number in range(20)]
        for name in names:
            Image.new("RGB", (64, 48)).save(tmp_path / name)
        batch = kit.manifest.batch
        assert batch < len(names)

        def check(large: str) -> int:
            """The least budget, in MB, with a large photo under that name."""
            Image.new("RGB", (1600, 1200)).save(tmp_path / large, "WEBP")
            images, _, decoding = checked(unlabeled(open_images([tmp_path])), kit.manifest.size)
            assert decoding is not None and decoding.name.endswith(large)

            def fits(budget: int) -> bool:
                try:
                    check_prediction(model, budget * 1_000_000, BEFORE, decoding, images=images)
                except BudgetExceeded:
                    return False
                return True

            return bisect_left(range(200), True, key=fits)

        first = check(names[batch - 1])
        Image.new("RGB", (64, 48)).save(tmp_path / names[batch - 1])
        later = check(names[batch])
        assert first < later - 5
        decoded = decoded_bytes(kit.manifest.size, self.decoding(tmp_path))
        assert first * 1_000_000 > BEFORE.current + decoded

    def decoding(self, folder: Path) -> Decoding:
        found = checked(unlabeled(open_images([folder])), last().manifest.size).decoding
        assert found is not None
        return found

    def test_a_process_that_is_too_large_already_is_the_problem(self, tmp_path):
        Image.new("RGB", (16, 12)).save(tmp_path / "small.png")
        with pytest.raises(BudgetExceeded, match="before it began"):
            predict(kit_path("last"), [tmp_path], budget=1_000_000)

    def test_a_process_that_exceeds_its_budget_stops(self, monkeypatch):
        peak = ProcessMemory(60_000_000, 70_000_000)
        monkeypatch.setattr("pocketune.device.memory.budget.process_memory", lambda: peak)
        check_peak(None)
        check_peak(peak.peak)
        with pytest.raises(BudgetExceeded, match=r"reached 70 MB, over the budget of 70 MB"):
            check_peak(peak.peak - 1)


def test_what_decoding_takes_is_counted():
    small = Decoding("a/1.jpg", Header("JPEG", "RGB", 640, 480), 3_000_000, 3_000_000)
    assert decoded_bytes(224, small) > decoded_bytes(224, None) > 0
    assert total(SCREENSHOT) - total(small) == SCREENSHOT.total(2) - small.total(2)


@pytest.mark.skipif(sys.platform != "linux", reason="the prediction was fitted on Linux")
def test_large_photos_stay_below_the_prediction(tmp_path):
    folder, pixels = tmp_path / "photos", np.random.default_rng(0).integers(0, 256, (24, 32, 3))
    (folder / "a").mkdir(parents=True)
    (folder / "b").mkdir()
    noise = Image.fromarray(pixels.astype(np.uint8))
    for number in range(8):
        noise.resize((320, 240)).save(folder / "ab"[number % 2] / f"{number}.jpg")
    Image.new("RGBA", (1440, 3200), (9, 99, 199, 128)).save(folder / "a" / "screenshot.png")
    noise.resize((4000, 3000)).save(folder / "a" / "phone.jpg")
    noise.resize((2000, 1500)).save(folder / "b" / "web.jpg", progressive=True)
    noise.resize((1600, 1200)).convert("CMYK").save(folder / "b" / "print.jpg")
    noise.resize((1600, 1200)).save(folder / "b" / "small.webp", method=0)
    (folder / "b" / "phone.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    assert load_splits(folder, size=224).decoding.name == "b/small.webp"
    command = [sys.executable, "-c", TRAIN, str(folder), str(tmp_path / "run")]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    predicted, peak, skipped = json.loads(done.stdout.splitlines()[-1])
    assert peak <= predicted
    assert skipped == 1
