"""Inception-V3 (Szegedy et al., 2016) in torchvision's layout, its auxiliary classifier unused."""

from __future__ import annotations

import torch
from torch import Tensor, nn

Size = int | tuple[int, int]


def conv(inputs: int, outputs: int, kernel: Size = 1, stride: int = 1, padding: Size = 0):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3),
        nn.ReLU(),
    )


def pooled(inputs: int, outputs: int):
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(inputs, outputs))


class Branches(nn.Module):
    """What several modules make of one input, side by side."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def block_a(inputs: int, pool: int):
    return Branches(
        conv(inputs, 64),
        nn.Sequential(conv(inputs, 48), conv(48, 64, 5, padding=2)),
        nn.Sequential(conv(inputs, 64), conv(64, 96, 3, padding=1), conv(96, 96, 3, padding=1)),
        pooled(inputs, pool),
    )


def block_b(inputs: int):
    return Branches(
        conv(inputs, 384, 3, 2),
        nn.Sequential(conv(inputs, 64), conv(64, 96, 3, padding=1), conv(96, 96, 3, 2)),
        nn.MaxPool2d(3, 2),
    )


def block_c(inputs: int, middle: int):
    def wide(inputs: int, outputs: int):
        return conv(inputs, outputs, (1, 7), padding=(0, 3))

    def high(inputs: int, outputs: int):
        return conv(inputs, outputs, (7, 1), padding=(3, 0))

    return Branches(
        conv(inputs, 192),
        nn.Sequential(conv(inputs, middle), wide(middle, middle), high(middle, 192)),
        nn.Sequential(
            conv(inputs, middle),
            high(middle, middle),
            wide(middle, middle),
            high(middle, middle),
            wide(middle, 192),
        ),
        pooled(inputs, 192),
    )


def block_d(inputs: int):
    return Branches(
        nn.Sequential(conv(inputs, 192), conv(192, 320, 3, 2)),
        nn.Sequential(
            conv(inputs, 192),
            conv(192, 192, (1, 7), padding=(0, 3)),
            conv(192, 192, (7, 1), padding=(3, 0)),
            conv(192, 192, 3, 2),
        ),
        nn.MaxPool2d(3, 2),
    )


def block_e(inputs: int):
    def fork():
        return Branches(
            conv(384, 384, (1, 3), padding=(0, 1)), conv(384, 384, (3, 1), padding=(1, 0))
        )

    return Branches(
        conv(inputs, 320),
        nn.Sequential(conv(inputs, 384), fork()),
        nn.Sequential(conv(inputs, 448), conv(448, 384, 3, padding=1), fork()),
        pooled(inputs, 192),
    )


class InceptionV3(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            conv(3, 32, 3, 2),
            conv(32, 32, 3),
            conv(32, 64, 3, padding=1),
            nn.MaxPool2d(3, 2),
            conv(64, 80),
            conv(80, 192, 3),
            nn.MaxPool2d(3, 2),
            block_a(192, 32),
            block_a(256, 64),
            block_a(288, 64),
            block_b(288),
            block_c(768, 128),
            block_c(768, 160),
            block_c(768, 160),
            block_c(768, 192),
            block_d(768),
            block_e(1280),
            block_e(2048),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.aux = nn.Sequential(conv(768, 128), conv(128, 768, 5), nn.Linear(768, 1000))
        self.fc = nn.Linear(2048, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.features(x))


def inception_v3(classes: int) -> nn.Module:
    with torch.device("meta"):
        return InceptionV3(classes)
