"""ViT-Tiny (Dosovitskiy et al., 2021) and DeiT-Tiny (Touvron et al., 2021), with timm's names.

Both have the same layers; their published weights differ, and the normalization of the images.
"""

import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.networks.architectures.parts import blocks_at, initialize_linear
from pocketune.networks.architectures.transformer import (
    Block,
    initialize_transformer,
    resized_positions,
)
from pocketune.networks.config import NetworkConfig, plain_only
from pocketune.networks.registry import register_network

PATCH = 16
GRID = 14
"""Patches along a side of the images of 224 pixels that the position embeddings are for."""
HEAD = 64
"""Channels of a head of the attention."""


class PatchEmbed(nn.Module):
    """Image patches as tokens: `proj` is a convolution whose stride is its kernel size."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, channels, PATCH, stride=PATCH)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, C, H / 16, W / 16)."""
        y: Tensor = self.proj(x)
        return y


class VisionTransformer(nn.Module):
    """Patches, a class token and position embeddings, `blocks`, `norm`, and `head` on the token.

    The position embeddings are stored for images of 224 pixels and resized to other sizes.

    Args:
        channels: Of a token; a multiple of 64.
        blocks: Their number.
        classes: outputs.
    """

    def __init__(self, channels: int, blocks: int, classes: int) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, channels))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + GRID * GRID, channels))
        self.patch_embed = PatchEmbed(channels)
        self.blocks = nn.Sequential(
            *(Block(channels, channels // HEAD, 4 * channels) for _ in range(blocks))
        )
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.head = nn.Linear(channels, classes)
        initialize_transformer(self)
        if not self.pos_embed.is_meta:
            nn.init.trunc_normal_(self.pos_embed, std=0.02, a=-0.04, b=0.04)
            nn.init.normal_(self.cls_token, std=1e-6)
            initialize_linear(self.head)

    def forward(self, x: Tensor) -> Tensor:
        """Normalized images (N, 3, H, W), H and W multiples of 16 -> logits (N, classes).

        Raises:
            PocketuneError: The images have other sizes.
        """
        height, width = x.shape[2:]
        if height % PATCH or width % PATCH:
            raise PocketuneError(
                f"images of {height} x {width} pixels do not divide into patches of {PATCH}; "
                f"choose a size that is a multiple of {PATCH}"
            )
        patches = self.patch_embed(x)
        place, places = self.pos_embed[:, :1], self.pos_embed[:, 1:]
        places = resized_positions(places, (GRID, GRID), (patches.shape[2], patches.shape[3]))
        tokens = patches.flatten(2).transpose(1, 2) + places
        first = (self.cls_token + place).expand(tokens.shape[0], -1, -1)
        tokens = self.blocks(torch.cat([first, tokens], 1))
        logits: Tensor = self.head(self.norm(tokens)[:, 0])
        return logits


def _tiny(config: NetworkConfig) -> nn.Module:
    """192 channels and 12 blocks at width and depth 1."""
    plain_only(config)
    channels = HEAD * max(1, round(3 * config.width))
    return VisionTransformer(channels, blocks_at(config.depth, 12), config.classes)


@register_network("vit_tiny", has_depth=True, has_stages=False)
def vit_tiny(config: NetworkConfig) -> nn.Module:
    """ViT-Tiny with patches of 16, at any depth, and at widths of whole heads of 64 channels."""
    return _tiny(config)


@register_network("deit_tiny", has_depth=True, has_stages=False)
def deit_tiny(config: NetworkConfig) -> nn.Module:
    """DeiT-Tiny without a distillation token: ViT-Tiny by its layers."""
    return _tiny(config)
