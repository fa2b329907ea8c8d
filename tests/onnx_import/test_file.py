"""Reading a file: what is refused by name, and what is left out."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from pocketune.errors import PocketuneError
from pocketune.onnx_import import load_onnx

from .files import HEAD, head, written

node = helper.make_node

DYNAMIC = node("DynamicQuantizeLinear", ["x"], ["q", "scale", "offset"])
DEQUANTIZE = node("DequantizeLinear", ["q", "scale", "offset"], ["d"])


@pytest.mark.parametrize(
    ("nodes", "options", "said"),
    [
        ([node("CumSum", ["x", "axis"], ["d"], name="odd"), *head("d")], {}, r"CumSum \(odd\)"),
        ([DYNAMIC, DEQUANTIZE, *head("d")], {}, "DynamicQuantizeLinear"),
        (head("x"), {"outputs": ("y", "flat")}, "1 inputs and 2 outputs"),
        (head("x"), {"shape": ("n", 3, 16, 16)}, "16 x 16 pixels, not 8 x 8: give size=16"),
        (head("x"), {"shape": ("n", 3, "h", 16)}, "16 x 16 pixels, not 8 x 8: give size=16"),
        (head("x"), {"shape": ("n", 3, 8, 16)}, "8 x 16 pixels, not 8 x 8: export it with square"),
        (head("x"), {"shape": ("n", 1, 8, 8)}, "float32 images of three channels"),
        (head("x"), {"element": TensorProto.UINT8}, "images of 8 bits, as the exports of runs do"),
        (head("x"), {"opset": 6}, "opset 6"),
    ],
)
def test_what_is_refused(
    nodes: list[onnx.NodeProto], options: dict[str, object], said: str, tmp_path: Path
) -> None:
    file = written(tmp_path / "net.onnx", nodes, HEAD | {"axis": np.int64(1)}, **options)
    with pytest.raises(PocketuneError, match=said):
        load_onnx(file, size=8)


def test_what_nothing_reads_need_not_be_supported(tmp_path: Path) -> None:
    nodes = [node("CumSum", ["x", "axis"], ["unread"]), *head("x")]
    constants = HEAD | {"axis": np.int64(1)}
    assert load_onnx(written(tmp_path / "net.onnx", nodes, constants), size=8)


def test_what_follows_the_output_is_left_out(tmp_path: Path) -> None:
    """As in a file whose output was moved to an earlier tensor."""
    nodes = [
        *head("x"),
        node("Gemm", ["y", "more"], ["later"]),
        node("Softmax", ["later"], ["shares"]),
    ]
    constants = HEAD | {"more": np.ones((2, 7), np.float32)}
    loaded = load_onnx(written(tmp_path / "net.onnx", nodes, constants), size=8).eval()
    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(loaded(x), x.mean((2, 3)) @ torch.ones(3, 2))


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match="there is no file"):
        load_onnx(tmp_path / "none.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"no network")
    with pytest.raises(PocketuneError, match="not an ONNX file that can be read"):
        load_onnx(tmp_path / "bad.onnx")


def test_operators_on_integers_are_named(tmp_path: Path) -> None:
    values = {
        "scale": np.float32(1),
        "zero": np.uint8(0),
        "kernel": np.zeros((3, 3, 1, 1), np.uint8),
    }
    quantize = node("QuantizeLinear", ["x", "scale", "zero"], ["q"])
    reads = ["q", "scale", "zero", "kernel", "scale", "zero", "scale", "zero"]
    product = node("QLinearConv", reads, ["r"], name="first")
    back = node("DequantizeLinear", ["r", "scale", "zero"], ["d"])
    file = written(tmp_path / "net.onnx", [quantize, product, back, *head("d")], HEAD | values)
    with pytest.raises(PocketuneError, match=r"with integers, QLinearConv first; .* QDQ"):
        load_onnx(file, size=8)


def test_control_flow_is_named(tmp_path: Path) -> None:
    result = helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, ("n", 3, 8, 8))
    branch = helper.make_graph([node("Identity", ["x"], ["z"])], "branch", [], [result])
    test = node("If", ["yes"], ["d"], name="choice", then_branch=branch, else_branch=branch)
    file = written(tmp_path / "net.onnx", [test, *head("d")], HEAD | {"yes": np.array(True)})
    with pytest.raises(PocketuneError, match="control flow, If choice"):
        load_onnx(file, size=8)


def test_an_opset_that_is_too_new(tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match="opset 99, and the installed onnx knows those up to"):
        load_onnx(written(tmp_path / "net.onnx", head("x"), HEAD, opset=99), size=8)


def test_classes_instead_of_scores_are_refused_with_the_remedy(tmp_path: Path) -> None:
    *nodes, last = head("x")
    last.output[0] = "scores"
    nodes += [last, node("ArgMax", ["scores"], ["y"], axis=1)]
    with pytest.raises(PocketuneError, match=r"no float32 class scores .* such as an ArgMax"):
        load_onnx(written(tmp_path / "net.onnx", nodes, HEAD), size=8)
