"""Photos that change, vanish or may only be read, and a system of which little is left."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pocketune.device.engine.base import Gradients
from pocketune.device.train.checkpoint import Checkpoint
from pocketune.device.train.progress import Silent
from pocketune.device.train.run import TrainResult, resume, train
from pocketune.errors import PocketuneError
from pocketune.kit.names import LAST

from ..pixel_kit import PixelEngine, write_pixel_kit, write_scenes
from ..softmax_engine import SoftmaxEngine, write_photos

PER_EPOCH = 6
BARE = """
import builtins, io, os, sys
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
whole = io.open
def without(file, *args, **options):
    if str(file).startswith(("/proc", "/sys")):
        raise FileNotFoundError(2, "No such file or directory", str(file))
    return whole(file, *args, **options)
io.open = builtins.open = without

from pocketune.device.train import train
from pocketune.device.train.progress import Silent
result = train("last", sys.argv[1], sys.argv[2], steps=2, head_start="random", progress=Silent())
print(result.steps, result.peak_memory > 0)
"""


def trained(kit: Path, folder: Path, change: Callable[[], None], epochs: int = 3) -> TrainResult:
    """A run whose photos are changed during the last step of its first epoch."""

    class Engine(SoftmaxEngine):
        made = 0

        def gradients(self, *batch: Any) -> Gradients:
            self.made += 1
            if self.made == PER_EPOCH:
                change()
            return super().gradients(*batch)

    return train(
        kit,
        folder / "photos",
        folder / "run",
        engine=Engine,
        epochs=epochs,
        lr=0.05,
        head_start="random",
        progress=Silent(),
    )


def test_photos_that_vanish_or_break_between_epochs_are_replaced(kit, tmp_path) -> None:
    photos = write_photos(tmp_path / "photos")
    gone, half, other = sorted((photos / "red").iterdir())[:3]

    def change() -> None:
        gone.unlink()
        half.write_bytes(half.read_bytes()[:60])
        Image.new("RGB", (70, 90)).save(other)  # of another size, which is none of our business

    result = trained(kit, tmp_path, change)
    assert result.steps == 3 * PER_EPOCH
    skipped = dict(result.skipped)
    assert skipped.keys() == {f"red/{gone.name}", f"red/{half.name}"}
    assert skipped[f"red/{gone.name}"] == "no such file"


def test_photos_that_all_vanish_end_the_run_in_one_sentence(kit, tmp_path) -> None:
    photos = write_photos(tmp_path / "photos")
    kept = tmp_path / "kept"
    shutil.copytree(photos, kept)
    with pytest.raises(PocketuneError, match=r"none of the 24 training images .* no such file"):
        trained(kit, tmp_path, lambda: [each.unlink() for each in photos.glob("*/*")] and None)
    shutil.rmtree(photos)
    kept.rename(photos)
    result = resume(tmp_path / "run", engine=SoftmaxEngine, progress=Silent())
    assert result.steps == 3 * PER_EPOCH


def cut_off(photos: Path) -> None:
    """Leave of each PNG what its header is read from."""
    for file in photos.rglob("*.png"):
        content = file.read_bytes()
        file.write_bytes(content[: content.index(b"IDAT") + 12])


@pytest.mark.parametrize(
    "options",
    [{"epochs": 0}, {"seconds": 1e6, "head_start": "random"}],
    ids=["without steps", "timed"],
)
def test_photos_that_are_all_damaged_are_refused(kit, tmp_path, options) -> None:
    photos = write_photos(tmp_path / "photos")
    cut_off(photos)
    with pytest.raises(PocketuneError, match=r"none of the 24 training images .* cut off"):
        train(kit, photos, tmp_path / "run", engine=SoftmaxEngine, progress=Silent(), **options)
    assert not (tmp_path / "run").exists()


def test_damaged_photos_with_masks_are_refused(tmp_path) -> None:
    write_scenes(tmp_path / "photos", 5)
    cut_off(tmp_path / "photos" / "images")
    kit = write_pixel_kit(tmp_path / "kit")
    with pytest.raises(PocketuneError, match=r"none of the . training images .* cut off"):
        train(
            kit,
            tmp_path / "photos",
            tmp_path / "run",
            engine=PixelEngine,
            progress=Silent(),
            epochs=0,
        )


def test_photos_are_only_read(kit, tmp_path) -> None:
    photos = write_photos(tmp_path / "photos")
    files = sorted(photos.rglob("*"))
    for file in files:
        file.chmod(0o555 if file.is_dir() else 0o444)
    photos.chmod(0o555)
    before = [(file, file.stat().st_mtime_ns) for file in files]
    try:
        trained(kit, tmp_path, lambda: None, epochs=1)
        assert sorted(photos.rglob("*")) == files
        assert [(file, file.stat().st_mtime_ns) for file in files] == before
    finally:
        for file in (photos, *files):
            file.chmod(0o755)
    values = Checkpoint.load(tmp_path / "run" / LAST).parameters.values()
    assert all(np.isfinite(value).all() for value in values)


@pytest.mark.skipif(os.name == "nt", reason="Windows never has it")
def test_one_core_and_no_proc(tmp_path) -> None:
    write_photos(tmp_path / "photos")
    command = [sys.executable, "-c", BARE, str(tmp_path / "photos"), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split()[-2:] == ["2", "True"], done.stderr
