"""Attention as one operator, with masks, and in rows of tokens."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from pocketune.compiler import compile
from pocketune.methods import FullFineTune, adapt
from pocketune.onnx_import import load_onnx

from ..files import HEAD, head, written
from .cases import ints

node = helper.make_node

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
