"""Rounded weights are found in a graph and stored as int8."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from pocketune.compiler import compile
from pocketune.compiler.lower import conv as conv_rules
from pocketune.compiler.passes.liveness import Liveness
from pocketune.compiler.quantize.weights import as_int8, store_as_int8
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import Quantization
from pocketune.kit.names import BLOCKED_STEP, PREDICT, STEP
from pocketune.methods import BiasAndLast, adapt

from ..networks import BATCH, SIZE, tiny


def rounded(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """A kernel that is whole numbers times a scale for each channel of axis 0."""
    rng = np.random.default_rng(seed)
    whole = rng.integers(-126, 127, shape).astype(np.float32)
    whole.reshape(shape[0], -1)[:, 0] = 127
    return whole * rng.uniform(0.01, 2, (shape[0],) + (1,) * (len(shape) - 1)).astype(np.float32)


@pytest.mark.parametrize("shape", [(6, 4, 3, 3), (6, 9), (6, 1, 5, 5)])
def test_rounded_weights_are_recognized(shape: tuple[int, ...]) -> None:
    weight = rounded(shape)
    found = as_int8(weight)
    assert found is not None
    whole, scale, axis = found
    assert (whole.dtype, axis) == (np.dtype(np.int8), 0)
    np.testing.assert_allclose(whole * scale.reshape(-1, *(1,) * (len(shape) - 1)), weight, 1e-6)


def test_a_scale_for_each_channel_may_have_been_folded_in() -> None:
    scale = np.random.default_rng(1).uniform(0.1, 9, (6, 1, 1, 1)).astype(np.float32)
    found, before = as_int8(rounded((6, 4, 3, 3)) * -scale), as_int8(rounded((6, 4, 3, 3)))
    assert found is not None
    assert before is not None
    np.testing.assert_array_equal(found[0], -before[0])


def test_transposed_and_flipped_kernels_too() -> None:
    found = as_int8(rounded((6, 4, 1, 1)).transpose(1, 0, 2, 3))
    assert found is not None
    assert found[2] == 1
    product = as_int8(rounded((48, 16)).T[None])
    assert product is not None
    assert product[2] == 2
    assert as_int8(rounded((6, 1, 3, 3))[:, :, ::-1, ::-1].copy()) is not None


def test_any_other_weight_is_not() -> None:
    assert as_int8(np.random.default_rng(0).normal(size=(6, 40)).astype(np.float32)) is None


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Kit]:
    folder = tmp_path_factory.mktemp("kits")
    network = adapt(tiny(channels=16), BiasAndLast())
    return {
        bits: compile(network, folder / str(bits), batch=BATCH, size=SIZE, frozen_bits=bits)
        for bits in (8, 32)
    }


@pytest.mark.parametrize("name", [STEP, PREDICT])
def test_a_kit_holds_its_frozen_kernels_in_8_bits(kits: dict[int, Kit], name: str) -> None:
    models = {bits: onnx.load(kit.path / name) for bits, kit in kits.items()}
    kept = [
        t
        for t in models[8].graph.initializer
        if t.data_type == onnx.TensorProto.FLOAT and np.prod(t.dims) >= 256 and len(t.dims) == 4
    ]
    assert not kept
    stored = {bits: _stored_bytes(model) for bits, model in models.items()}
    assert stored[8] < 0.5 * stored[32]
    assert kits[8].manifest.quantization == Quantization(activations=32)


def test_a_kernel_that_the_step_transposes_is_kept_in_8_bits(
    kits: dict[int, Kit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conv_rules, "TRANSPOSED_LEAST_ELEMENTS", 0)
    network = adapt(tiny(channels=16), BiasAndLast())
    kit = compile(network, tmp_path / "kit", batch=BATCH, size=SIZE, frozen_bits=8)
    model, twice = onnx.load(kit.path / STEP), onnx.load(kits[8].path / STEP)
    assert _stored_bytes(model) < _stored_bytes(twice)
    brought = {n.output[0] for n in model.graph.node if n.op_type == "DequantizeLinear"}
    transposed = [n.input[0] for n in model.graph.node if n.op_type == "Transpose"]
    assert brought.intersection(transposed)


def _stored_bytes(model: onnx.ModelProto) -> int:
    return sum(numpy_helper.to_array(t).nbytes for t in model.graph.initializer)


def test_convolutions_with_such_kernels_are_blocked_like_others(kits: dict[int, Kit]) -> None:
    """The nodes that bring a kernel to float are named after their reader."""
    counts = []
    for kit in kits.values():
        blocked = onnx.load(kit.path / BLOCKED_STEP)
        onnx.checker.check_model(blocked)
        counts.append([node.op_type for node in blocked.graph.node].count("ReorderOutput"))
    assert counts[0] == counts[1] > 0


def test_a_kernel_is_in_float_only_while_it_is_read(kits: dict[int, Kit]) -> None:
    model = onnx.load(kits[8].path / STEP)
    nodes = list(model.graph.node)
    unpacked = [i for i, node in enumerate(nodes) if node.op_type == "DequantizeLinear"]
    assert unpacked
    for i in unpacked:
        (output,) = nodes[i].output
        readers = [j for j, node in enumerate(nodes) if output in node.input]
        assert len(readers) == 1
        between = nodes[i + 1 : readers[0]]
        assert all(node.op_type == "DequantizeLinear" for node in between)
    sizes = {"N": BATCH, "classes": 3}
    assert Liveness.of(model, sizes).peak(nodes) == kits[8].manifest.graphs["step"].memory


def test_nothing_rounded_nothing_stored(kits: dict[int, Kit]) -> None:
    model = onnx.load(kits[32].path / STEP)
    before = model.SerializeToString()
    assert store_as_int8(model) == 0
    assert model.SerializeToString() == before
    assert kits[32].manifest.quantization is None
