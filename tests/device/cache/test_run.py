"""Where features are kept changes how long a run takes, and not a bit of what it gives."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from pocketune.device.cache import opening
from pocketune.device.cache.code import Features
from pocketune.device.cache.records import FileStore
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.train.interrupt import Interrupted
from pocketune.device.train.progress import Silent
from pocketune.device.train.run import resume, train
from pocketune.errors import PocketuneError
from pocketune.kit.names import CACHE, KNOWN, RESULT

from ..failing import at_call, failing, interrupt
from ..runs import assert_same_end, lines
from ..softmax_engine import BATCH, CLASSES, FrozenEngine, write_photos, write_softmax_kit
from ..tiny_kit import TinyKit

PHOTOS, EPOCHS = 24, 4


class Noted(Silent):
    """Keeps what a run notes of its cache."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        if text.startswith("cache"):
            self.notes.append(text)


class Counting(FrozenEngine):
    """Counts the images whose features or embeddings are computed, over all engines of a test."""

    images = embedded = 0

    def prepare(self, images: Any) -> Any:
        Counting.images += len(images)
        return super().prepare(images)

    def embed(self, images: Any) -> Any:
        Counting.embedded += 0 if isinstance(images, Features) else len(images)
        return super().embed(images)


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_softmax_kit(tmp_path_factory.mktemp("kit") / "kit", frozen=True).path


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("photos") / "photos")


def run(kit: Path, photos: Path, out: Path, **options: Any) -> Noted:
    progress, options = Noted(), {"engine": FrozenEngine, "epochs": EPOCHS, "lr": 0.01} | options
    train(kit, photos, out, progress=progress, **options)
    return progress


@pytest.fixture(scope="module")
def whole(kit: Path, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with features on disk, never stopped."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    run(kit, photos, folder, cache="disk", draws=2)
    return folder


def test_each_photo_is_computed_once_for_each_draw(kit: Path, photos: Path, tmp_path: Path) -> None:
    Counting.images = Counting.embedded = 0
    run(kit, photos, tmp_path / "run", cache="disk", draws=2, engine=Counting)
    assert Counting.images == 3 * PHOTOS + 6  # once without crops, as validation photos
    assert not Counting.embedded  # the classifier and what is known come from features
    assert not (tmp_path / "run" / CACHE).exists()


def test_a_photo_is_computed_in_each_epoch_without_a_cache(
    kit: Path, photos: Path, tmp_path: Path
) -> None:
    Counting.images = 0
    run(kit, photos, tmp_path / "run", cache="off", draws=2, engine=Counting)
    assert Counting.images == 0  # the engine computes them as it computes everything
    assert len(lines(tmp_path / "run", "step")) == EPOCHS * PHOTOS // BATCH


def test_in_memory_as_on_disk(kit: Path, photos: Path, whole: Path, tmp_path: Path) -> None:
    run(kit, photos, tmp_path / "run", cache="memory", draws=2)
    assert_same_end(tmp_path / "run", whole)


def test_learns_as_without_a_cache(kit: Path, photos: Path, tmp_path: Path) -> None:
    for cache in ("disk", "off"):
        run(kit, photos, tmp_path / cache, cache=cache, draws=3)
    kept, plain = (lines(tmp_path / cache, "epoch") for cache in ("disk", "off"))
    assert [line["loss"] for line in kept] == pytest.approx(
        [line["loss"] for line in plain], rel=1e-3
    )
    assert kept[0]["loss"] != plain[0]["loss"]
    first = [lines(tmp_path / cache, "start")[0]["validation_loss"] for cache in ("disk", "off")]
    assert first[0] == first[1]  # features of photos as they are evaluated are exact
    known = [load_file(tmp_path / cache / KNOWN) for cache in ("disk", "off")]
    for name in ("center", "threshold"):  # directions have no sign
        np.testing.assert_allclose(known[0][name], known[1][name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("room", [0, 5, 40])
def test_a_disk_that_fills_up(
    room: int, kit: Path, photos: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(FileStore):
        records = 0

        def write(self, place: int, record: bytes) -> None:
            self.records += 1
            if self.records > room:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().write(place, record)

    monkeypatch.setattr(opening, "FileStore", Full)
    noted = run(kit, photos, tmp_path / "run", cache="disk", draws=2)
    assert_same_end(tmp_path / "run", whole)
    assert noted.notes[1:] == [
        "cache  off, features are computed for every epoch: No space left on device"
    ]
    assert not (tmp_path / "run" / CACHE).exists()


def test_a_file_that_cannot_be_made(
    kit: Path, photos: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PocketuneError("features.cache cannot be written: Read-only file system")

    monkeypatch.setattr(opening, "FileStore", refuse)
    noted = run(kit, photos, tmp_path / "run", cache="disk", draws=2)
    assert_same_end(tmp_path / "run", whole)
    assert "Read-only file system" in noted.notes[1]


TRIALS = 8
"""Steps without an update, which tell how steep the classifier may be."""


def stopped(kit: Path, photos: Path, out: Path, at: int = 9, **options: Any) -> Path:
    """A run that is interrupted in a step."""
    stopping = failing("gradients", TRIALS + at, interrupt, FrozenEngine)
    with pytest.raises(Interrupted):
        run(kit, photos, out, cache="disk", draws=2, engine=stopping, **options)
    return out


@pytest.mark.parametrize("what", ["as it was", "removed", "truncated", "damaged", "of another kit"])
def test_resumed_with_any_file(
    what: str, kit: Path, photos: Path, whole: Path, tmp_path: Path
) -> None:
    file = stopped(kit, photos, tmp_path / "run") / CACHE
    content = bytearray(file.read_bytes())
    assert len(content) > 1000
    if what == "truncated":
        file.write_bytes(content[: len(content) // 2])
    elif what == "damaged":
        content[100::50] = bytes(byte ^ 1 for byte in content[100::50])
        file.write_bytes(content)
    elif what == "of another kit":
        file.write_bytes(content[:22] + bytes(32) + content[54:])
    elif what == "removed":
        file.unlink()
    Counting.images = 0
    resume(tmp_path / "run", engine=Counting, progress=Silent())
    assert_same_end(tmp_path / "run", whole)
    # Until the ninth step, features of the first epoch and of half of the second were computed.
    assert (Counting.images == PHOTOS // 2) == (what == "as it was")
    assert not file.exists()


@pytest.mark.parametrize("at", [1, 6, 13])
def test_resumed_after_any_step(
    at: int, kit: Path, photos: Path, whole: Path, tmp_path: Path
) -> None:
    stopped(kit, photos, tmp_path / "run", at)
    resume(tmp_path / "run", engine=FrozenEngine, progress=Silent())
    assert_same_end(tmp_path / "run", whole)


def test_stopped_between_features_and_their_record(
    kit: Path, photos: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(FileStore, "write", at_call(PHOTOS + 20, interrupt, FileStore.write))
        with pytest.raises(Interrupted):
            run(kit, photos, tmp_path / "run", cache="disk", draws=2)
    resume(tmp_path / "run", engine=FrozenEngine, progress=Silent())
    assert_same_end(tmp_path / "run", whole)


def test_what_a_run_leaves_that_is_killed_at_its_very_end_is_removed(
    kit: Path, photos: Path, tmp_path: Path
) -> None:
    run(kit, photos, tmp_path / "run", cache="disk", draws=2, epochs=1)
    (tmp_path / "run" / CACHE).touch()
    with pytest.raises(PocketuneError, match="is complete after 6 steps: there is nothing to"):
        resume(tmp_path / "run", engine=FrozenEngine, progress=Silent())
    assert not (tmp_path / "run" / CACHE).exists()


def test_with_accumulated_batches(kit: Path, photos: Path, tmp_path: Path) -> None:
    kit = TinyKit(statistic=False, masks=False).write(tmp_path / "tiny").path
    for cache in ("disk", "memory"):
        run(kit, photos, tmp_path / cache, engine=OnnxEngine, cache=cache, draws=1, accumulate=2)
    assert_same_end(tmp_path / "disk", tmp_path / "memory")
    assert len(lines(tmp_path / "disk", "step")) == EPOCHS * PHOTOS // (2 * 4)


def test_on_the_runtime(photos: Path, tmp_path: Path) -> None:
    kit = TinyKit(classes=CLASSES).write(tmp_path / "tiny").path
    run(kit, photos, tmp_path / "whole", engine=OnnxEngine, cache="disk", draws=2)
    stopping = failing("gradients", 9, interrupt, OnnxEngine)
    with pytest.raises(Interrupted):
        run(kit, photos, tmp_path / "run", engine=stopping, cache="disk", draws=2)
    resume(tmp_path / "run", progress=Silent())
    assert_same_end(tmp_path / "run", tmp_path / "whole")


def test_auto_says_what_it_does(kit: Path, photos: Path, tmp_path: Path) -> None:
    long = run(kit, photos, tmp_path / "long", epochs=8)
    assert long.notes == [
        "cache  features of 24 photos in 4 draws take 35 kB of disk; later epochs read them"
    ]
    short = run(kit, photos, tmp_path / "short", epochs=7)
    assert short.notes == ["cache  off: keeping 4 crops of each photo pays from 8 epochs on"]
    settings = json.loads((tmp_path / "long" / RESULT).read_text())["settings"]
    assert (settings["cache"], settings["draws"]) == ("disk", 4)
    settings = json.loads((tmp_path / "short" / RESULT).read_text())["settings"]
    assert (settings["cache"], settings["draws"]) == ("off", None)


def test_photos_that_cannot_be_read_are_listed(kit: Path, tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos")
    for number in range(10):
        damaged = photos / "red" / f"{number}.png"
        damaged.write_bytes(damaged.read_bytes()[:300])
    listed = []
    for cache in ("disk", "off"):
        options = {"engine": FrozenEngine, "epochs": 2, "draws": 1, "head_start": "random"}
        out = tmp_path / cache
        result = train(kit, photos, out, cache=cache, progress=Silent(), **options)
        listed.append(result.skipped)
    assert listed[0] == listed[1]
    assert len(listed[0]) == 10
