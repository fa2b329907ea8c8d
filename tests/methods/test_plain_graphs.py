"""Adapted networks that predict are made of PyTorch's own operators, for exports and traces."""

import io

import onnx
import pytest
import torch
from torch import Tensor, nn

from pocketune.methods import adapt, create_method, list_methods

from ..networks.small import small_mobilenet
from .examples import example_method

# Tracing warns that it is deprecated, and that sizes become constants.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
    pytest.mark.filterwarnings("ignore:no signature found"),
]

# Five methods leave no other layers in a network than `blocks`.
METHODS = [
    example_method(name, "mobilenet_v2")
    for name in list_methods()
    if name not in ("bias", "calibrate", "full", "last", "norm")
]
METHODS += [create_method("blocks") + create_method("gradfilter", layers="trained", bits=8)]
IMAGES = torch.randn(1, 3, 32, 32)


@pytest.fixture(scope="module", params=METHODS, ids=str)
def adapted(request: pytest.FixtureRequest) -> nn.Module:
    return adapt(small_mobilenet(), request.param).eval()


@torch.no_grad()
def expected(network: nn.Module) -> Tensor:
    scores: Tensor = network(IMAGES)
    return scores


def test_export(adapted: nn.Module) -> None:
    with torch.no_grad():
        program = torch.export.export(adapted, (IMAGES,))
    operators = {str(node.target) for node in program.graph.nodes}
    assert not [name for name in operators if "pocketune" in name]
    torch.testing.assert_close(program.module()(IMAGES), expected(adapted))


def test_trace_and_onnx(adapted: nn.Module) -> None:
    with torch.no_grad():
        traced = torch.jit.trace(adapted, IMAGES, check_trace=False)
    assert "PythonOp" not in str(traced.inlined_graph)
    torch.testing.assert_close(traced(IMAGES), expected(adapted))
    file = io.BytesIO()
    torch.onnx.export(traced, (IMAGES,), file, dynamo=False)
    domains = {node.domain for node in onnx.load_from_string(file.getvalue()).graph.node}
    assert domains == {""}
