"""Parts of networks that several methods need."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.errors import PocketuneError
from pocketune.methods import (
    ActivationPruning,
    BiasAndLast,
    FewBitBackward,
    FullFineTune,
    LastLayer,
    LoRA,
    LowRankBackward,
    Method,
    NormAndLast,
    SignedBackward,
    adapt,
)

from .names import trained


class RootMeanSquareNorm(nn.Module):
    """A norm of an own class, as many packages have."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


class Attention(nn.Module):
    """Reads the weights of its layers as torchvision's Swin does, and has an own norm and biases.

    Tokens (N, T, 8) -> the same.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norm = RootMeanSquareNorm(8)
        self.qkv = nn.Linear(8, 24, bias=False)
        self.q_bias = nn.Parameter(torch.zeros(8))
        self.position_bias = nn.Parameter(torch.zeros(16, 16))
        self.out = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = functional.linear(self.norm(x), self.qkv.weight).chunk(3, -1)
        scores = (q + self.q_bias) @ k.mT + self.position_bias
        return x + self.out(scores.softmax(-1) @ v)


class Transformer(nn.Module):
    """Images (N, 3, 32, 32) -> scores (N, 5)."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 8, 8)
        self.attention = Attention()
        self.other = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention(self.patches(x).flatten(2).mT)
        return self.head((x + self.other(x, x, x)[0]).mean(1))


HEAD = {"head.weight", "head.bias"}


@pytest.mark.parametrize("method", [LoRA(2), FullFineTune() + LowRankBackward(4, 2)], ids=str)
def test_layers_whose_weights_are_only_read_are_left_alone(method: Method) -> None:
    """What stands beside such a layer, or takes its place, would not run."""
    adapted = adapt(Transformer(), method)
    changed = {
        path.removesuffix(".branch")
        for path, module in adapted.named_modules()
        if type(module).__name__.startswith("LowRank")
    }
    assert changed == {"attention.out"}


def test_biases_of_attention_are_biases() -> None:
    biases = {"patches.bias", "attention.q_bias", "attention.out.bias"}
    biases |= {"other.in_proj_bias", "other.out_proj.bias"}
    assert trained(adapt(Transformer(), BiasAndLast())) == biases | HEAD


def test_norms_of_an_own_class_are_norms() -> None:
    assert trained(adapt(Transformer(), NormAndLast())) == {"attention.norm.weight"} | HEAD


def test_frozen_kernels_in_8_bits_can_be_read_as_weights() -> None:
    class Reads(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            maps = functional.conv2d(x, self[0].weight, self[0].bias)
            scores: Tensor = self[1](maps.mean((2, 3)))
            return scores

    network = Reads(nn.Conv2d(3, 8, 3), nn.Linear(8, 5))
    images = torch.randn(2, 3, 8, 8)
    found = adapt(network, LastLayer(), frozen_bits=8)(images)
    torch.testing.assert_close(found, network(images), rtol=0.05, atol=0.01)


@pytest.mark.parametrize(
    "added", [ActivationPruning(), FewBitBackward(), SignedBackward()], ids=str
)
def test_a_method_that_is_added_says_that_it_needs_blocks(added: Method) -> None:
    """And not which other methods need none, which is one of the two."""
    layers = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
    network = nn.Sequential(*layers)
    with pytest.raises(PocketuneError) as raised:
        adapt(network, FullFineTune() + added)
    assert str(raised.value) == (
        f"{added} needs the blocks of a network: Sequential has no blocks, modules that map "
        "features to features; leave it out"
    )
