"""Runs on ONNX Runtime have the properties of those on the numpy engine."""

from pathlib import Path

import numpy as np
import pytest

from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.train.checkpoint import TrainedNetwork
from pocketune.device.train.interrupt import Interrupted
from pocketune.device.train.progress import Silent
from pocketune.device.train.run import resume, train
from pocketune.device.train.settings import TrainSettings
from pocketune.kit.names import BEST

from ..failing import failing, interrupt
from ..runs import assert_same_end, lines
from ..softmax_engine import CLASSES, write_photos
from ..tiny_kit import TinyKit


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_photos(tmp_path / "photos")


@pytest.mark.parametrize("frozen_part", [True, False])
def test_learns(frozen_part: bool, photos: Path, tmp_path: Path) -> None:
    kit = TinyKit(frozen_part=frozen_part).write(tmp_path / "kit")
    settings = TrainSettings(epochs=8, lr=0.05, head_start="random")
    result = train(kit, photos, tmp_path / "run", settings, progress=Silent())
    assert result.classes == CLASSES  # not the kit's: a new classifier
    losses = [line["loss"] for line in lines(result.run, "epoch")]
    assert losses[-1] < losses[0]
    assert result.best is not None
    trained = TrainedNetwork.load(result.run / BEST)
    start = kit.state()
    assert not np.array_equal(trained.state["norm.running_mean"], start["norm.running_mean"])


def test_stopped_and_resumed(photos: Path, tmp_path: Path) -> None:
    kit = TinyKit(classes=tuple(reversed(CLASSES))).write(tmp_path / "kit")
    stopping = failing("gradients", 5, interrupt, OnnxEngine)
    whole = train(kit, photos, out=tmp_path / "whole", epochs=2, progress=Silent())
    with pytest.raises(Interrupted):
        train(kit, photos, out=tmp_path / "run", epochs=2, engine=stopping, progress=Silent())
    resume(tmp_path / "run", progress=Silent())
    assert whole.classes == tuple(reversed(CLASSES))
    assert_same_end(tmp_path / "run", whole.run)
