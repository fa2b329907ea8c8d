"""TinyTL's lite residual modules (section 3.2 of the paper), made of plain layers."""

from __future__ import annotations

import torch
from torch import nn

from pocketune.networks import anatomy
from pocketune.surgery import add_branches

from .networks import on_meta

MODULES = 19


class Lite(nn.Sequential):
    """Half the resolution, a convolution in two groups, a 1x1 convolution, and back."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__(
            nn.AvgPool2d(2),
            nn.Conv2d(
                inputs, inputs, kernel, stride=stride, padding=kernel // 2, groups=2, bias=False
            ),
            nn.BatchNorm2d(inputs, eps=1e-3),
            nn.ReLU(),
            nn.Conv2d(inputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs, eps=1e-3),
        )
        self.stride = stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = [-(-side // self.stride) for side in x.shape[2:]]
        return nn.functional.interpolate(super().forward(x), size=size)


def add_lite(network: nn.Module, blocks: int = MODULES) -> nn.Module:
    """Beside the last `blocks` blocks of ProxylessNAS-Mobile."""
    add_branches(network, {b.name: _lite for b in anatomy(network).blocks[-blocks:]})
    return network


def _lite(block: nn.Module) -> nn.Module:
    *_, depthwise, project = (m for m in block.modules() if isinstance(m, nn.Conv2d))
    inputs = next(m for m in block.modules() if isinstance(m, nn.Conv2d)).in_channels
    kernel = 3 if inputs == 192 else 5  # 192 channels enter the blocks of the lowest resolution
    return Lite(inputs, project.out_channels, kernel, depthwise.stride[0])


def lite_network(classes: int = 102) -> nn.Module:
    """ProxylessNAS-Mobile with its 19 lite residual modules."""
    network = on_meta("proxylessnas_mobile", classes=classes)
    with torch.device("meta"):
        return add_lite(network)


def trained_sets(network: nn.Module) -> dict[str, set[str]]:
    """What each row of TinyTL's table 2 trains, by the names of parameters."""
    names = [name for name, _ in network.named_parameters()]
    norms = {name for name, m in network.named_modules() if isinstance(m, nn.BatchNorm2d)}
    last = {"classifier.1.weight", "classifier.1.bias"}
    biases = last | {name for name in names if name.endswith("bias")}
    lite = last | {name for name in names if ".branch." in name}
    last_shifts = {name for name in names if name.endswith("branch.5.bias")}
    return {
        "FT-Last": last,
        "TinyTL-B": biases,
        "TinyTL-L": lite,
        "TinyTL-L+B": (lite | biases) - last_shifts,
        "FT-Norm+Last": last | {name for name in names if name.rpartition(".")[0] in norms},
        "FT-Full": set(names),
    }
