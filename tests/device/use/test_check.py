"""A kit is checked whole, with a step and a prediction."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import safetensors.numpy
from onnx import numpy_helper

from pocketune.device.use.check import check_kit
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import KitError
from pocketune.kit.writer import write_kit

from ..tiny_kit import TinyKit


def test_a_good_kit(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "kit.zip")
    parts = dict(check_kit(kit.path))
    names = ["features.onnx", "step.onnx", "predict.onnx", "parameters.safetensors"]
    assert list(parts) == ["manifest", *names, "prediction", "training step"]
    assert parts["parameters.safetensors"].startswith("28 values")
    assert "loss of" in parts["training step"]


def test_values_that_are_not_finite(tmp_path: Path) -> None:
    state = {**TinyKit().state(), "scale": np.array(np.inf, np.float32)}
    files = {**TinyKit().files(), "parameters.safetensors": safetensors.numpy.save(state)}
    kit = write_kit(tmp_path / "kit", TinyKit().manifest(), files)
    with pytest.raises(KitError, match="holds a value in scale that is not finite"):
        kit.state()


@pytest.mark.parametrize(
    ("name", "constant", "expected"),
    [
        ("predict.onnx", "one", "predicts values that are not finite"),
        ("step.onnx", "off_on", "gives fc.weight a gradient that is not finite"),
    ],
)
def test_steps_that_give_no_numbers(
    tmp_path: Path, name: str, constant: str, expected: str
) -> None:
    files = TinyKit().files()
    model = onnx.load_from_string(files[name])
    tensor = next(each for each in model.graph.initializer if each.name == constant)
    broken = np.full_like(numpy_helper.to_array(tensor), np.nan)
    tensor.CopyFrom(numpy_helper.from_array(broken, constant))
    files[name] = model.SerializeToString()
    kit = write_kit(tmp_path / "kit", TinyKit().manifest(), files)
    assert Kit.open(kit.path).manifest == kit.manifest
    with pytest.raises(KitError, match=expected):
        list(check_kit(kit.path))
