"""Networks from ONNX files: the same outputs, and an anatomy that methods understand."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, version_converter
from torch import nn

from pocketune.accounting import account
from pocketune.compiler import compile
from pocketune.errors import PocketuneError
from pocketune.methods import LastLayer, Method, MobileTL, TinyTL, adapt
from pocketune.networks import Normalization, about, anatomy
from pocketune.networks.anatomy.blocks import Block
from pocketune.onnx_import import load_onnx
from pocketune.onnx_import.load import output_classes
from pocketune.weights import create_network
from pocketune.weights.batch_norm import is_folded

from ..networks.names import EVERY_METHOD
from ..networks.shallow import shallow
from ..networks.tiny import tiny
from .files import (
    CLASSES,
    HEAD,
    SIZE,
    assert_close,
    drawn,
    exported,
    folded,
    head,
    images,
    written,
)

node = helper.make_node


def network(name: str = "mobilenet_v2") -> nn.Module:
    torch.manual_seed(0)
    width = {} if name == "mcunet_5fps" else {"width": 0.1}
    return drawn(shallow(create_network(name, classes=CLASSES, **width))).eval()


def shape(block: Block) -> tuple[object, ...]:
    layers = [(layer.role, bool(layer.norm), bool(layer.activation)) for layer in block.layers]
    return block.kind, layers, block.residual, bool(block.squeeze_excite)


@pytest.mark.parametrize("name", [n for n in EVERY_METHOD if "101" not in n])
def test_our_own_networks_come_back(name: str, tmp_path: Path) -> None:
    original = network(name)
    loaded = load_onnx(exported(original, tmp_path / "net.onnx"), size=SIZE).eval()
    assert_close(loaded(images()), original(images()))
    here, there = anatomy(loaded), anatomy(original)
    assert [shape(block) for block in here.blocks] == [shape(block) for block in there.blocks]
    assert len(here.stem) == len(there.stem)
    assert len(here.feature_fusion) == len(there.feature_fusion)
    assert len(here.classifier) == len(there.classifier)


@pytest.mark.parametrize(("opset", "batch"), [(11, "n"), (13, None), (18, "n")])
def test_files_of_any_opset_and_batch(opset: int, batch: str | None, tmp_path: Path) -> None:
    original = network("mobilenet_v3_small")
    file = exported(original, tmp_path / "net.onnx", opset=opset, batch=batch)
    loaded = load_onnx(file, size=SIZE).eval()
    assert_close(loaded(images()), original(images()))
    assert sum(isinstance(m, nn.Hardswish) for m in loaded.modules()) > 3


@pytest.mark.parametrize("opset", [21, 22, 23])
def test_operators_of_newer_opsets(opset: int, tmp_path: Path) -> None:
    original = network("mobilenet_v3_small")
    file = exported(original, tmp_path / "net.onnx")
    onnx.save(version_converter.convert_version(onnx.load(file), opset), file)
    assert_close(load_onnx(file, size=SIZE).eval()(images()), original(images()))


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("mobilenet_v2.onnx", "mobilenet_v2.onnx"),
        ("a\x1b[31m\n", "a?[31m?.onnx"),
        (f"{'long' * 30}.ONNX", "longlonglonglonglo...nglonglonglonglong.onnx"),
    ],
)
def test_listings_call_a_network_by_its_file(file: str, name: str, tmp_path: Path) -> None:
    written(tmp_path / file, head("x"), HEAD)
    adapted = adapt(load_onnx(tmp_path / file, size=8), LastLayer())
    assert account(adapted, batch=2, size=8).network == name
    kit = compile(adapted, tmp_path / "kit", batch=2, size=8)
    assert kit.manifest.network == {"name": name}


def test_the_classes_of_a_file_are_the_outputs_of_its_linear_layer(tmp_path: Path) -> None:
    loaded = load_onnx(exported(network(), tmp_path / "net.onnx"), size=SIZE)
    assert output_classes(loaded, SIZE) == CLASSES
    small = create_network("fcn", backbone="resnet18", width=0.1, classes=CLASSES).eval()
    dense = load_onnx(exported(small, tmp_path / "dense.onnx"), size=SIZE)
    with pytest.raises(PocketuneError, match="the class scores come from a Conv2d"):
        output_classes(dense, SIZE)


def test_a_batch_that_is_fixed_inside_of_the_file_is_refused(tmp_path: Path) -> None:
    file = exported(tiny("vit_tiny"), tmp_path / "net.onnx", batch=None)
    with pytest.raises(PocketuneError, match="shapes for a batch of 1 inside"):
        load_onnx(file, size=SIZE)


def test_folded_norms_are_norms_again(tmp_path: Path) -> None:
    original = network()
    file = folded(exported(original, tmp_path / "net.onnx"), tmp_path / "folded.onnx")
    loaded = load_onnx(file, size=SIZE).eval()
    assert_close(loaded(images()), original(images()))
    norms = [module for module in loaded.modules() if isinstance(module, nn.BatchNorm2d)]
    assert len(norms) == sum(isinstance(m, nn.BatchNorm2d) for m in original.modules())
    assert all(map(is_folded, norms))
    here, there = anatomy(loaded), anatomy(original)
    assert [shape(block) for block in here.blocks] == [shape(block) for block in there.blocks]


@pytest.mark.parametrize("method", [MobileTL(blocks=2), TinyTL(lite_residual=False)], ids=str)
def test_a_kit_of_a_loaded_network(method: Method, tmp_path: Path) -> None:
    """`compile` compares the kit with PyTorch."""
    loaded = load_onnx(exported(network(), tmp_path / "net.onnx"), size=SIZE, classes=3)
    assert compile(adapt(loaded, method), tmp_path / "kit", batch=2, size=SIZE).manifest


def test_classes_and_normalization(tmp_path: Path) -> None:
    file = exported(network(), tmp_path / "net.onnx")
    same = load_onnx(file, size=SIZE, classes=CLASSES).eval()
    assert_close(same(images()), network()(images()))
    other = load_onnx(file, size=SIZE, classes=4, normalization=Normalization.HALF)
    assert other(images()).shape == (3, 4)
    assert about(other).normalization == Normalization.HALF
    assert about(same).normalization == Normalization.IMAGENET


def test_channels_last_and_a_softmax(tmp_path: Path) -> None:
    """As converters of TensorFlow's networks write them."""
    rng = np.random.default_rng(0)
    kernel = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    matrix = rng.standard_normal((4, 5)).astype(np.float32)
    bias = rng.standard_normal(5).astype(np.float32)
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        node("Conv", ["t", "w"], ["c"], strides=[2, 2], pads=[0, 0, 1, 1]),
        node("Clip", ["c", "zero", "six"], ["r"]),
        node("ReduceMean", ["r", "axes"], ["m"], keepdims=0),
        node("MatMul", ["m", "matrix"], ["p"]),
        node("Add", ["p", "bias"], ["s"]),
        node("Softmax", ["s"], ["y"]),
    ]
    constants = {"w": kernel, "zero": np.float32(0), "six": np.float32(6), "matrix": matrix}
    constants |= {"axes": np.array([2, 3]), "bias": bias}
    file = written(tmp_path / "net.onnx", nodes, constants, shape=("n", SIZE, SIZE, 3))
    loaded = load_onnx(file, size=SIZE).eval()
    padded = nn.functional.pad(images(), (0, 1, 0, 1))
    maps = nn.functional.conv2d(padded, torch.tensor(kernel), stride=2).clamp(0, 6)
    expected = maps.mean((2, 3)) @ torch.tensor(matrix) + torch.tensor(bias)
    torch.testing.assert_close(loaded(images()), expected, rtol=1e-4, atol=1e-4)
    assert any(isinstance(module, nn.ReLU6) for module in loaded.modules())
    assert load_onnx(file, size=SIZE, classes=3)(images()).shape == (3, 3)


def test_a_universal_inverted_bottleneck_without_a_shortcut_is_one_block(tmp_path: Path) -> None:
    original = drawn(create_network("mobilenet_v4_small", classes=CLASSES, width=0.1)).eval()
    loaded = load_onnx(exported(original, tmp_path / "net.onnx"), size=SIZE).eval()
    assert_close(loaded(images()), original(images()))
    assert list(map(shape, anatomy(loaded).blocks)) == list(map(shape, anatomy(original).blocks))


def test_a_norm_as_a_product_and_a_sum_and_scores_of_a_convolution(tmp_path: Path) -> None:
    """As tf2onnx writes Keras' MobileNets."""
    rng = np.random.default_rng(0)
    shapes = {"a": (4, 3, 3, 3), "b": (4,), "d": (4, 1, 3, 3), "p": (6, 4, 1, 1), "c": (6,)}
    shapes |= {"m": (1, 4, 1, 1), "s": (1, 4, 1, 1), "o": (5, 6, 1, 1), "q": (5,)}
    constants = {
        name: rng.standard_normal(sides).astype(np.float32) for name, sides in shapes.items()
    }
    nodes = [
        node("Conv", ["x", "a", "b"], ["x1"]),
        node("Relu", ["x1"], ["x2"]),
        node("Conv", ["x2", "d"], ["x3"], group=4),
        node("Mul", ["x3", "m"], ["x4"]),
        node("Add", ["x4", "s"], ["x5"]),
        node("Relu", ["x5"], ["x6"]),
        node("Conv", ["x6", "p", "c"], ["x7"]),
        node("GlobalAveragePool", ["x7"], ["x8"]),
        node("Conv", ["x8", "o", "q"], ["x9"]),
        node("Reshape", ["x9", "to"], ["y"]),
    ]
    constants["to"] = np.array([-1, 5])
    loaded = load_onnx(written(tmp_path / "net.onnx", nodes, constants), size=8, classes=3)
    assert [type(layer).__name__ for layer in loaded.layers][-2:] == ["Flatten", "Linear"]
    (block,) = anatomy(loaded).blocks
    assert [layer.norm is not None for layer in block.layers] == [True, True]
    assert loaded.eval()(torch.randn(2, 3, 8, 8)).shape == (2, 3)


def test_a_bias_of_the_scores_behind_a_transpose(tmp_path: Path) -> None:
    """As Keras writes MobileNetV3 with PyTorch as its backend."""
    kernel = np.random.default_rng(0).standard_normal((5, 3, 1, 1)).astype(np.float32)
    constants = {"o": kernel, "q": np.arange(5, dtype=np.float32), "to": np.array([-1, 5])}
    nodes = [
        node("GlobalAveragePool", ["x"], ["p"]),
        node("Conv", ["p", "o"], ["s"]),
        node("Transpose", ["s"], ["t"], perm=[0, 2, 3, 1]),
        node("Add", ["t", "q"], ["b"]),
        node("Reshape", ["b", "to"], ["y"]),
    ]
    file = written(tmp_path / "net.onnx", nodes, constants)
    assert load_onnx(file, size=8).layers[-1].bias.tolist() == [0, 1, 2, 3, 4]
    assert load_onnx(file, size=8, classes=3).eval()(torch.randn(2, 3, 8, 8)).shape == (2, 3)


def test_casts_that_change_nothing_divide_no_layer(tmp_path: Path) -> None:
    """As Keras writes them with PyTorch as its backend."""
    nodes = [
        node("Cast", ["x"], ["x1"], to=1),
        node("GlobalAveragePool", ["x1"], ["p"]),
        node("Cast", ["p"], ["p1"], to=1),
        node("Sigmoid", ["p1"], ["g"]),
        node("Cast", ["x1"], ["x2"], to=1),
        node("Mul", ["x2", "g"], ["z"]),
        node("ReduceMean", ["z", "axes"], ["m"], keepdims=0),
        node("MatMul", ["m", "w"], ["s"]),
        node("Cast", ["s"], ["s1"], to=1),
        node("Add", ["s1", "b"], ["y"]),
    ]
    constants = {"w": HEAD["w"], "b": np.array([1, 2], np.float32), "axes": np.array([2, 3])}
    loaded = load_onnx(written(tmp_path / "net.onnx", nodes, constants), size=8, classes=2)
    assert [type(layer).__name__ for layer in loaded.layers] == ["Gate", "Function", "Linear"]
    assert loaded.layers[-1].bias.tolist() == [1, 2]
    compile(adapt(loaded, LastLayer()), tmp_path / "kit", batch=2, size=8)


def test_shapes_that_the_file_computes_are_constants(tmp_path: Path) -> None:
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Shape", ["r"], ["shape"]),
        node("Gather", ["shape", "zero"], ["n"]),
        node("Unsqueeze", ["n", "zeros"], ["n1"]),
        node("Concat", ["n1", "rest"], ["target"], axis=0),
        node("Reshape", ["r", "target"], ["f"]),
        node("DequantizeLinear", ["w8", "scale"], ["w"]),
        node("Gemm", ["f", "w"], ["y"], transB=1),
    ]
    weight = np.random.default_rng(0).integers(-127, 128, (5, 192)).astype(np.int8)
    constants = {"zero": np.array(0), "zeros": np.array([0]), "rest": np.array([-1])}
    constants |= {"w8": weight, "scale": np.float32(0.01)}
    loaded = load_onnx(written(tmp_path / "net.onnx", nodes, constants), size=8).eval()
    x = torch.randn(3, 3, 8, 8)
    expected = x.relu().flatten(1) @ torch.tensor(weight.astype(np.float32) * 0.01).T
    torch.testing.assert_close(loaded(x), expected, rtol=1e-4, atol=1e-4)


def test_a_file_with_a_mistaken_module_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pocketune.onnx_import.operators import activations

    monkeypatch.setitem(activations._PLAIN, "Relu", nn.ReLU6)
    nodes = [node("Mul", ["x", "ten"], ["m"]), node("Relu", ["m"], ["d"]), *head("d")]
    file = written(tmp_path / "net.onnx", nodes, HEAD | {"ten": np.float32(10)})
    with pytest.raises(PocketuneError, match="differs from the file by"):
        load_onnx(file, size=8)


def test_a_result_that_several_operators_share(tmp_path: Path) -> None:
    """No nesting of chains and branches expresses it."""
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Sigmoid", ["a"], ["b"]),
        node("Tanh", ["b"], ["c"]),
        node("Mul", ["b", "c"], ["d"]),
        node("Sub", ["d", "b"], ["e"]),
        node("Concat", ["e", "c", "a"], ["f"], axis=1),
        *head("f"),
    ]
    wide = {"w": np.ones((9, 2), np.float32)}
    loaded = load_onnx(written(tmp_path / "net.onnx", nodes, wide), size=8).eval()
    a = (x := torch.randn(2, 3, 8, 8)).relu()
    b = a.sigmoid()
    c = b.tanh()
    maps = torch.cat((b * c - b, c, a), 1).mean((2, 3))
    torch.testing.assert_close(loaded(x), maps @ torch.ones(9, 2), rtol=1e-4, atol=1e-4)
