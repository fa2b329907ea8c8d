"""Small networks with the blocks of younger ones: transformers, ConvNeXt, GhostNet, RepVGG ..."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CHANNELS, CLASSES = 8, 3


def conv_norm(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1):
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class LayerNorm2d(nn.LayerNorm):
    """Of maps (N, C, H, W), over the channels."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Attention(nn.Module):
    def __init__(self, channels: int = CHANNELS, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        n, t, c = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(n, t, c))


class Mlp(nn.Module):
    def __init__(self, channels: int = CHANNELS, hidden: int = 2 * CHANNELS) -> None:
        super().__init__()
        self.fc1, self.act = nn.Linear(channels, hidden), nn.GELU()
        self.fc2 = nn.Linear(hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class TransformerBlock(nn.Module):
    def __init__(self, mixer: nn.Module | None = None) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(CHANNELS), mixer or Attention()
        self.norm2, self.mlp = nn.LayerNorm(CHANNELS), Mlp()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """Its blocks are registered after its last norm."""

    def __init__(self, depth: int = 3, mixer: type[nn.Module] | None = None) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(CHANNELS)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, CHANNELS))
        self.patch_embed = nn.Conv2d(3, CHANNELS, 8, 8)
        blocks = [TransformerBlock(mixer() if mixer else None) for _ in range(depth)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(CHANNELS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1)
        return self.head(self.norm(self.blocks(x))[:, 0])


class TokenMixer(nn.Module):
    """Mixes the tokens of images of 32 pixels, and the class token."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(17, 17)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x.transpose(1, 2)).transpose(1, 2)


class ConvNeXtBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv_dw = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.mlp = Mlp(channels, 4 * channels)
        self.gamma = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.mlp(self.norm(self.conv_dw(x).permute(0, 2, 3, 1)))
        return x + (self.gamma * y).permute(0, 3, 1, 2)


class GhostModule(nn.Module):
    def __init__(self, inputs: int, outputs: int, *, activates: bool) -> None:
        super().__init__()
        half = outputs // 2
        act = nn.ReLU if activates else nn.Identity
        self.primary_conv = nn.Sequential(*conv_norm(inputs, half), act())
        self.cheap_operation = nn.Sequential(*conv_norm(half, half, 3, groups=half), act())

    def forward(self, x: Tensor) -> Tensor:
        x = self.primary_conv(x)
        return torch.cat([x, self.cheap_operation(x)], 1)


class GhostBottleneck(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.ghost1 = GhostModule(inputs, 2 * inputs, activates=True)
        self.dw = conv_norm(2 * inputs, 2 * inputs, 3, stride, 2 * inputs)
        self.ghost2 = GhostModule(2 * inputs, outputs, activates=False)
        self.shortcut = nn.Sequential(
            *conv_norm(inputs, inputs, 3, stride, inputs), *conv_norm(inputs, outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.ghost2(self.dw(self.ghost1(x))) + self.shortcut(x)


class RepBlock(nn.Module):
    """The sum of two convolutions, and an activation behind it."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.large = conv_norm(inputs, outputs, 3, stride)
        self.small = conv_norm(inputs, outputs, 1, stride)
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.large(x) + self.small(x))


class MixedConv(nn.ModuleDict):
    """Depthwise convolutions of several sizes, each of its share of the channels."""

    def __init__(self, channels: int) -> None:
        half = channels // 2
        kernels = {str(i): nn.Conv2d(half, half, k, 1, k // 2, groups=half, bias=False)
                   for i, k in enumerate((3, 5))}  # fmt: skip
        super().__init__(kernels)

    def forward(self, x: Tensor) -> Tensor:
        halves = torch.split(x, x.shape[1] // 2, 1)
        return torch.cat([conv(half) for conv, half in zip(self.values(), halves, strict=True)], 1)


class MixedInvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        middle = 2 * inputs
        self.conv_pw, self.bn1 = nn.Conv2d(inputs, middle, 1, bias=False), nn.BatchNorm2d(middle)
        self.act1, self.conv_dw = nn.ReLU(), MixedConv(middle)
        self.bn2, self.act2 = nn.BatchNorm2d(middle), nn.ReLU()
        self.conv_pwl, self.bn3 = nn.Conv2d(middle, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.has_skip = inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.act2(self.bn2(self.conv_dw(self.act1(self.bn1(self.conv_pw(x))))))
        y = self.bn3(self.conv_pwl(y))
        return x + y if self.has_skip else y


class DenseLayer(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm, self.act = nn.BatchNorm2d(inputs), nn.ReLU()
        self.conv = nn.Sequential(nn.Conv2d(inputs, 4, 3, padding=1, bias=False))

    def forward(self, maps: list[Tensor]) -> Tensor:
        return self.conv(self.act(self.norm(torch.cat(maps, 1))))


class DenseBlock(nn.ModuleDict):
    def __init__(self, inputs: int, layers: int) -> None:
        super().__init__({f"layer{i}": DenseLayer(inputs + 4 * i) for i in range(layers)})

    def forward(self, x: Tensor) -> Tensor:
        maps = [x]
        for layer in self.values():
            maps.append(layer(maps))
        return torch.cat(maps, 1)


def with_trunk(*trunk: nn.Module, channels: int = 2 * CHANNELS) -> nn.Sequential:
    """These modules with a stem before them, and pooling and a classifier behind them."""
    stem = nn.Sequential(*conv_norm(3, CHANNELS, 3, 2), nn.ReLU())
    pooled = (nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(stem, nn.Sequential(*trunk), *pooled, nn.Linear(channels, CLASSES))


def convnext() -> nn.Sequential:
    """Two stages, of which the second begins with a strided convolution."""
    down = nn.Sequential(LayerNorm2d(CHANNELS), nn.Conv2d(CHANNELS, 2 * CHANNELS, 2, 2))
    stages = [nn.Sequential(ConvNeXtBlock(CHANNELS), ConvNeXtBlock(CHANNELS))]
    stages += [nn.Sequential(down, nn.Sequential(ConvNeXtBlock(2 * CHANNELS)))]
    return with_trunk(*stages, LayerNorm2d(2 * CHANNELS))


def ghostnet() -> nn.Sequential:
    return with_trunk(GhostBottleneck(8, 8), GhostBottleneck(8, 16, 2), GhostBottleneck(16, 16))


def repvgg() -> nn.Sequential:
    return with_trunk(RepBlock(8, 8), RepBlock(8, 16, 2), RepBlock(16, 16))


def mixnet() -> nn.Sequential:
    return with_trunk(*(MixedInvertedResidual(a, b) for a, b in ((8, 8), (8, 16), (16, 16))))


def densenet() -> nn.Sequential:
    return with_trunk(DenseBlock(8, 2), *conv_norm(16, 8), nn.AvgPool2d(2), DenseBlock(8, 2))


def vgg() -> nn.Sequential:
    rows = [nn.Sequential(*conv_norm(a, b, 3), nn.ReLU()) for a, b in ((8, 8), (8, 16))]
    return with_trunk(*rows[0], nn.MaxPool2d(2), *rows[1])


class ConvNormReLU(nn.Module):
    """A convolution, its norm and its activation, as a module of its own."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv, self.norm = conv_norm(inputs, outputs, 3)
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.norm(self.conv(x)))


def plain() -> nn.Sequential:
    """A convolution, its norm and its activation in a row of their own, and in a module."""
    row = nn.Sequential(*conv_norm(8, 8, 3), nn.ReLU())
    return with_trunk(row, nn.MaxPool2d(2), ConvNormReLU(8, 16))
