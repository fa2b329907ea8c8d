import pytest
import torch
from torch.nn import functional as F

from pocketune.layers.conv import Conv2d
from pocketune.networks.architectures.parts import (
    ConvNormActivation,
    convolution,
    make_divisible,
)


@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [(8, 8), (7, 7), (9, 6), (1, 2)])
def test_same_padding_is_tensorflows(kernel, stride, size):
    """out = ceil(in / stride); the odd zero goes right and bottom."""
    layer = convolution(2, 3, kernel, stride=stride, padding="same")
    images = torch.randn(2, 2, *size)
    pads = []
    for length in reversed(size):
        total = max((-(-length // stride) - 1) * stride + kernel - length, 0)
        pads += [total // 2, total - total // 2]
    expected = F.conv2d(F.pad(images, pads), layer.weight, stride=stride)
    assert expected.shape[2:] == tuple(-(-length // stride) for length in size)
    torch.testing.assert_close(layer(images), expected)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_a_dilated_kernel_is_padded_for_its_extent(stride):
    """The same as the larger kernel with zeros in between."""
    layer = Conv2d(2, 3, 3, stride=stride, dilation=2, bias=False, same_padding=True)
    dense = Conv2d(2, 3, 5, stride=stride, bias=False, same_padding=True)
    torch.nn.init.zeros_(dense.weight).data[..., ::2, ::2] = layer.weight.data
    images = torch.randn(2, 2, 8, 9)
    torch.testing.assert_close(layer(images), dense(images))


def test_even_sizes_pad_right_and_bottom_only():
    layer = Conv2d(1, 1, 3, stride=2, bias=False, same_padding=True)
    torch.nn.init.ones_(layer.weight)
    image = torch.ones(1, 1, 4, 4)
    assert layer(image).flatten().tolist() == [9, 6, 6, 4]


def test_symmetric_padding():
    layer = convolution(4, 4, 5, stride=2, groups=4)
    assert (layer.padding, layer.stride, layer.groups, layer.bias) == ((2, 2), (2, 2), 4, None)


def test_activation_can_be_left_out():
    assert len(ConvNormActivation(3, 8, 3)) == 3
    assert len(ConvNormActivation(3, 8, 3, activation=None)) == 2


@pytest.mark.parametrize(
    ("channels", "expected"),
    [(32, 32), (11.2, 16), (8.4, 8), (33.6, 32), (22.4, 24), (3, 8), (44.8, 48), (56.0, 56)],
)
def test_make_divisible(channels, expected):
    assert make_divisible(channels) == expected
