"""Operators of ONNX files, one or two at a time."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from torch import nn

from pocketune.accounting import account
from pocketune.compiler import compile
from pocketune.errors import PocketuneError
from pocketune.methods import FullFineTune, adapt
from pocketune.onnx_import import load_onnx
from pocketune.onnx_import.operators.layers import linear

from .files import HEAD, head, written

node = helper.make_node


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(4))
MATRIX = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
POSITIONS = np.random.default_rng(2).standard_normal((1, 24, 8)).astype(np.float32)
RESIZED = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
CASES: dict[str, tuple[list[onnx.NodeProto], dict[str, np.ndarray], torch.Tensor]] = {
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
    "response norm": (
        [node("LRN", ["x"], ["d"], size=3, alpha=0.5, beta=0.6, bias=1.5)],
        {},
        nn.functional.local_response_norm(X, 3, alpha=0.5, beta=0.6, k=1.5),
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
    "bounds of opset 10": (
        [node("Clip", ["x"], ["d"], min=-0.5, max=0.5)],
        {"opset": 10},
        X.clamp(-0.5, 0.5),
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
    "pool without dilations": (
        [node("AveragePool", ["x"], ["d"], kernel_shape=[2, 2], dilations=[1, 1])],
        {"opset": 19},
        nn.functional.avg_pool2d(X, 2, 1),
    ),
    "dropout of inference": (
        [node("Dropout", ["x", "a", "b"], ["d"])],
        {"a": np.float32(0.3), "b": np.array(False)},
        X,
    ),
    "mean of opset 17": (
        [node("ReduceMean", ["x"], ["d"], axes=[2])],
        {"opset": 17},
        X.mean(2, keepdim=True),
    ),
    "sizes along no axis": (
        [node("ReduceL1", ["x"], ["l"], noop_with_empty_axes=1), node("Add", ["l", "x"], ["d"])],
        {},
        X.abs() + X,
    ),
    "einsum": (
        [node("Einsum", ["x", "x"], ["d"], equation="nchw,nchv->ncwv")],
        {},
        torch.einsum("nchw,nchv->ncwv", X, X),
    ),
    "products": (
        [node("MatMul", ["a", "x"], ["l"]), node("MatMul", ["l", "b"], ["d"])],
        {"a": np.eye(8, dtype=np.float32) * 2, "b": np.ones((3, 8, 4), np.float32)},
        2 * X.sum(3, keepdim=True).expand(-1, -1, -1, 4),
    ),
    "resize by a fraction": (
        [node("Resize", ["x", "", "a"], ["d"], **RESIZED)],
        {"a": np.array([1, 1, 1.7, 1.2], np.float32)},
        nn.functional.interpolate(X, scale_factor=(1.7, 1.2), mode="bilinear"),
    ),
    "no bound": ([node("Clip", ["x"], ["d"])], {}, X),
    "slopes": (
        [node("PRelu", ["x", "a"], ["d"])],
        {"a": np.array([0.1, 0.2, 0.3], np.float32).reshape(3, 1, 1)},
        nn.functional.prelu(X, torch.tensor([0.1, 0.2, 0.3])),
    ),
    "layer norm of several axes": (
        [node("LayerNormalization", ["x", "a"], ["d"], axis=1)],
        {"a": np.arange(8, dtype=np.float32)},
        nn.functional.layer_norm(X, (3, 8, 8)) * torch.arange(8),
    ),
    "much padding": (
        [node("MaxPool", ["x"], ["d"], kernel_shape=[3, 3], pads=[2, 2, 2, 2])],
        {},
        nn.functional.max_pool2d(nn.functional.pad(X, (2,) * 4, value=-np.inf), 3, 1),
    ),
    "no axis": ([node("ReduceSum", ["x"], ["d"], noop_with_empty_axes=1)], {}, X),
    "one bound": (
        [node("Clip", ["x", "zero"], ["d"])],
        {},
        X.clamp(min=0),
    ),
    "equal bounds": (
        [node("Clip", ["x", "a", "a"], ["c"]), node("Add", ["x", "c"], ["d"])],
        {"a": np.float32(1)},
        X + 1,
    ),
    "lower bound above the upper": (
        [node("Clip", ["x", "a", "zero"], ["c"]), node("Add", ["x", "c"], ["d"])],
        {"a": np.float32(1)},
        X,
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
    "pools of tokens": (
        [
            node("Reshape", ["x", "a"], ["t"]),
            node("GlobalAveragePool", ["t"], ["p"]),
            node("GlobalMaxPool", ["t"], ["q"]),
            node("Add", ["p", "q"], ["s"]),
            node("Unsqueeze", ["s", "b"], ["d"]),
        ],
        {"a": ints(0, 3, -1), "b": ints(3)},
        (X.mean((2, 3), keepdim=True) + X.amax((2, 3), keepdim=True)),
    ),
    "instance norm": (
        [node("InstanceNormalization", ["x", "a", "b"], ["d"])],
        {"a": np.array([1, 2, 3], np.float32), "b": np.array([0, 1, 0], np.float32)},
        nn.functional.instance_norm(
            X, weight=torch.tensor([1.0, 2, 3]), bias=torch.tensor([0, 1.0, 0])
        ),
    ),
    "transposed convolution": (
        [node("ConvTranspose", ["x", "a", "b"], ["d"], strides=[2, 2], pads=[1, 0, 1, 0])],
        {"a": np.arange(36, dtype=np.float32).reshape(3, 3, 2, 2) / 9, "b": np.float32([1, 2, 3])},
        nn.functional.conv_transpose2d(
            X, torch.arange(36.0).view(3, 3, 2, 2) / 9, torch.tensor([1.0, 2, 3]), 2, (1, 0)
        ),
    ),
    "sum of several": ([node("Sum", ["x", "x", "x"], ["d"])], {}, 3 * X),
    "mean of several": (
        [node("Neg", ["x"], ["n"]), node("Mean", ["x", "x", "n"], ["d"])],
        {},
        X / 3,
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
    "least": ([node("ReduceMin", ["x", "a"], ["d"])], {"a": ints(2)}, X.amin(2, keepdim=True)),
    "sum of sizes": (
        [node("ReduceL1", ["x", "a"], ["d"])],
        {"a": ints(2)},
        X.abs().sum(2, keepdim=True),
    ),
    "whole numbers": (
        [
            node("Floor", ["x"], ["f"]),
            node("Mul", ["x", "a"], ["m"]),
            node("Round", ["m"], ["r"]),
            node("Sub", ["f", "r"], ["d"]),
        ],
        {"a": np.float32(10)},
        X.floor() - (X * 10).round(),
    ),
    "selu": ([node("Selu", ["x"], ["d"])], {}, nn.functional.selu(X)),
    "celu": ([node("Celu", ["x"], ["d"], alpha=2.0)], {}, nn.functional.celu(X, 2)),
    "softsign": ([node("Softsign", ["x"], ["d"])], {}, nn.functional.softsign(X)),
    "log softmax": ([node("LogSoftmax", ["x"], ["d"], axis=1)], {}, X.log_softmax(1)),
    "swish": ([node("Swish", ["x"], ["d"])], {"opset": 24}, nn.functional.silu(X)),
    "sharp swish": (
        [node("Swish", ["x"], ["d"], alpha=2.0)],
        {"opset": 24},
        X * (2 * X).sigmoid(),
    ),
    "norm of a map": (
        [node("ReduceL2", ["x", "a"], ["l"]), node("Div", ["x", "l"], ["d"])],
        {"a": ints(2, 3)},
        X / X.norm(dim=(2, 3), keepdim=True),
    ),
    "positions of tokens behind a layer": (
        [
            node("Reshape", ["x", "t"], ["tokens"]),
            node("MatMul", ["tokens", "a"], ["m"]),
            node("Add", ["m", "p"], ["d"]),
        ],
        {"t": ints(0, 24, 8), "a": MATRIX, "p": POSITIONS},
        X.reshape(2, 24, 8) @ torch.tensor(MATRIX) + torch.tensor(POSITIONS),
    ),
    "as many tokens as outputs": (
        [
            node("Reshape", ["x", "t"], ["tokens"]),
            node("MatMul", ["tokens", "a"], ["m"]),
            node("Add", ["m", "p"], ["d"]),
        ],
        {"t": ints(0, 24, 8), "a": np.tile(MATRIX, 3), "p": POSITIONS[..., :1]},
        X.reshape(2, 24, 8) @ torch.tensor(MATRIX).tile(3) + torch.tensor(POSITIONS[..., :1]),
    ),
    "a number behind a layer": (
        [node("MatMul", ["x", "a"], ["m"]), node("Add", ["m", "p"], ["d"])],
        {"a": MATRIX, "p": np.float32(3)},
        X @ torch.tensor(MATRIX) + 3,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_operators(case: str, tmp_path: Path) -> None:
    nodes, given, expected = CASES[case]
    rows = expected.flatten(1)
    weight = torch.randn(rows.shape[1], 2, generator=torch.Generator().manual_seed(5))
    nodes = [*nodes, node("Flatten", ["d"], ["flat"]), node("MatMul", ["flat", "w"], ["y"])]
    constants = {**HEAD, **given, "w": weight.numpy()}
    opset = int(constants.pop("opset", 18))
    loaded = load_onnx(written(tmp_path / "net.onnx", nodes, constants, opset=opset), size=8)
    torch.testing.assert_close(loaded.eval()(X), rows @ weight, rtol=1e-4, atol=1e-3)


CAUSAL = np.tri(8, dtype=bool)
MASKS = {
    "no mask": None,
    "bias": np.random.default_rng(0).standard_normal((2, 8, 8)).astype(np.float32),
    "causal mask": CAUSAL,
    "mask": ~CAUSAL | np.eye(8, dtype=bool),
}


@pytest.mark.parametrize("tokens", ["by heads", "in a row"])
@pytest.mark.parametrize(
    ("options", "mask"),
    [
        ({}, "no mask"),
        ({"scale": 0.5}, "no mask"),
        ({"is_causal": 1}, "no mask"),
        ({}, "bias"),
        ({"is_causal": 1}, "bias"),
        ({}, "causal mask"),
        ({"is_causal": 1}, "mask"),
    ],
)
def test_attention(tokens: str, options: dict[str, float], mask: str, tmp_path: Path) -> None:
    """Maps (N, 3, 8, 8) are three heads of 8 tokens, or 8 tokens of two heads."""
    constants, heads, given, made = dict(HEAD), {}, "x", "d"
    before, after = [], []
    if tokens == "in a row":
        constants |= {"t": ints(0, 8, 24), "m": ints(0, 3, 8, 8)}
        heads, given, made = {"q_num_heads": 2, "kv_num_heads": 2}, "tokens", "mixed"
        before = [node("Reshape", ["x", "t"], ["tokens"])]
        after = [node("Reshape", ["mixed", "m"], ["d"])]
    if (values := MASKS[mask]) is not None:  # one for all three heads, or one for each of two
        constants["mask"] = values[:1] if tokens == "by heads" and values.ndim == 3 else values
    reads = [given, "keys", given, *(["mask"] if "mask" in constants else [])]
    nodes = [
        *before,
        node("Neg", [given], ["keys"]),
        node("Attention", reads, [made], **options, **heads),
        *after,
        *head("d"),
    ]
    file = written(tmp_path / "net.onnx", nodes, constants, opset=23)
    loaded = load_onnx(file, size=8, classes=3)  # which compares it with the file
    compile(adapt(loaded, FullFineTune()), tmp_path / "kit", batch=2, size=8)


def test_group_norm(tmp_path: Path) -> None:
    """Opset 18 has one too, which onnx itself refuses as deprecated."""
    scale, bias = np.arange(6, dtype=np.float32).reshape(2, 3)
    nodes = [node("GroupNormalization", ["x", "a", "b"], ["d"], num_groups=1), *head("d")]
    constants = HEAD | {"a": scale, "b": bias}
    loaded = load_onnx(written(tmp_path / "net.onnx", nodes, constants, opset=21), size=8)
    maps = nn.functional.group_norm(X, 1, torch.tensor(scale), torch.tensor(bias))
    expected = maps.mean((2, 3)) @ torch.ones(3, 2)
    torch.testing.assert_close(loaded.eval()(X), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(PocketuneError, match="GroupNormalization is deprecated"):
        load_onnx(written(tmp_path / "net.onnx", nodes, constants, opset=18), size=8)


def test_a_gradient_passes_through_a_response_norm(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "k"], ["c"]), node("LRN", ["c"], ["d"], size=3, alpha=0.5)]
    constants = {"k": np.random.default_rng(0).standard_normal((3, 3, 1, 1), np.float32)}
    file = written(tmp_path / "net.onnx", [*nodes, *head("d")], {**HEAD, **constants})
    adapted = adapt(load_onnx(file, size=8), FullFineTune())
    compile(adapted, tmp_path / "kit", batch=2, size=8)  # which compares it with the network


def test_a_gradient_passes_through_selected_places(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "k"], ["c"]), node("Gather", ["c", "a"], ["d"], axis=1)]
    constants = {"k": np.ones((3, 3, 1, 1), np.float32), "a": ints(2, 0, 2)}
    file = written(tmp_path / "net.onnx", [*nodes, *head("d")], {**HEAD, **constants})
    adapted = adapt(load_onnx(file, size=8), FullFineTune())
    assert account(adapted, batch=2, size=8).flops.backward > 0
    compile(adapted, tmp_path / "kit", batch=2, size=8)  # which compares it with the network


def test_classes_instead_of_scores_are_refused_with_the_remedy(tmp_path: Path) -> None:
    *nodes, last = head("x")
    last.output[0] = "scores"
    nodes += [last, node("ArgMax", ["scores"], ["y"], axis=1)]
    with pytest.raises(PocketuneError, match=r"no float32 class scores .* such as an ArgMax"):
        load_onnx(written(tmp_path / "net.onnx", nodes, HEAD), size=8)


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


RESIZE = "Resize .* has options that"


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


def test_a_transposed_weight_can_be_saved() -> None:
    """safetensors takes contiguous tensors only."""
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = linear(weight.T, None)
    assert made.weight.is_contiguous()
