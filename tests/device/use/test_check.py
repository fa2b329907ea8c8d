"""A kit is checked whole, with a step and a prediction."""

import subprocess
import sys
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
    assert list(parts) == ["manifest", *names, "prediction", "training step", "memory"]
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


def check_expanding(folder: Path, name: str, count: int) -> str:
    """What checking a kit in a process of its own says, with so many numbers in one graph."""
    files = TinyKit().files()
    model = onnx.load_from_string(files[name])
    (last,) = (node for node in model.graph.node if model.graph.output[0].name in node.output)
    last.output[0] = "small"
    constants = {"shape": np.array([count // 1000, 1000]), "nothing": np.zeros((), np.float32)}
    model.graph.initializer.extend(
        numpy_helper.from_array(each, key) for key, each in constants.items()
    )
    model.graph.node.extend(
        [
            onnx.helper.make_node("ReduceSum", ["small"], ["added"], keepdims=0),
            onnx.helper.make_node("Expand", ["added", "shape"], ["large"]),
            onnx.helper.make_node("ReduceSum", ["large"], ["sum"], keepdims=0),
            onnx.helper.make_node("Mul", ["sum", "nothing"], ["zero"]),
            onnx.helper.make_node("Add", ["small", "zero"], [model.graph.output[0].name]),
        ]
    )
    files[name] = model.SerializeToString()
    kit = write_kit(folder / "kit", TinyKit().manifest(), files)
    done = subprocess.run(
        [sys.executable, "-m", "pocketune", "kit", "check", str(kit.path)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr or done.stdout


def test_graphs_that_take_more_memory_than_their_manifest_says(tmp_path: Path) -> None:
    assert check_expanding(tmp_path / "a", "predict.onnx", 1000).endswith("can be used\n")
    refused = check_expanding(tmp_path / "b", "step.onnx", 1 << 28)
    assert "step.onnx" in refused
    assert "cannot be computed: it takes far more memory than its manifest says" in refused
    refused = check_expanding(tmp_path / "c", "predict.onnx", 50_000_000)
    assert " MB of memory for a step, and its manifest says " in refused
    assert len(refused.splitlines()) == 1
