"""torchvision's networks that classify pixels, with its module names: the plain reference.

The backbones are ours, whose names are those of torchvision.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.weights import create_network


class ASPPPooling(nn.Sequential):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(inputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        size = x.shape[-2:]
        for module in self:
            x = module(x)
        return functional.interpolate(x, size=size, mode="bilinear", align_corners=False)


class ASPP(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        convs = [conv(inputs, outputs, 1)]
        convs += [conv(inputs, outputs, 3, dilation) for dilation in (12, 24, 36)]
        self.convs = nn.ModuleList([*convs, ASPPPooling(inputs, outputs)])
        self.project = nn.Sequential(*conv(5 * outputs, outputs, 1), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.project(torch.cat([module(x) for module in self.convs], 1))


def conv(inputs: int, outputs: int, kernel: int, dilation: int = 1) -> nn.Sequential:
    padding = dilation * (kernel // 2)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, padding=padding, dilation=dilation, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


def deeplab_head(inputs: int, classes: int, channels: int) -> nn.Sequential:
    return nn.Sequential(
        ASPP(inputs, channels), *conv(channels, channels, 3), nn.Conv2d(channels, classes, 1)
    )


def fcn_head(inputs: int, classes: int) -> nn.Sequential:
    middle = inputs // 4
    return nn.Sequential(*conv(inputs, middle, 3), nn.Dropout(0.1), nn.Conv2d(middle, classes, 1))


class LRASPPHead(nn.Module):
    def __init__(self, low: int, high: int, classes: int, middle: int) -> None:
        super().__init__()
        self.cbr = conv(high, middle, 1)
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(high, middle, 1, bias=False), nn.Sigmoid()
        )
        self.low_classifier = nn.Conv2d(low, classes, 1)
        self.high_classifier = nn.Conv2d(middle, classes, 1)

    def forward(self, low: Tensor, high: Tensor) -> Tensor:
        x = self.cbr(high) * self.scale(high)
        x = functional.interpolate(x, size=low.shape[-2:], mode="bilinear", align_corners=False)
        return self.low_classifier(low) + self.high_classifier(x)


class TorchvisionDense(nn.Module):
    """One of the networks `fcn`, `deeplabv3` and `lraspp`; gives logits that are not resized.

    With `auxiliary`, it has the second head that pretrained weights come with.
    """

    def __init__(
        self,
        kind: str,
        backbone: str,
        *,
        width: float,
        classes: int,
        head_channels: int,
        auxiliary: bool = True,
    ) -> None:
        super().__init__()
        mobile = backbone.startswith("mobilenet")
        source = create_network(backbone, width=width, output_stride=16 if mobile else 8)
        named = dict((source.features if mobile else source).named_children())
        named.pop("fc", None)
        self.backbone = nn.ModuleDict(named)
        *_, norm = (m for m in self.backbone.modules() if isinstance(m, nn.BatchNorm2d))
        wide = norm.num_features
        if kind == "lraspp":
            low = next(reversed([*self.backbone["4"].modules()])).num_features
            self.classifier = LRASPPHead(low, wide, classes, head_channels)
        elif kind == "fcn":
            self.classifier = fcn_head(wide, classes)
        else:
            self.classifier = deeplab_head(wide, classes, head_channels)
        if auxiliary and kind != "lraspp":
            self.aux_classifier = fcn_head(wide // 2, classes)

    def forward(self, x: Tensor) -> Tensor:
        maps = {}
        for name, module in self.backbone.items():
            x = maps[name] = module(x)
        low = [maps["4"]] if isinstance(self.classifier, LRASPPHead) else []
        return self.classifier(*low, x)
