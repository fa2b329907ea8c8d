"""Networks of random layers compile, and agree with PyTorch.

There are 20 here, and as many as
`POCKETUNE_FUZZ_NETWORKS=10000 pytest tests/fuzz/test_any_network.py` says.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from pocketune.compiler import compile
from pocketune.compiler.check import CompileError
from pocketune.errors import PocketuneError
from pocketune.kit.manifest import KitError
from pocketune.methods import BiasAndLast, FullFineTune, LastLayer, Method, NormAndLast, adapt
from pocketune.tasks import Attributes, Classification, Segmentation, Task

FEW = 20  # the same ones in every run
CASES = int(os.environ.get("POCKETUNE_FUZZ_NETWORKS", FEW))
SIZE, NAMES = 24, ("a", "b", "c")


class Applied(nn.Module):
    """A function of what a module gives."""

    def __init__(self, module: nn.Module, function: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.module, self._function = module, function

    def forward(self, x: Tensor) -> Tensor:
        return self._function(self.module, x)


def function(called: Callable[[Tensor], Tensor]) -> Callable[[int], nn.Module]:
    return lambda _: Applied(nn.Identity(), lambda _module, x: called(x))


def layer_norm(channels: int) -> nn.Module:
    moved = lambda norm, x: norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)  # noqa: E731
    return Applied(nn.LayerNorm(channels), moved)


def excite(channels: int) -> nn.Module:
    layers = nn.Conv2d(channels, 4, 1), nn.ReLU(), nn.Conv2d(4, channels, 1), nn.Sigmoid()
    scaled = lambda gate, x: x * gate(x.mean((2, 3), keepdim=True))  # noqa: E731
    return Applied(nn.Sequential(*layers), scaled)


def attend(channels: int) -> nn.Module:
    """Attention of every pixel to all, with one head."""

    def attended(linear: nn.Module, x: Tensor) -> Tensor:
        query, key, value = linear(x.flatten(2).transpose(1, 2)).chunk(3, -1)
        found = functional.scaled_dot_product_attention(query, key, value)
        return x + found.transpose(1, 2).reshape(x.shape)

    return Applied(nn.Linear(channels, 3 * channels), attended)


def encode(channels: int) -> nn.Module:
    """PyTorch's encoder layer; it reads tokens of shape (T, N, C)."""

    def encoded(layer: nn.Module, x: Tensor) -> Tensor:
        y: Tensor = layer(x.flatten(2).permute(2, 0, 1))
        return y.permute(1, 2, 0).reshape(x.shape)

    return Applied(nn.TransformerEncoderLayer(channels, 1, 2 * channels, 0.1), encoded)


def convolution(channels: int, outputs: int = 0, kernel: int = 3, **options: object) -> nn.Conv2d:
    padding = kernel // 2 * int(str(options.get("dilation", 1)))
    given = {"padding": padding, **options}
    return nn.Conv2d(channels, outputs or channels, kernel, **given)  # type: ignore[arg-type]


LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "3x3": lambda c: convolution(c, 6),
    "wider": lambda c: convolution(c, 2 * c, 1, bias=False),
    "strided": lambda c: convolution(c, 8, stride=2),
    "dilated": lambda c: convolution(c, dilation=2),
    "depthwise": lambda c: convolution(c, kernel=5, groups=c),
    "grouped": lambda c: convolution(c, groups=2),
    "one row": lambda c: nn.Conv2d(c, 8, (1, 3), padding=(0, 1)),
    "reflecting": lambda c: convolution(c, padding_mode="reflect"),
    "transposed": lambda c: nn.ConvTranspose2d(c, c, 2, stride=2),
    "twice": lambda c: Applied(convolution(c), lambda conv, x: torch.tanh(conv(conv(x)))),
    "residual": lambda c: Applied(convolution(c), lambda conv, x: x + 0.5 * conv(x)),
    "two branches": lambda c: Applied(convolution(c), lambda conv, x: torch.cat([x, conv(x)], 1)),
    "batch norm": nn.BatchNorm2d,
    "plain batch norm": lambda c: nn.BatchNorm2d(c, affine=False),
    "group norm": lambda c: nn.GroupNorm(2, c),
    "instance norm": lambda c: nn.InstanceNorm2d(c, affine=True),
    "layer norm": layer_norm,
    "excite": excite,
    "attend": attend,
    "encode": encode,
    "ReLU6": lambda _: nn.ReLU6(),
    "h-swish": lambda _: nn.Hardswish(),
    "SiLU": lambda _: nn.SiLU(),
    "GELU": lambda _: nn.GELU(),
    "ELU": lambda _: nn.ELU(),
    "softplus": lambda _: nn.Softplus(),
    "PReLU": nn.PReLU,
    "max pooling": lambda _: nn.MaxPool2d(3, 2, 1),
    "average pooling": lambda _: nn.AvgPool2d(3, 1, 1, count_include_pad=False),
    "upsampling": lambda _: nn.Upsample(scale_factor=2, mode="bilinear"),
    "dropout": lambda _: nn.Dropout(0.2),
    "shuffled": lambda _: nn.ChannelShuffle(2),
    "flipped": function(lambda x: x.flip(3)),
    "rolled": function(lambda x: torch.roll(x, (1, 1), (2, 3))),
    "halves": function(lambda x: x[:, ::2] * torch.sigmoid(x[:, 1::2])),
    "centered": function(lambda x: x - x.mean((1, 2, 3), keepdim=True) + x.amax(1, keepdim=True)),
    "normalized": function(lambda x: x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-3)),
}
POOLED: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: x.mean((2, 3)),
    "flat mean": lambda x: x.flatten(2).mean(-1),
    "largest": lambda x: x.amax((2, 3)),
    "adaptive": lambda x: functional.adaptive_avg_pool2d(x, 1).flatten(1),
}
LARGEST = 16
"""Sides of a map; larger ones are not enlarged, and attention is for small ones."""
METHODS = FullFineTune(), BiasAndLast(), NormAndLast(), LastLayer()


def body(names: list[str]) -> tuple[nn.Sequential, int]:
    """Layers that fit behind each other, and their channels; others are left out."""
    layers: list[nn.Module] = [convolution(3, 8, stride=2)]
    x = layers[0](torch.zeros(2, 3, SIZE, SIZE))
    for name in names:
        channels, side = x.shape[1:3]
        large = side > LARGEST if name in ("transposed", "upsampling") else side > 8
        odd = channels % 2 and name in ("grouped", "group norm", "shuffled", "halves")
        if odd or (large and name in ("transposed", "upsampling", "attend", "encode")) or side < 3:
            continue
        layer = LAYERS[name](channels)
        layers.append(layer)
        x = layer(x)
    return nn.Sequential(*layers), x.shape[1]


@pytest.mark.timeout(CASES * 5)
@pytest.mark.filterwarnings("ignore::UserWarning")
@given(
    names=st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=8),
    pooled=st.sampled_from([*POOLED, "none"]),
    method=st.sampled_from(METHODS),
    batch=st.sampled_from([1, 2, 3]),
    attributes=st.booleans(),
)
@settings(max_examples=CASES, derandomize=CASES == FEW, deadline=None)
def test_random_layers(
    names: list[str], pooled: str, method: Method, batch: int, attributes: bool
) -> None:
    torch.manual_seed(len(names))
    layers, channels = body(names)
    task: Task = Attributes(NAMES) if attributes else Classification(NAMES)
    network: nn.Module
    if pooled == "none":
        network, task = nn.Sequential(layers, nn.Conv2d(channels, 3, 1)), Segmentation(NAMES)
    else:
        network = nn.Sequential(layers, function(POOLED[pooled])(0), nn.Linear(channels, 3))
    refused = ""
    with tempfile.TemporaryDirectory() as folder:
        try:
            adapted = adapt(network, method)
            compile(adapted, Path(folder) / "kit", batch=batch, size=SIZE, task=task)
        except (CompileError, KitError):
            raise
        except PocketuneError as error:
            refused = str(error)
    assert not refused or refused.startswith("NormAndLast() finds no norm")
