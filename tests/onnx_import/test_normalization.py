"""Files that begin with the normalization of their images."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from pocketune.networks import Normalization
from pocketune.networks.about import about
from pocketune.onnx_import import load_onnx

from .files import HEAD, head, written

MEANS, DEVIATIONS = (
    np.array(values, np.float32).reshape(3, 1, 1)
    for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
)
KERNEL = np.random.default_rng(0).standard_normal((3, 3, 1, 1)).astype(np.float32)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], Normalization.IMAGENET),
        ([("Sub", MEANS), ("Div", DEVIATIONS)], Normalization.UNIT),
        ([("Mul", 2), ("Sub", 1)], Normalization.UNIT),
        ([("Div", 255), ("Sub", MEANS), ("Div", DEVIATIONS)], Normalization.PIXELS),
        ([("Mul", 1 / 127.5), ("Add", -1)], Normalization.PIXELS),
        ([("Mul", 1 / 255)], Normalization.PIXELS),
        ([("Sub", 255 * MEANS)], Normalization.PIXELS),
        ([("Mul", 1.1 * DEVIATIONS / DEVIATIONS), ("Add", 0.1)], Normalization.IMAGENET),
    ],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_images_are_given_as_a_file_that_normalizes_takes_them(
    steps: list[tuple[str, np.ndarray]],
    expected: Normalization,
    channels_last: bool,
    tmp_path: Path,
) -> None:
    nodes, constants, given = [], {**HEAD, "kernel": KERNEL}, "x"
    for kind, value in steps:
        constant = np.asarray(value, np.float32)
        moved = np.moveaxis(constant, 0, -1) if channels_last and constant.ndim else constant
        name = f"normalized{len(nodes)}"
        constants[f"{name}/with"] = moved
        nodes.append(helper.make_node(kind, [given, f"{name}/with"], [name]))
        given = name
    if channels_last:
        nodes.append(helper.make_node("Transpose", [given], ["first"], perm=[0, 3, 1, 2]))
        given = "first"
    nodes += [helper.make_node("Conv", [given, "kernel"], ["maps"]), *head("maps")]
    shape = ("n", 8, 8, 3) if channels_last else ("n", 3, 8, 8)
    network = load_onnx(written(tmp_path / "net.onnx", nodes, constants, shape=shape), size=8)
    assert about(network).normalization == expected


def test_colors_may_be_reversed_before_they_are_normalized(tmp_path: Path) -> None:
    """As by Keras for the weights of Caffe."""
    nodes = [
        helper.make_node("Slice", ["x", "start", "end", "axis", "step"], ["reversed"]),
        helper.make_node("Sub", ["reversed", "means"], ["normalized"]),
        helper.make_node("Conv", ["normalized", "kernel"], ["maps"]),
        *head("maps"),
    ]
    places = {"start": -1, "end": -9, "axis": 1, "step": -1}
    constants = {name: np.array([place]) for name, place in places.items()}
    constants |= {**HEAD, "kernel": KERNEL, "means": 255 * MEANS[::-1]}
    network = load_onnx(written(tmp_path / "net.onnx", nodes, constants), size=8)
    assert about(network).normalization == Normalization.PIXELS
