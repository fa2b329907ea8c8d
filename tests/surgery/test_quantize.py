"""Frozen weights in 8 bits."""

import copy

import torch
from torch import nn

from pocketune.layers import QuantizedConv2d, QuantizedLinear
from pocketune.layers.conv import Conv2d
from pocketune.methods import BiasAndLast, TopBlocks, adapt
from pocketune.surgery import in_float, quantize_frozen, quantized
from pocketune.weights import create_network


def test_what_is_frozen_is_quantized_and_nothing_else() -> None:
    network = nn.Sequential(
        *(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1), nn.Linear(4, 2), nn.Linear(2, 2), nn.LayerNorm(2))
    )
    for place in (0, 2, 4):
        network[place].weight.requires_grad_(False)
    trained = network[1].weight.clone()
    quantize_frozen(network)
    kinds = [QuantizedConv2d, nn.Conv2d, QuantizedLinear, nn.Linear, nn.LayerNorm]
    assert [type(layer) for layer in network] == kinds
    assert torch.equal(network[1].weight, trained)
    assert network[0].bias.requires_grad


def test_linear_layers_are_float_again_with_the_rounded_weights() -> None:
    network = nn.Sequential(nn.Linear(6, 5, bias=False)).requires_grad_(False)
    quantize_frozen(network)
    assert quantized(network) == ["0"]
    exact = in_float(network)
    assert type(exact[0]) is nn.Linear
    x = torch.randn(2, 6)
    assert torch.equal(exact(x), network(x))


def test_other_paddings_stay_in_float() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), nn.Conv2d(4, 4, 3, padding="same")
    ).requires_grad_(False)
    quantize_frozen(network)
    assert [type(layer) for layer in network] == [nn.Conv2d, nn.Conv2d]


def test_tensorflows_padding_is_kept() -> None:
    conv = Conv2d(3, 4, 3, stride=2, same_padding=True).requires_grad_(False)
    network = nn.Sequential(copy.deepcopy(conv))
    quantize_frozen(network)
    assert type(network[0]) is QuantizedConv2d
    x = torch.randn(1, 3, 8, 7)
    torch.testing.assert_close(network(x), conv(x), atol=0.05, rtol=0)


def test_a_method_asks_for_it_or_the_caller() -> None:
    torch.manual_seed(0)
    network = create_network("mcunet_5fps", classes=3).eval()
    x = torch.randn(1, 3, 32, 32)
    adapted = {bits: adapt(network, TopBlocks(blocks=1), frozen_bits=bits) for bits in (8, 32)}
    stem = {
        bits: next(m for m in a.modules() if isinstance(m, nn.Conv2d))
        for bits, a in adapted.items()
    }
    assert isinstance(stem[8], QuantizedConv2d)
    assert not isinstance(stem[32], QuantizedConv2d)
    top = next(name for name, p in adapted[8].named_parameters() if p.requires_grad)
    assert torch.equal(adapted[8].get_parameter(top), network.get_parameter(top))
    outputs = {bits: a.eval()(x) for bits, a in adapted.items()}
    assert not torch.equal(outputs[8], outputs[32])
    torch.testing.assert_close(outputs[8], outputs[32], atol=0.1, rtol=0.1)


def test_biases_below_are_still_trained() -> None:
    network = adapt(create_network("mcunet_5fps", classes=3), BiasAndLast(), frozen_bits=8)
    network(torch.randn(2, 3, 32, 32)).sum().backward()
    assert all(p.grad is not None for p in network.parameters() if p.requires_grad)
    assert sum(isinstance(m, QuantizedConv2d) for m in network.modules()) > 40
