"""Layer norm in 8 bits: the exact output, a gradient near the exact one, the bytes kept."""

import pytest
import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.layers import FewBitLayerNorm
from pocketune.networks.architectures.convnext import LayerNorm2d

from .kept import kept_tensors

SHAPES = [((16,), (3, 5, 16)), ((16,), (7, 16)), ((5, 16), (3, 5, 16))]
"""Shapes of norms and of their inputs."""


def exact_norm(shape: tuple[int, ...], kind: type[nn.LayerNorm] = nn.LayerNorm) -> nn.LayerNorm:
    torch.manual_seed(0)
    norm = kind(shape)  # type: ignore[arg-type]
    nn.init.normal_(norm.weight, 1, 0.3)
    nn.init.normal_(norm.bias)
    return norm


def on_the_cells(*shape: int) -> Tensor:
    """Half of the values are 1 and half are -1, which are codes exactly and their own norm."""
    x = torch.ones(shape)
    x[..., ::2] = -1
    return x


@pytest.mark.parametrize(("shape", "inputs"), SHAPES)
def test_the_output_is_exact(shape: tuple[int, ...], inputs: tuple[int, ...]) -> None:
    norm = exact_norm(shape)
    layer, x = FewBitLayerNorm.from_layer_norm(norm), torch.randn(inputs, requires_grad=True)
    torch.testing.assert_close(layer(x), norm(x))
    assert layer(x).requires_grad
    with torch.no_grad():
        assert torch.equal(layer(x), norm(x))


@pytest.mark.parametrize(("shape", "inputs"), SHAPES)
def test_the_gradient_is_exact_where_codes_are(
    shape: tuple[int, ...], inputs: tuple[int, ...]
) -> None:
    norm, x = exact_norm(shape), on_the_cells(*inputs).requires_grad_()
    layer, g = FewBitLayerNorm.from_layer_norm(norm), torch.randn(inputs)
    leaves = [x, norm.weight, norm.bias]
    found = torch.autograd.grad(layer(x), leaves, g)
    for ours, exact in zip(found, torch.autograd.grad(norm(x), leaves, g), strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-4, atol=1e-5)


def test_the_gradient_of_other_inputs_is_near() -> None:
    norm, x = exact_norm((192,)), torch.randn(20, 192, requires_grad=True)
    layer, g = FewBitLayerNorm.from_layer_norm(norm), torch.randn(20, 192)
    leaves = [x, norm.weight, norm.bias]
    found = torch.autograd.grad(layer(x), leaves, g)
    exact = torch.autograd.grad(norm(x), leaves, g)
    errors = [float((a - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True)]
    assert 0 < errors[0] < 0.006
    assert 0 < errors[1] < 0.05
    assert errors[2] < 1e-6


def test_the_largest_value_of_256_channels_is_in_range() -> None:
    x = torch.zeros(1, 256)
    x[0, 7] = 1000
    norm = nn.LayerNorm(256)
    layer = FewBitLayerNorm.from_layer_norm(norm)
    (found,) = torch.autograd.grad(layer(x).sum(), [layer.weight])
    torch.testing.assert_close(found, norm(x).detach()[0], rtol=0, atol=1 / 8)


def test_maps_as_in_convnext() -> None:
    norm = exact_norm((8,), LayerNorm2d)
    x = on_the_cells(2, 3, 5, 8).permute(0, 3, 1, 2).requires_grad_()
    layer = FewBitLayerNorm.from_layer_norm(norm, channels_first=True)
    assert "channels_first=True" in repr(layer)
    torch.testing.assert_close(layer(x), norm(x))
    leaves, g = [x, norm.weight, norm.bias], torch.randn(x.shape)
    found = torch.autograd.grad(layer(x), leaves, g)
    for ours, exact in zip(found, torch.autograd.grad(norm(x), leaves, g), strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("affine", "bias"),
    [(True, True), (True, False), (False, False)],
    ids=["both", "weight", "none"],
)
def test_keeps_eight_bits_and_the_deviation(affine: bool, bias: bool) -> None:
    norm = nn.LayerNorm(16, elementwise_affine=affine, bias=bias)
    layer, x = FewBitLayerNorm.from_layer_norm(norm), torch.randn(3, 5, 16, requires_grad=True)
    kept = [t for t in kept_tensors(layer, x) if t.dim() != 1 or len(t) != 16]
    assert sum(t.nbytes for t in kept) == 3 * 5 * 16 + 3 * 5 * 4
    assert {name for name, _ in layer.named_parameters()} == dict(norm.named_parameters()).keys()


def test_keeps_nothing_for_its_bias_alone() -> None:
    layer = FewBitLayerNorm.from_layer_norm(nn.LayerNorm(16))
    layer.weight.requires_grad_(False)
    assert not kept_tensors(layer, torch.randn(3, 16))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_gradients_of_each_image() -> None:
    layer, x = FewBitLayerNorm.from_layer_norm(exact_norm((16,))), torch.randn(3, 5, 16)
    found = torch.func.vmap(torch.func.grad(lambda one: layer(one).square().sum()))(x)
    given = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(layer(given).square().sum(), given)
    torch.testing.assert_close(found, expected)


def test_second_derivatives_are_refused() -> None:
    layer, x = FewBitLayerNorm.from_layer_norm(exact_norm((16,))), torch.randn(3, 16)
    x.requires_grad_()
    (first,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    with pytest.raises(PocketuneError, match="no second derivatives"):
        first.sum().backward()  # type: ignore[no-untyped-call]
