"""A network is copied with the tensors of an autograd graph that it keeps."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pocketune import account, compile
from pocketune.methods import GradientFilter, LastLayer, Method, TopBlocks, adapt
from pocketune.networks.copies import (
    copy_network,
    copy_shapes,
    disable_inplace,
    gradients_on,
    kept_tensors,
)

from .small import small_mobilenet


def test_a_copy_shares_no_tensor_and_keeps_what_was_tied() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    copied = copy_network(model)
    assert copied[0].weight is copied[1].weight
    assert copied[0].weight is not model[0].weight
    with torch.no_grad():
        copied[0].weight.zero_()
    assert model[0].weight.any()


def test_an_attribute_that_two_modules_keep_stays_one_tensor_in_the_copy() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    features = model[0](torch.ones(1, 2))
    model[0].features, model[1].seen = features, [features]
    copied = copy_network(model)
    assert copied[0].features is copied[1].seen[0]
    assert copied[0].features.is_leaf
    assert torch.equal(copied[0].features, features)


def test_a_copy_of_shapes_has_no_values() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(3, 4, 1, bias=False))
    model[2].weight = model[0].weight
    model[0].weight.requires_grad_(False)
    copied = copy_shapes(model)
    assert copied[2].weight is copied[0].weight
    for (name, made), (_, own) in zip(
        copied.named_parameters(), model.named_parameters(), strict=True
    ):
        assert made.is_meta and type(made) is nn.Parameter, name
        assert made.requires_grad == own.requires_grad
        assert (made.shape, made.stride(), made.dtype) == (own.shape, own.stride(), own.dtype)
    assert all(buffer.is_meta for buffer in copied.buffers())
    assert not any(tensor.is_meta for tensor in model.state_dict().values())


def test_a_copy_made_under_inference_mode_can_be_trained() -> None:
    model = nn.Linear(2, 1)
    with torch.inference_mode(), gradients_on():
        copied = copy_network(model)
        copied(torch.ones(1, 2)).sum().backward()
    assert torch.equal(copied.weight.grad, torch.ones(1, 2))
    assert model.weight.grad is None


def test_tensors_of_a_network_are_found_also_where_they_are_not_registered() -> None:
    model = nn.BatchNorm1d(2)
    model.notes = {"deep": [torch.zeros(7)]}
    shapes = {tuple(t.shape) for t in kept_tensors(model)}
    assert shapes == {(2,), (), (7,)}


class Notes(nn.Module):
    """Notes what it is given, in several places."""

    def forward(self, x: Tensor) -> Tensor:
        self.features = 2 * x
        self.more = [{"features": 2 * x}, x.detach()]
        return x


@pytest.fixture
def network() -> nn.Module:
    network = small_mobilenet()
    network.classifier[0] = Notes()
    network(torch.randn(2, 3, 32, 32))
    return network


def test_the_copy_has_values_without_a_graph(network: nn.Module) -> None:
    notes = network.classifier[0]
    copied = copy_network(network).classifier[0]
    for made, own in (
        (copied.features, notes.features),
        (copied.more[0]["features"], notes.more[0]["features"]),
    ):
        assert torch.equal(made, own)
        assert made is not own
        assert not made.requires_grad
    assert notes.features.grad_fn is not None


@pytest.mark.parametrize("method", [LastLayer(), TopBlocks(1) + GradientFilter(layers="trained")])
def test_it_is_adapted_and_compiled(network: nn.Module, method: Method, tmp_path: Path) -> None:
    adapted = adapt(network, method)
    adapted(torch.randn(2, 3, 32, 32))
    assert account(adapted, batch=2, size=32).peak.memory.total > 0
    compile(adapted, tmp_path / "kit", batch=2, size=32)


def test_disable_inplace() -> None:
    model = nn.Sequential(nn.Hardswish(inplace=True), nn.Sequential(nn.ReLU(inplace=True)))
    disable_inplace(model)
    assert not model[1][0].inplace
    x = torch.randn(1, 4, 2, 2)
    kept = x.clone()
    model(x)
    assert torch.equal(x, kept)
