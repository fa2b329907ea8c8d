"""Sums, products and reductions."""

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper

from .cases import Case, X, check, ints

node = helper.make_node
MATRIX = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
CASES: dict[str, Case] = {
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
    "einsum with a constant": (
        [node("Einsum", ["a", "x"], ["d"], equation="wv,nchw->nvch")],
        {"a": MATRIX},
        torch.einsum("wv,nchw->nvch", torch.tensor(MATRIX), X),
    ),
    "no axis": ([node("ReduceSum", ["x"], ["d"], noop_with_empty_axes=1)], {}, X),
    "sum of several": ([node("Sum", ["x", "x", "x"], ["d"])], {}, 3 * X),
    "mean of several": (
        [node("Neg", ["x"], ["n"]), node("Mean", ["x", "x", "n"], ["d"])],
        {},
        X / 3,
    ),
    "least": ([node("ReduceMin", ["x", "a"], ["d"])], {"a": ints(2)}, X.amin(2, keepdim=True)),
    "sum of sizes": (
        [node("ReduceL1", ["x", "a"], ["d"])],
        {"a": ints(2)},
        X.abs().sum(2, keepdim=True),
    ),
    "norm of a map": (
        [node("ReduceL2", ["x", "a"], ["l"]), node("Div", ["x", "l"], ["d"])],
        {"a": ints(2, 3)},
        X / X.norm(dim=(2, 3), keepdim=True),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_arithmetic(case: str, tmp_path: Path) -> None:
    check(CASES[case], tmp_path)
