"""Nodes from the images `x` to `d`, compared with PyTorch."""

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import helper

from pocketune.onnx_import import load_onnx

from ..files import HEAD, written

node = helper.make_node

Case = tuple[list[onnx.NodeProto], dict[str, np.ndarray], torch.Tensor]
"""Nodes, their constants and perhaps the `opset`, and what they give for `X`."""

X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(4))


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def check(case: Case, folder: Path) -> None:
    """Load a file of the nodes and a linear layer behind them, and compare it with PyTorch."""
    nodes, given, expected = case
    rows = expected.flatten(1)
    weight = torch.randn(rows.shape[1], 2, generator=torch.Generator().manual_seed(5))
    nodes = [*nodes, node("Flatten", ["d"], ["flat"]), node("MatMul", ["flat", "w"], ["y"])]
    constants = {**HEAD, **given, "w": weight.numpy()}
    opset = int(constants.pop("opset", 18))
    loaded = load_onnx(written(folder / "net.onnx", nodes, constants, opset=opset), size=8)
    torch.testing.assert_close(loaded.eval()(X), rows @ weight, rtol=1e-4, atol=1e-3)
