"""The younger networks, narrow and with a block or two a stage."""

from typing import Any

from torch import nn

from pocketune.weights import create_network

DEPTHS = {"vit_tiny": 0.1, "deit_tiny": 0.1}
"""Of the others: one block a stage."""


def tiny(name: str, *, classes: int = 3, **options: Any) -> nn.Module:
    """One of `names.YOUNGER`, for images of 32 pixels; a forward pass takes milliseconds."""
    options = {"width": 0.2, "depth": DEPTHS.get(name, 0.1), **options}
    return create_network(name, classes=classes, **options)
