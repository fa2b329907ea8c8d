"""Side branches: the modules of TinyTL and of Rep-Net against their formulas."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pocketune.errors import PocketuneError
from pocketune.layers import GroupNorm, LiteResidual, MaskedReLU, ProgramModule

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


def test_the_last_bias_is_one_of_its_parameters() -> None:
    assert LiteResidual.LAST_BIAS in dict(LiteResidual(16, 24).named_parameters())


def test_middle_channels_are_a_multiple_of_eight() -> None:
    assert LiteResidual(20, 24).conv1.out_channels == 24
    assert LiteResidual(24, 24).conv1.out_channels == 24


def test_a_map_of_one_pixel_is_not_pooled() -> None:
    lite = module()
    x = torch.randn(2, 16, 1, 1, dtype=torch.float64)
    assert lite(x).shape == (2, 24, 1, 1)
    assert not torch.equal(lite(x), lite(2 * x + 1))


def random_module(*args: int, **options: object) -> ProgramModule:
    torch.manual_seed(0)
    module = ProgramModule(*args, **options).double()
    nn.init.uniform_(module.norm2.weight, 0.5, 1.5)
    nn.init.normal_(module.norm1.bias)
    return module


def standardized(weight: Tensor) -> Tensor:
    deviation, mean = torch.std_mean(weight, (1, 2, 3), keepdim=True)
    return (weight - mean) / (deviation + 1e-5)


def written_out(module: ProgramModule, x: Tensor, window: int, size: tuple[int, int]) -> Tensor:
    y = F.avg_pool2d(x, window)
    conv1, norm1, conv2, norm2 = module.conv1, module.norm1, module.conv2, module.norm2
    y = F.conv2d(y, standardized(conv1.weight), padding=conv1.padding, groups=conv1.groups)
    y = F.relu(F.batch_norm(y, None, None, norm1.weight, norm1.bias, True, eps=1e-3))
    y = F.conv2d(y, standardized(conv2.weight))
    y = F.batch_norm(y, None, None, norm2.weight, norm2.bias, True, eps=1e-3)
    return F.interpolate(y, size, mode="bilinear", align_corners=False)


CASES = [  # module, what it reads, its pooling, the size of its block's output
    (random_module(8, 16, 12), (2, 8, 12, 12), 2, (12, 12)),
    (random_module(8, 8, 12, kernel=3, stride=2), (2, 8, 14, 10), 2, (7, 5)),
    (random_module(8, 8, 12, stride=2), (2, 8, 13, 13), 2, (7, 7)),
    (random_module(3, 8, 6, stride=4, reads_image=True), (2, 3, 32, 48), 8, (8, 12)),
]


@pytest.mark.parametrize(("module", "shape", "window", "size"), CASES)
def test_output_and_gradients(module, shape, window, size) -> None:
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    y, expected = module(x), written_out(module, x, window, size)
    torch.testing.assert_close(y, expected)
    inputs = [x, *module.parameters()]
    gradient = torch.randn_like(y)
    gradients = torch.autograd.grad(y, inputs, gradient)
    for mine, plain in zip(gradients, torch.autograd.grad(expected, inputs, gradient), strict=True):
        torch.testing.assert_close(mine, plain)


@pytest.mark.parametrize(
    ("channels", "image", "groups"),
    [((8, 8), False, 2), ((7, 8), False, 1), ((8, 9), False, 1), ((4, 8), True, 1)],
)
def test_groups(channels: tuple[int, int], image: bool, groups: int) -> None:
    assert ProgramModule(*channels, 16, reads_image=image).conv1.groups == groups


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("branch", [ProgramModule(6, 8, 12), LiteResidual(6, 12)], ids=repr)
def test_kept_bytes_are_those_of_the_docstring(branch: nn.Module, masked: bool) -> None:
    module = copy.deepcopy(branch)
    if masked:
        module.activation = MaskedReLU()
    tensors = kept_tensors(module, torch.randn(5, 6, 16, 16))
    maps = [t for t in tensors if t.dim() == 4 and t.shape[0] == 5]  # weights have other sizes
    kept = {t.data_ptr(): t.nbytes for t in maps}
    pooled = 5 * 8 * 8
    assert sum(kept.values()) == 4 * pooled * (6 + 8 + 8 + 12)
    signs = [t.nbytes for t in tensors if t.dtype == torch.uint8]
    assert sum(signs) == masked * pooled * 8 / 8


@pytest.mark.parametrize("inputs", [4, 7, 16])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_lite_residual_module_is_built_again_from_its_arguments(inputs: int, stride: int) -> None:
    groups = 1 if inputs % 2 else 2
    module = LiteResidual(inputs, 24, kernel=3, stride=stride, groups=groups)
    again = LiteResidual(**module.arguments())
    shapes = [{name: t.shape for name, t in m.state_dict().items()} for m in (module, again)]
    assert shapes[0] == shapes[1]
    assert again.arguments() == module.arguments()


@pytest.mark.parametrize("size", [(1, 1), (1, 6), (5, 7), (8, 8)])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_branch_begins_with_zeros_of_the_block_s_size(size: tuple[int, int], stride: int) -> None:
    for made in (LiteResidual(4, 8, stride=stride), ProgramModule(4, 8, 8, stride=stride)):
        y = made(torch.randn(2, 4, *size))
        assert tuple(y.shape) == (2, 8, *(-(-side // stride) for side in size))
        assert not y.any()
        assert tuple(made(torch.randn(2, 4, *size), (9, 3)).shape) == (2, 8, 9, 3)


def test_groups_that_do_not_divide_a_branch_s_channels_are_refused() -> None:
    with pytest.raises(PocketuneError, match=r"groups=2 does not divide .* 7 -> 8; use groups=1"):
        LiteResidual(7, 8)
