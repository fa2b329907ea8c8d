"""The embeddings of a network in PyTorch."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pocketune.arrays import FloatArray
from pocketune.networks.about import about
from pocketune.networks.anatomy.anatomy import anatomy


@torch.inference_mode()
def embed(network: nn.Module, images: NDArray[np.uint8]) -> FloatArray:
    """Inputs (N, D) of the output layer, which itself does not matter.

    Args:
        network: The network.
        images: uint8 (N, size, size, 3).
    """
    taken: list[FloatArray] = []
    output = network.get_submodule(anatomy(network).classifier[-1])
    hook = output.register_forward_pre_hook(
        lambda _, inputs: taken.append(inputs[0].float().numpy().copy())
    )
    network.eval()
    try:
        network(about(network).normalization(torch.from_numpy(images)))
    finally:
        hook.remove()
    return taken[0]


@torch.inference_mode()
def last_maps(network: nn.Module, images: NDArray[np.uint8]) -> FloatArray:
    """The last feature maps (N, C, h, w) of a backbone, whose decode head does not matter.

    Args:
        network: A network that classifies pixels.
        images: uint8 (N, size, size, 3).
    """
    backbone, normalize = network.get_submodule("backbone"), about(network).normalization
    network.eval()
    last: FloatArray = backbone(normalize(torch.from_numpy(images)))[-1].numpy()
    return last
