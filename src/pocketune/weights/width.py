"""Find the width of a network by the kernels in a file of its weights."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import torch

from pocketune.errors import PocketuneError
from pocketune.networks.config import NetworkConfig
from pocketune.weights.formats.files import read_state
from pocketune.weights.formats.int8 import INT8, kernel_shapes
from pocketune.weights.saved import build

WIDTHS = (0.2, 0.25, 0.3, 0.35, 0.5, 0.75, 1.0, 1.3, 1.4)
"""The widths that are tried."""

Kernels = Counter[tuple[int, ...]]


def width_of(name: str, path: Path) -> float:
    """The width at which a network has the kernels of a file; 1 if it is none of `WIDTHS`.

    Raises:
        PocketuneError: The file is missing or damaged.
    """
    kernels = kernels_in(path)
    for width in sorted(WIDTHS, key=lambda width: width != 1):
        for fusion in (True, False):
            config = NetworkConfig(name, width=width, feature_fusion=fusion)
            if has_kernels(config, kernels):
                return width
    return 1.0


def has_kernels(config: NetworkConfig, kernels: Kernels) -> bool:
    """Whether a network exists and has these kernels."""
    try:
        return kernels_of(config) == kernels
    except PocketuneError:  # it exists at width 1 only, or with feature fusion only
        return False


def kernels_of(config: NetworkConfig) -> Kernels:
    """Shapes of the kernels of a network's convolutions.

    Raises:
        PocketuneError: There is no such network.
    """
    return _kernels_built(config.name, config.width, config.feature_fusion)


@cache
def _kernels_built(name: str, width: float, feature_fusion: bool) -> Kernels:
    with torch.device("meta"):
        network = build(NetworkConfig(name, width=width, feature_fusion=feature_fusion))
    return Counter(tuple(p.shape) for p in network.parameters() if p.ndim == 4)


def kernels_in(path: Path) -> Kernels:
    """Shapes of the kernels of convolutions in a file, without the classifier's.

    Raises:
        PocketuneError: The file is missing or damaged.
    """
    if path.suffix == INT8:
        shapes = kernel_shapes(path)
    else:
        shapes = {name: tuple(tensor.shape) for name, tensor in read_state(path).items()}
    kernels = (s for name, s in shapes.items() if not name.startswith("classifier."))
    return Counter(shape for shape in kernels if len(shape) == 4)
