"""The lite residual module, its group norm and its standardized filters."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pocketune.errors import PocketuneError
from pocketune.layers import GroupNorm, LiteResidual, StandardizedConv2d, standardized
from pocketune.layers.group_norm import group_size
from pocketune.layers.weight_standardization import standardize

from .kept import kept_tensors


def plain(module: LiteResidual, x: Tensor) -> Tensor:
    """The module's formula in PyTorch's own operators."""

    def conv(layer: nn.Conv2d, x: Tensor, **options: int) -> Tensor:
        std, mean = torch.std_mean(layer.weight, (1, 2, 3), keepdim=True)
        return F.conv2d(x, (layer.weight - mean) / (std + 1e-5), **options)

    def norm(layer: GroupNorm, x: Tensor) -> Tensor:
        groups = layer.num_channels // 8
        return F.group_norm(x, groups, layer.weight, layer.bias, 1e-3)

    y = F.avg_pool2d(x, 2)
    options = {"stride": module.stride, "padding": module.conv1.padding[0], "groups": 2}
    y = F.relu(norm(module.norm1, conv(module.conv1, y, **options)))
    y = norm(module.norm2, conv(module.conv2, y))
    size = [-(-side // module.stride) for side in x.shape[2:]]
    return F.interpolate(y, size, mode="bilinear", align_corners=False)


def module(stride: int = 1, kernel: int = 5) -> LiteResidual:
    torch.manual_seed(0)
    made = LiteResidual(16, 24, kernel=kernel, stride=stride).double()
    for norm in (made.norm1, made.norm2):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias)
    return made


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("size", [(8, 8), (7, 9), (2, 3)])
def test_value_and_gradients_are_the_formula(
    stride: int, kernel: int, size: tuple[int, int]
) -> None:
    lite = module(stride, kernel)
    x = torch.randn(2, 16, *size, dtype=torch.float64, requires_grad=True)
    inputs = [x, *lite.parameters()]
    ours, expected = lite(x), plain(lite, x)
    torch.testing.assert_close(ours, expected)
    g = torch.randn_like(ours)
    for a, b in zip(
        torch.autograd.grad(ours, inputs, g), torch.autograd.grad(expected, inputs, g), strict=True
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("size", [(3, 4), (4, 4), (9, 8)])
def test_gives_the_size_that_is_asked_for(size: tuple[int, int]) -> None:
    """A block that pools beside its stride, or does not pad, has another one than strides tell."""
    lite, x = module(), torch.randn(2, 16, 8, 8, dtype=torch.float64)
    expected = lite.norm2(lite.conv2(F.relu(lite.norm1(lite.conv1(F.avg_pool2d(x, 2))))))
    expected = F.interpolate(expected, size, mode="bilinear")
    torch.testing.assert_close(lite(x, size=torch.Size(size)), expected)


def test_starts_as_nothing_and_can_begin_to_learn() -> None:
    lite = LiteResidual(16, 24)
    y = lite(torch.randn(2, 16, 8, 8))
    assert y.shape == (2, 24, 8, 8)
    assert not y.any()
    y.sum().backward()
    assert lite.norm2.weight.grad.abs().sum() > 0


def test_first_convolution_is_drawn_by_its_outputs() -> None:
    lite = LiteResidual(96, 96)
    assert lite.conv1.weight.std().item() == pytest.approx((2 / (25 * 96)) ** 0.5, rel=0.05)
    assert lite.conv2.weight.std().item() == pytest.approx((2 / 96) ** 0.5, rel=0.05)


def test_the_names_that_methods_train_by_are_its_parameters() -> None:
    assert tuple(n for n, _ in LiteResidual(16, 24).named_parameters()) == LiteResidual.PARAMETERS
    assert LiteResidual.LAST_SHIFT in LiteResidual.PARAMETERS


def test_middle_channels_are_a_multiple_of_eight() -> None:
    assert LiteResidual(20, 24).conv1.out_channels == 24
    assert LiteResidual(24, 24).conv1.out_channels == 24


def test_a_map_of_one_pixel_is_not_pooled() -> None:
    lite = module()
    x = torch.randn(2, 16, 1, 1, dtype=torch.float64)
    assert lite(x).shape == (2, 24, 1, 1)
    assert not torch.equal(lite(x), lite(2 * x + 1))


@pytest.mark.parametrize(("channels", "size"), [(96, 8), (42, 7), (20, 5), (8, 8), (6, 6), (2, 2)])
def test_group_size(channels: int, size: int) -> None:
    assert group_size(channels) == size


@pytest.mark.parametrize("channels", [1, 11, 13, 121])
def test_refuses_channels_without_groups(channels: int) -> None:
    with pytest.raises(PocketuneError, match=f"{channels} channels"):
        GroupNorm(channels)


def test_group_norm_takes_over_scale_shift_and_eps() -> None:
    norm = nn.BatchNorm2d(16, eps=0.01)
    grouped = GroupNorm.from_batch_norm(norm)
    assert grouped.weight is norm.weight
    assert grouped.bias is norm.bias
    assert grouped.eps == norm.eps
    assert grouped.num_groups == 2


def test_group_norm_runs_what_was_inside_the_batch_norm() -> None:
    norm = nn.BatchNorm2d(16)
    norm.act = nn.ReLU()
    assert GroupNorm.from_batch_norm(norm)(torch.randn(2, 16, 4, 4)).min() == 0


def test_group_norm_of_a_batch_norm_without_scale_is_refused() -> None:
    with pytest.raises(PocketuneError, match="affine=False"):
        GroupNorm.from_batch_norm(nn.BatchNorm2d(16, affine=False))


def test_a_shift_alone_is_trained_on_a_channels_last_input() -> None:
    """PyTorch 2.13's own group norm ends the process here."""
    norm = GroupNorm(16)
    norm.weight.requires_grad_(False)
    x = torch.randn(2, 16, 4, 4).to(memory_format=torch.channels_last)
    norm(x).sum().backward()
    torch.testing.assert_close(norm.bias.grad, torch.full((16,), 32.0))


@pytest.mark.parametrize("shape", [(6, 4, 3, 3), (5, 1, 3, 3), (4, 8, 1, 1)])
def test_standardize_is_its_formula(shape: tuple[int, ...]) -> None:
    weight = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    std, mean = torch.std_mean(weight, (1, 2, 3), keepdim=True)
    torch.testing.assert_close(standardize(weight), (weight - mean) / (std + 1e-5))
    assert torch.autograd.gradcheck(standardize, (weight,))


def test_equal_weights_become_zero_and_have_a_finite_gradient() -> None:
    weight = torch.full((2, 3, 3, 3), 0.5, requires_grad=True)
    standardize(weight).sum().backward()
    assert not standardize(weight).any()
    assert torch.isfinite(weight.grad).all()


def test_standardizing_keeps_only_the_weight() -> None:
    conv = StandardizedConv2d(8, 8, 3)
    (kept,) = kept_tensors(standardize, conv.weight)
    assert kept.data_ptr() == conv.weight.data_ptr()


def test_standardized_copy() -> None:
    conv = nn.Conv2d(4, 8, 3)
    twin = standardized(conv)
    assert twin is not conv
    torch.testing.assert_close(twin.weight, standardize(conv.weight))
    assert torch.equal(twin.bias, conv.bias)
