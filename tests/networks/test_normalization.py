"""Pixels as a network takes them."""

import torch
from torch import nn

from pocketune.networks import Normalization, normalize
from pocketune.weights import create_network

IMAGES = torch.randint(0, 256, (2, 5, 4, 3), dtype=torch.uint8)


def test_pixels_become_channels_with_mean_and_deviation():
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
    expected = (IMAGES.permute(0, 3, 1, 2) / 255 - torch.tensor(mean).view(3, 1, 1)) / (
        torch.tensor(std).view(3, 1, 1)
    )
    found = Normalization(mean, std)(IMAGES)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_each_network_by_its_own_and_those_of_others_by_imagenet_s():
    network = create_network("mobilenet_v2", width=0.1, normalization=Normalization.HALF)
    assert torch.equal(normalize(network, IMAGES), Normalization.HALF(IMAGES))
    assert torch.equal(normalize(nn.Identity(), IMAGES), Normalization.IMAGENET(IMAGES))


def test_arrays_are_taken_as_well():
    other = nn.Identity()
    assert torch.equal(normalize(other, IMAGES.numpy()), normalize(other, IMAGES))
