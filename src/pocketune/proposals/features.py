"""The score of a network's frozen features on photos, before anything is trained."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from pocketune.arrays import FloatArray
from pocketune.data import ImageDataset, sample
from pocketune.device.head import fit_head
from pocketune.errors import PocketuneError
from pocketune.networks.about import about
from pocketune.networks.anatomy.anatomy import anatomy
from pocketune.tasks import Labels, Score


def score_features(
    network: nn.Module, photos: ImageDataset, size: int, count: int
) -> tuple[Score, int]:
    """Leave-one-out score of the classifier that is computed from embeddings in closed form.

    Args:
        network: The network; its output layer does not matter.
        photos: Labeled photos.
        size: Height and width of the images, in pixels.
        count: About so many photos are taken, evenly spread.

    Returns:
        The score, and of how many photos it is.

    Raises:
        PocketuneError: The photos allow no such score.
    """
    embeddings, labels = _embed(network, photos, size, count)
    head = fit_head(lambda: iter([(embeddings, labels)]), photos.labeled)
    if head is None or head.score is None:
        raise PocketuneError("no classifier can be computed from the features of these photos")
    return head.score, len(labels)


@torch.inference_mode()
def _embed(
    network: nn.Module, photos: ImageDataset, size: int, count: int
) -> tuple[FloatArray, Labels]:
    """Inputs (N, D) of the output layer, and labels (N, ...)."""
    taken: list[FloatArray] = []
    output = network.get_submodule(anatomy(network).classifier[-1])
    hook = output.register_forward_pre_hook(
        lambda _, inputs: taken.append(inputs[0].float().numpy().copy())
    )
    normalize, labels = about(network).normalization, []
    network.eval()
    try:
        for batch in sample(photos, size=size, count=count):
            network(normalize(torch.from_numpy(batch.images)))
            labels.append(batch.labels)
    finally:
        hook.remove()
    if not labels:
        raise PocketuneError("none of the photos can be decoded")
    return np.concatenate(taken), np.concatenate(labels)
