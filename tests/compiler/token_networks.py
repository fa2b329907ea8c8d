"""Small networks on tokens: a vision transformer, PyTorch's own encoder layer, shifted windows."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from .networks import CLASSES

WIDTH, HEADS, PATCH, SIZE = 12, 3, 8, 32
GRID = SIZE // PATCH


class Attention(nn.Module):
    """Of all tokens, or of those that a mask of 0 and -inf leaves."""

    def __init__(self, *, masked: bool = False) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        tokens = GRID**2 + 1
        mask = torch.full((tokens, tokens), -torch.inf).triu(1) if masked else None
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, C) -> the same shape."""
        images, tokens, channels = x.shape
        qkv = self.qkv(x).reshape(images, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(*qkv.unbind(0), self.mask)
        projected: Tensor = self.proj(y.transpose(1, 2).reshape(images, tokens, channels))
        return projected


class MergedHeads(Attention):
    """As Segment Anything's: the heads of all images are the batch of one product."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, C) -> the same shape."""
        images, tokens, channels = x.shape
        qkv = self.qkv(x).reshape(images, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.reshape(3, images * HEADS, tokens, -1).unbind(0)
        y = ((q @ k.transpose(-2, -1) * 0.5).softmax(-1) @ v).view(images, HEADS, tokens, -1)
        projected: Tensor = self.proj(y.transpose(1, 2).reshape(images, tokens, channels))
        return projected


class Windows(nn.Module):
    """Attention in windows of 2 x 2 tokens, moved by one, with a table of relative positions."""

    def __init__(self, *, masked: bool = False) -> None:
        super().__init__()
        self.attention, self.masked = Attention(), masked
        self.table = nn.Parameter(torch.randn(9, HEADS) / 4)
        place = torch.stack(torch.meshgrid(torch.arange(2), torch.arange(2), indexing="ij"))
        steps = place.flatten(1)[:, :, None] - place.flatten(1)[:, None] + 1
        self.register_buffer("index", steps[0] * 3 + steps[1])

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, C) -> the same shape."""
        images, tokens, channels = x.shape
        half = GRID // 2
        x = x.reshape(images, GRID, GRID, channels).roll((-1, -1), (1, 2))
        x = x.reshape(images, half, 2, half, 2, channels).permute(0, 1, 3, 2, 4, 5)
        x = x.reshape(-1, 4, channels)
        qkv = self.attention.qkv(x).reshape(-1, 4, 3, HEADS, channels // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.table[self.index.view(-1)].view(4, 4, -1).permute(2, 0, 1)
        scores = q @ k.transpose(-2, -1) * 0.5 + bias.unsqueeze(0)
        if self.masked:  # windows at the border, of every image; as Hugging Face's
            border = torch.ones(half, half).tril().view(-1, 1, 1, 1) * torch.eye(4)
            scores = scores - border.repeat(images, 1, 1, 1) * 9
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, 4, channels)
        y = self.attention.proj(y).reshape(-1, half, half, 2, 2, channels)
        y = y.permute(0, 1, 3, 2, 4, 5).reshape(images, GRID, GRID, channels)
        return y.roll((1, 1), (1, 2)).reshape(images, tokens, channels)


class Block(nn.Module):
    def __init__(self, attention: Callable[[], nn.Module] = Attention) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attn = attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, C) -> the same shape."""
        x = x + self.attn(self.norm1(x))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


def encoder_layer() -> nn.Module:
    """PyTorch's own; without dropout, which its attention draws itself."""
    return nn.TransformerEncoderLayer(
        WIDTH, HEADS, 2 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True
    )


class TokensFirst(nn.Module):
    """PyTorch's encoder layer by default: it reads tokens of shape (T, N, C)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, 0.0)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, C) -> the same shape."""
        y: Tensor = self.layer(x.transpose(0, 1)).transpose(0, 1)
        return y


class Transformer(nn.Module):
    """Patches as tokens; the class token leads to the scores, or the mean of all tokens does."""

    def __init__(self, *blocks: nn.Module, class_token: bool = True) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.cls_token = nn.Parameter(torch.randn(1, 1, WIDTH) / 4) if class_token else None
        self.pos_embed = nn.Parameter(torch.randn(1, GRID**2 + class_token, WIDTH) / 4)
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, SIZE, SIZE) -> (N, CLASSES)."""
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1)
        x = self.norm(self.blocks(x + self.pos_embed))
        logits: Tensor = self.head(x[:, 0] if self.cls_token is not None else x.mean(1))
        return logits


def transformer(seed: int = 0) -> Transformer:
    """Two blocks and a class token."""
    torch.manual_seed(seed)
    return Transformer(Block(), Block())


def masked_transformer(seed: int = 0) -> Transformer:
    """Each token attends to those before it."""
    torch.manual_seed(seed)
    return Transformer(Block(partial(Attention, masked=True)))


def merged_transformer(seed: int = 0) -> Transformer:
    """Images are not in the first dimension: of heads, and of tokens."""
    torch.manual_seed(seed)
    return Transformer(Block(MergedHeads), TokensFirst())


def mixed_transformer(seed: int = 0) -> Transformer:
    """PyTorch's encoder layer and shifted windows; the mean of all tokens leads to the scores."""
    torch.manual_seed(seed)
    return Transformer(encoder_layer(), Block(Windows), class_token=False)


class Unused(Transformer):
    """As CLIP of Hugging Face: a norm behind the blocks that the scores do not depend on."""

    def __init__(self) -> None:
        super().__init__(Block(partial(Windows, masked=True)), Block(), class_token=False)
        self.pooler = nn.AdaptiveAvgPool1d(1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, SIZE, SIZE) -> (N, CLASSES)."""
        tokens = self.blocks(self.patch_embed(x).flatten(2).transpose(1, 2) + self.pos_embed)
        self.norm(tokens[:, 0])
        logits: Tensor = self.head(self.pooler(tokens.transpose(1, 2)).flatten(1))
        return logits


class Mixer(nn.Module):
    """A linear layer over the tokens, above encodings of positions made for each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 6, 8, 8)
        self.encoding = nn.Conv2d(1, 6, 1)
        self.tokens = nn.Linear((SIZE // 8) ** 2, (SIZE // 8) ** 2)
        self.head = nn.Linear(6, 3)

    def forward(self, images: Tensor) -> Tensor:
        """Normalized images (N, 3, SIZE, SIZE) -> logits (N, 3)."""
        maps = self.patches(images)
        positions = torch.ones(len(maps), *maps.shape[2:], device=maps.device).cumsum(1).sin()
        encoded = self.encoding(positions[:, None]).flatten(2).transpose(1, 2)
        x = (maps + positions[:, None]).flatten(2).transpose(1, 2) + encoded
        return self.head(self.tokens(x.transpose(1, 2)).relu().mean(2))


class Distances(nn.Module):
    """Attention by the distances of tokens, which linear layers read again for each image."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 6, 8, 8)
        tokens = (SIZE // 8) ** 2
        self.register_buffer("distances", torch.randn(1, tokens, tokens, 3))
        self.heads = nn.Linear(3, 2)
        self.gates = nn.Linear(tokens, 6)
        self.pairs = nn.Parameter(torch.randn(tokens, tokens, 1))
        self.places = nn.Parameter(torch.randn(2, tokens, 6))
        self.head = nn.Linear(6, 3)

    def forward(self, images: Tensor) -> Tensor:
        """Normalized images (N, 3, SIZE, SIZE) -> logits (N, 3)."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        distances = self.distances.expand(len(x), -1, -1, -1)
        scores = self.heads(distances).permute(0, 3, 1, 2).softmax(-1)
        y = (scores @ x.unsqueeze(1)).mean(1)
        y = y * self.gates(distances[..., 0]).sigmoid()
        pairs = self.pairs.expand(len(x), -1, -1, -1).transpose(-1, -2)
        y = y + (pairs @ x.unsqueeze(1)).squeeze(2)
        places = torch.arange(x.shape[1])
        places = torch.stack([places, places.flip(0)]).expand(len(x), -1, -1)
        y = y + (functional.one_hot(places, x.shape[1]).float() @ self.places).sum(1)
        logits: Tensor = self.head((x + y).mean(1))
        return logits
