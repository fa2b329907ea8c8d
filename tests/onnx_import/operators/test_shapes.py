"""Operators that move elements, and resizing."""

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper
from torch import nn

from pocketune.accounting import account
from pocketune.compiler import compile
from pocketune.methods import FullFineTune, adapt
from pocketune.onnx_import import load_onnx

from ..files import HEAD, head, written
from .cases import Case, X, check, ints

node = helper.make_node
RESIZED = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}


def assigned() -> torch.Tensor:
    x = X.clone()
    x[:, :, 1:6:2, 6:] = X[:, :, :3, :2]
    return x


CASES: dict[str, Case] = {
    "slice": (
        [node("Slice", ["x", "a", "b", "axes", "steps"], ["d"])],
        {"a": ints(1, -4), "b": ints(7, 99), "axes": ints(2, -1), "steps": ints(2, 1)},
        X[:, :, 1:7:2, -4:],
    ),
    "slice backward": (
        [node("Slice", ["x", "a", "b", "axes", "steps"], ["d"])],
        {"a": ints(-1), "b": ints(-(2**63)), "axes": ints(1), "steps": ints(-1)},
        X.flip(1),
    ),
    "slice backward by steps": (
        [node("Slice", ["x", "a", "b", "axes", "steps"], ["d"])],
        {"a": ints(6), "b": ints(1), "axes": ints(-1), "steps": ints(-2)},
        X[..., [6, 4, 2]],
    ),
    "gather": ([node("Gather", ["x", "a"], ["d"], axis=2)], {"a": ints(3, -1)}, X[:, :, [3, 7]]),
    "gather of windows": (
        [
            node("Gather", ["x", "a"], ["g"], axis=2),
            node("ReduceMax", ["g", "b"], ["d"], keepdims=0),
        ],
        {"a": np.array([[0, 1, 2], [3, 4, -1]]), "b": ints(3)},
        X[:, :, [[0, 1, 2], [3, 4, 7]]].amax(3),
    ),
    "windows as a map": (
        [
            node("Reshape", ["x", "s"], ["l"]),
            node("Col2Im", ["l", "a", "b"], ["d"], strides=[2, 1], pads=[1, 0, 1, 0]),
        ],
        {"s": ints(0, 12, 16), "a": ints(6, 5), "b": ints(2, 2)},
        nn.functional.fold(X.reshape(2, 12, 16), (6, 5), 2, padding=(1, 0), stride=(2, 1)),
    ),
    "a part of two axes is written": (
        [
            node("Transpose", ["x"], ["t"], perm=[2, 3, 0, 1]),
            node("Slice", ["t", "b", "c"], ["s"]),
            node("ScatterND", ["t", "a", "s"], ["g"]),
            node("Transpose", ["g"], ["d"], perm=[2, 3, 0, 1]),
        ],
        {
            "a": np.stack(np.meshgrid([1, 3, 5], [6, 7], indexing="ij"), -1),
            "b": ints(0, 0),
            "c": ints(3, 2),
        },
        assigned(),
    ),
    "places along several axes": (
        [
            node("Transpose", ["x"], ["t"], perm=[2, 1, 0, 3]),
            node("GatherND", ["t", "a"], ["g"]),
            node("Transpose", ["g"], ["d"], perm=[2, 0, 1, 3]),
        ],
        {"a": np.array([[[0, 2], [-1, 0]], [[3, 1], [3, -2]]])},
        X[:, [[2, 0], [1, 1]], [[0, 7], [3, 3]]],
    ),
    "split": (
        [node("Split", ["x", "a"], ["p", "q"], axis=3), node("Concat", ["q", "p"], ["d"], axis=3)],
        {"a": ints(3, 5)},
        torch.cat([X[..., 3:], X[..., :3]], 3),
    ),
    "resize": (
        [node("Resize", ["x", "", "a"], ["d"], **RESIZED)],
        {"a": np.array([1, 1, 1.5, 1.5], np.float32)},
        nn.functional.interpolate(X, size=(12, 12), mode="bilinear"),
    ),
    "upsampling": (
        [
            node(
                "Resize",
                ["x", "", "a"],
                ["d"],
                mode="nearest",
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
            )
        ],
        {"a": np.array([1, 1, 2, 2], np.float32)},
        nn.functional.interpolate(X, scale_factor=2),
    ),
    "upsampling by halves of pixels": (
        [node("Resize", ["x", "", "a"], ["d"], mode="nearest")],
        {"a": np.array([1, 1, 2, 2], np.float32)},
        nn.functional.interpolate(X, scale_factor=2),
    ),
    "resize of named axes": (
        [node("Resize", ["x", "", "a"], ["d"], axes=[3, -2], **RESIZED)],
        {"a": np.array([1.7, 1.2], np.float32)},
        nn.functional.interpolate(X, scale_factor=(1.2, 1.7), mode="bilinear"),
    ),
    "resize of one axis": (
        [node("Resize", ["x", "", "a"], ["d"], axes=[3], **RESIZED)],
        {"a": np.array([1.7], np.float32)},
        nn.functional.interpolate(X, scale_factor=(1.0, 1.7), mode="bilinear"),
    ),
    "resize to the size of named axes": (
        [node("Resize", ["x", "", "", "a"], ["d"], axes=[3, 2], **RESIZED)],
        {"a": ints(9, 13)},
        nn.functional.interpolate(X, size=(13, 9), mode="bilinear"),
    ),
    "upsampling of opset 10": (
        [node("Resize", ["x", "a"], ["d"], mode="nearest")],
        {"a": np.array([1, 1, 2, 2], np.float32), "opset": 10},
        nn.functional.interpolate(X, scale_factor=2),
    ),
    "upsampling without antialias": (
        [node("Resize", ["x", "", "a"], ["d"], antialias=1, **RESIZED)],
        {"a": np.array([1, 1, 2, 2], np.float32)},
        nn.functional.interpolate(X, scale_factor=2, mode="bilinear"),
    ),
    "padding": (
        [node("Pad", ["x", "a", "b"], ["d"])],
        {"a": ints(0, 0, 1, 2, 0, 0, -1, 3), "b": np.float32(2)},
        nn.functional.pad(X, (2, 3, 1, -1), value=2),
    ),
    "padding of named axes": (
        [node("Pad", ["x", "a", "", "b"], ["d"])],
        {"a": ints(1, 2, 3, 4), "b": ints(3, -2)},
        nn.functional.pad(X, (1, 3, 2, 4)),
    ),
    "padding of one axis": (
        [node("Pad", ["x", "a", "", "b"], ["d"])],
        {"a": ints(1, 2), "b": ints(2)},
        nn.functional.pad(X, (0, 0, 1, 2)),
    ),
    "padding of opset 10": (
        [node("Pad", ["x"], ["d"], pads=[0, 0, 1, 0, 0, 0, 0, 1], value=2.0)],
        {"opset": 10},
        nn.functional.pad(X, (0, 1, 1, 0), value=2),
    ),
    "equal parts": (
        [
            node("Split", ["x"], ["p", "q", "r"], axis=-1, num_outputs=3),
            node("Concat", ["q", "p", "r"], ["d"], axis=3),
        ],
        {},
        torch.cat([X[..., 3:6], X[..., :3], X[..., 6:]], 3),
    ),
    "sides of one": (
        [node("Unsqueeze", ["x", "a"], ["u"]), node("Squeeze", ["u", "a"], ["d"])],
        {"a": ints(-2)},
        X,
    ),
    "sides of one in opset 12": (
        [node("Unsqueeze", ["x"], ["u"], axes=[2]), node("Squeeze", ["u"], ["d"], axes=[2])],
        {"opset": 12},
        X,
    ),
    "reshape of whole numbers": (
        [node("Reshape", ["x", "a"], ["d"], allowzero=1)],
        {"a": ints(-1, 3, 4, 16)},
        X.reshape(2, 3, 4, 16),
    ),
    "resize by a fraction": (
        [node("Resize", ["x", "", "a"], ["d"], **RESIZED)],
        {"a": np.array([1, 1, 1.7, 1.2], np.float32)},
        nn.functional.interpolate(X, scale_factor=(1.7, 1.2), mode="bilinear"),
    ),
    "batch behind": (
        [
            node("Transpose", ["x"], ["t"], perm=[1, 0, 2, 3]),
            node("Gather", ["t", "a"], ["g"], axis=0),
            node("Unsqueeze", ["g", "b"], ["u"]),
            node("Concat", ["u", "u", "u"], ["d"], axis=1),
        ],
        {"a": np.array(2), "b": ints(1)},
        X[:, 2:].expand(-1, 3, -1, -1),
    ),
    "tile": (
        [node("ReduceMean", ["x", "b"], ["m"]), node("Tile", ["m", "a"], ["d"])],
        {"a": ints(1, 1, 8, 1), "b": ints(2)},
        X.mean(2, keepdim=True).expand(-1, -1, 8, -1),
    ),
    "space to depth": (
        [
            node("SpaceToDepth", ["x"], ["s"], blocksize=2),
            node("DepthToSpace", ["s"], ["b"], blocksize=2, mode="CRD"),
            node("Mul", ["b", "a"], ["d"]),
        ],
        {"a": np.arange(8, dtype=np.float32)},
        nn.functional.pixel_shuffle(
            X.reshape(2, 3, 4, 2, 4, 2).permute(0, 3, 5, 1, 2, 4).reshape(2, 12, 4, 4), 2
        )
        * torch.arange(8),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_shapes(case: str, tmp_path: Path) -> None:
    check(CASES[case], tmp_path)


def test_a_gradient_passes_through_selected_places(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "k"], ["c"]), node("Gather", ["c", "a"], ["d"], axis=1)]
    constants = {"k": np.ones((3, 3, 1, 1), np.float32), "a": ints(2, 0, 2)}
    file = written(tmp_path / "net.onnx", [*nodes, *head("d")], {**HEAD, **constants})
    adapted = adapt(load_onnx(file, size=8), FullFineTune())
    assert account(adapted, batch=2, size=8).flops.backward > 0
    compile(adapted, tmp_path / "kit", batch=2, size=8)  # which compares it with the network
