"""Files whose activations are rounded to 8 bits."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn

from pocketune.networks import anatomy
from pocketune.onnx_import import load_onnx
from pocketune.weights import create_network

from .files import CLASSES, SIZE, exported, folded, written

node = helper.make_node


def rounded(given: str, scale: float, zero: int | None, kind: type = np.uint8) -> tuple:
    """Nodes that round a tensor, the name of the result, and their constants."""
    names = [f"{given}/scale", *([] if zero is None else [f"{given}/zero"])]
    constants = dict(zip(names, (np.float32(scale), kind(zero or 0)), strict=False))
    nodes = [
        node("QuantizeLinear", [given, *names], [f"{given}/q"]),
        node("DequantizeLinear", [f"{given}/q", *names], [f"{given}/d"]),
    ]
    return nodes, f"{given}/d", constants


@pytest.mark.parametrize(
    ("scale", "zero", "kind", "activation"),
    [
        (0.02, 128, np.uint8, nn.Identity()),
        (0.02, 0, np.int8, nn.Identity()),
        (0.02, 0, np.uint8, nn.ReLU()),
        (0.02, None, np.uint8, nn.ReLU()),
        (0.02, -128, np.int8, nn.ReLU()),
        (6 / 255, 0, np.uint8, nn.ReLU6()),
    ],
    ids=str,
)
def test_an_activation_that_the_codes_stand_for_comes_back(
    scale: float, zero: int | None, kind: type, activation: nn.Module, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    kernel = 4 * rng.standard_normal((4, 3, 1, 1)).astype(np.float32)
    matrix = rng.standard_normal((4, 5)).astype(np.float32)
    first, images, constants = rounded("x", 0.01, 128)
    second, maps, more = rounded("c", scale, zero, kind)
    third, scores, most = rounded("s", 0.1, 128)
    nodes = [
        *first,
        node("Conv", [images, "w"], ["c"]),
        *second,
        node("GlobalAveragePool", [maps], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "m"], ["s"]),
        *third,
    ]
    constants |= {**more, **most, "w": kernel, "m": matrix}
    file = written(tmp_path / "net.onnx", nodes, constants, outputs=(scores,))
    loaded = load_onnx(file, size=8).eval()
    x = torch.randn(3, 3, 8, 8)
    expected = activation(nn.functional.conv2d(x, torch.tensor(kernel))).mean((2, 3))
    torch.testing.assert_close(loaded(x), expected @ torch.tensor(matrix), rtol=1e-4, atol=1e-4)
    found = [type(m) for m in loaded.modules() if isinstance(m, (nn.ReLU, nn.ReLU6))]
    assert found == ([] if isinstance(activation, nn.Identity) else [type(activation)])


def quantized(path: Path, out: Path) -> Path:
    """The file as tools quantize it: without each ReLU6, whose range the codes have."""
    model = onnx.load(path)
    graph, nodes, renamed = model.graph, [], {}
    clipped = {each.input[0]: each for each in graph.node if each.op_type == "Clip"}
    for each in graph.node:
        each.input[:] = [renamed.get(name, name) for name in each.input]
        if each.op_type == "Clip":
            continue
        nodes.append(each)
        if each.op_type in ("Conv", "Add"):
            (result,) = each.output
            clip = clipped.get(result)
            added, name, constants = rounded(
                result, *((0.05, 128) if clip is None else (6 / 255, 0))
            )
            nodes += added
            renamed[result if clip is None else clip.output[0]] = name
            for key, value in constants.items():
                graph.initializer.append(numpy_helper.from_array(np.array(value), key))
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.save(model, out)
    return out


def test_a_quantized_network_has_the_blocks_of_the_original(tmp_path: Path) -> None:
    torch.manual_seed(0)
    original = create_network("mobilenet_v2", width=0.1, classes=CLASSES).eval()
    plain = folded(exported(original, tmp_path / "net.onnx"), tmp_path / "folded.onnx")
    file = quantized(plain, tmp_path / "int8.onnx")
    kinds = [each.op_type for each in onnx.load(file).graph.node]
    assert kinds.count("QuantizeLinear") > 50 and "Clip" not in kinds
    loaded = load_onnx(file, size=SIZE).eval()
    blocks = [(block.kind, block.residual) for block in anatomy(loaded).blocks]
    assert blocks == [(block.kind, block.residual) for block in anatomy(original).blocks]
    images = torch.randn(3, 3, SIZE, SIZE)
    with torch.no_grad():
        torch.testing.assert_close(loaded(images), original(images), rtol=1e-3, atol=1e-4)
