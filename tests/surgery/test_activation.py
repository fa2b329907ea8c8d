"""Which activations get a variant of one bit an element."""

import torch
from torch import nn

from pocketune.layers import MaskedReLU, MaskedReLU6, SignedHardswish, SignedReLU, SignedReLU6
from pocketune.surgery import (
    mask_activations,
    masked_activations,
    signed_activations,
    signed_after,
    swap,
)


def network() -> nn.Sequential:
    inner = nn.Sequential(nn.ReLU6(), nn.SiLU())
    return nn.Sequential(nn.ReLU(), nn.Hardswish(), inner, MaskedReLU6())


NAMES = ["0", "1", None, "2.0", "2.1", "3", "0"]


def kinds(net: nn.Module) -> list[type[nn.Module]]:
    return [type(module) for module in net.modules() if not isinstance(module, nn.Sequential)]


def test_signed_variants_take_the_place_of_those_that_have_one() -> None:
    net = network()
    swap(net, signed_activations(net, NAMES))
    assert kinds(net) == [SignedReLU, SignedHardswish, SignedReLU6, nn.SiLU, SignedReLU6]


def test_a_masked_relu6_takes_the_place_of_an_ordinary_one() -> None:
    net = network()
    swap(net, masked_activations(net, NAMES))
    assert kinds(net) == [nn.ReLU, nn.Hardswish, MaskedReLU6, nn.SiLU, MaskedReLU6]


def test_every_relu_keeps_one_bit_and_the_values_stay() -> None:
    net = network()
    x = torch.randn(5, 7)
    expected = net(x)
    mask_activations(net)
    assert kinds(net) == [MaskedReLU, nn.Hardswish, MaskedReLU6, nn.SiLU, MaskedReLU6]
    assert torch.equal(net(x), expected)


def test_a_factory_is_followed_by_the_signed_variant() -> None:
    assert type(signed_after(lambda _: MaskedReLU())(nn.ReLU())) is SignedReLU
    assert type(signed_after(lambda _: nn.SiLU())(nn.ReLU())) is nn.SiLU
