"""Operators are recorded as PyTorch itself records them, and what no input changes is computed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from pocketune.compiler.capture.operators import decompositions
from pocketune.compiler.capture.partition import ancestors
from pocketune.compiler.capture.tracer import DataDependentError, TracedTensor, trace
from pocketune.methods import FullFineTune, adapt

from ..lowering import leaf
from ..networks import tiny


def run(graph: fx.Graph, *inputs: Tensor) -> list[Tensor]:
    constants = {n.target: n.meta["constant"] for n in graph.nodes if n.op == "get_attr"}
    values: list[Tensor] = fx.GraphModule(constants, graph)(*inputs)
    return values


def targets(graph: fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


def test_a_step_has_the_operators_and_shapes_of_make_fx() -> None:
    network = adapt(tiny(), FullFineTune())
    parameters = {name: p.detach().requires_grad_() for name, p in network.named_parameters()}
    tensors = {**parameters, **dict(network.named_buffers())}

    def step(tensors: dict[str, Tensor], images: Tensor) -> list[Tensor]:
        scores = torch.func.functional_call(network, tensors, (images,))
        given = [tensors[name] for name in parameters]
        return list(torch.autograd.grad(functional.mish(scores), given, scores.detach()))

    images = torch.zeros(2, 3, 16, 16)
    table = decompositions()
    reference = make_fx(step, table, tracing_mode="fake", _allow_non_fake_inputs=True)
    theirs = needed(reference(tensors, images).graph)
    ours = needed(trace(step, tensors, images, decompositions=table))
    assert len(ours) > 50
    assert [str(node.target) for node in ours] == [str(node.target) for node in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        if isinstance(other.meta["val"], Tensor):
            assert mine.meta["val"].shape == other.meta["val"].shape
            assert mine.meta["val"].dtype == other.meta["val"].dtype


def needed(graph: fx.Graph) -> list[fx.Node]:
    """The operators that the outputs depend on, in order."""
    sources = ancestors(graph.output_node().all_input_nodes)
    return [node for node in graph.nodes if node in sources and node.op == "call_function"]


def test_what_depends_on_no_input_is_computed() -> None:
    scale = torch.arange(3.0)

    def function(x: Tensor) -> list[Tensor]:
        factor = scale * torch.tensor([2.0], device=x.device)
        assert factor[2].item() == 4
        return [x * factor, torch.ones(3)]

    graph = trace(function, leaf(3))
    assert targets(graph) == ["aten.mul.Tensor"]
    x = leaf(3)
    torch.testing.assert_close(run(graph, x), function(x))


def test_random_numbers_are_recorded() -> None:
    assert targets(trace(lambda x: [x + torch.rand(3)], leaf(3)))[0] == "aten.rand.default"


def test_random_numbers_in_place_are_recorded() -> None:
    graph = trace(lambda x: [x * torch.empty_like(x).bernoulli_(0.5)], leaf(3))
    assert "aten.bernoulli_.float" in map(str, (node.target for node in needed(graph)))


def test_a_tensor_that_is_changed_is_read_changed() -> None:
    def function(x: Tensor) -> list[Tensor]:
        y, z = x.exp(), torch.zeros(3)
        y.add_(1)
        z.add_(y)
        return [y * 2, z * 3]

    graph, x = trace(function, leaf(3, grad=False)), leaf(3, grad=False)
    torch.testing.assert_close(run(graph, x), function(x))


def constant(x: Tensor) -> Tensor:
    y = torch.zeros(2, 4)
    y[:, 1:3] = x[:, :2]
    y[0] = 2
    return y


def in_turns(x: Tensor) -> Tensor:
    y = x + 1
    first, rows = y[:, 0], y[1:]
    y[:, -1] = first
    rows[:, :2].add_(1)[:, 1:] *= 3
    y[:, :1] *= 2
    y.neg_()
    return y + first[:, None] + rows


def reshaped(x: Tensor) -> Tensor:
    y = x + 1
    y.view(2, 2, 2)[:, 1].div_(x[:, :2])
    y.unsqueeze(1)[:, 0, :1] -= 1
    y.unsqueeze(1).squeeze(1).mul_(3)
    return y


def turned(x: Tensor) -> Tensor:
    y = x[None] + 1
    y.permute(2, 0, 1)[1:3].neg_()
    y[0].t()[-1] = x[:, 0]
    y.transpose(0, 2)[0].clamp_(min=2)
    return y


def stepped(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    y[:, ::2] = x[:, :2]
    y[:, 1::2] = x[:, 2:] + y[:, ::2]
    return y


def detached(x: Tensor) -> Tensor:
    y = x + 1
    y.data.mul_(2)
    y.detach()[:, 0] = 0
    return y


@pytest.mark.parametrize("function", [constant, in_turns, reshaped, turned, stepped, detached])
@pytest.mark.parametrize("grad", [False, True])
def test_a_tensor_of_which_a_part_is_written_is_read_changed(
    function: Callable[[Tensor], Tensor], grad: bool
) -> None:
    def values_and_gradients(x: Tensor) -> list[Tensor]:
        y = function(x)
        return [y, *(torch.autograd.grad(y, [x], y.detach()) if grad else ())]

    x = leaf(2, 4, grad=grad)
    graph = trace(values_and_gradients, x, decompositions=decompositions())
    torch.testing.assert_close(run(graph, x), values_and_gradients(x))


def test_positions_that_are_written_are_consecutive_or_all_that_far_apart() -> None:
    def function(x: Tensor) -> list[Tensor]:
        y = x.exp()
        y[:3:2] = 0
        return [y]

    with pytest.raises(RuntimeError, match="writes into 2 of 5 positions of a tensor, 2 apart"):
        trace(function, leaf(5))


def test_a_view_that_cannot_be_written_is_read_again_and_named() -> None:
    def function(x: Tensor) -> list[Tensor]:
        y = x + 1
        diagonal = y.diagonal()
        y.mul_(2)
        return [diagonal]

    x = leaf(3, 3)
    torch.testing.assert_close(run(trace(function, x), x), function(x))
    with pytest.raises(RuntimeError, match=r"writes into a view that aten.diagonal.default gives"):
        trace(lambda x: [(x + 1).diagonal().zero_()], x)


def test_operators_with_several_results() -> None:
    def function(x: Tensor) -> list[Tensor]:
        first, second = x.split(2)
        values, indices = torch.max(first, 0)
        return [values + second.sum(), indices]

    graph, x = trace(function, leaf(4)), leaf(4)
    torch.testing.assert_close(run(graph, x), function(x))


def test_new_tensors_are_on_the_cpu_as_the_inputs_are() -> None:
    def function(x: Tensor) -> list[Tensor]:
        assert x.device.type == "cpu"
        return [x + torch.zeros_like(x) + x.new_ones(3) + torch.ones(3, device=x.device)]

    graph, x = trace(function, leaf(3)), leaf(3)
    torch.testing.assert_close(run(graph, x), function(x))


@pytest.mark.parametrize("ask", [Tensor.item, bool, float, lambda x: x.nonzero()])
def test_values_of_traced_tensors_are_not_known(ask: torch.nn.Module) -> None:
    with pytest.raises((DataDependentError, NotImplementedError)):
        trace(lambda x: [x, ask(x.sum())], leaf(3, grad=False))


def test_a_traced_tensor_is_of_no_use_afterwards() -> None:
    kept: list[Tensor] = []
    trace(lambda x: kept.append(x.exp()) or [x], leaf(3))
    assert isinstance(kept[0], TracedTensor)
    with pytest.raises(RuntimeError, match="kept from an earlier trace"):
        kept[0] + 1
