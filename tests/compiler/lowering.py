"""Lower a small function and run it, for the tests of the lowering rules."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from pocketune.compiler.builder import BOOL, FLOAT, INT64, UINT8, GraphBuilder
from pocketune.compiler.capture.operators import decompositions
from pocketune.compiler.capture.tracer import trace
from pocketune.compiler.lower import Value, lower
from pocketune.device.engine.session import open_session

Function = Callable[..., Sequence[Tensor]]
_DTYPES = {torch.float32: FLOAT, torch.int64: INT64, torch.uint8: UINT8, torch.bool: BOOL}

ALWAYS_ROWS, NEVER_ROWS = 1 << 30, 0
LAYOUTS = pytest.mark.parametrize("rows_max_pixels", [ALWAYS_ROWS, NEVER_ROWS])
FORMS = pytest.mark.parametrize("least_packed", [inf, 0], ids=["bytes", "bits"])


def lower_function(
    function: Function,
    inputs: Sequence[Tensor],
    constants: Sequence[Tensor] = (),
    rows_max_pixels: int = NEVER_ROWS,
    statistics: Sequence[int] = (),
    least_packed: float = inf,
) -> onnx.ModelProto:
    """The model of `function(*inputs, *constants)`, whose outputs are "0", "1", ...

    The new values of the inputs numbered in `statistics` are the last outputs.
    """
    graph = trace(function, *inputs, *constants, decompositions=decompositions())
    nodes = list(graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    builder = GraphBuilder()
    given = {}
    for i, (node, tensor) in enumerate(zip(placeholders, [*inputs, *constants], strict=True)):
        shape = tuple(tensor.shape)
        if i < len(inputs):
            plain = builder.input(f"input{i}", _DTYPES[tensor.dtype], shape)
            given[node] = Value(shape, plain=plain)
        else:
            given[node] = Value(shape, constant=tensor.detach())
    for node in nodes:
        if node.op == "get_attr":
            tensor = node.meta["constant"]
            given[node] = Value(tuple(tensor.shape), constant=tensor)
    (returned,) = nodes[-1].args
    context = lower(
        builder, given, returned, rows_max_pixels=rows_max_pixels, least_packed=least_packed
    )
    updated = [placeholders[i] for i in statistics]
    names = [context.plain(context.value(node)) for node in returned]
    names += [context.statistics[node] for node in updated]
    for i, (name, node) in enumerate(zip(names, [*returned, *updated], strict=True)):
        value = node.meta["val"]
        builder.emit(name, str(i), _DTYPES[value.dtype], tuple(value.shape))
    return builder.model("test")


def run_model(model: onnx.ModelProto, inputs: Sequence[Tensor]) -> list[NDArray[Any]]:
    """Outputs of ONNX Runtime; inputs that the graph does not read are left out."""
    session = open_session(model.SerializeToString(), as_written=True)
    feeds = {f"input{i}": tensor.detach().numpy() for i, tensor in enumerate(inputs)}
    outputs: list[NDArray[Any]] = session.run(None, feeds)
    return outputs


def check_function(
    function: Function,
    inputs: Sequence[Tensor],
    constants: Sequence[Tensor] = (),
    rows_max_pixels: int = NEVER_ROWS,
    tolerance: float = 2e-5,
    statistics: Sequence[int] = (),
    least_packed: float = inf,
) -> onnx.ModelProto:
    """Compare every output with the function in float64, relative to its largest magnitude."""
    model = lower_function(function, inputs, constants, rows_max_pixels, statistics, least_packed)
    found = run_model(model, inputs)
    exact_inputs = [double(tensor) for tensor in (*inputs, *constants)]
    expected = [*function(*exact_inputs), *(exact_inputs[i] for i in statistics)]
    assert len(found) == len(expected)
    for i, (ours, exact) in enumerate(zip(found, expected, strict=True)):
        assert_close(ours, exact.detach().numpy(), tolerance, f"output {i}")
    return model


def double(tensor: Tensor) -> Tensor:
    """A copy in float64, where it is a float; it requires a gradient where `tensor` does."""
    if not tensor.is_floating_point():
        return tensor
    return tensor.detach().to(torch.float64, copy=True).requires_grad_(tensor.requires_grad)


def assert_close(
    ours: NDArray[Any], exact: NDArray[Any], tolerance: float = 2e-5, name: str = ""
) -> None:
    """Within `tolerance` of the largest magnitude, and of 1e-6 at least."""
    assert ours.shape == exact.shape, f"{name}: {ours.shape} is not {exact.shape}"
    assert np.isfinite(ours).all(), f"{name} is not finite"
    error = np.abs(ours - exact).max(initial=0)
    largest = np.abs(exact).max(initial=0)
    assert error <= max(tolerance * largest, 1e-6), f"{name} is off by {error} of {largest}"


def operators(model: onnx.ModelProto) -> list[str]:
    """Operator of every node, in order."""
    return [node.op_type for node in model.graph.node]


def leaf(*shape: int, seed: int = 0, grad: bool = True) -> Tensor:
    """A random tensor that a function can be differentiated by."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).requires_grad_(grad)
