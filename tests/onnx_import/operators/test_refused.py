"""What is refused: operators across the images of a batch, and options without a module."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from pocketune.errors import PocketuneError
from pocketune.onnx_import import load_onnx

from ..files import HEAD, head, written
from .cases import ints

node = helper.make_node
RESIZE = "Resize .* has options that"
RESIZED = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}


@pytest.mark.parametrize(
    ("nodes", "constants", "said"),
    [
        (
            [node("ReduceMean", ["x", "a"], ["m"]), node("Sub", ["x", "m"], ["d"])],
            {"a": ints(0)},
            "ReduceMean .* along the images",
        ),
        (
            [node("Pad", ["x", "p"], ["q"]), node("Slice", ["q", "a", "b", "c"], ["d"])],
            {"p": ints(1, *[0] * 7), "a": ints(1), "b": ints(99), "c": ints(0)},
            "Pad .* along the images",
        ),
        (
            [node("Gather", ["x", "a"], ["g"], axis=0), node("Sub", ["x", "g"], ["d"])],
            {"a": ints(0)},
            "Gather .* along the images",
        ),
        (
            [node("Neg", ["x"], ["g"]), node("ScatterND", ["x", "a", "g"], ["d"])],
            {"a": ints(1, 0).reshape(2, 1)},
            "ScatterND .* not a part",
        ),
        (
            [node("Attention", ["x", "x", "x"], ["d"], softcap=2.0)],
            {"opset": 23},
            r"Attention .*\(softcap",
        ),
        (
            [node("Attention", ["x", "x", "x", "", "a", "a"], ["d"])],
            {"a": np.ones((2, 3, 8, 8), np.float32), "opset": 23},
            "Attention .* past_key",
        ),
        (
            [node("Cast", ["x"], ["h"], to=10), node("Cast", ["h"], ["d"], to=1)],
            {},
            "Cast .* makes float16; export the network in float32",
        ),
        (
            [node("TopK", ["x", "a"], ["d", "i"]), node("Cast", ["i"], ["f"], to=1)],
            {"a": ints(8)},
            "TopK",
        ),
    ],
)
def test_what_no_network_here_computes_is_refused(
    nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], said: str, tmp_path: Path
) -> None:
    constants = {**HEAD, **constants}
    opset = int(constants.pop("opset", 18))
    file = written(tmp_path / "net.onnx", [*nodes, *head("d")], constants, opset=opset)
    with pytest.raises(PocketuneError, match=said):
        load_onnx(file, size=8)


@pytest.mark.parametrize(
    ("made", "constants", "said"),
    [
        (
            node("Resize", ["x", "", "a"], ["d"], antialias=1, **RESIZED),
            {"a": np.float32([1, 1, 0.5, 0.5])},
            RESIZE,
        ),
        (
            node("Resize", ["x", "", "a"], ["d"], mode="nearest"),
            {"a": np.float32([1, 1, 1.7, 1.7])},
            RESIZE,
        ),
        (
            node("Resize", ["x", "", "a"], ["d"], mode="cubic", cubic_coeff_a=-0.5),
            {"a": np.float32([1, 1, 0.5, 0.5])},
            RESIZE,
        ),
        (
            node("Upsample", ["x", "a"], ["d"], mode="linear"),
            {"a": np.float32([1, 1, 2, 2]), "opset": 9},
            "Upsample .* has options that",
        ),
        (
            node("AveragePool", ["x"], ["d"], kernel_shape=[2, 2], dilations=[2, 2]),
            {"opset": 19},
            "AveragePool .* has dilations",
        ),
        (
            node("Dropout", ["x", "a", "b"], ["d"]),
            {"a": np.float32(0.3), "b": np.array(True)},
            "Dropout .* is one of training",
        ),
    ],
)
def test_an_option_that_changes_the_result_is_refused_by_name(
    made: onnx.NodeProto, constants: dict[str, np.ndarray], said: str, tmp_path: Path
) -> None:
    constants = {**HEAD, **constants}
    opset = int(constants.pop("opset", 18))
    nodes = [made, *head("d")[:-1], node("MatMul", ["flat", "w"], ["y"])]
    with pytest.raises(PocketuneError, match=said):
        load_onnx(written(tmp_path / "net.onnx", nodes, constants, opset=opset), size=8)
