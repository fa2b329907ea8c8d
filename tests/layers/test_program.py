"""The side module: the same as its parts written out, and what it keeps."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pocketune.layers import ProgramModule

from .kept import kept_tensors


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


def test_changes_nothing_at_first() -> None:
    assert not ProgramModule(8, 8, 16)(torch.randn(2, 8, 8, 8)).any()


def test_initial_values() -> None:
    """Normal of variance 2 / (k^2 out)."""
    torch.manual_seed(1)
    module = ProgramModule(64, 64, 96)
    assert module.conv1.weight.std().item() == pytest.approx(math.sqrt(2 / (25 * 64)), rel=0.02)
    assert module.conv2.weight.std().item() == pytest.approx(math.sqrt(2 / 96), rel=0.05)


def test_maps_smaller_than_the_pooling_window() -> None:
    assert ProgramModule(8, 8, 16)(torch.randn(2, 8, 1, 1)).shape == (2, 16, 1, 1)


@pytest.mark.parametrize(
    ("channels", "image", "groups"),
    [((8, 8), False, 2), ((7, 8), False, 1), ((8, 9), False, 1), ((4, 8), True, 1)],
)
def test_groups(channels: tuple[int, int], image: bool, groups: int) -> None:
    assert ProgramModule(*channels, 16, reads_image=image).conv1.groups == groups


def test_kept_bytes_are_those_of_the_docstring() -> None:
    module = ProgramModule(6, 8, 12)
    tensors = kept_tensors(module, torch.randn(5, 6, 16, 16))
    maps = [t for t in tensors if t.dim() == 4 and t.shape[0] == 5]  # weights have other sizes
    kept = {t.data_ptr(): t.nbytes for t in maps}
    pooled = 5 * 8 * 8
    assert sum(kept.values()) == 4 * pooled * (6 + 8 + 8 + 12)


@pytest.mark.parametrize("size", [(3, 5), (4, 4)])
def test_gives_the_size_that_is_asked_for(size: tuple[int, int]) -> None:
    module = ProgramModule(8, 8, 16)
    assert module(torch.randn(2, 8, 8, 8), size=torch.Size(size)).shape == (2, 16, *size)
