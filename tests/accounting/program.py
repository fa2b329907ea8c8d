"""Rep-Net's side modules beside MobileNetV2, as its public code lays them out, of plain layers."""

from __future__ import annotations

import torch
from torch import nn

from pocketune.networks.inverted_residual import InvertedResidual
from pocketune.surgery import add_branches

from .networks import on_meta

PLACES = {2: (3, 24), 4: (24, 32), 7: (32, 64), 11: (64, 96), 14: (96, 160), 17: (160, 320)}


class Program(nn.Sequential):
    """Pooling, a convolution in two groups, a 1x1 convolution, and resizing."""

    def __init__(self, inputs: int, outputs: int, kernel: int, side: int, pool: int) -> None:
        middle = max(8, round(inputs / 8) * 8)
        groups = 2 if inputs % 2 == 0 else 1
        super().__init__(
            nn.AvgPool2d(pool),
            nn.Conv2d(inputs, middle, kernel, padding=kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(middle, eps=1e-3),
            nn.ReLU(),
            nn.Conv2d(middle, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs, eps=1e-3),
        )
        self.side = side
        self.image: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x if self.image is None else self.image)
        return nn.functional.interpolate(y, size=self.side)


class Early(nn.Module):
    """The first module where the public code has it: before the network, added after block 2."""

    def __init__(self, network: nn.Module, program: nn.Module) -> None:
        super().__init__()
        self.program, self.network, self.result = program, network, None
        network.features[2].register_forward_hook(lambda m, i, o: o + self.result)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.result = self.program(x)
        return self.network(x)


def repnet(classes: int, *, early: bool, kept: tuple[int, ...] = ()) -> nn.Module:
    """MobileNetV2, frozen, with six side modules.

    `early` runs the first one before the network; `kept` is the number of hidden channels that
    blocks 1 to 4 keep.
    """
    with torch.device("meta"):
        network = on_meta("mobilenet_v2", classes=classes)
        if kept:
            _prune(network, kept)
        network.requires_grad_(False)
        network.classifier.requires_grad_(True)
        made = {f"features.{i}": _program(i, *channels) for i, channels in PLACES.items()}
        first = made["features.2"]
        if early:
            del made["features.2"]
        else:
            network.features[0].register_forward_pre_hook(
                lambda m, inputs: setattr(first, "image", inputs[0])
            )
        add_branches(network, {name: lambda _, m=module: m for name, module in made.items()})
        return Early(network, first) if early else network


def _program(place: int, inputs: int, outputs: int) -> Program:
    side = {2: 56, 4: 28, 7: 14, 11: 14, 14: 7, 17: 7}[place]
    return Program(inputs, outputs, 3 if place == 17 else 5, side, 8 if place == 2 else 2)


def _prune(network: nn.Module, kept: tuple[int, ...]) -> None:
    stem, second, third, fourth = kept
    conv, norm = network.features[0][0], network.features[0][1]
    network.features[0][0] = nn.Conv2d(3, stem, conv.kernel_size, 2, 1, bias=False)
    network.features[0][1] = nn.BatchNorm2d(stem, eps=norm.eps)
    network.features[1] = InvertedResidual(stem, stem, 16)
    network.features[2] = InvertedResidual(16, second, 24, stride=2)
    network.features[3] = InvertedResidual(24, third, 24)
    network.features[4] = InvertedResidual(24, fourth, 32, stride=2)
