"""What vision transformers are made of: attention, perceptron, block, position embeddings."""

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Multi-head self-attention; `qkv` gives queries, keys and values of all heads."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, C) -> the same shape."""
        count, tokens, channels = x.shape
        split = self.qkv(x).reshape(count, tokens, 3, self.heads, channels // self.heads)
        queries, keys, values = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(queries, keys, values)
        y: Tensor = self.proj(mixed.transpose(1, 2).reshape(count, tokens, channels))
        return y


class Mlp(nn.Module):
    """Linear `fc1`, activation, linear `fc2`, token by token."""

    def __init__(self, channels: int, hidden: int, activation: type[nn.Module] = nn.GELU) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, hidden)
        self.act = activation()
        self.fc2 = nn.Linear(hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> the same shape."""
        y: Tensor = self.fc2(self.act(self.fc1(x)))
        return y


class Block(nn.Module):
    """Attention and perceptron, each after a layer norm and with a shortcut (pre-norm)."""

    def __init__(
        self,
        channels: int,
        heads: int,
        hidden: int,
        *,
        activation: type[nn.Module] = nn.GELU,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels, eps=eps)
        self.attn = Attention(channels, heads)
        self.norm2 = nn.LayerNorm(channels, eps=eps)
        self.mlp = Mlp(channels, hidden, activation)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, C) -> the same shape."""
        x = x + self.attn(self.norm1(x))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


def initialize_transformer(network: nn.Module) -> None:
    """Weights of linear layers normal with a deviation of 0.02, cut at two of them; bias 0.

    Parameters without values are left alone.
    """
    if any(parameter.is_meta for parameter in network.parameters()):
        return
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02, a=-0.04, b=0.04)
            nn.init.zeros_(module.bias)


def resized_positions(positions: Tensor, grid: tuple[int, int], wanted: tuple[int, int]) -> Tensor:
    """Position embeddings (1, h * w, C) of a grid (h, w) for another one, bicubic.

    Resizing is linear in the embeddings, so that it is one product with a constant matrix: their
    gradient needs nothing else, and a compiled step has a single matrix product here.
    """
    wanted = int(wanted[0]), int(wanted[1])  # the exporter of PyTorch gives tensors
    if grid == wanted:
        return positions
    matrix = torch.tensor(_resizing(grid, wanted), dtype=positions.dtype, device=positions.device)
    return torch.matmul(matrix, positions)


@lru_cache(maxsize=16)
def _resizing(grid: tuple[int, int], wanted: tuple[int, int]) -> NDArray[np.float64]:
    """Matrix (wanted tokens, tokens) of an antialiased bicubic resize, as timm does it.

    In NumPy, because this also runs where tensors have no values.
    """
    down, across = (_resizing_of_axis(*sizes) for sizes in zip(grid, wanted, strict=True))
    return np.kron(down, across).astype(np.float64, copy=False)


def _resizing_of_axis(size: int, wanted: int) -> NDArray[np.float64]:
    """Weights (wanted, size) of Keys' kernel with a = -1/2, wider where the axis gets shorter."""
    scale = size / wanted
    width = max(scale, 1.0)
    centers = (np.arange(wanted)[:, None] + 0.5) * scale
    x = np.abs(np.arange(size) + 0.5 - centers) / width
    near, far = 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    weights = np.where(x < 1, near, np.where(x < 2, far, 0.0))
    normalized: NDArray[np.float64] = weights / weights.sum(1, keepdims=True)
    return normalized
