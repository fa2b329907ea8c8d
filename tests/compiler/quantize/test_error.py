"""The error of a quantized frozen part."""

import numpy as np
import onnx
import pytest

from pocketune.compiler import Calibration
from pocketune.compiler.quantize import error
from pocketune.compiler.quantize.error import Judge

IMAGES, CLASSES, CHANNELS, SIDE = 40, 4, 6, 5


@pytest.mark.parametrize(
    "layout",
    ["N C", "N C H W", "N H W C", "N T C"],
)
def test_classes_are_told_by_their_channels(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(IMAGES) % CLASSES)
    maps = rng.normal(size=(IMAGES, CHANNELS, SIDE, SIDE)).astype(np.float32)
    maps += 2 * np.eye(CLASSES, CHANNELS)[labels][:, :, None, None]
    features = {
        "N C": maps.mean((2, 3)),
        "N C H W": maps,
        "N H W C": maps.transpose(0, 2, 3, 1),
        "N T C": maps.reshape(IMAGES, CHANNELS, -1).transpose(0, 2, 1),
    }[layout]
    monkeypatch.setattr(error, "run_features", lambda *_: features)
    images = np.zeros((IMAGES, 1, 1, 3), np.uint8)
    judge = Judge(onnx.ModelProto(), Calibration(images, labels))
    assert judge.judge(onnx.ModelProto()).accuracy == 1.0
