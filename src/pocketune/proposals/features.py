"""The embeddings of a network in PyTorch."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pocketune.arrays import FloatArray
from pocketune.networks import anatomy, normalize
from pocketune.networks.anatomy.output import inputs_of


@torch.inference_mode()
def embed(network: nn.Module, images: NDArray[np.uint8]) -> FloatArray:
    """Inputs (N, D) of the output layer, which itself does not matter.

    Args:
        network: The network.
        images: uint8 (N, size, size, 3).
    """
    network.eval()
    with inputs_of(network, anatomy(network).classifier[-1]) as read:
        network(normalize(network, images))
    embeddings: FloatArray = read[0].float().numpy()
    return embeddings


@torch.inference_mode()
def last_maps(network: nn.Module, images: NDArray[np.uint8]) -> FloatArray:
    """The last feature maps (N, C, h, w) of a backbone, whose decode head does not matter.

    Args:
        network: A network that classifies pixels.
        images: uint8 (N, size, size, 3).
    """
    network.eval()
    last: FloatArray = network.get_submodule("backbone")(normalize(network, images))[-1].numpy()
    return last
